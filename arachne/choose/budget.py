"""Budget: how much a repair may break or cost in accuracy, the confidence in it, and limits by class and group.

`Choice` is the point of a front that was selected within one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from arachne.errors import UsageError, did_you_mean
from arachne.fairness import Objective
from arachne.model.values import Array
from arachne.text import Brief, is_whole_number, percent

BREAK_BUDGET = 0.005
"""The largest break rate allowed, unless the user sets another or limits the drop of accuracy instead."""

NO_BREAK_LIMIT = 1.0
"""The break rate allowed where only the drop of accuracy is limited."""

NOT_GIVEN = -1.0
"""Stands for a `max_break` that was not given."""

EVERY_CLASS = "*"
"""A wildcard in `max_class_drop` and `max_group_drop`: every class or group that is not named."""

CHOOSE_SHARE = 0.3
"""The share of the seen part set aside for selecting a point, where candidates have no out-of-fold outcome."""


@dataclass(frozen=True)
class Budget(Brief):
    """The limits that a repair must keep; rates are shares of 1.

    Attributes:
        max_break: The largest share of right inputs that may become wrong. If it is not given, 0.5 %, or no limit
            (`NO_BREAK_LIMIT`) where `max_drop` is given.
        confidence: The confidence that new inputs keep `max_break` and `max_drop`: a guarantee, for which 30 % of the
            seen inputs are set aside from the search. None for a careful estimate without a guarantee.
        max_class_drop: How far the accuracy of a class may fall, by its name or number. `*` means all classes that are
            not named.
        max_group_drop: How far the accuracy of a group may fall, by a value of a metadata column or `column=value`. `*`
            and `column=*` mean all groups that are not named.
        max_drop: How far the accuracy on all inputs but the negatives may fall: those broken less other errors that
            are right now. None without a limit.
    """

    max_break: float = NOT_GIVEN
    confidence: float | None = None
    max_class_drop: Mapping[str, float] = field(default_factory=dict)
    max_group_drop: Mapping[str, float] = field(default_factory=dict)
    max_drop: float | None = None

    def __post_init__(self) -> None:
        if self.max_break == NOT_GIVEN:
            object.__setattr__(self, "max_break", BREAK_BUDGET if self.max_drop is None else NO_BREAK_LIMIT)
        free = self.max_drop is not None and self.max_break == NO_BREAK_LIMIT
        for share in (0 if free else self.max_break, 0 if self.max_drop is None else self.max_drop):
            if not _is_share(share):
                raise UsageError(f"a budget is a share from 0 to below 1, 0.005 for half a per cent, got {share}")
        for kind in ("class", "group"):
            drops = {str(name): share for name, share in dict(getattr(self, f"max_{kind}_drop")).items()}
            for name, share in drops.items():
                if not _is_share(share):
                    raise UsageError(f"{kind} '{name}' may lose a share from 0 to below 1 of its accuracy, got {share}")
            object.__setattr__(self, f"max_{kind}_drop", drops)
        if self.confidence is None:
            return
        if not _is_share(self.confidence) or self.confidence < 0.5:
            raise UsageError(f"a confidence is a share from 0.5 to below 1, 0.9 for 90 %, got {self.confidence}")
        if not self.max_break or self.max_drop == 0:
            nothing = "accuracy does not fall at all" if self.max_break else "nothing at all breaks"
            raise UsageError(f"no number of inputs can guarantee that {nothing}; give a budget above 0")

    def __str__(self) -> str:
        """`at most 0.20 % broken, with 90.0 % confidence; stop at most 0 % less accurate`."""
        sure = "" if self.confidence is None else f", with {percent(self.confidence)} confidence"
        whole = [f"at most {percent(self.max_break)} broken{sure}"] if self.limits_breaks else []
        if self.max_drop is not None:
            whole.append(f"accuracy on other inputs at most {percent(self.max_drop)} lower{sure}")
        drops = [
            f"{f'every {kind}' if name == EVERY_CLASS else name} at most {percent(share)} less accurate"
            for kind, limits in (("class", self.max_class_drop), ("group", self.max_group_drop))
            for name, share in limits.items()
        ]
        return "; ".join([*whole, *drops])

    @property
    def limits_breaks(self) -> bool:
        """Whether the share of broken inputs is limited."""
        return self.max_break < NO_BREAK_LIMIT

    @property
    def fewest_positives(self) -> int:
        """The fewest right inputs a guarantee needs: with so many, none broken proves the budget."""
        if self.confidence is None or not self.limits_breaks:
            return 0
        return math.ceil(math.log1p(-self.confidence) / math.log1p(-self.max_break))

    def class_limits(self, names: Sequence[str]) -> Array:
        """Return how far the accuracy of each class may fall, `(classes,)`; infinity without a limit.

        Raises:
            UsageError: The budget names a class that the model does not have.
        """
        limits = np.full(len(names), self.max_class_drop.get(EVERY_CLASS, np.inf))
        for name, share in self.max_class_drop.items():
            if name != EVERY_CLASS:
                limits[_number(name, names)] = share
        return limits

    def group_limits(
        self, groups: Mapping[str, Sequence[str]], columns: Sequence[str] | None = None
    ) -> dict[tuple[str, str], float]:
        """Return how far the accuracy of a group may fall, by column and value.

        Args:
            groups: The groups of each metadata column.
            columns: The columns whose groups `*` means; all when None.

        Raises:
            UsageError: The budget names a group that no column has, or that several columns have.
        """
        limits: dict[tuple[str, str], float] = {}
        order = sorted(
            self.max_group_drop, key=lambda name: (name != EVERY_CLASS, not name.endswith(f"={EVERY_CLASS}"))
        )
        for name in order:
            meant = (
                groups
                if columns is None or name != EVERY_CLASS
                else {key: groups[key] for key in columns if key in groups}
            )
            limits |= dict.fromkeys(_groups(name, meant), self.max_group_drop[name])
        return limits

    def to_json(self) -> dict[str, Any]:
        """Return the budget as stored in provenance and in the result file."""
        return {
            "max_break": self.max_break,
            "confidence": self.confidence,
            "max_class_drop": dict(self.max_class_drop),
            "max_group_drop": dict(self.max_group_drop),
            **({} if self.max_drop is None else {"max_drop": self.max_drop}),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Read a budget that `to_json` wrote."""
        drops = {f"max_{kind}_drop": document.get(f"max_{kind}_drop", {}) for kind in ("class", "group")}
        return cls(
            document.get("max_break", 0.0), document.get("confidence"), max_drop=document.get("max_drop"), **drops
        )


@dataclass(frozen=True)
class Choice(Brief):
    """The point of a front that was selected, and the reason.

    Attributes:
        index: Its number; None if no point keeps the budget.
        budget: The budget.
        rule: How points were compared, in words.
        why: The reason for this point, or for none, in words and numbers.
        within: The numbers of all points that keep the budget.
        beyond: If none does, the number of the point that misses it by least.
        objective: The fairness objective; the fairest point is selected, not the one that repairs most.
    """

    index: int | None
    budget: Budget
    rule: str
    why: str
    within: tuple[int, ...] = ()
    beyond: int | None = None
    objective: Objective | None = None


def read_share(text: str) -> float:
    """Parse a share: `0.5%`, `0.5 %` or `0.005`.

    Raises:
        UsageError: The text is not a share below 1.
    """
    found = re.fullmatch(r"(\d*\.?\d+(?:[eE][-+]?\d+)?)\s*(%?)", text.strip())
    if found is None:
        raise UsageError(f"expected a share such as 0.5% or 0.005, got '{text}'")
    share = round(float(found[1]) / 100, 15) if found[2] else float(found[1])
    if share >= 1:
        near = "" if found[2] or share >= 100 else f"; did you mean {found[1]}%?"
        raise UsageError(f"expected a share below 100 %, such as 0.5% or 0.005, got '{text}'{near}")
    return share


def read_class_drop(text: str) -> tuple[str, float]:
    """Parse a class and how far its accuracy may fall: `stop=0` or `*=1%`.

    Raises:
        UsageError: The text is not of that form.
    """
    return _read_drop(text, "CLASS=SHARE such as stop=0 or *=1%")


def read_group_drop(text: str) -> tuple[str, float]:
    """Parse a group and how far its accuracy may fall: `female=0`, `sex=female=0` or `*=1%`.

    Raises:
        UsageError: The text is not of that form.
    """
    return _read_drop(text, "GROUP=SHARE such as female=0, sex=female=0 or *=1%")


def _read_drop(text: str, form: str) -> tuple[str, float]:
    name, sign, share = text.rpartition("=")
    if not sign or not name.strip():
        raise UsageError(f"expected {form}, got '{text}'")
    return name.strip(), read_share(share)


def _groups(name: str, groups: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """Return the groups that a name in the budget means, as column and value."""
    every = [(column, value) for column, values in groups.items() for value in values]
    if name == EVERY_CLASS:
        return every
    column, _, value = name.partition("=")
    if column in groups and value == EVERY_CLASS:
        return [one for one in every if one[0] == column]
    found = [one for one in every if name in (one[1], f"{one[0]}={one[1]}")]
    if len(found) > 1:
        both = " or ".join(f"'{own}={name}'" for own, _ in found)
        raise UsageError(f"the budget names the group '{name}', which several columns have: write {both}")
    if not found:
        have = did_you_mean(name, [one for _, one in every]) if every else "; the data has no metadata columns"
        raise UsageError(f"the budget names the group '{name}', which the data does not have{have}")
    return found


def _number(name: str, names: Sequence[str]) -> int:
    if name in names:
        return list(names).index(name)
    if is_whole_number(name) and int(name) < len(names):
        return int(name)
    raise UsageError(f"the budget names the class '{name}', which the model does not have{did_you_mean(name, names)}")


def _is_share(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1
