"""The paper's search, Algorithm 2: classical differential evolution (DE/rand/1/bin), driven by pymoo."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from arachne.errors import UsageError
from arachne.model.values import Array
from arachne.plugins.options import option
from arachne.search.base import Searcher
from arachne.search.problem import Problem
from arachne.search.state import Candidate, Generation, SearchResult, SearchState
from arachne.weights.selection import Selection

MAX_GAUSSIAN_SUSPECTS = 10
"""With more suspects than this, a start from the layers' Gaussians destroys the model, and the search finds nothing."""

NEAR_DEVIATIONS = 0.2
"""How far around the original values a `near` start draws, in standard deviations of the layer."""

ARRAYS = ("members", "deficits", "original")
"""The arrays of a state; a step takes them all, so that a stored state without one of them is refused at once."""


@dataclass(frozen=True, kw_only=True)
class DifferentialEvolution(Searcher):
    """Differential evolution: a population of candidate patches, improved by differences between its members.

    The original weights are not a member, because with them the stopping rule would end the search before a candidate
    beats them. They are compared with the best member at the end.

    Attributes:
        population: The number of candidates; at least four, a member and its three donors.
        generations: The largest number of generations.
        patience: Stop when the best has not changed for this many generations.
        crossover: CR, the probability that an element comes from the donor.
        scale: The range from which F is drawn once per generation.
        clip: Keep trials within twice the layer's range of values (the authors' code, not their text).
        start: `gaussian` (the paper: each weight from its layer's mean and deviation), `near` (around the original
            values), or `auto` (near when there are more than ten suspects).
        keep_original: Return the original weights when no candidate is better.
    """

    name = "de"

    population: int = option(100, "Candidates at a time.", least=4)
    generations: int = option(100, "How long to search at most; 0: the first population alone.", least=0)
    patience: int = option(10, "Stop after this many generations without gain.", least=1)
    crossover: float = option(0.7, "Chance of each value to come from the donor.", least=0, most=1)
    scale: tuple[float, float] = option((0.5, 1.0), "Range of the factor of differences.", least=0)
    clip: bool = option(True, "Keep values within twice the layer's range.", paper=False)
    start: str = option("auto", "Where the search starts.", choices=("auto", "gaussian", "near"), paper="gaussian")
    keep_original: bool = option(True, "Change nothing when no candidate is better.", paper=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale[0] > self.scale[1]:
            raise UsageError(
                f"scale must be a smaller and a larger number, got {self.scale[0]:g} and {self.scale[1]:g}"
            )

    @property
    def most_generations(self) -> int:
        return self.generations

    def begin(self, problem: Problem, *, rng: np.random.Generator, start: Array | None = None) -> SearchState:
        """Draw and evaluate the first population.

        Args:
            problem: What to repair.
            rng: Where all randomness comes from.
            start: The first population `(population, k)`; drawn by `first_population` when None.
        """
        suspects, evaluator = problem.suspects, problem.evaluator
        original = evaluator.evaluate(suspects.values[None])[0]
        members = problem.round_to_storage(self.first_population(suspects, rng=rng) if start is None else start)
        deficits = evaluator.compare_with_parents(members, members, None)
        arrays = dict(zip(ARRAYS, (members, deficits, original), strict=True))
        lead = best(deficits)
        outcome = evaluator.outcome(members[lead])[:2]
        at = Generation(0, problem.fitness(deficits[lead]), *outcome, len(members), len(members))
        return SearchState(arrays, {"unchanged": 0}, (at,), self._stop_reason(0, 0))

    def step(self, problem: Problem, state: SearchState, *, rng: np.random.Generator) -> SearchState:
        # Imported here and not above: pymoo is slow to load, and the class alone is asked for its options.
        from arachne.search.de_pymoo import PaperDE, PaperVariant

        parents, costs, original = (state.arrays[name] for name in ARRAYS)
        last = state.history[-1]
        variant = PaperVariant(self.crossover, self.scale, partial(self._finish, problem))
        algorithm = PaperDE(parents, costs, variant, rng=rng)
        trials = algorithm.ask()
        replaced = algorithm.tell_deficits(
            trials, problem.evaluator.compare_with_parents(trials.X, parents, costs.sum(axis=1))
        )
        members, deficits = algorithm.pop.X, algorithm.deficits
        lead = best(deficits)
        same = int(deficits[lead].sum()) == int(costs[best(costs)].sum())
        outcome = (last.repaired, last.broken) if same else problem.evaluator.outcome(members[lead])[:2]
        number, evaluations = last.number + 1, last.evaluations + len(trials)
        at = Generation(number, problem.fitness(deficits[lead]), *outcome, evaluations, replaced)
        unchanged = int(state.values["unchanged"] or 0) + 1 if same else 0
        arrays = dict(zip(ARRAYS, (members, deficits, original), strict=True))
        return SearchState(arrays, {"unchanged": unchanged}, (*state.history, at), self._stop_reason(number, unchanged))

    def result(self, problem: Problem, state: SearchState) -> SearchResult:
        members, deficits, original = (state.arrays[name] for name in ARRAYS)
        lead = best(deficits)
        found = Candidate(problem.suspects, members[lead], deficits[lead])
        if self.keep_original and int(deficits[lead].sum()) >= int(original.sum()):
            state = replace(state, stopped=f"{state.stopped}; nothing beat the original weights")
            found = Candidate(problem.suspects, problem.suspects.values, original)
        return problem.result(state, found, original=original)

    def _stop_reason(self, number: int, unchanged: int) -> str | None:
        """Say why the search ends after this generation; None if it goes on."""
        if unchanged >= self.patience:
            return f"best unchanged for {self.patience} generations"
        return "no more were asked for" if number >= self.generations else None

    def first_population(self, suspects: Selection, *, rng: np.random.Generator) -> Array:
        """Draw the first candidates, `(population, k)`."""
        noise = rng.standard_normal((self.population, len(suspects)))
        near = self.start == "near" or (self.start == "auto" and len(suspects) > MAX_GAUSSIAN_SUSPECTS)
        if near:
            return suspects.values + NEAR_DEVIATIONS * suspects.deviations * noise
        return suspects.means + suspects.deviations * noise

    def _finish(self, problem: Problem, trials: Array) -> Array:
        """Clip trials `(n, k)` and round them to what the model stores."""
        return problem.round_to_storage(self._clip(problem.suspects, trials) if self.clip else trials)

    def _clip(self, suspects: Selection, trials: Array) -> Array:
        low = np.where(suspects.lowest < 0, suspects.lowest * 2, suspects.lowest / 2)
        high = np.where(suspects.highest > 0, suspects.highest * 2, suspects.highest / 2)
        return np.clip(trials, low, high)


def best(deficits: Array) -> int:
    """Return the index of the candidate with the lowest total deficit `(n, terms)`; the first of equals."""
    return int(np.argmin(deficits.sum(axis=1)))
