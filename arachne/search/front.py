"""A front in more than two goals, by NSGA-II: repaired, broken, how far weights move, and how fair it is to groups.

Several objectives at once are the idea of ARJA (Yuan and Banzhaf, 2018): by NSGA-II it breeds patches of programs that
pass more tests and change less. Here patches of weights repair more, break less and move less.

It starts from what keep finds, its candidates and blends of them, and looks for what lies between and beyond. For
whoever wants to see the trade-offs: on three planted faults it repaired about as much as keep did within 0.5 % of
damage (.80, .36 and .96 of held-out negatives, keep .82, .38 and .90 with as many inputs kept back) in three times the
time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from arachne.options import option
from arachne.search.base import Problem, Searcher
from arachne.search.keep import Keep
from arachne.search.state import Candidate, Generation, SearchResult, SearchState
from arachne.values import Array

ROOM = 1.5
"""How far a weight may move, in the farthest that any of keep's candidates moves it."""


@dataclass(frozen=True, kw_only=True)
class Front(Searcher):
    """NSGA-II over the weights that keep changes, from keep's candidates on.

    Its candidates were fitted to all inputs they are counted on, so inputs are kept for choosing between them.

    Attributes:
        population: Number of candidates.
        generations: How many generations follow on keep's search.
    """

    name = "front"

    LOCALISER = "contrast"

    population: int = option(40, "Candidates at a time.", least=4)
    generations: int = option(30, "How long to search at most.", least=0)

    @property
    def most_generations(self) -> int:
        return Keep().most_generations + self.generations

    def begin(self, problem: Problem, *, rng: np.random.Generator) -> SearchState:
        return Keep().begin(problem, rng=rng)

    def step(self, problem: Problem, state: SearchState, *, rng: np.random.Generator) -> SearchState:
        """A step of keep's search, and when that has ended, a generation."""
        if "members" in state.arrays:
            return self._bred(problem, state, rng=rng)
        state = Keep().step(problem, state, rng=rng)
        return state if state.stopped is None else self._populated(problem, state, rng=rng)

    def result(self, problem: Problem, state: SearchState) -> SearchResult:
        if "members" not in state.arrays:
            return Keep().result(problem, state)
        suspects, goals = problem.suspects, state.arrays["goals"]
        original = problem.fitness_inputs.deficits_by_term(problem.original_scores)
        front = [
            problem.tuned(Candidate(suspects.addresses, _values(problem, state, state.arrays["members"][number])))
            for number in sorted(not_dominated(goals), key=lambda number: goals[number, 1])
            if goals[number, 0] < 0
        ]
        nothing = Candidate(suspects.addresses, suspects.values, original)
        totals = [int(one.deficits.sum()) for one in front if one.deficits is not None]
        return problem.result(
            state, *(front or [nothing]), original=original, chosen=int(np.argmin(totals)) if totals else 0
        )

    def _populated(self, problem: Problem, state: SearchState, *, rng: np.random.Generator) -> SearchState:
        """The first population: keep's candidates, or those spread evenly over its front, and blends of two."""
        scale = state.arrays["scale"]
        found = Keep().result(problem, state).front
        seeds = np.array([one.values - problem.suspects.values for one in found])
        seeds = np.divide(seeds, scale, out=np.zeros_like(seeds), where=scale > 0)
        if not seeds.any():
            return replace(state, stopped="keep found nothing to start from")
        seeds = seeds[np.unique(np.linspace(0, len(seeds) - 1, self.population).astype(np.int64))]
        pairs = rng.integers(len(seeds), size=(2, self.population - len(seeds)))
        shares = rng.random((pairs.shape[1], 1))
        members = np.concatenate([seeds, shares * seeds[pairs[0]] + (1 - shares) * seeds[pairs[1]]])
        arrays = {"scale": scale, "members": members, "limits": ROOM * np.abs(seeds).max(axis=0)}
        state = SearchState(arrays, {"keep": state.history[-1].number}, state.history)
        return self._with(problem, state, members, _goals(problem, state, members))

    def _bred(self, problem: Problem, state: SearchState, *, rng: np.random.Generator) -> SearchState:
        # Imported here and not above: pymoo is slow to load, and the class alone is asked for its options.
        from arachne.search.sorting import next_generation

        free = np.flatnonzero(state.arrays["limits"])
        members, goals = state.arrays["members"], state.arrays["goals"]

        def evaluate(some: Array) -> Array:
            whole = np.zeros((len(some), members.shape[1]))
            whole[:, free] = some
            return _goals(problem, state, whole)

        bred, goals = next_generation(members[:, free], goals, state.arrays["limits"][free], evaluate, rng=rng)
        new = np.zeros((len(bred), members.shape[1]))
        new[:, free] = bred
        return self._with(problem, state, new, goals)

    def _with(self, problem: Problem, state: SearchState, members: Array, goals: Array) -> SearchState:
        """The state with a new population, whose best member by the fitness is told."""
        last, inputs = state.history[-1], problem.fitness_inputs
        gained = -goals[:, 0] - goals[:, 1]
        best = int(np.argmax(gained))
        fitness = float(inputs.weights @ problem.originally_right + gained[best])
        right = _right(problem, state, members[best])
        repaired = int((right & inputs.of_kind("negative")).sum())
        broken = int((~right & inputs.of_kind("positive")).sum())
        at = Generation(last.number + 1, fitness, repaired, broken, last.evaluations + len(members), 0)
        done = at.number - 1 - int(state.values["keep"] or 0) >= self.generations
        arrays = {**state.arrays, "members": members, "goals": goals}
        return SearchState(arrays, state.values, (*state.history, at), "no more were asked for" if done else None)


def not_dominated(goals: Array) -> list[int]:
    """Rows of goals `(n, goals)`, smaller is better, that no other row beats in one and equals in the rest."""
    no_worse = (goals[:, None] <= goals[None]).all(axis=2)
    better = (goals[:, None] < goals[None]).any(axis=2)
    return np.flatnonzero(~(no_worse & better).any(axis=0)).tolist()


def _values(problem: Problem, state: SearchState, member: Array) -> Array:
    return problem.stored(problem.suspects.values + member * state.arrays["scale"])


def _right(problem: Problem, state: SearchState, member: Array) -> Array:
    """Which fitness inputs are right with a member, bool `(n,)`."""
    scores = problem.tunable.scores(_values(problem, state, member), np.arange(len(problem.fitness_inputs)))
    return np.asarray(np.argmax(scores, axis=1) == problem.fitness_inputs.labels)


def _goals(problem: Problem, state: SearchState, members: Array) -> Array:
    """Minus the weight of what each member repairs, the weight of what it breaks, and its length, `(n, 3)`.

    Where something is to become fairer between groups, how far it is from that is a fourth goal.
    """
    weights, negative = problem.fitness_inputs.weights, problem.fitness_inputs.of_kind("negative")
    right = np.array([_right(problem, state, member) for member in members])
    repaired, broken = weights @ (right & negative).T, weights @ (~right & ~negative).T
    goals = [np.negative(repaired), broken, np.linalg.norm(members, axis=1)]
    return np.stack([*goals, problem.costs(right)] if problem.fair else goals, axis=1)
