"""What became of groups, in words: the objective before and after, who gains and who pays."""

from __future__ import annotations

from arachne.evidence.fairness import Fairness, GroupOutcome
from arachne.evidence.statistics import LEVEL

PAID = 0.1
"""Where at least this share of what a gap shrank by is what the best group lost, it is said."""


def points(share: float, signed: bool = False) -> str:
    """A difference of shares as people read it: `4.1 points`, `−4.1 points`; one digit, two below a point."""
    value = 100 * share
    digits = f"{value:{'+' if signed else ''}.{1 if abs(value) >= 1 or value == 0 else 2}f}"
    return f"{digits} points".replace("-", "\N{MINUS SIGN}")


def shown(fairness: Fairness, value: float) -> str:
    """The objective's value: a share where it is one, points where it is a difference."""
    return f"{100 * value:.1f} %" if fairness.objective.RISES else points(value)


def headline(fairness: Fairness, kind: str) -> str:
    """`the accuracy gap by sex went from 8.1 points to 3.2 points on held-out inputs (95 %: −7.7 to −2.1 points)`."""
    before, after = fairness.before.value, fairness.after.value
    low, high = (points(one, signed=True) for one in fairness.change.interval)
    moved = "stayed at" if before == after else f"went from {shown(fairness, before)} to"
    return (
        f"the {fairness.objective} {moved} {shown(fairness, after)} on {kind}inputs "
        f"(change, 95 %: {low.removesuffix(' points')} to {high})"
    )


def sentences(fairness: Fairness) -> tuple[str, ...]:
    """Who gains, who pays, and how much of a smaller gap is somebody's loss."""
    gain = "; ".join(f"{one.name} is {_changed(one)}" for one in fairness.gainers)
    told = [f"Who gains: {gain}." if gain else "Who gains: nobody."]
    if not fairness.payers:
        told.append(
            f"Who pays: nobody; no group of column '{fairness.objective.group_column}' is less accurate than before."
        )
    else:
        told.append(f"Who pays: {'; '.join(f'{one.name} is {_changed(one)}' for one in fairness.payers)}.")
    return (*told, *_levelled(fairness), *_class_payers(fairness))


def _changed(one: GroupOutcome) -> str:
    less = "less" if one.change < 0 else "more"
    p = "p < 0.001" if one.p < 0.001 else f"p = {one.p:.3f}"
    chance = "" if one.p < LEVEL else ", which chance alone could do"
    return (
        f"{points(abs(one.change))} {less} accurate ({100 * one.before.value:.1f} → {100 * one.after.value:.1f} %: "
        f"{one.fixed:,} of {one.total:,} became right and {one.broken:,} wrong, {p}{chance})"
    )


def _levelled(fairness: Fairness) -> tuple[str, ...]:
    """Whether a gap shrank because the best group lost."""
    if fairness.objective.RISES or fairness.objective.BY_CLASS or fairness.gain <= 0:
        return ()
    best = max(fairness.groups, key=lambda one: one.before.value)
    lost = min(-best.change, fairness.gain)
    if lost < PAID * fairness.gain:
        return ()
    return (f"{points(lost)} of the {points(fairness.gain)} are what {best.name} lost, not what others gained.",)


def _class_payers(fairness: Fairness) -> tuple[str, ...]:
    """Of an objective that looks at classes: where a group lost in one of them beyond chance."""
    lost = [one for one in fairness.classes if one.change < 0 and one.p < LEVEL]
    if not lost:
        return ()
    each = "; ".join(f"{one.name} of class {one.label} {_changed(one)}" for one in lost)
    return (f"Within classes: {each}.",)
