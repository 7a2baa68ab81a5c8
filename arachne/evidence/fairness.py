"""Fairness of a patch: the accuracy of each group, and the value of an objective with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from arachne.data.grouping import groups_in
from arachne.data.part import Part
from arachne.fairness import Estimate, Grouped, Objective, estimates
from arachne.model.values import Array
from arachne.scoring.by_input import paired_p, rate_of
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
        draws: How many independent decisions these are worth, where inputs have several; None where each is one draw.
        p_by_input: The test of the change that counts an input as one draw; None as for `draws`.
    """

    name: str
    total: int
    right_before: int
    fixed: int
    broken: int
    label: str | None = None
    draws: float | None = None
    p_by_input: float | None = None

    @property
    def before(self) -> Rate:
        """Accuracy before the repair."""
        return Rate(self.right_before, self.total, self.draws)

    @property
    def after(self) -> Rate:
        """Accuracy after the repair."""
        return Rate(self.right_before + self.fixed - self.broken, self.total, self.draws)

    @property
    def change(self) -> float:
        """Accuracy after minus before; NaN if there are no inputs."""
        return (self.fixed - self.broken) / self.total if self.total else float("nan")

    @property
    def p(self) -> float:
        """McNemar's exact test on the group alone."""
        return mcnemar(self.fixed, self.broken) if self.p_by_input is None else self.p_by_input


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
        """The groups that are less accurate than before, the largest loss first."""
        return tuple(sorted((one for one in self.groups if one.change < 0), key=lambda one: one.change))

    @property
    def gainers(self) -> tuple[GroupOutcome, ...]:
        """The groups that are more accurate than before, the largest gain first."""
        return tuple(sorted((one for one in self.groups if one.change > 0), key=lambda one: -one.change))

    @classmethod
    def measure(cls, objective: Objective, part: Part, was_right: Array, is_right: Array) -> Self:
        """Measure from which inputs of a part were right before and are right after, bool `(n,)`."""
        grouped = groups_in(part, str(objective.group_column))
        names = part.class_names
        changed = (was_right, ~was_right & is_right, was_right & ~is_right)
        counts = np.stack([grouped.totals, *(grouped.right(one) for one in changed)], axis=-1)
        groups = [
            GroupOutcome(name, *own.tolist()) for name, own in zip(grouped.names, counts.sum(axis=1), strict=True)
        ]
        owners = part.repeated_inputs
        design = 1.0
        if owners is not None:
            groups = [_by_input(one, grouped, owners, was_right, is_right) for one in groups]
            design = max((one.total / one.draws for one in groups if one.draws), default=1.0)
        before, after, change = estimates(objective, grouped, was_right, is_right, design)
        return cls(
            objective,
            before,
            after,
            change,
            tuple(sorted(groups, key=lambda one: one.before.value)),
            _by_class(objective, grouped.names, names, counts) if objective.BY_CLASS else (),
        )


def _by_input(one: GroupOutcome, grouped: Grouped, owners: Array, was_right: Array, is_right: Array) -> GroupOutcome:
    """Add how sure a group's counts are where inputs have several decisions, counting an input as one draw."""
    members = grouped.members == grouped.names.index(one.name)
    draws = min(rate_of(right, members, owners).draws or 0.0 for right in (was_right, is_right))
    p = paired_p(members & ~was_right & is_right, members & was_right & ~is_right, owners)
    return replace(one, draws=draws, p_by_input=p)


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
