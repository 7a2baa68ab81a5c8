"""RQ1 to RQ4 and the reference model as tables, from the lines alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from examples.study.questions import figures, published
from examples.study.questions.kept import DONE, Kept
from examples.study.questions.reading import EQUAL, Outcome, Pair, mean, of, outcome, pairs
from examples.study.questions.repairing import DEFAULT, DEFAULT_BUDGET, FAITHFUL, GL, RS
from examples.study.questions.rq1 import LOCALISERS
from examples.study.questions.tables import (
    mean_over,
    number,
    points,
    rate_at,
    table,
    with_interval,
)

NAMES = {"fm-mlp": "FM", "c10-cnn": "C10", "gtsrb-cnn": "GTSRB", "fm-reference": "FM, reference model"}
SUBJECTS = ("fm-mlp", "c10-cnn", "gtsrb-cnn")


def subjects_in(kept: Sequence[Kept]) -> list[str]:
    """The subjects that have a finished run, in the paper's order."""
    present = {one.cell.subject for one in kept if one.outcome == DONE}
    return [name for name in SUBJECTS if name in present] + sorted(present - set(SUBJECTS))


def reference(kept: Sequence[Kept]) -> str:
    """Beside the authors' own code, on the same network and halves."""
    rows = []
    for case in sorted({one.cell.case for one in kept}):
        own = [pair for pair in pairs(kept) if pair.faithful.cell.case == case]
        if not own:
            continue
        target = own[0].faithful.found["target"]
        theirs = "" if target != "6:0" else "0.741, {1:.3f} @ {2:.2f} %".format(*_percent(published.AUTHORS_CODE))
        seen = np.mean([outcome(pair.faithful, "seen").repair for pair in own])
        rows.append([f"`{target}`", str(len(own)), theirs, f"{seen:.2f}", *_three(own)])
    heads = ["fault", "runs", "authors' code: RR_val, RR_eval", "faithful: RR_val", *HEADS]
    return table(heads, rows)


HEADS = ("faithful", "default, no more damage", "default at 0.5 %")


def _percent(told: tuple[float, float, float]) -> tuple[float, float, float]:
    return told[0], told[1], 100 * told[2]


def three(own: Sequence[Pair]) -> tuple[dict[str, list[Outcome]], ...]:
    """By case: the paper's repair, the default at its damage, and the default at its own budget."""
    found: tuple[dict[str, list[Outcome]], ...] = ({}, {}, {})
    for pair in own:
        told = (outcome(pair.faithful), pair.default_at(EQUAL), pair.default_at(DEFAULT_BUDGET))
        for by_case, one in zip(found, told, strict=True):
            by_case.setdefault(f"{pair.faithful.cell.subject} {pair.faithful.cell.case}", []).append(one)
    return found


def _three(own: Sequence[Pair]) -> list[str]:
    return [rate_at(outcomes) for outcomes in three(own)]


def rq1(kept: Sequence[Kept], pictures: Path | None) -> str:
    """ROC-AUC of every localiser, and the curves."""
    rows, groups = [], {}
    for subject in subjects_in(kept):
        own = of(kept, subject, "ranks")
        theirs = published.AUC.get(subject, {})
        changed = [100 * one.found["changed"] / one.found["inputs"] for one in own]
        told = [
            f"{np.mean([one.found['auc'][name] for one in own]):.4f}"
            + (f" ({theirs[name]:.4f})" if name in theirs else "")
            for name in LOCALISERS
        ]
        rows.append([NAMES.get(subject, subject), str(len(own)), f"{np.mean(changed):.2f}", *told])
        groups[NAMES.get(subject, subject)] = {name: _curve(own, name) for name in LOCALISERS}
    if pictures is not None and groups:
        x, y = "share of weights looked at", "share of runs in which the faulty weight is among them"
        figures.lines(pictures / "study-rq1.svg", groups, x=x, y=y, log=True, step=True)
    return table(["subject", "runs", "changed, %", *LOCALISERS], rows)


def _curve(own: Sequence[Kept], localiser: str) -> tuple[list[float], list[float]]:
    """How many of the faulty weights are found within which share of all weights."""
    least = 1 / max(one.found["weights"] for one in own)
    shares = sorted(max(least, one.found["ranks"][localiser] / one.found["weights"]) for one in own)
    found = [(place + 1) / len(shares) for place in range(len(shares))]
    return [least, *shares, 1.0], [0.0, *found, 1.0]


def rq2(kept: Sequence[Kept]) -> str:
    """A tenth of the errors: RR, RR over all errors, BR, accuracy ratio."""
    rows = []
    for subject in subjects_in(kept):
        for way in (FAITHFUL, GL, RS, DEFAULT):
            own = of(kept, subject, way)
            if not own:
                continue
            told = [outcome(one, "seen") for one in own]
            every = [
                (one.found["seen"]["repaired"] + one.found["seen"]["others_fixed"]) / one.found["wrong"] for one in own
            ]
            theirs = published.TENTH.get(subject, {}).get(way)
            paper = "" if theirs is None else "{:.3f}, {:.3f}, {:.3f}".format(*theirs)
            rates = [with_interval(mean([one.repair for one in told]), 3), f"{np.mean(every):.3f}"]
            rates += [f"{np.mean([one.damage for one in told]):.4f}"]
            rates += [f"{np.mean([one.right / one.positives for one in told]):.4f}"]
            localised = f"{np.mean([one.found['localised'] for one in own]):.1f}"
            name = way if way != DEFAULT else "default at 0.5 %"
            rows.append([NAMES.get(subject, subject), name, str(len(own)), paper, *rates, localised])
    heads = ["subject", "way", "runs", "paper: RR, all, BR", "RR", "RR of all errors", "BR", "accuracy ratio"]
    return table([*heads, "weights"], rows)


def rq3(kept: Sequence[Kept], pictures: Path | None) -> str:
    """Every confusion of each subject: seen and held-out repair, and the default at the same damage."""
    parts, groups = [], {}
    for subject in subjects_in(kept):
        both = [pair for pair in pairs(kept) if pair.faithful.cell.subject == subject]
        name = NAMES.get(subject, subject)
        rows = list(_confusions(both, published.CONFUSIONS.get(subject, {})))
        heads = ["rank", "fault", "runs", "paper: val, eval", "faithful: RR_val", *HEADS]
        parts.append(f"### {name}\n\n{table(heads, rows)}\n\n{_kept_ratio(kept, subject)}")
        dots = {way: _both_halves(of(kept, subject, way)) for way in (FAITHFUL, DEFAULT)}
        groups[name] = {way: pair for way, pair in dots.items() if pair[0]}
    if pictures is not None and groups:
        x, y = "RR_val, seen half", "RR_eval, held-out half"
        figures.dots(pictures / "study-rq3.svg", groups, x=x, y=y, diagonal=True)
    return "\n\n".join(parts)


def _confusions(both: Sequence[Pair], theirs: dict[str, tuple[float, float]]) -> Iterator[list[str]]:
    cases = sorted({pair.faithful.cell.case for pair in both}, key=int)
    for case in cases:
        own = [pair for pair in both if pair.faithful.cell.case == case]
        target = own[0].faithful.found["target"]
        paper = "{:.2f}, {:.2f}".format(*theirs[target]) if target in theirs else ""
        seen = np.mean([outcome(pair.faithful, "seen").repair for pair in own])
        yield [case, f"`{target}`", str(len(own)), paper, f"{seen:.2f}", *_three(own)]
    if len(cases) > 1:
        yield ["all", f"{len(cases)} faults", str(len(both)), "", "", *_three(both)]


def _both_halves(own: Sequence[Kept]) -> tuple[list[float], list[float]]:
    cases = sorted({one.cell.case for one in own})
    halves = [
        [float(np.mean([outcome(one, half).repair for one in own if one.cell.case == case])) for case in cases]
        for half in ("seen", "held_out")
    ]
    return halves[0], halves[1]


def _kept_ratio(kept: Sequence[Kept], subject: str) -> str:
    """How much of the seen repair is kept on held-out inputs."""
    told = []
    for top in (1, 10, 20, 30):
        seen, held_out = _both_halves([one for one in of(kept, subject, FAITHFUL) if int(one.cell.case) <= top])
        able = [(a, b) for a, b in zip(seen, held_out, strict=True) if a > 0]
        if able and len(seen) > top / 2:
            share = np.mean([b / a for a, b in able])
            told.append(f"top {min(top, len(seen))}: {share:.2f}")
    theirs = published.KEPT_RATIO.get(subject)
    paper = f" (the paper's top 10: {theirs:.2f})" if theirs else ""
    return f"RR_eval / RR_val, faithful: {', '.join(told)}{paper}." if told else ""


def rq4(kept: Sequence[Kept], pictures: Path | None) -> str:
    """Points that class a, class b and all inputs gain, by alpha."""
    rows, groups = [], {}
    for subject in subjects_in(kept):
        name = NAMES.get(subject, subject)
        series: dict[str, tuple[list[float], list[float]]] = {}
        for alpha in sorted({int(one.cell.case) for one in kept if one.cell.subject == subject}):
            own = {"": [outcome(one) for one in of(kept, subject, FAITHFUL, str(alpha))]}
            both = [pair for pair in pairs(kept) if pair.faithful.cell.subject == subject]
            both = [pair for pair in both if pair.faithful.cell.case == str(alpha)]
            if not own[""]:
                continue
            theirs = published.ALPHA.get(subject, {}).get(alpha)
            paper = "" if theirs is None else f"{theirs[0]:+.1f}, {theirs[1]:+.1f}"
            changes = [lambda one: one.class_gain(0), lambda one: one.class_gain(1), lambda one: one.gain]
            told = [points(own, change) for change in changes]
            defaults = [_class_gains(both, budget) for budget in (EQUAL, DEFAULT_BUDGET)]
            rows.append([name, str(alpha), str(len(own[""])), paper, *told, *defaults])
            for line, change in zip(("class a", "class b", "all"), changes, strict=True):
                xs, ys = series.setdefault(line, ([], []))
                xs.append(alpha)
                ys.append(mean_over(own, change).value)
        groups[name] = series
    if pictures is not None and groups:
        figures.lines(pictures / "study-rq4.svg", groups, x="alpha", y="accuracy, points gained on held-out inputs")
    heads = ["subject", "alpha", "runs", "paper: a, b", "faithful: class a", "class b", "all"]
    return table([*heads, "default, no more damage: a, b", "default at 0.5 %: a, b"], rows)


def _class_gains(both: Sequence[Pair], budget: float | str) -> str:
    if not both:
        return "not run"
    told = [pair.default_at(budget) for pair in both]
    return ", ".join(number(float(np.mean([one.class_gain(which) for one in told])), 1, sign=True) for which in (0, 1))
