"""The objects of `result.json` and `--json`: numbers under stable names, described by `result.schema.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np

from arachne.data.confusions import Confusion
from arachne.evidence import (
    Accuracy,
    ChangedInputs,
    Evidence,
    Flips,
    GateResult,
    LabelNoise,
    PartEvidence,
    TargetEvidence,
    Verdict,
)
from arachne.evidence.fairness import Fairness, GroupOutcome
from arachne.evidence.group_summary import sentences
from arachne.evidence.measures import ByInput
from arachne.model.values import Address, Array
from arachne.report.json import clean
from arachne.scoring.statistics import Rate, interval
from arachne.tasks.words import WORDS

if TYPE_CHECKING:
    from arachne.causes import Cause, Experiment
    from arachne.evidence.forecast import Forecast
    from arachne.localise.base import Localisation

SCHEMA = "arachne.result/1"
SCAN_SCHEMA = "arachne.scan/1"
LOCALISATION_SCHEMA = "arachne.localisation/1"
FLIPS_SCHEMA = "arachne.flips/1"

MAX_LISTED_INPUTS = 1000
"""How many inputs fixed, and how many broken, a result lists; the counts are always of all."""


def result_object(
    evidence: Evidence,
    *,
    command: str,
    seed: int | None,
    backend: str,
    weights: int,
    generations: int | None = None,
    seconds: Mapping[str, float] | None = None,
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The object of `result.json`, and of `--json` of `repair` and `evaluate`, in JSON's types only.

    Args:
        evidence: The numbers.
        command: `repair` or `evaluate`.
        seed: The seed of the run.
        backend: The backend's name.
        weights: How many weights the patch changes.
        generations: How long the search ran.
        seconds: Time by step, at least `localise` and `search`; None for an evaluation, which has neither steps nor
            generations.
        more: Whatever else is worth keeping: settings, versions, hashes.
    """
    target = evidence.held_out.target.target
    result: dict[str, Any] = {
        "schema": SCHEMA,
        "command": command,
        **verdict_object(evidence.verdict),
        "notes": evidence.notes,
        "target": target,
        "seed": seed,
        "backend": backend,
        "accuracy": evidence.held_out.accuracy_after,
        "weights": weights,
        "budget": evidence.budget,
        "basis": evidence.basis,
    }
    if seconds is not None:
        result |= {"generations": generations, "seconds": seconds}
    if evidence.seen is not None:
        result["seen"] = part_object(evidence.seen)
    if evidence.choose is not None:
        result["choose"] = part_object(evidence.choose)
    result["held_out"] = part_object(evidence.held_out)
    if evidence.figures is not None:
        result["figures"] = evidence.figures.to_json()
    cleaned: dict[str, Any] = clean(result | dict(more or {}))
    return cleaned


def verdict_object(verdict: Verdict) -> dict[str, Any]:
    """The verdict's word, its heading, the reason, the price, and every limit with its state."""
    return {
        "verdict": verdict.word,
        "heading": verdict.heading,
        "sentence": verdict.sentence,
        "balance": verdict.balance,
        "limit_state": verdict.limit_state,
        "limits": [{**asdict(one), "sentence": one.sentence} for one in verdict.limits],
    }


def part_object(part: PartEvidence) -> dict[str, Any]:
    """One part's numbers; rates and p-values as shares of 1, intervals as `[low, high]` at 95 %."""
    return {
        **_counts(part),
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


def patch_evidence(evidence: Evidence) -> dict[str, Any]:
    """The evidence a patch was accepted with, short enough for a file that people review: counts, rates, verdict."""
    parts = {"seen": evidence.seen, "held_out": evidence.held_out}
    short: dict[str, Any] = clean(
        {
            **{key: value for key, value in verdict_object(evidence.verdict).items() if key != "limits"},
            "budget": evidence.budget,
            **({} if evidence.max_drop is None else {"max_drop": evidence.max_drop}),
            **{name: _counts(part) for name, part in parts.items() if part is not None},
        }
    )
    return short


def gate_objects(gates: Sequence[GateResult]) -> list[dict[str, Any]]:
    """Every gate with its measured number; null if that is not known."""
    return [{"gate": g.gate.text, "value": g.value, "shown": g.value_text, "failed": g.failed} for g in gates]


def doubtful_objects(doubtful: LabelNoise) -> list[dict[str, Any]]:
    """Inputs whose labels look wrong, the most doubtful first."""
    return _records(
        None,
        row=doubtful.rows,
        label=doubtful.labels,
        prediction=doubtful.predictions,
        confidence=doubtful.confidence,
        agreeing=doubtful.agreeing,
    )


def flips_object(flips: Flips) -> dict[str, Any]:
    """The predictions that a patch changes on inputs without labels."""
    rows = _records(
        MAX_LISTED_INPUTS,
        row=flips.rows,
        before=flips.before,
        after=flips.after,
        confidence_before=flips.confidence_before,
        confidence_after=flips.confidence_after,
    )
    return {
        "inputs": flips.inputs,
        "flipped": len(flips),
        "flip_rate": flips.rate.value,
        "flip_interval": flips.rate.interval,
        "kinds": [{"before": before, "after": after, "count": count} for before, after, count in flips.pairs],
        "rows": rows,
    }


def outlook_objects(forecast: Forecast | None, experiments: Mapping[str, Experiment]) -> dict[str, Any]:
    """The forecast made before the search, and experiments with causes by target, as far as there are any."""
    tried = {target: one.to_json() for target, one in experiments.items()}
    ahead = {} if forecast is None else {"forecast": forecast.to_json()}
    return {**ahead, **({"experiments": tried} if tried else {})}


def scan_object(
    confusions: Sequence[Confusion],
    *,
    accuracy: float,
    inputs: int,
    backend: str,
    wildcards: Sequence[Confusion] = (),
    causes: Sequence[Cause] = (),
    batch_dependent: Sequence[Mapping[str, Any]] = (),
    forecast: Forecast | None = None,
    health: Sequence[str] = (),
) -> dict[str, Any]:
    """The object that `scan --json` prints: the mistakes, the most frequent first, and what they share."""
    faults, together = (
        [{"target": c.target, "count": c.count, "share": c.share, "share_of_class": c.share_of_class} for c in several]
        for several in (confusions, wildcards)
    )
    scan: dict[str, Any] = clean(
        {
            "schema": SCAN_SCHEMA,
            "backend": backend,
            "inputs": inputs,
            "accuracy": accuracy,
            "faults": faults,
            "wildcards": together,
            "causes": [cause.to_json() for cause in causes],
            "batch_dependent": list(batch_dependent),
            "forecast": None if forecast is None else {"target": confusions[0].target, **forecast.to_json()},
            "health": list(health),
        }
    )
    return scan


def localisation_object(localisation: Localisation, *, target: str, seed: int | None, backend: str) -> dict[str, Any]:
    """The object that `localise --json` prints: the suspects, the most suspicious first, with both scores if known."""
    weights = [
        {"layer": address.layer, "parameter": address.parameter, "index": address.index, "value": value}
        | dict(zip(("gradient_loss", "forward_impact"), scores, strict=False))
        for address, value, scores in ranked_suspects(localisation)
    ]
    found: dict[str, Any] = clean(
        {
            "schema": LOCALISATION_SCHEMA,
            "localiser": localisation.method,
            "target": target,
            "seed": seed,
            "backend": backend,
            "candidates": localisation.n_candidates,
            "front": localisation.front,
            "weights": weights,
        }
    )
    return found


def result_schema() -> dict[str, Any]:
    """The JSON Schema of `result.json`."""
    schema: dict[str, Any] = json.loads(
        resources.files("arachne.report").joinpath("result.schema.json").read_text(encoding="utf-8")
    )
    return schema


def ranked_suspects(localisation: Localisation) -> list[tuple[Address, float, tuple[float, ...]]]:
    """Address, value and scores of every suspect, by the sum of its scores, each against the largest."""
    suspects = localisation.suspects
    scores = [localisation.score(address) if localisation.scores else () for address in suspects.addresses]
    rows = list(zip(suspects.addresses, suspects.values.tolist(), scores, strict=True))
    largest = [max(column) or 1.0 for column in zip(*scores, strict=True)]
    return sorted(rows, key=lambda row: -sum(score / most for score, most in zip(row[2], largest, strict=True)))


def _counts(part: PartEvidence) -> dict[str, Any]:
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
        **({} if part.kept is None and part.words == WORDS else {"words": _words(part)}),
    }


def _kept_object(kept: Rate) -> dict[str, Any]:
    return {
        "decisions": kept.total,
        "changed": kept.count,
        "changed_rate": kept.value,
        "changed_interval": kept.interval,
    }


def _words(part: PartEvidence) -> dict[str, str]:
    """Words for the counts, where those of inputs that are right or wrong do not fit."""
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
    return _records(
        MAX_LISTED_INPUTS,
        row=changed.rows,
        label=changed.labels,
        before=changed.before,
        after=changed.after,
        confidence_before=changed.confidence_before,
        confidence_after=changed.confidence_after,
        on_target=changed.on_target,
    )


def _records(most: int | None, /, **columns: Array) -> list[dict[str, Any]]:
    """Arrays `(k,)` by name as a list of at most `most` objects; numbers that are not whole get six digits."""
    rounded = [np.round(column, 6) if column.dtype.kind == "f" else column for column in columns.values()]
    rows = zip(*(column[:most].tolist() for column in rounded), strict=True)
    return [dict(zip(columns, values, strict=True)) for values in rows]
