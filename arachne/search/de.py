"""The paper's search, Algorithm 2: classical differential evolution (DE/rand/1/bin), driven by pymoo."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from arachne.errors import UsageError
from arachne.options import option
from arachne.search.base import Problem, Searcher
from arachne.search.state import Candidate, Generation, SearchResult, SearchState
from arachne.suspects import Suspects
from arachne.values import Array

CROWDED = 10
"""With more suspects than this, a start from the layers' Gaussians destroys the model before a search can begin."""

NEAR = 0.2
"""How far around the original values such a search starts, in deviations of the layer."""


@dataclass(frozen=True, kw_only=True)
class DifferentialEvolution(Searcher):
    """Population of candidate patches, improved by differences between its members.

    The original weights are not a member: together with the stopping rule they would end the search before anything
    beats doing nothing. They are compared with the best at the end.

    Attributes:
        population: Number of candidates; four at least, a member and its three donors.
        generations: How many generations at most.
        patience: Stop when the best has not changed for this many generations.
        crossover: CR, the chance of each element to come from the donor.
        scale: F is drawn from this range once per generation.
        clip: Keep trials within twice the layer's range of values (the authors' code, not their text).
        start: `gaussian` (the paper: each weight from its layer's mean and deviation), `near` (around the original
            values), or `auto` (near when there are more than ten suspects).
        keep_original: Hand back the original weights when no candidate is better.
    """

    name = "de"

    population: int = option(100, "Candidates at a time.", least=4)
    generations: int = option(100, "How long to search at most.", least=0)
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
        """The first population, evaluated.

        Args:
            problem: What to repair.
            rng: Where all randomness comes from.
            start: Candidates to start from, `(population, k)`, instead of those `first_population` draws.
        """
        suspects, evaluator = problem.suspects, problem.evaluator
        original = evaluator.evaluate(suspects.values[None])[0]
        members = problem.stored(self.first_population(suspects, rng=rng) if start is None else start)
        deficits = evaluator.challenge(members, members, None)
        arrays = {"members": members, "deficits": deficits, "original": original}
        lead = best(deficits)
        outcome = evaluator.outcome(members[lead])[:2]
        at = Generation(0, problem.fitness(deficits[lead]), *outcome, len(members), len(members))
        return SearchState(arrays, {"unchanged": 0}, (at,), self._stopped(0, 0))

    def step(self, problem: Problem, state: SearchState, *, rng: np.random.Generator) -> SearchState:
        # Imported here and not above: pymoo is slow to load, and the class alone is asked for its options.
        from arachne.search.evolution import PaperDE, PaperVariant

        parents, costs, last = state.arrays["members"], state.arrays["deficits"], state.history[-1]
        variant = PaperVariant(self.crossover, self.scale, partial(self._finished, problem))
        algorithm = PaperDE(parents, costs, variant, rng=rng)
        trials = algorithm.ask()
        replaced = algorithm.told(trials, problem.evaluator.challenge(trials.X, parents, costs.sum(axis=1)))
        members, deficits = algorithm.pop.X, algorithm.deficits
        lead = best(deficits)
        same = int(deficits[lead].sum()) == int(costs[best(costs)].sum())
        outcome = (last.repaired, last.broken) if same else problem.evaluator.outcome(members[lead])[:2]
        number, evaluations = last.number + 1, last.evaluations + len(trials)
        at = Generation(number, problem.fitness(deficits[lead]), *outcome, evaluations, replaced)
        unchanged = int(state.values["unchanged"] or 0) + 1 if same else 0
        arrays = {**state.arrays, "members": members, "deficits": deficits}
        return SearchState(arrays, {"unchanged": unchanged}, (*state.history, at), self._stopped(number, unchanged))

    def result(self, problem: Problem, state: SearchState) -> SearchResult:
        members, deficits, original = (state.arrays[name] for name in ("members", "deficits", "original"))
        lead = best(deficits)
        found = Candidate(problem.suspects.addresses, members[lead], deficits[lead])
        if self.keep_original and int(deficits[lead].sum()) >= int(original.sum()):
            state = replace(state, stopped=f"{state.stopped}; nothing beat the original weights")
            found = Candidate(problem.suspects.addresses, problem.suspects.values, original)
        return problem.result(state, found, original=original)

    def _stopped(self, number: int, unchanged: int) -> str | None:
        """Why the search ends after this generation, if it does."""
        if unchanged >= self.patience:
            return f"best unchanged for {self.patience} generations"
        return "no more were asked for" if number >= self.generations else None

    def first_population(self, suspects: Suspects, *, rng: np.random.Generator) -> Array:
        """Initial candidates, `(population, k)`."""
        noise = rng.standard_normal((self.population, len(suspects)))
        near = self.start == "near" or (self.start == "auto" and len(suspects) > CROWDED)
        if near:
            return suspects.values + NEAR * suspects.deviations * noise
        return suspects.means + suspects.deviations * noise

    def _finished(self, problem: Problem, trials: Array) -> Array:
        """Trials `(n, k)` within bounds and as the model stores them."""
        return problem.stored(self._clipped(problem.suspects, trials) if self.clip else trials)

    def _clipped(self, suspects: Suspects, trials: Array) -> Array:
        low = np.where(suspects.lowest < 0, suspects.lowest * 2, suspects.lowest / 2)
        high = np.where(suspects.highest > 0, suspects.highest * 2, suspects.highest / 2)
        return np.clip(trials, low, high)


def best(deficits: Array) -> int:
    """Which of some candidates costs least, the first of equals, from their deficits `(n, terms)`."""
    return int(np.argmin(deficits.sum(axis=1)))
