"""Limits that a repair was given, and whether seen and held-out inputs keep them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from arachne.evidence.grade import BY_CHANCE, KEPT, break_state, limit_state
from arachne.evidence.part_evidence import PartEvidence
from arachne.scoring.statistics import Z_95, Rate
from arachne.text import percent

BREAKS, DROP, GROUP_DROP = "breaks", "drop", "group drop"
LIMIT_KINDS = (BREAKS, DROP, GROUP_DROP)
"""Kinds of limits: on broken inputs, the accuracy on all inputs but the negatives, or that of a class or group."""


@dataclass(frozen=True)
class LimitOutcome:
    """One limit, and what became of it.

    Attributes:
        name: The class or group whose accuracy may fall; None for the share of right inputs that may break, and for
            the accuracy on all inputs but the negatives.
        limit: The largest share allowed.
        seen: The share on seen inputs; None if there were none.
        held_out: The share on the inputs of the verdict.
        low: Its lower 95 % bound.
        state: One of `LIMIT_STATES`.
        kind: One of `LIMIT_KINDS`.
    """

    name: str | None
    limit: float
    seen: float | None
    held_out: float
    low: float
    state: str
    kind: str = BREAKS

    @property
    def sentence(self) -> str:
        """`budget of 0.50 % broken: overrun by chance, 0.53 % held out (0.31 % seen)`."""
        what = {
            BREAKS: f"budget of {percent(self.limit)} broken",
            DROP: f"accuracy on other inputs at most {percent(self.limit)} lower",
        }.get(self.kind, f"{self.name} at most {percent(self.limit)} less accurate")
        if math.isnan(self.held_out):
            return f"{what}: not looked at, there are no such inputs"
        seen = "" if self.seen is None or math.isnan(self.seen) else f" ({percent(max(0.0, self.seen))} seen)"
        least = "" if self.state in (KEPT, BY_CHANCE) else f", at least {percent(self.low)} with 95 % confidence"
        return f"{what}: {self.state}, {percent(max(0.0, self.held_out))} held out{least}{seen}"


def break_limit(budget: float, held_out: PartEvidence, seen: PartEvidence | None) -> LimitOutcome:
    """Return the outcome of the budget of broken inputs."""
    rate = held_out.breakage
    before = None if seen is None else seen.break_rate
    return LimitOutcome(None, budget, before, rate.value, rate.interval[0], break_state(rate, budget))


def accuracy_limit(budget: float, held_out: PartEvidence, seen: PartEvidence | None) -> LimitOutcome:
    """Return the outcome of the limit on how far the accuracy on all inputs but the negatives may fall."""
    drop, before = held_out.drop, None if seen is None else seen.drop.value
    return LimitOutcome(None, budget, before, drop.value, drop.low, _state(drop.value, drop.low, budget), DROP)


def drop_limits(
    classes: Mapping[str, float],
    groups: Mapping[tuple[str, str], float],
    held_out: PartEvidence,
    seen: PartEvidence | None,
) -> tuple[LimitOutcome, ...]:
    """Return the outcomes of limits on the accuracy of classes, by name, and groups, by column and value."""
    return tuple(
        LimitOutcome(
            name,
            limit,
            None if seen is None else _drop(seen, key)[0],
            value,
            low,
            _state(value, low, limit),
            GROUP_DROP,
        )
        for name, key, limit in _keys(classes, groups)
        for value, low in [_drop(held_out, key)]
    )


def _keys(
    classes: Mapping[str, float], groups: Mapping[tuple[str, str], float]
) -> Iterator[tuple[str, str | tuple[str, str], float]]:
    yield from ((name, name, limit) for name, limit in classes.items())
    yield from (("=".join(key), key, limit) for key, limit in groups.items())


def _state(value: float, low: float, limit: float) -> str:
    return KEPT if math.isnan(value) else limit_state(value, low, limit)


def _drop(part: PartEvidence, key: str | tuple[str, str]) -> tuple[float, float]:
    """Return how far the accuracy of a class or group fell, and the lower 95 % bound of that fall."""
    rows = part.classes if isinstance(key, str) else part.groups.get(key[0], ())
    name = key if isinstance(key, str) else key[1]
    found = [number for number, row in enumerate(rows) if row.name == name and row.total]
    if not found:
        return math.nan, math.nan
    row = rows[found[0]]
    lost = row.right_before - row.right_after
    changed = abs(lost)
    if isinstance(key, str):
        fixed, broken = (int(np.sum(several.labels == found[0])) for several in (part.fixed, part.damaged))
        changed = fixed + broken
    spread = Z_95 * math.sqrt(max(0.0, changed - lost * lost / row.total)) / row.total
    net = Rate(max(0, lost), row.total)
    return lost / row.total, min(lost / row.total - spread, net.interval[0])
