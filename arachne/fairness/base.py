"""Objective: a fairness measure over groups, computed from counts of right inputs; and `Grouped`, the groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, final

import numpy as np

from arachne.decisions.decisions import Array
from arachne.errors import DataError
from arachne.plugins.options import Configured, option
from arachne.text import pluralise

UNKNOWN = ("", "nan", "None", "NaN")
"""Entries of a column that say nothing; such inputs belong to no group."""


@dataclass(frozen=True, eq=False)
class Grouped:
    """The group of each input.

    Attributes:
        names: The groups.
        members: The number of each input's group, int64 `(n,)`; -1 for inputs of none.
        labels: Their true classes `(n,)`.
        classes: How many classes there are.
    """

    names: tuple[str, ...]
    members: Array
    labels: Array
    classes: int

    @classmethod
    def by(cls, column: Array, labels: Array, classes: int, names: tuple[str, ...] | None = None) -> Grouped:
        """Group inputs by a metadata column `(n,)`; `names` where groups are known from other inputs."""
        values = np.asarray(column).astype(str)
        if names is None:
            names = tuple(name for name in np.unique(values).tolist() if name not in UNKNOWN)
        known = np.array(sorted(names), dtype=str)
        members = np.full(len(values), -1, np.int64)
        if len(known):
            nearest = np.minimum(np.searchsorted(known, values), len(known) - 1)
            found = known[nearest] == values
            members[found] = nearest[found]
        return cls(tuple(known.tolist()), members, np.asarray(labels), classes)

    @cached_property
    def totals(self) -> Array:
        """Inputs of each group and class, int64 `(groups, classes)`."""
        return self._counts(np.ones(len(self.members), bool))

    def right(self, right: Array) -> Array:
        """Count the right inputs of each group and class, `(..., groups, classes)`, from `right`, bool `(..., n)`."""
        if right.ndim == 1:
            return self._counts(right)
        return np.stack([self.right(one) for one in right]) if len(right) else np.zeros((0, *self.totals.shape))

    def take(self, rows: Array) -> Grouped:
        """Select inputs; the groups stay."""
        return Grouped(self.names, self.members[rows], self.labels[rows], self.classes)

    def _counts(self, chosen: Array) -> Array:
        chosen = chosen & (self.members >= 0)
        cells = self.members[chosen] * self.classes + self.labels[chosen]
        shape = len(self.names), self.classes
        return np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape)


@dataclass(frozen=True, kw_only=True)
class Objective(Configured, ABC):
    """A number that a repair should make fairer between groups, computed from the counts of right inputs.

    A repair with an objective chooses, among the candidates within its budget, the one with the best value, and tells
    the value before and after on held-out inputs with an interval.

    Attributes:
        group_column: The metadata column whose values are the groups; the target's own where it is None.
        group_size: A group with fewer inputs than this, seen or held out, says nothing.
    """

    WORDS: ClassVar[str]
    """The name of the value in sentences: `accuracy gap`."""

    RISES: ClassVar[bool] = False
    """Whether a larger value is better."""

    BY_CLASS: ClassVar[bool] = False
    """Whether the value looks at classes one by one; otherwise at groups as a whole."""

    group_column: str | None = option(None, "Metadata column whose values are the groups.", metavar="COLUMN")
    group_size: int = option(10, "Fewer inputs of a group than this, seen or held out, say nothing.", least=1)

    @abstractmethod
    def value(self, right: Array, totals: Array) -> Array:
        """Compute the value, a share of 1, `(...)`.

        Args:
            right: Inputs that are right, by group and class `(..., groups, classes)`; not always whole numbers.
            totals: Inputs, by group and class `(groups, classes)`.
        """

    @final
    def cost(self, right: Array, totals: Array) -> Array:
        """Return the value with its sign chosen so that smaller is better, `(...)`; arguments as in `value`."""
        found = np.asarray(self.value(right, totals), np.float64)
        return -found if self.RISES else found

    def check(self, totals: Array, names: tuple[str, ...], where: str) -> None:
        """Refuse groups that cannot be compared.

        Args:
            totals: Inputs, by group and class `(groups, classes)`.
            names: The groups.
            where: What the inputs are called: `seen`.

        Raises:
            DataError: Fewer than two groups, or one with too few inputs.
        """
        if len(names) < 2:
            only = f"only '{names[0]}'" if names else "none"
            raise DataError(
                f"column '{self.group_column}' should have at least two groups to compare, and it has {only}"
            )
        sizes = totals.sum(axis=1)
        small = np.flatnonzero(sizes < self.group_size)
        if len(small):
            each = ", ".join(f"'{names[number]}' has {sizes[number]:,}" for number in small[:5].tolist())
            more = f" and {pluralise(len(small) - 5, 'more')}" if len(small) > 5 else ""
            raise DataError(
                f"each group of column '{self.group_column}' needs {self.group_size} {where} inputs before its "
                f"accuracy says anything, and {each}{more}; give more data, merge small groups or leave them out"
            )

    def __str__(self) -> str:
        """`accuracy gap by sex`."""
        return self.WORDS if self.group_column is None else f"{self.WORDS} by {self.group_column}"
