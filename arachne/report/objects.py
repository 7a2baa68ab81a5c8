"""The objects of `result.json` and `--json`: numbers under stable names, described by `result.schema.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import resources
from typing import TYPE_CHECKING, Any

from arachne.evidence import Evidence, Flips, GateResult, LabelNoise, Verdict
from arachne.model.values import Address
from arachne.report.json import clean
from arachne.report.part_object import MAX_LISTED_INPUTS, part_counts, part_object, records

if TYPE_CHECKING:
    from arachne.causes import Cause, Experiment
    from arachne.data.part import Part
    from arachne.evidence.forecast import Forecast
    from arachne.evidence.scan import Scan
    from arachne.localise.base import Localisation

SCHEMA = "arachne.result/1"
SCAN_SCHEMA = "arachne.scan/1"
LOCALISATION_SCHEMA = "arachne.localisation/1"
FLIPS_SCHEMA = "arachne.flips/1"


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


def patch_evidence(evidence: Evidence) -> dict[str, Any]:
    """The evidence a patch was accepted with, short enough for a file that people review: counts, rates, verdict."""
    parts = {"seen": evidence.seen, "held_out": evidence.held_out}
    short: dict[str, Any] = clean(
        {
            **{key: value for key, value in verdict_object(evidence.verdict).items() if key != "limits"},
            "budget": evidence.budget,
            **({} if evidence.max_drop is None else {"max_drop": evidence.max_drop}),
            **{name: part_counts(part) for name, part in parts.items() if part is not None},
        }
    )
    return short


def gate_objects(gates: Sequence[GateResult]) -> list[dict[str, Any]]:
    """Every gate with its measured number; null if that is not known."""
    return [{"gate": g.gate.text, "value": g.value, "shown": g.value_text, "failed": g.failed} for g in gates]


def doubtful_objects(doubtful: LabelNoise) -> list[dict[str, Any]]:
    """Inputs whose labels look wrong, the most doubtful first."""
    return records(
        None,
        row=doubtful.rows,
        label=doubtful.labels,
        prediction=doubtful.predictions,
        confidence=doubtful.confidence,
        agreeing=doubtful.agreeing,
    )


def flips_object(flips: Flips) -> dict[str, Any]:
    """The predictions that a patch changes on inputs without labels."""
    rows = records(
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


def outlook_objects(
    forecast: Forecast | None, experiments: Mapping[str, Experiment], copies: Mapping[str, Part]
) -> dict[str, Any]:
    """The forecast made before the search, and experiments with causes by target, as far as there are any.

    Args:
        forecast: The forecast.
        experiments: The experiments.
        copies: Copies with the cause planted that were to be repaired too, by target.
    """
    tried = {target: {**one.to_json(), "copies": len(copies.get(target, ()))} for target, one in experiments.items()}
    ahead = {} if forecast is None else {"forecast": forecast.to_json()}
    return {**ahead, **({"experiments": tried} if tried else {})}


def scan_object(
    scan: Scan, *, backend: str, causes: Sequence[Cause] | None = None, health: Sequence[str] = ()
) -> dict[str, Any]:
    """The object that `scan --json` prints: the mistakes, the most frequent first, and what they share."""
    faults, together = (
        [{"target": c.target, "count": c.count, "share": c.share, "share_of_class": c.share_of_class} for c in several]
        for several in (scan.faults, scan.wildcards)
    )
    unsteady, forecast = scan.batch_dependent, scan.forecast
    found: dict[str, Any] = clean(
        {
            "schema": SCAN_SCHEMA,
            "backend": backend,
            "inputs": len(scan.data),
            "accuracy": scan.accuracy,
            "faults": faults,
            "wildcards": together,
            "causes": [cause.to_json() for cause in causes or ()],
            "batch_dependent": unsteady.to_json() if unsteady else [],
            "forecast": None if forecast is None else {"target": scan.faults[0].target, **forecast.to_json()},
            "health": list(health),
        }
    )
    return found


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
