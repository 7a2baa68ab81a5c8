"""Next steps after a repair, as commands to type, at the end of the page."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath
from typing import Any

from arachne.choose.budget import BREAK_BUDGET
from arachne.evidence.grade import OVERRUN, REDUCED, REMOVED, TOO_FEW
from arachne.plugins.table import TASKS

SMALLER, LARGER = (0.005, 0.001, 0.0), (0.02, 0.05, 0.1)
"""Budgets to try when the repair broke too much, and when it did too little; the first beyond the one it had."""


@dataclass(frozen=True)
class Given:
    """The words of a repair's command line that name model and data.

    Attributes:
        file: The file that holds the weights.
        model: The words that name the model.
        data: The words that name the data.
    """

    file: str
    model: tuple[str, ...]
    data: tuple[str, ...]


def next_steps(
    result: Mapping[str, Any], given: Given, folder: str, *, front: bool, words: bool = False
) -> list[dict[str, str]]:
    """Sentences, each with its command, the most useful first.

    Args:
        result: What `result.json` holds.
        given: How the repair was asked for.
        folder: Where the repair's files are.
        front: Whether the folder holds other points to choose from.
        words: Whether the model has vectors of words.
    """
    costly = result.get("limit_state") == OVERRUN
    patch, good = _in(folder, "patch.json"), result["verdict"] in (REDUCED, REMOVED) and not costly
    apply = _step(
        "Put the patch into the model or into an export of it; your file stays as it is",
        ["apply", patch, given.file, "-o", f"patched{PurePath(given.file).suffix}"],
    )
    gate = _step(
        "Let a pipeline stop if the repair does not hold",
        ["evaluate", *given.model, *given.data, "--patch", patch, "--fail-if", f"verdict < {REDUCED}"],
    )
    made_by_code = given.model if given.model[:1] == ("--model",) else ()  # `choose` runs no code that is not typed
    had = BREAK_BUDGET if result.get("budget") is None else result["budget"]
    tried = [share for share in (SMALLER if costly else LARGER) if (share < had if costly else share >= 2 * had)]
    other = _step(
        "Take another point of the same front, without a new search",
        ["choose", folder, *made_by_code, "--max-break", f"{100 * (tried or [had])[0]:g}%", "-o", f"{folder}-other"],
    )
    front = front and bool(tried)
    again = ["repair", *given.model, *given.data, "--target", result["target"], "-o", f"{folder}-again"]
    compare = _step(
        "See whether another search does better",
        ["compare", *given.model, *given.data, "--target", result["target"], "-o", f"{folder}-compared"],
    )
    if good:
        steps = [apply, gate]
        if front:
            steps.insert(0 if _is_weak(result) else 2, other)
        return steps
    if result["verdict"] == TOO_FEW:
        return [_scan(given, "Collect more inputs that show the fault, or repair one that more inputs show", folder)]
    steps = [other] if front else []
    if not result["target"].startswith("cause:") and _has_one_label(given):
        steps.append(_scan(given, "Look for what the mistakes share: a cause is often repaired better", folder))
    if words:
        steps.append(_step("Search among the vectors of words alone", [*again, "--search", "margin@embeddings"]))
    return [*steps, compare]


def _is_weak(result: Mapping[str, Any]) -> bool:
    """Tell whether more than half of the fault is left."""
    counts = result["held_out"]
    return 2 * int(counts["target_errors_after"]) > int(counts["target_errors_before"])


def _has_one_label(given: Given) -> bool:
    """Tell whether each input has one label, so that causes are looked for."""
    named = dict(pairwise(given.data)).get("--task")
    return named is None or TASKS.get(named).ONE_LABEL


def _scan(given: Given, sentence: str, folder: str) -> dict[str, str]:
    return _step(sentence, ["scan", *given.model, *given.data, "--page", f"{folder}-scan.html"])


def _in(folder: str, name: str) -> str:
    return str(PurePath(folder) / name)


def _step(sentence: str, words: list[str]) -> dict[str, str]:
    return {"sentence": sentence, "command": shlex.join(["arachne", *words])}
