"""The objectives that come with Arachne: `worst`, `gap` and `odds`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne.decisions.decisions import Array
from arachne.errors import DataError
from arachne.fairness.base import Objective


@dataclass(frozen=True, kw_only=True)
class WorstGroup(Objective):
    """The accuracy of the group that has the lowest."""

    name = "worst"
    WORDS = "worst group's accuracy"
    RISES = True

    def value(self, right: Array, totals: Array) -> Array:
        return np.asarray(_accuracies(right, totals).min(axis=-1))


@dataclass(frozen=True, kw_only=True)
class AccuracyGap(Objective):
    """The largest difference between the accuracies of two groups."""

    name = "gap"
    WORDS = "accuracy gap"

    def value(self, right: Array, totals: Array) -> Array:
        accuracies = _accuracies(right, totals)
        return np.asarray(accuracies.max(axis=-1) - accuracies.min(axis=-1))


@dataclass(frozen=True, kw_only=True)
class EqualisedOdds(Objective):
    """Equalised odds: the largest difference, in any class, between the true-positive rates of two groups.

    With two classes, the rate of false positives of one is one minus the rate of true positives of the other, so that
    both halves of equalised odds are in it. A class counts for the groups that have `group_size` inputs of it.
    """

    name = "odds"
    WORDS = "gap of true-positive rates"
    BY_CLASS = True

    def value(self, right: Array, totals: Array) -> Array:
        counts = totals >= self.group_size
        compared = counts.sum(axis=0) > 1
        if not compared.any():
            return np.full(right.shape[:-2], np.nan)
        rates = right[..., compared] / np.maximum(totals[:, compared], 1)
        high = np.where(counts[:, compared], rates, -np.inf).max(axis=-2)
        low = np.where(counts[:, compared], rates, np.inf).min(axis=-2)
        return np.asarray((high - low).max(axis=-1))

    def check(self, totals: Array, names: tuple[str, ...], where: str) -> None:
        super().check(totals, names, where)
        if not ((totals >= self.group_size).sum(axis=0) > 1).any():
            raise DataError(
                f"equalised odds compares groups within a class, and there is no class of which two groups of column "
                f"'{self.group_column}' have {self.group_size} {where} inputs each; where groups are the classes, the "
                "accuracy gap says it"
            )


def _accuracies(right: Array, totals: Array) -> Array:
    """Accuracy of each group, `(..., groups)`."""
    found: Array = right.sum(axis=-1) / np.maximum(totals.sum(axis=-1), 1)
    return found
