"""One part's numbers as an object of `result.json` and `--json`, described by `result.schema.json`."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np

from arachne.evidence import Accuracy, ChangedInputs, PartEvidence, TargetEvidence
from arachne.evidence.fairness import Fairness, GroupOutcome
from arachne.evidence.group_summary import sentences
from arachne.evidence.part_evidence import ByInput
from arachne.model.values import Array
from arachne.scoring.statistics import Rate, interval
from arachne.tasks.words import WORDS

MAX_LISTED_INPUTS = 1000
"""How many inputs fixed, and how many broken, a result lists; the counts are always of all."""


def part_object(part: PartEvidence) -> dict[str, Any]:
    """One part's numbers; rates and p-values as shares of 1, intervals as `[low, high]` at 95 %."""
    return {
        **part_counts(part),
        **({} if part.noun == "input" else {"counted": f"{part.noun}s"}),
        "targets": [_target(target) for target in part.targets],
        "classes": [_accuracy(accuracy) for accuracy in part.classes],
        "groups": {column: [_accuracy(group) for group in groups] for column, groups in part.groups.items()},
        "calibration_error_before": part.confidence_before.error,
        "calibration_error_after": part.confidence_after.error,
        "thresholds": _thresholds(part),
        **({} if part.fairness is None else {"fairness": fairness_object(part.fairness)}),
        "rows_fixed": _rows(part.fixed),
        "rows_broken": _rows(part.damaged),
    }


def fairness_object(fairness: Fairness) -> dict[str, Any]:
    """An objective before and after, with intervals, every group, and who pays in words."""
    return {
        "objective": fairness.objective.name,
        "words": str(fairness.objective),
        "column": fairness.objective.group_column,
        "before": fairness.before.value,
        "before_interval": fairness.before.interval,
        "after": fairness.after.value,
        "after_interval": fairness.after.interval,
        "change": fairness.change.value,
        "change_interval": fairness.change.interval,
        "larger_is_better": fairness.objective.RISES,
        "fairer": fairness.fairer,
        "groups": [_group(one) for one in fairness.groups],
        "classes": [{"class": one.label, **_group(one)} for one in fairness.classes],
        "payers": [one.name for one in fairness.payers],
        "sentences": sentences(fairness),
    }


def _group(one: GroupOutcome) -> dict[str, Any]:
    return {
        "name": one.name,
        "inputs": one.total,
        "accuracy_before": one.before.value,
        "interval_before": one.before.interval,
        "accuracy_after": one.after.value,
        "interval_after": one.after.interval,
        "fixed": one.fixed,
        "broken": one.broken,
        "mcnemar_p": one.p,
    }


def part_counts(part: PartEvidence) -> dict[str, Any]:
    """Counts, rates, intervals and tests of one part, without targets, classes, groups and rows."""
    return {
        "inputs": part.inputs,
        "negatives": part.negatives,
        "positives": part.positives,
        "repaired": part.repaired,
        "broken": part.broken,
        "others_fixed": part.others_fixed,
        "repair_rate": part.repair_rate,
        "repair_interval": part.repair.interval,
        "reduction": part.reduction.value,
        "reduction_interval": part.reduction.interval,
        "break_rate": part.break_rate,
        "break_interval": part.breakage.interval,
        "target_errors_before": part.target_errors_before,
        "target_errors_after": part.target_errors_after,
        "accuracy_before": part.accuracy_before,
        "accuracy_after": part.accuracy_after,
        "sign_p": part.sign_p,
        "mcnemar_p": part.mcnemar_p,
        **({} if part.by_input is None else {"by_input": _by_input(part, part.by_input)}),
        **({} if part.kept is None else {"kept": _kept_object(part.kept)}),
        **({} if part.kept is None and replace(part.words, never_true=()) == WORDS else {"words": _words(part)}),
    }


def _kept_object(kept: Rate) -> dict[str, Any]:
    return {
        "decisions": kept.total,
        "changed": kept.count,
        "changed_rate": kept.value,
        "changed_interval": kept.interval,
    }


def _words(part: PartEvidence) -> dict[str, str]:
    """Words for the counts where `right` and `wrong` do not fit."""
    words = part.words
    if part.kept is None:
        broken = f"inputs that {words.was_right} {words.broke}"
    elif part.kept.total == part.positives:
        broken = "kept decisions changed"
    else:
        broken = f"decisions broke or changed: inputs that {words.was_right}, and kept decisions"
    return {"repaired": f"inputs that {words.showed} {words.repaired[1]}", "broken": broken, "share": words.share}


def _by_input(part: PartEvidence, by_input: ByInput) -> dict[str, Any]:
    """Numbers of inputs, where they have several decisions: all other counts are of decisions."""
    right = part.pairs_after.right
    return {
        "inputs": by_input.inputs,
        "negatives": by_input.negatives,
        "fault_interval": interval(part.target_errors_after, part.accuracy.total, by_input.fault_draws),
        "accuracy_interval": interval(right, part.accuracy.total, by_input.accuracy_draws),
    }


def _target(target: TargetEvidence) -> dict[str, Any]:
    return {
        "target": target.target,
        "errors_before": target.errors_before,
        "errors_after": target.errors_after,
        "repaired": target.repaired,
        "sign_p": target.sign_p,
        **({} if target.cause_outcome is None else {"carriers": asdict(target.cause_outcome)}),
    }


def _accuracy(accuracy: Accuracy) -> dict[str, Any]:
    return {
        "name": accuracy.name,
        "inputs": accuracy.total,
        "accuracy_before": accuracy.before.value,
        "accuracy_after": accuracy.after.value,
    }


def _thresholds(part: PartEvidence) -> list[dict[str, Any]]:
    return [
        {
            "threshold": before.threshold,
            "decided_before": before.decided.value,
            "decided_after": after.decided.value,
            "accuracy_before": before.right.value,
            "accuracy_after": after.right.value,
        }
        for before, after in zip(part.confidence_before.thresholds, part.confidence_after.thresholds, strict=True)
    ]


def _rows(changed: ChangedInputs) -> list[dict[str, Any]]:
    return records(
        MAX_LISTED_INPUTS,
        row=changed.rows,
        label=changed.labels,
        before=changed.before,
        after=changed.after,
        confidence_before=changed.confidence_before,
        confidence_after=changed.confidence_after,
        on_target=changed.on_target,
    )


def records(most: int | None, /, **columns: Array) -> list[dict[str, Any]]:
    """Arrays `(k,)` by name as a list of at most `most` objects; numbers that are not whole get six digits."""
    rounded = [np.round(column, 6) if column.dtype.kind == "f" else column for column in columns.values()]
    rows = zip(*(column[:most].tolist() for column in rounded), strict=True)
    return [dict(zip(columns, values, strict=True)) for values in rows]
