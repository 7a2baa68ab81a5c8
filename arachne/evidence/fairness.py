"""Fairness of a patch: the accuracy of each group, and the value of an objective with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from arachne.data.grouping import groups_in
from arachne.data.split import Part
from arachne.fairness import Estimate, Objective, estimates
from arachne.model.values import Array
from arachne.scoring.statistics import Rate, mcnemar


@dataclass(frozen=True)
class GroupOutcome:
    """Outcome of a repair on one group, or on one class of a group.

    Attributes:
        name: The group.
        total: How many inputs it has.
        right_before: How many were right.
        fixed: How many were wrong and are right.
        broken: How many were right and are wrong.
        label: The class; None for all of the group.
    """

    name: str
    total: int
    right_before: int
    fixed: int
    broken: int
    label: str | None = None

    @property
    def before(self) -> Rate:
        """Accuracy before the repair."""
        return Rate(self.right_before, self.total)

    @property
    def after(self) -> Rate:
        """Accuracy after the repair."""
        return Rate(self.right_before + self.fixed - self.broken, self.total)

    @property
    def change(self) -> float:
        """Accuracy after minus before; NaN if there are no inputs."""
        return (self.fixed - self.broken) / self.total if self.total else float("nan")

    @property
    def p(self) -> float:
        """McNemar's exact test on the group alone."""
        return mcnemar(self.fixed, self.broken)


@dataclass(frozen=True)
class Fairness:
    """An objective before and after a repair, and the groups it compares.

    Attributes:
        objective: The objective, with its column.
        before: Its value before.
        after: Its value after.
        change: After minus before; the interval is that of a paired difference, as both models saw the same inputs.
        groups: The groups, the one that was worst first.
        classes: Groups by class if the objective compares classes: those with enough inputs.
    """

    objective: Objective
    before: Estimate
    after: Estimate
    change: Estimate
    groups: tuple[GroupOutcome, ...]
    classes: tuple[GroupOutcome, ...] = ()

    @property
    def gain(self) -> float:
        """The gain in fairness; negative if it became less fair."""
        return self.change.value if self.objective.RISES else -self.change.value

    @property
    def fairer(self) -> bool:
        """Whether it became fairer beyond chance, by the 95 % interval of the change."""
        return self.change.low > 0 if self.objective.RISES else self.change.high < 0

    @property
    def payers(self) -> tuple[GroupOutcome, ...]:
        """The groups that are less accurate than before, those that lost most first."""
        return tuple(sorted((one for one in self.groups if one.change < 0), key=lambda one: one.change))

    @property
    def gainers(self) -> tuple[GroupOutcome, ...]:
        """The groups that are more accurate than before, those that gained most first."""
        return tuple(sorted((one for one in self.groups if one.change > 0), key=lambda one: -one.change))

    @classmethod
    def measure(cls, objective: Objective, part: Part, was_right: Array, is_right: Array) -> Self:
        """Measure from which inputs of a part were right before and are right after, bool `(n,)`."""
        grouped = groups_in(part, str(objective.group_column))
        names = [part.data.class_name(label) for label in range(part.n_classes)]
        changed = (was_right, ~was_right & is_right, was_right & ~is_right)
        counts = np.stack([grouped.totals, *(grouped.right(one) for one in changed)], axis=-1)
        groups = [
            GroupOutcome(name, *own.tolist()) for name, own in zip(grouped.names, counts.sum(axis=1), strict=True)
        ]
        before, after, change = estimates(objective, grouped, was_right, is_right)
        return cls(
            objective,
            before,
            after,
            change,
            tuple(sorted(groups, key=lambda one: one.before.value)),
            _by_class(objective, grouped.names, names, counts) if objective.BY_CLASS else (),
        )


def _by_class(
    objective: Objective, groups: Sequence[str], classes: Sequence[str], counts: Array
) -> tuple[GroupOutcome, ...]:
    """Return the outcome of each group in each compared class, from counts `(groups, classes, 4)`."""
    enough = counts[..., 0] >= objective.group_size
    return tuple(
        replace(GroupOutcome(group, *counts[number, label].tolist()), label=name)
        for label, name in enumerate(classes)
        if enough[:, label].sum() > 1
        for number, group in enumerate(groups)
        if enough[number, label]
    )
