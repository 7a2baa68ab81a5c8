"""RQ2, RQ3, the reference model and the other backends as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from examples.study.questions import figures, published
from examples.study.questions.columns import HEADS, NAMES, columns, subjects_in
from examples.study.questions.kept import Kept
from examples.study.questions.reading import mean, of, outcome, pairs
from examples.study.questions.repairing import DEFAULT, FAITHFUL, GL, RS
from examples.study.questions.tables import rate_at, table, with_interval


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
        rows.append([f"`{target}`", str(len(own)), theirs, f"{seen:.2f}", *columns(own)])
    heads = ["fault", "runs", "authors' code: RR_val, RR_eval", "faithful: RR_val", *HEADS]
    return table(heads, rows)


def _percent(told: tuple[float, float, float]) -> tuple[float, float, float]:
    return told[0], told[1], 100 * told[2]


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


def rq3(kept: Sequence[Kept], pictures: Path | None, *, short: bool = False) -> str:
    """Every confusion of each subject: seen and held-out repair, and the default at the same damage.

    Args:
        kept: The lines of the result files.
        pictures: Folder of the figure, or None.
        short: Tell no single confusions; the page has their means in its first table.
    """
    parts, groups = [], {}
    for subject in subjects_in(kept):
        name = NAMES.get(subject, subject)
        rows = list(_confusions(kept, subject))
        heads = ["rank", "fault", "runs of both", "paper: val, eval", "faithful: RR_val", *HEADS]
        ratio = _kept_ratio(kept, subject)
        parts.append(f"{name}: {ratio}" if short else f"### {name}\n\n{table(heads, rows)}\n\n{ratio}")
        dots = {way: _both_halves(of(kept, subject, way)) for way in (FAITHFUL, DEFAULT)}
        groups[name] = {way: pair for way, pair in dots.items() if pair[0]}
    if pictures is not None and groups:
        x, y = "RR_val, seen half", "RR_eval, held-out half"
        figures.dots(pictures / "study-rq3.svg", groups, x=x, y=y, diagonal=True)
    return "\n\n".join(parts)


def _confusions(kept: Sequence[Kept], subject: str) -> Iterator[list[str]]:
    theirs = published.CONFUSIONS.get(subject, {})
    both = [pair for pair in pairs(kept) if pair.faithful.cell.subject == subject]
    cases = sorted({one.cell.case for one in of(kept, subject, FAITHFUL)}, key=int)
    for case in cases:
        faithful = of(kept, subject, FAITHFUL, case)
        own = [pair for pair in both if pair.faithful.cell.case == case]
        target = faithful[0].found["target"]
        paper = "{:.2f}, {:.2f}".format(*theirs[target]) if target in theirs else ""
        seen = np.mean([outcome(one, "seen").repair for one in faithful])
        whole = rate_at({"": [outcome(one) for one in faithful]})
        runs = f"{len(faithful)}, {len(of(kept, subject, DEFAULT, case))}"
        yield [case, f"`{target}`", runs, paper, f"{seen:.2f}", whole, *columns(own)[1:]]
    shared = len({pair.faithful.cell.case for pair in both})
    if shared > 1:
        yield ["mean", f"{shared} faults that both ran on", f"{len(both)}", "", "", *columns(both)]


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


def backends(kept: Sequence[Kept]) -> str:
    """RQ3 on FM through other backends: how many patches are the same."""
    rows = []
    ported = sorted({(one.cell.subject, *one.cell.way.split("@")) for one in kept if "@" in one.cell.way})
    for subject, way, name in ported:
        ours = {(one.cell.case, one.cell.seed): one for one in of(kept, subject, way)}
        own = [one for one in of(kept, subject, f"{way}@{name}") if (one.cell.case, one.cell.seed) in ours]
        if own:
            couples = [(one.found, ours[one.cell.case, one.cell.seed].found) for one in own]
            places = sum(_place(a) == _place(b) for a, b in couples)
            counts = sum(a["held_out"] == b["held_out"] for a, b in couples)
            differences = [
                abs(_length(a) - _length(b)) / max(_length(b), 1e-9) for a, b in couples if _place(a) == _place(b)
            ]
            largest = f"{max(differences):.1e}" if differences else "-"
            targets = sum(a["target"] == b["target"] for a, b in couples)
            told = [f"{count} of {len(own)}" for count in (targets, places, counts)]
            rows.append([name, way, *told, largest])
    heads = ["backend", "way", "same fault", "same weights", "same counts, held out", "length of the change differs by"]
    return table(heads, rows) if rows else "Not run yet."


def _place(found: dict[str, object]) -> object:
    patch = found["patch"]
    return patch["places"] if isinstance(patch, dict) else None


def _length(found: dict[str, object]) -> float:
    patch = found["patch"]
    return float(patch["length"]) if isinstance(patch, dict) else 0.0
