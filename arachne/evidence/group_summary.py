"""Describe the outcome for groups: the objective before and after, which groups gain and which lose."""

from __future__ import annotations

from arachne.evidence.fairness import Fairness, GroupOutcome
from arachne.scoring.statistics import LEVEL

MIN_LOSS_SHARE = 0.1
"""If at least this share of a gap's reduction is a loss of the best group, a sentence says so."""


def format_points(share: float, signed: bool = False) -> str:
    """Format a difference of shares: `4.1 points`, `−4.1 points`; one digit, two below a point."""
    value = 100 * share
    digits = f"{value:{'+' if signed else ''}.{1 if abs(value) >= 1 or value == 0 else 2}f}"
    return f"{digits} points".replace("-", "\N{MINUS SIGN}")


def format_value(fairness: Fairness, value: float) -> str:
    """Format the objective's value: a share in percent, a difference in points."""
    return f"{100 * value:.1f} %" if fairness.objective.RISES else format_points(value)


def headline(fairness: Fairness, kind: str) -> str:
    """`the accuracy gap by sex went from 8.1 points to 3.2 points on held-out inputs (95 %: −7.7 to −2.1 points)`."""
    before, after = fairness.before.value, fairness.after.value
    low, high = (format_points(one, signed=True) for one in fairness.change.interval)
    change = "stayed at" if before == after else f"went from {format_value(fairness, before)} to"
    return (
        f"the {fairness.objective} {change} {format_value(fairness, after)} on {kind}inputs "
        f"(change, 95 %: {low.removesuffix(' points')} to {high})"
    )


def sentences(fairness: Fairness) -> tuple[str, ...]:
    """Say which groups gain, which lose, and how much of a smaller gap is a loss of the best group."""
    gain = "; ".join(f"{one.name} is {_describe_change(one)}" for one in fairness.gainers)
    found = [f"Who gains: {gain}." if gain else "Who gains: nobody."]
    if not fairness.payers:
        found.append(
            f"Who pays: nobody; no group of column '{fairness.objective.group_column}' is less accurate than before."
        )
    else:
        found.append(f"Who pays: {'; '.join(f'{one.name} is {_describe_change(one)}' for one in fairness.payers)}.")
    return (*found, *_describe_best_loss(fairness), *_describe_class_losses(fairness))


def _describe_change(one: GroupOutcome) -> str:
    less = "less" if one.change < 0 else "more"
    p = "p < 0.001" if one.p < 0.001 else f"p = {one.p:.3f}"
    chance = "" if one.p < LEVEL else ", which chance alone could do"
    difference = f"{format_points(abs(one.change))} {less} accurate"
    return (
        f"{difference} ({100 * one.before.value:.1f} → {100 * one.after.value:.1f} %: "
        f"{one.fixed:,} of {one.total:,} became right and {one.broken:,} wrong, {p}{chance})"
    )


def _describe_best_loss(fairness: Fairness) -> tuple[str, ...]:
    """Say how much of a gap's reduction is a loss of the best group, if it is much."""
    if fairness.objective.RISES or fairness.objective.BY_CLASS or fairness.gain <= 0:
        return ()
    best = max(fairness.groups, key=lambda one: one.before.value)
    lost = min(-best.change, fairness.gain)
    if lost < MIN_LOSS_SHARE * fairness.gain:
        return ()
    share = f"{format_points(lost)} of the {format_points(fairness.gain)}"
    return (f"{share} are what {best.name} lost, not what others gained.",)


def _describe_class_losses(fairness: Fairness) -> tuple[str, ...]:
    """List the classes in which a group lost beyond chance, if the objective compares classes."""
    lost = [one for one in fairness.classes if one.change < 0 and one.p < LEVEL]
    if not lost:
        return ()
    each = "; ".join(f"{one.name} of class {one.label} {_describe_change(one)}" for one in lost)
    return (f"Within classes: {each}.",)
