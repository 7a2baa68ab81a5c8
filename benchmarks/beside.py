"""Ours beside others, in one run: the paper's method, torch training the last layer, and what PRDNN has published.

    python -m benchmarks.beside                 measure all of it, one after the other, and print the tables
    python -m benchmarks.beside --print         the tables of the last run

Fashion-MNIST, an MLP of 100 hidden units: the most frequent confusion, 2,500 inputs seen and 2,500 held out, within
0.5 % of right inputs broken. *The paper* is `--faithful` (its localiser, fitness and differential evolution, on our
evaluator), which knows no budget. *Torch* trains the last layer by cross-entropy, negatives weighted as much as all
right inputs together, until it would break more of the seen ones than the budget; it looks after every step, and the
best step counts. ACAS Xu: two networks repaired by a rule (`examples.arena`), without any change of advice elsewhere;
PRDNN's seconds are those of its paper, on another machine.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "beside.json"

BUDGET, INPUTS = 0.005, 5000
"""The share of right inputs that a change may break, and how many inputs there are."""

TARGET = "top:1"

PARTS = (("keep_rule_now", "test_states"), ("changed", "kept"))
"""The counts of test states of ACAS Xu that become shares, each with that of the whole."""

OURS, PAPER, TORCH = "ours", "the paper, --faithful", "torch, last layer"


def main() -> None:
    """Measure, keep and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside", description=__doc__)
    parser.add_argument("--print", action="store_true", dest="only_print", help="measure nothing")
    parser.add_argument("--results", type=Path, default=RESULTS)
    asked = parser.parse_args()
    if not asked.only_print:
        found = {"fashion": compare_on_fashion(), "acas": compare_on_acas()}
        asked.results.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(tables(json.loads(asked.results.read_text(encoding="utf-8"))))


def compare_on_fashion() -> dict[str, Any]:
    """Repair Fashion-MNIST in three ways; return the seconds of the processor and counts on held-out inputs."""
    import torch

    import arachne
    from arachne.choose.budget import Budget
    from arachne.errors import NothingWithinBudgetError
    from arachne.settings import Settings
    from benchmarks.growth import train_last
    from benchmarks.rows.__main__ import processor_seconds
    from benchmarks.subjects import SUBJECTS, make_subject

    torch.set_num_threads(1)
    network, data = make_subject(SUBJECTS[0], INPUTS)
    found: dict[str, Any] = {}
    for name, settings in ((OURS, Settings(budget=Budget(max_break=BUDGET))), (PAPER, Settings.faithful())):
        used = processor_seconds()
        try:
            result = arachne.repair(network, data, TARGET, seed=0, settings=settings)
        except NothingWithinBudgetError as error:
            result = error.result
        seconds, told = processor_seconds() - used, result.evidence.held_out
        found[name] = {"seconds": round(seconds, 2), "repaired": told.repaired, "broken": told.broken}
        found |= {"negatives": told.negatives, "positives": told.positives}
    split = result.split
    parts = [part.take(np.concatenate([part.negatives, part.positives])) for part in (split.seen, split.held_out)]
    used = processor_seconds()
    tuned = train_last(network, *(part.data for part in parts), *(part.right for part in parts), every=1)
    found[TORCH] = {"seconds": round(processor_seconds() - used, 2), **tuned}
    return found


def compare_on_acas() -> dict[str, Any]:
    """Repair both networks by rule; return seconds of the processor, and counts on test states."""
    from examples.arena.acas import ACAS, repair_acas

    return {name: repair_acas(name) for name in ACAS}


def tables(found: dict[str, Any]) -> str:
    """Return both tables."""
    from examples.arena.page import ACAS_PUBLISHED

    fashion = found["fashion"]
    lines = [
        f"| Fashion-MNIST, `{TARGET}` | processor, s | ours takes | repaired of {fashion['negatives']} "
        f"| broken of {fashion['positives']:,} |",
        "|---|---|---|---|---|",
    ]
    ours = fashion[OURS]["seconds"]
    for name in (OURS, PAPER, TORCH):
        own = fashion[name]
        ratio = "" if name == OURS else f"{ours / max(0.01, own['seconds']):.2f} ×"
        lines.append(f"| {name} | {own['seconds']:.2f} | {ratio} | {own['repaired']} | {own['broken']} |")
    lines += ["", "| ACAS Xu | s | states that keep the rule, % | advice changed elsewhere, % |", "|---|---|---|---|"]
    for name, own in found["acas"].items():
        kept, changed = (100 * own[part] / max(1, own[of]) for part, of in PARTS)
        lines.append(f"| {name}, ours | {own['seconds']:.1f} | {kept:.2f} | {changed:.2f} |")
        repaired, broken, seconds = ACAS_PUBLISHED[name]["PRDNN"]
        lines.append(f"| {name}, PRDNN as published | {seconds:g} | {repaired:.2f} | {broken:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
