"""Multi-objective search by NSGA-II: inputs repaired, inputs broken, size of the change, and fairness to groups.

The idea is ARJA's (Yuan and Banzhaf, 2018), which breeds patches of programs with NSGA-II so that more tests pass and
less code changes. Here patches of weights repair more, break less and move less.

The first population consists of margin search's candidates and blends of them. Use this search to see the trade-offs:
on three planted faults it repaired about as much as margin search within 0.5 % of damage (.80, .36 and .96 of held-out
negatives; margin search .82, .38 and .90 with as many inputs set aside) in three times the time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from arachne.model.values import Array
from arachne.plugins.options import option
from arachne.search.base import Searcher
from arachne.search.margin import MarginSearch
from arachne.search.problem import Problem
from arachne.search.state import Candidate, Generation, SearchResult, SearchState

MAX_MOVE = 1.5
"""How far a weight may move, as a multiple of its largest move in any of the margin search's candidates."""


@dataclass(frozen=True, kw_only=True)
class Front(Searcher):
    """NSGA-II over the suspects, starting from a margin search's candidates.

    Its candidates are fitted to all inputs they are counted on, so inputs are set aside for selecting among them.

    Attributes:
        population: The number of candidates.
        generations: The number of generations after the margin search.
    """

    name = "front"

    LOCALISER = "contrast"
    USES_ALPHA = False

    population: int = option(40, "Candidates at a time.", least=4)
    generations: int = option(30, "How long to search at most; 0: the first population alone.", least=0)

    @property
    def most_generations(self) -> int:
        return MarginSearch().most_generations + self.generations

    def begin(self, problem: Problem, *, rng: np.random.Generator) -> SearchState:
        return MarginSearch().begin(problem, rng=rng)

    def step(self, problem: Problem, state: SearchState, *, rng: np.random.Generator) -> SearchState:
        """Take a step of the margin search; once that has ended, breed a generation."""
        if "members" in state.arrays:
            return self._next_population(problem, state, rng=rng)
        state = MarginSearch().step(problem, state, rng=rng)
        return state if state.stopped is None else self._populate(problem, state, rng=rng)

    def result(self, problem: Problem, state: SearchState) -> SearchResult:
        if "members" not in state.arrays:
            return MarginSearch().result(problem, state)
        suspects, goals = problem.suspects, state.arrays["goals"]
        original = problem.fitness_inputs.deficits_by_term(problem.original_scores)
        front = [
            problem.score(Candidate(suspects, _values(problem, state, state.arrays["members"][number])))
            for number in sorted(not_dominated(goals), key=lambda number: goals[number, 1])
            if goals[number, 0] < 0
        ]
        nothing = Candidate(suspects, suspects.values, original)
        totals = [int(one.deficits.sum()) for one in front if one.deficits is not None]
        return problem.result(
            state, *(front or [nothing]), original=original, chosen=int(np.argmin(totals)) if totals else 0
        )

    def _populate(self, problem: Problem, state: SearchState, *, rng: np.random.Generator) -> SearchState:
        """Make the first population: candidates spread evenly over the margin search's front, and blends of two."""
        scale = state.arrays["scale"]
        found = MarginSearch().result(problem, state).front
        seeds = np.array([one.values - problem.suspects.values for one in found])
        seeds = np.divide(seeds, scale, out=np.zeros_like(seeds), where=scale > 0)
        if not seeds.any():
            return replace(state, stopped="margin search found nothing to start from")
        seeds = seeds[np.unique(np.linspace(0, len(seeds) - 1, self.population).astype(np.int64))]
        pairs = rng.integers(len(seeds), size=(2, self.population - len(seeds)))
        shares = rng.random((pairs.shape[1], 1))
        members = np.concatenate([seeds, shares * seeds[pairs[0]] + (1 - shares) * seeds[pairs[1]]])
        arrays = {"scale": scale, "members": members, "limits": MAX_MOVE * np.abs(seeds).max(axis=0)}
        state = SearchState(arrays, {"margin": state.history[-1].number}, state.history)
        return self._with_population(problem, state, members, _goals(problem, state, members))

    def _next_population(self, problem: Problem, state: SearchState, *, rng: np.random.Generator) -> SearchState:
        # Imported here and not above: pymoo is slow to load, and the class alone is asked for its options.
        from arachne.search.nsga2 import next_generation

        free = np.flatnonzero(state.arrays["limits"])
        members, goals = state.arrays["members"], state.arrays["goals"]

        def evaluate(some: Array) -> Array:
            whole = np.zeros((len(some), members.shape[1]))
            whole[:, free] = some
            return _goals(problem, state, whole)

        bred, goals = next_generation(members[:, free], goals, state.arrays["limits"][free], evaluate, rng=rng)
        new = np.zeros((len(bred), members.shape[1]))
        new[:, free] = bred
        return self._with_population(problem, state, new, goals)

    def _with_population(self, problem: Problem, state: SearchState, members: Array, goals: Array) -> SearchState:
        """Return the state with a new population; its last generation describes the member with the best fitness."""
        last, inputs = state.history[-1], problem.fitness_inputs
        gained = -goals[:, 0] - goals[:, 1]
        best = int(np.argmax(gained))
        fitness = float(inputs.weights @ problem.originally_right + gained[best])
        right = _right(problem, state, members[best])
        repaired = int((right & inputs.of_kind("negative")).sum())
        broken = int((~right & inputs.of_kind("positive")).sum())
        at = Generation(last.number + 1, fitness, repaired, broken, last.evaluations + len(members), 0)
        done = at.number - 1 - int(state.values["margin"] or 0) >= self.generations
        arrays = {**state.arrays, "members": members, "goals": goals}
        return SearchState(arrays, state.values, (*state.history, at), "no more were asked for" if done else None)


def not_dominated(goals: Array) -> list[int]:
    """Return the rows of goals `(n, goals)`, smaller is better, that no other row dominates."""
    no_worse = (goals[:, None] <= goals[None]).all(axis=2)
    better = (goals[:, None] < goals[None]).any(axis=2)
    return np.flatnonzero(~(no_worse & better).any(axis=0)).tolist()


def _values(problem: Problem, state: SearchState, member: Array) -> Array:
    return problem.round_to_storage(problem.suspects.values + member * state.arrays["scale"])


def _right(problem: Problem, state: SearchState, member: Array) -> Array:
    """Return which fitness inputs a member gets right, bool `(n,)`."""
    scores = problem.scorer.scores(_values(problem, state, member), np.arange(len(problem.fitness_inputs)))
    return problem.fitness_inputs.correct(scores)


def _goals(problem: Problem, state: SearchState, members: Array) -> Array:
    """Return each member's goals `(n, 3)`: minus the weight it repairs, the weight it breaks, and its length.

    With a fairness objective, its cost is a fourth goal.
    """
    weights, negative = problem.fitness_inputs.weights, problem.fitness_inputs.of_kind("negative")
    right = np.array([_right(problem, state, member) for member in members])
    repaired, broken = weights @ (right & negative).T, weights @ (~right & ~negative).T
    goals = [np.negative(repaired), broken, np.linalg.norm(members, axis=1)]
    return np.stack([*goals, problem.objective_costs(right)] if problem.has_objective else goals, axis=1)
