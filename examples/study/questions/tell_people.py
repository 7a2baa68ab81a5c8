"""RQ6 and RQ7 as tables and figures: what becomes of people's faces and words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from examples.study.questions import figures, published
from examples.study.questions.kept import DONE, Kept
from examples.study.questions.reading import EQUAL, Outcome, mean, outcome, pairs
from examples.study.questions.repairing import DEFAULT_BUDGET, FAITHFUL
from examples.study.questions.tables import mean_over, number, rate_at, table, with_interval


def rq6(kept: Sequence[Kept], pictures: Path | None) -> str:
    """Errors of women and of men before and after, with the spread over runs."""
    told: dict[str, dict[str, list[float]]] = {"women": {}, "men": {}}
    both = pairs(kept)
    faithful = [one for one in kept if (one.cell.way, one.outcome) == (FAITHFUL, DONE)]
    contenders = {"faithful": [outcome(one) for one in faithful]}
    contenders["default, no more damage"] = [pair.default_at(EQUAL) for pair in both]
    contenders["default at 0.5 %"] = [pair.default_at(DEFAULT_BUDGET) for pair in both]
    for which, gender in enumerate(("women", "men")):
        told[gender]["before"] = [_error(one, which, 1) for one in contenders["faithful"]]
        for name, own in contenders.items():
            told[gender][name] = [_error(one, which, 2) for one in own]
    if pictures is not None and both:
        figures.bars(pictures / "study-rq6.svg", told, y="error on held-out inputs, %")
    rows = []
    for gender, theirs in (("women", published.GENDER["female"]), ("men", published.GENDER["male"])):
        cells = [with_interval(mean(values), 1) for values in told[gender].values()] if both else []
        rows.append([gender, f"{len(faithful)}, {len(both)}", f"{theirs[0]} → {theirs[1]}", *cells])
    return table(["errors, %", "runs: faithful, default", "paper", *told["women"]], rows) if both else "Not run yet."


def _error(one: Outcome, which: int, when: int) -> float:
    own = one.classes[which]
    return 0.0 if own is None else 100 * (1 - own[when] / own[0])


def rq7(kept: Sequence[Kept], pictures: Path | None) -> str:
    """Errors of both halves, and how sure the labellers were of what was repaired."""
    both = pairs(kept)
    faithful = [one for one in kept if (one.cell.way, one.outcome) == (FAITHFUL, DONE)]
    if not faithful:
        return "Not run yet."
    rows = [["faithful", *_halves(faithful), *_sure(faithful)]]
    if both:
        equal = {"": [pair.default_at(EQUAL) for pair in both]}
        rows.append(["default, no more damage", str(len(both)), "", rate_at(equal), "", "", ""])
        rows.append(["default at 0.5 %", *_halves([p.default for p in both]), *_sure([p.default for p in both])])
    if pictures is not None:
        own = {"repaired": [], "not repaired": []}
        for one in faithful:
            for name, key in zip(own, ("repaired", "unrepaired"), strict=True):
                own[name].append(one.found["sure"][key][1])
        figures.bars(pictures / "study-rq7.svg", {"faithful": own}, y="confidence of the labellers, mean of a run")
    heads = ["way", "runs", "RR_val", "RR_eval @ broken", "sure of repaired", "of unrepaired", "difference"]
    return table(heads, rows)


def _halves(own: Sequence[Kept]) -> list[str]:
    seen = mean_over({"": [outcome(one, "seen") for one in own]}, lambda one: one.repair)
    return [str(len(own)), with_interval(seen), rate_at({"": [outcome(one) for one in own]})]


def _sure(own: Sequence[Kept]) -> list[str]:
    """Means over runs that repaired something and left something."""
    told = [one.found["sure"] for one in own if one.found["sure"]["repaired"][0] and one.found["sure"]["unrepaired"][0]]
    if not told:
        return ["-", "-", "-"]
    repaired, left = ([one[key][1] for one in told] for key in ("repaired", "unrepaired"))
    difference = mean([a - b for a, b in zip(repaired, left, strict=True)])
    return [
        number(float(np.mean(repaired)), 3),
        number(float(np.mean(left)), 3),
        with_interval(difference, 3, sign=True),
    ]
