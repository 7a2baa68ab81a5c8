"""The paper's search, Algorithm 2: classical differential evolution (DE/rand/1/bin), driven by pymoo.

pymoo's own `DE` differs from the paper in its donors, mutation, bounds and replacement, so the pieces that differ are
subclassed here and a test pins each formula. Members are replaced generation by generation, where Algorithm 2 is
printed as if it replaced them in place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pymoo.algorithms.soo.nonconvex.de import DE, Variant
from pymoo.core.problem import Problem as PymooProblem
from pymoo.core.termination import NoTermination

from arachne.errors import UsageError
from arachne.search.base import Generation, OnGeneration, Problem, Searcher, SearchResult
from arachne.suspects import Suspects
from arachne.values import Array

CROWDED = 10
"""With more suspects than this, a start from the layers' Gaussians destroys the model before a search can begin."""

NEAR = 0.2
"""How far around the original values such a search starts, in deviations of the layer."""


class DifferentialEvolution(Searcher):
    """Population of candidate patches, improved by differences between its members.

    The original weights are not a member: together with the stopping rule they would end the search before anything
    beats doing nothing. They are compared with the best at the end.

    Args:
        population: Number of candidates.
        generations: How many generations at most.
        patience: Stop when the best has not changed for so many generations.
        crossover: CR, the chance of each element to come from the donor.
        scale: F is drawn from this range once per generation.
        clip: Keep trials within twice the layer's range of values (the authors' code, not their text).
        start: `gaussian` (the paper: each weight from its layer's mean and deviation), `near` (around the original
            values), or `auto` (near when there are more than ten suspects).
        keep_original: Hand back the original weights when no candidate is better.
    """

    name = "de"

    def __init__(
        self,
        *,
        population: int = 100,
        generations: int = 100,
        patience: int = 10,
        crossover: float = 0.7,
        scale: tuple[float, float] = (0.5, 1.0),
        clip: bool = True,
        start: str = "auto",
        keep_original: bool = True,
    ) -> None:
        if population < 4:
            raise UsageError(f"a population needs at least 4 members (three donors and a target), got {population}")
        if generations < 0 or patience < 1:
            raise UsageError("generations must be 0 or more and patience 1 or more")
        self.population = population
        self.generations = generations
        self.patience = patience
        self.crossover = crossover
        self.scale = scale
        self.clip = clip
        self.start = start
        self.keep_original = keep_original

    @classmethod
    def faithful(cls, **settings: Any) -> DifferentialEvolution:
        """The paper to the letter: its Gaussians, no clipping, the best candidate handed back as it is."""
        return cls(**{"clip": False, "start": "gaussian", "keep_original": False, **settings})

    def search(
        self,
        problem: Problem,
        *,
        rng: np.random.Generator,
        start: Array | None = None,
        on_generation: OnGeneration | None = None,
    ) -> SearchResult:
        suspects, evaluator = problem.suspects, problem.evaluator
        original = evaluator.evaluate(suspects.values[None])[0]
        first = self.first_population(suspects, rng=rng) if start is None else start
        variant = PaperVariant(
            self.crossover, self.scale, lambda trials: problem.stored(self._clipped(suspects, trials))
        )
        algorithm = PaperDE(pop_size=len(first), sampling=problem.stored(first), variant=variant)
        algorithm.setup(PymooProblem(n_var=len(suspects), n_obj=1), termination=NoTermination(), random_state=rng)
        algorithm.random_state = rng

        history: list[Generation] = []
        lowest, unchanged, evaluations, stopped = 0, 0, 0, "no more were asked for"
        for number in range(self.generations + 1):
            trials = algorithm.ask()
            deficits = evaluator.challenge(trials.get("X"), algorithm.pop.get("X"), algorithm.totals)
            replaced = algorithm.told(trials, deficits)
            evaluations += len(trials)
            best, cost = algorithm.best
            same = bool(history) and int(cost.sum()) == lowest
            lowest = int(cost.sum())
            repaired, broken = (history[-1].repaired, history[-1].broken) if same else evaluator.outcome(best)
            history.append(Generation(number, problem.fitness(cost), repaired, broken, evaluations, replaced))
            if on_generation is not None:
                on_generation(history[-1])
            unchanged = unchanged + 1 if same else 0
            if unchanged >= self.patience:
                stopped = f"best unchanged for {self.patience} generations"
                break
        best, cost = algorithm.best
        if self.keep_original and int(cost.sum()) >= int(original.sum()):
            best, cost, stopped = suspects.values, original, f"{stopped}; nothing beat the original weights"
        return SearchResult(
            addresses=suspects.addresses,
            values=best,
            deficits=cost,
            original=original,
            fitness=problem.fitness(cost),
            original_fitness=problem.fitness(original),
            history=tuple(history),
            stopped=stopped,
        )

    def first_population(self, suspects: Suspects, *, rng: np.random.Generator) -> Array:
        """Initial candidates, `(population, k)`."""
        noise = rng.standard_normal((self.population, len(suspects)))
        near = self.start == "near" or (self.start == "auto" and len(suspects) > CROWDED)
        if near:
            return suspects.values + NEAR * suspects.deviations * noise
        return suspects.means + suspects.deviations * noise

    def _clipped(self, suspects: Suspects, trials: Array) -> Array:
        if not self.clip:
            return trials
        low = np.where(suspects.lowest < 0, suspects.lowest * 2, suspects.lowest / 2)
        high = np.where(suspects.highest > 0, suspects.highest * 2, suspects.highest / 2)
        return np.clip(trials, low, high)


class Members:
    """Candidates as one array `(n, k)`: pymoo would make an object of each, which takes longer than judging it."""

    def __init__(self, values: Array) -> None:
        self.X = values

    def __len__(self) -> int:
        return len(self.X)

    def __getitem__(self, which: Any) -> Members:
        return Members(self.X[which])

    def get(self, name: str) -> Array:
        """The candidates' values, under the name pymoo has for them."""
        if name != "X":
            raise KeyError(name)
        return self.X

    def set(self, name: str, value: Any) -> None:
        """Nothing: pymoo marks members with the number of their generation, and nobody asks for it."""


class PaperVariant(Variant):  # type: ignore[misc]  # pymoo has no types
    """Trials as in Algorithm 2: rand/1 donors, binomial crossover with one forced element, one F per generation."""

    def __init__(self, crossover: float, scale: tuple[float, float], finish: Any) -> None:
        super().__init__()
        self._crossover = crossover
        self._scale = scale
        self._finish = finish

    def do(self, problem: Any, pop: Any, n_offsprings: int, algorithm: Any = None, **kwargs: Any) -> Any:
        """One trial for every member of the population."""
        rng = algorithm.random_state
        members = pop.get("X")
        scale = rng.uniform(*self._scale)
        first, left, right = distinct_others(len(members), rng=rng)
        # Algorithm 2 prints a sum here; Eq. 1 (and differential evolution itself) has the difference.
        donors = members[first] + scale * (members[left] - members[right])
        chosen = rng.random(members.shape) <= self._crossover
        chosen[np.arange(len(members)), rng.integers(members.shape[1], size=len(members))] = True
        return Members(self._finish(np.where(chosen, donors, members)))


class PaperDE(DE):  # type: ignore[misc]  # pymoo has no types
    """pymoo's DE that compares whole-number deficits, and replaces a member when its trial is at least as good."""

    pop: Any
    deficits: Array | None = None
    """Of the members, int64 `(population, terms)`."""

    @property
    def totals(self) -> Array | None:
        """What a trial must not exceed to replace its parent, int64 `(population,)`; None before the first ones."""
        return None if self.deficits is None else self.deficits.sum(axis=1)

    @property
    def best(self) -> tuple[Array, Array]:
        """Values and deficits of the best member; the first of equals."""
        if self.deficits is None:
            raise ValueError("nothing was evaluated yet")
        number = int(np.argmin(self.deficits.sum(axis=1)))
        values: Array = self.pop[number].X
        return values, self.deficits[number]

    def told(self, trials: Any, deficits: Array) -> int:
        """Take the deficits of the trials asked for; returns how many of them replaced their parents."""
        self.replaced = len(trials)
        self.tell(infills=trials, deficits=deficits)
        return self.replaced

    def _initialize_infill(self) -> Any:
        return Members(self.initialization.sampling)

    def _initialize_advance(self, infills: Any = None, *, deficits: Array, **kwargs: Any) -> None:
        self.deficits = deficits

    def _infill(self) -> Any:
        return self.mating.do(self.problem, self.pop, self.n_offsprings, algorithm=self)

    def _advance(self, infills: Any = None, *, deficits: Array, **kwargs: Any) -> None:
        if self.deficits is None:
            raise ValueError("the first population was not evaluated")
        # Greater or equal fitness wins, as in the paper: drifting over plateaus is what keeps the search alive.
        wins = deficits.sum(axis=1) <= self.deficits.sum(axis=1)
        self.pop = Members(np.where(wins[:, None], infills.X, self.pop.X))
        self.deficits = np.where(wins[:, None], deficits, self.deficits)
        self.replaced = int(wins.sum())

    def _set_optimum(self, **kwargs: Any) -> None:
        self.opt = self.pop[[int(np.argmin(self.deficits.sum(axis=1)))]] if self.deficits is not None else self.pop


def distinct_others(n: int, *, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """For every member three others, all different from each other and from it, each `(n,)`."""
    keys = rng.random((n, n))
    np.fill_diagonal(keys, np.inf)
    first, left, right = np.argsort(keys, axis=1)[:, :3].T
    return first, left, right
