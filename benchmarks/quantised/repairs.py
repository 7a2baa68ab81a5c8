"""Repair one copy on several splits, or carry a patch to another copy, and count what that does."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import arachne
from arachne.data.labelled import LabelledData
from arachne.errors import NothingWithinBudgetError
from arachne.scoring.plain import forward_with_weights
from benchmarks.quantised.copies import CARRIED, Copies
from benchmarks.quantised.files import OWN_DECISIONS, differing
from examples.study.cases import Case

SEEDS = (0, 1)
"""The splits whose counts are added."""

BUDGET = 0.005

COUNTS = ("negatives", "repaired", "positives", "broken")


def measure(case: Case, row: str, keep: Callable[[dict[str, Any]], None], parts: dict[str, Any]) -> dict[str, Any]:
    """Repair one fault of one copy, or carry a patch over; `keep` is told each split, those in `parts` are there."""
    copies = Copies(case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return carry(copies, *CARRIED[row]) if row in CARRIED else repair(copies, row, keep, parts)


def repair(
    copies: Copies, form: str, keep: Callable[[dict[str, Any]], None] | None = None, parts: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Repair one copy on several splits, add the counts, and look at the file saved by the first that found a patch."""
    path, data = copies.file(form), copies.data_for(form)
    found: dict[str, Any] = {}
    parts = {} if parts is None else parts
    for seed in SEEDS:
        if str(seed) not in parts:
            parts[str(seed)] = repair_split(copies, form, seed, save="differing" not in found)
            if keep is not None:
                keep(parts)
        for key, value in parts[str(seed)].items():
            found[key] = found.get(key, 0) + value if key in (*COUNTS, "reach", "seconds") else value
    return found | {"seeds": len(SEEDS)} | as_runtime(path, data)


def repair_split(copies: Copies, form: str, seed: int, *, save: bool) -> dict[str, Any]:
    """Repair one copy on one split."""
    path, data = copies.file(form), copies.data_for(form)
    began = time.process_time()
    try:
        result = arachne.repair(path, data, copies.case.target, max_break=BUDGET, seed=seed)
    except NothingWithinBudgetError as error:
        held_out = error.result.split.held_out
        sizes = {"negatives": len(held_out.negatives), "positives": len(held_out.positives)}
        return {**sizes, "repaired": 0, "broken": 0, "reach": within_reach(error.result), "nothing": str(error)}
    found = {**counts(result.evidence.held_out), "reach": within_reach(result)}
    found["seconds"] = round(time.process_time() - began, 1)
    return found | (saved_file(copies, form, result) if save else {})


def within_reach(result: Any) -> int:
    """Count the most held-out negatives that a candidate repairs within the budget, measured on these inputs."""
    held_out, most = result.split.held_out, 0
    for point in result.points:
        weights = point.candidate.whole_parameters(result.backend)
        scores = forward_with_weights(result.backend, weights, held_out.data.inputs)
        right = held_out.task.decide(held_out.read(scores).scores) == held_out.labels
        if np.sum(~right[held_out.positives]) <= BUDGET * len(held_out.positives):
            most = max(most, int(right[held_out.negatives].sum()))
    return most


def saved_file(copies: Copies, form: str, result: Any) -> dict[str, Any]:
    """Save a repaired copy, take the patch out again, and tell what differs."""
    path = copies.file(form)
    result.patch.save(copies.patch(form))
    after, back = (copies.folder / f"{end}{path.suffix}" for end in ("after", "back"))
    result.model.save(after)
    arachne.revert(result.patch, after, back)
    found = {
        "weights": len(result.patch),
        "reverts": path.read_bytes() == back.read_bytes() if path.suffix != ".keras" else None,
        "differing": differing(path, after) if path.suffix != ".keras" else None,
    }
    for file in (after, back):
        file.unlink()
    return found


def as_runtime(path: Path, data: LabelledData) -> dict[str, int]:
    """Count the inputs that Arachne says a file gets right, and those that a plain session of its runtime does."""
    if path.suffix not in OWN_DECISIONS:
        return {}
    right = round(arachne.scan(path, data).accuracy * len(data.labels))
    own = OWN_DECISIONS[path.suffix](path, np.asarray(data.inputs))
    return {"right": right, "right_by_runtime": int(np.sum(own == data.labels))}


def carry(copies: Copies, source: str, form: str) -> dict[str, Any]:
    """Apply the patch of one copy to another, and measure on the inputs that the repair has not seen."""
    if not copies.patch(source).exists() and "nothing" in repair(copies, source):
        return {"refused": f"nothing was found on {source}"}
    try:
        evidence = arachne.measure(copies.file(form), copies.data_for(form), patch=copies.patch(source))
    except arachne.ArachneError as error:
        return {"refused": str(error)}
    return counts(evidence.held_out)


def counts(part: Any) -> dict[str, Any]:
    """Return what was repaired and broken."""
    return {
        "negatives": part.negatives,
        "repaired": part.repaired,
        "positives": part.positives,
        "broken": part.broken,
    }
