"""Describe gaps in the inputs of a verdict: classes and groups with few inputs, budgets under one input."""

from __future__ import annotations

from collections.abc import Iterator

from arachne.evidence.part_evidence import PartEvidence
from arachne.text import are, percent, percent_change, pluralise

MIN_GROUP = 20
"""A group with fewer inputs says little about the inputs of its kind."""

MAX_NAMED = 5
"""At most so many classes or groups are named."""

MIN_CALIBRATION_LOSS = 0.01
"""A calibration error that grew by less is not reported."""


def coverage_notes(held_out: PartEvidence, seen: PartEvidence | None, budget: float, kind: str) -> tuple[str, ...]:
    """Return sentences about gaps in the inputs, and about confidences that mean less than before.

    Args:
        held_out: The inputs of the verdict.
        seen: The inputs of the repair; None when a finished patch is measured.
        budget: The largest break rate allowed.
        kind: The adjective of the verdict's inputs, such as `held-out `.
    """
    return (
        *_empty_classes(held_out, seen, kind),
        *_small_groups(held_out, kind),
        *_empty_budget(held_out, seen, budget, kind),
        *_calibration(held_out),
    )


def _empty_classes(held_out: PartEvidence, seen: PartEvidence | None, kind: str) -> Iterator[str]:
    totals = [one.total for one in held_out.classes]
    if seen is not None:
        totals = [mine + other.total for mine, other in zip(totals, seen.classes, strict=True)]
    empty = [one.name for one, total in zip(held_out.classes, totals, strict=True) if not total]
    empty = [name for name in empty if not name.endswith(held_out.words.never_true)]
    if not empty or not held_out.inputs:
        return
    where = "the data" if seen is not None else f"this {kind}data"
    guarded = "guarded" if seen is not None else "measured"
    have = "has" if len(empty) == 1 else "have"
    yield (
        f"{len(empty):,} of {pluralise(len(totals), 'class', 'classes')} {have} no inputs in {where} and "
        f"{are(len(empty))} not {guarded}: {_name(empty)}."
    )


def _small_groups(held_out: PartEvidence, kind: str) -> Iterator[str]:
    for column, groups in held_out.groups.items():
        small = [f"{one.name} ({one.total})" for one in groups if one.total < MIN_GROUP]
        if small:
            have = "has" if len(small) == 1 else "have"
            yield (
                f"{len(small)} of {pluralise(len(groups), 'group')} of column '{column}' {have} fewer than {MIN_GROUP} "
                f"{kind}inputs, which say little: {_name(small)}."
            )


def _empty_budget(held_out: PartEvidence, seen: PartEvidence | None, budget: float, kind: str) -> Iterator[str]:
    parts = [("seen ", seen.positives)] if seen is not None else []
    small = [(name, right) for name, right in (*parts, (kind, held_out.positives)) if 0 < budget * right < 1]
    if small:
        inputs = " and ".join(f"{right:,} right {name}inputs" for name, right in small)
        one = " and ".join(dict.fromkeys(percent(1 / right) for _, right in small))
        yield f"A budget of {percent(budget)} of {inputs} is none: a single broken one is {one}."


def _calibration(held_out: PartEvidence) -> Iterator[str]:
    before, after = held_out.confidence_before.error, held_out.confidence_after.error
    if after - before >= MIN_CALIBRATION_LOSS:
        yield (
            f"Calibration got worse, error {percent_change(before, after)}: a threshold on the model's confidence "
            "means something else than before."
        )


def _name(names: list[str]) -> str:
    more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more
