"""pymoo's part of the paper's search: making one generation out of another.

pymoo's own `DE` differs from the paper in its donors, mutation, bounds and replacement, so the pieces that differ are
subclassed here and a test pins each formula. Members are replaced generation by generation, where Algorithm 2 is
printed as if it replaced them in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from pymoo.algorithms.soo.nonconvex.de import DE, Variant
from pymoo.core.problem import Problem as PymooProblem
from pymoo.core.termination import NoTermination

from arachne.values import Array


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
        """Does nothing: pymoo would record each member's generation, which is never read here."""


class PaperVariant(Variant):  # type: ignore[misc]  # pymoo has no types
    """Trials as in Algorithm 2: rand/1 donors, binomial crossover with one forced element, one F per generation.

    Args:
        crossover: CR, the chance of each element to come from the donor.
        scale: The range F is drawn from.
        finish: Applied last to the trials `(n, k)`; rounding, for example.
    """

    def __init__(self, crossover: float, scale: tuple[float, float], finish: Callable[[Array], Array]) -> None:
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
    """pymoo's DE that compares whole-number deficits, and replaces a member when its trial is at least as good.

    It starts from an evaluated population, so a new one can be made for every generation.

    Args:
        members: The population, `(n, k)`.
        deficits: What its members cost, int64 `(n, terms)`.
        variant: How trials are made.
        rng: Where all randomness comes from.
    """

    pop: Any

    def __init__(self, members: Array, deficits: Array, variant: PaperVariant, *, rng: np.random.Generator) -> None:
        super().__init__(pop_size=len(members), variant=variant, output=None)  # pymoo's is copied at every setup
        self.setup(PymooProblem(n_var=members.shape[1], n_obj=1), termination=NoTermination())
        self.random_state = rng
        self.pop, self.deficits = Members(members), deficits
        self.n_iter, self.is_initialized = 1, True

    def told(self, trials: Any, deficits: Array) -> int:
        """Take the deficits of the trials asked for; returns how many of them replaced their parents."""
        self.tell(infills=trials, deficits=deficits)
        return self.replaced

    def _infill(self) -> Any:
        return self.mating.do(self.problem, self.pop, self.n_offsprings, algorithm=self)

    def _advance(self, infills: Any = None, *, deficits: Array, **kwargs: Any) -> None:
        # Greater or equal fitness wins, as in the paper: drifting over plateaus is what keeps the search alive.
        wins = deficits.sum(axis=1) <= self.deficits.sum(axis=1)
        self.pop = Members(np.where(wins[:, None], infills.X, self.pop.X))
        self.deficits = np.where(wins[:, None], deficits, self.deficits)
        self.replaced = int(wins.sum())

    def _set_optimum(self, **kwargs: Any) -> None:
        self.opt = self.pop  # nobody asks pymoo which is the best


def distinct_others(n: int, *, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """For every member three others, all different from each other and from it, each `(n,)`."""
    keys = rng.random((n, n))
    np.fill_diagonal(keys, np.inf)
    first, left, right = np.argsort(keys, axis=1)[:, :3].T
    return first, left, right
