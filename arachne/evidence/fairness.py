"""What a patch did to groups: accuracy of each, and what an objective says of it, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from arachne.data.grouping import groups_in
from arachne.data.split import Part
from arachne.evidence.statistics import Rate, mcnemar
from arachne.fairness import Estimate, Objective, estimates
from arachne.values import Array


@dataclass(frozen=True)
class GroupOutcome:
    """What became of the inputs of one group, or of one class of a group.

    Attributes:
        name: The group.
        total: How many inputs it has.
        right_before: Those that were right.
        fixed: Those that were wrong and are right.
        broken: Those that were right and are wrong.
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
        objective: What was to become fairer, with its column.
        before: Its value before.
        after: Its value after.
        change: After minus before; the interval knows that both models saw the same inputs.
        groups: The groups, the one that was worst first.
        classes: Groups by class, where the objective looks at classes: those with enough inputs.
    """

    objective: Objective
    before: Estimate
    after: Estimate
    change: Estimate
    groups: tuple[GroupOutcome, ...]
    classes: tuple[GroupOutcome, ...] = ()

    @property
    def gain(self) -> float:
        """By how much it became fairer; negative where it became less fair."""
        return self.change.value if self.objective.RISES else -self.change.value

    @property
    def fairer(self) -> bool:
        """Whether it became fairer beyond what chance could do: the 95 % interval of the change says so."""
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
        """From which inputs of a part were right before and are right after, bool `(n,)`."""
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
    """Group by group the classes in which groups are compared, from counts `(groups, classes, 4)`."""
    enough = counts[..., 0] >= objective.group_size
    return tuple(
        replace(GroupOutcome(group, *counts[number, label].tolist()), label=name)
        for label, name in enumerate(classes)
        if enough[:, label].sum() > 1
        for number, group in enumerate(groups)
        if enough[number, label]
    )
