"""One generation of the paper's differential evolution, by pymoo.

pymoo's `DE` differs from the paper in its donors, mutation, bounds and replacement. The parts that differ are
subclassed here, and a test pins each formula. Members are replaced once per generation; Algorithm 2 is printed as if it
replaced them in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from pymoo.algorithms.soo.nonconvex.de import DE, Variant
from pymoo.core.problem import Problem as PymooProblem
from pymoo.core.termination import NoTermination

from arachne.model.values import Array


class Members:
    """A pymoo population as one array `(n, k)`: an object for each candidate would cost more than evaluating it."""

    def __init__(self, values: Array) -> None:
        self.X = values

    def __len__(self) -> int:
        return len(self.X)

    def __getitem__(self, which: Any) -> Members:
        return Members(self.X[which])

    def get(self, name: str) -> Array:
        """Return the candidates' values, which pymoo calls `X`."""
        if name != "X":
            raise KeyError(name)
        return self.X

    def set(self, name: str, value: Any) -> None:
        """Ignore a property that pymoo sets; nothing reads it."""


class PaperVariant(Variant):  # type: ignore[misc]  # pymoo has no types
    """Trials as in Algorithm 2: rand/1 donors, binomial crossover with one forced element, one F per generation.

    Args:
        crossover: CR, the probability that an element comes from the donor.
        scale: The range from which F is drawn.
        finish: A last step over the trials `(n, k)`, such as rounding.
    """

    def __init__(self, crossover: float, scale: tuple[float, float], finish: Callable[[Array], Array]) -> None:
        super().__init__()
        self._crossover = crossover
        self._scale = scale
        self._finish = finish

    def do(self, problem: Any, pop: Any, n_offsprings: int, algorithm: Any = None, **kwargs: Any) -> Any:
        """Make one trial for every member of the population."""
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

    It starts from an evaluated population, so that every generation can make a new instance.

    Args:
        members: The population, `(n, k)`.
        deficits: The deficits of its members, int64 `(n, terms)`.
        variant: Makes the trials.
        rng: Where all randomness comes from.
    """

    pop: Any

    def __init__(self, members: Array, deficits: Array, variant: PaperVariant, *, rng: np.random.Generator) -> None:
        super().__init__(pop_size=len(members), variant=variant, output=None)  # pymoo's is copied at every setup
        self.setup(PymooProblem(n_var=members.shape[1], n_obj=1), termination=NoTermination())
        self.random_state = rng
        self.pop, self.deficits = Members(members), deficits
        self.n_iter, self.is_initialized = 1, True

    def tell_deficits(self, trials: Any, deficits: Array) -> int:
        """Replace parents by trials with these deficits; return how many were replaced."""
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
        self.opt = self.pop  # pymoo's optimum is never read


def distinct_others(n: int, *, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Draw three different other members for every member, each `(n,)`."""
    keys = rng.random((n, n))
    np.fill_diagonal(keys, np.inf)
    first, left, right = np.argsort(keys, axis=1)[:, :3].T
    return first, left, right
