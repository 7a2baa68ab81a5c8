"""RQ5 to RQ7, the other backends, and the headline as tables, from the lines alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from examples.study.questions import figures, published
from examples.study.questions.kept import DONE, Kept
from examples.study.questions.reading import EQUAL, Outcome, Pair, by_case, mean, of, outcome, pairs
from examples.study.questions.repairing import DEFAULT, DEFAULT_BUDGET, FAITHFUL, PARTS
from examples.study.questions.rq5 import SUBJECTS, WAYS
from examples.study.questions.sections import HEADS, NAMES, three
from examples.study.questions.tables import mean_over, number, points, rate_at, table, with_interval

Lines = dict[str, list[Kept]]
"""All lines by question."""


def headline(lines: Lines) -> str:
    """Held-out repair at equal held-out damage, over all faults that both were run on."""
    rows = []
    for name, both, paper in _groups(lines):
        if not both:
            continue
        found = three(both)
        level = by_case([pair.default for pair in both], [pair.level_repair() for pair in both])
        more = by_case(
            [pair.default for pair in both], [pair.level_repair() - outcome(pair.faithful).repair for pair in both]
        )
        told = [rate_at(outcomes) for outcomes in found]
        level_told = [number(float(np.mean(level))), with_interval(mean(more), sign=True)]
        rows.append([name, f"{len(found[0])}, {len(both)}", paper, told[0], *level_told, *told[1:]])
    heads = ["subject", "faults, runs", "paper's RR_eval", "faithful", "default, same held-out damage", "more repaired"]
    return table([*heads, *HEADS[1:]], rows)


def _groups(lines: Lines) -> Iterator[tuple[str, list[Pair], str]]:
    yield "FM, reference model, `6:0`", _first(lines["reference"], "fm-reference"), "0.645 @ 3.49 %, authors' code"
    for subject in ("fm-mlp", "c10-cnn", "gtsrb-cnn"):
        theirs = published.CONFUSIONS[subject]
        eval_rates = [rate for _, rate in theirs.values()]
        first = f"{eval_rates[0]:.2f} ({next(iter(theirs))})"
        yield f"RQ3 {NAMES[subject]}, most frequent", _first(lines["rq3"], subject), first
        every = [pair for pair in pairs(lines["rq3"]) if pair.faithful.cell.subject == subject]
        yield f"RQ3 {NAMES[subject]}, all that were run", every, f"{np.mean(eval_rates):.2f} (its top 10)"
    for subject in SUBJECTS:
        own = [pair for pair in pairs(lines["rq5"]) if pair.faithful.cell.subject == subject]
        yield f"RQ5 {subject}", own, ""
    yield "RQ5, all that were run", pairs(lines["rq5"]), "0.61"
    yield "RQ6 LFW, women read as men", pairs(lines["rq6"]), ""
    yield "RQ7 tweets, negative read as neutral", pairs(lines["rq7"]), ""


def _first(kept: Sequence[Kept], subject: str) -> list[Pair]:
    return [pair for pair in pairs(kept) if (pair.faithful.cell.subject, pair.faithful.cell.case) == (subject, "1")]


def rq5(kept: Sequence[Kept], pictures: Path | None) -> str:
    """Every way over the faults it was run on: repaired, errors left, accuracy, time."""
    rows, groups = [], {}
    for name, ladder, budget, own in _contenders(kept):
        by_case = _by_case(own, ladder, budget, kept)
        if not by_case:
            continue
        errors = [one.negatives - one.repaired for told in by_case.values() for one in told]
        before = [one.negatives for told in by_case.values() for one in told]
        seconds = f"{np.mean([one.seconds for one in own]):.0f}" if ladder != "part" else "in the default's"
        faults = f"{len(by_case)} faults, {sum(map(len, by_case.values()))} runs"
        left = f"{np.mean(before):.1f} → {np.mean(errors):.1f}"
        rows.append([name, faults, rate_at(by_case), left, points(by_case, lambda one: one.gain), seconds])
    first = [one for one in kept if one.outcome == DONE and one.cell.case == "1"]
    for subject in dict.fromkeys(one.cell.subject for one in first):
        own = {way: [1 - outcome(one).repair for one in of(first, subject, way)] for way in WAYS}
        groups[subject] = {way: values for way, values in own.items() if values}
    if pictures is not None and groups:
        figures.bars(pictures / "study-rq5.svg", groups, y="share of the fault left on held-out inputs")
    heads = ["way", "run on", "repaired @ broken", "errors left", "accuracy, points", "seconds"]
    return f"{table(heads, rows)}\n\n{_by_network(kept)}"


def _contenders(kept: Sequence[Kept]) -> Iterator[tuple[str, str, float | str | None, list[Kept]]]:
    """Name, which candidates, which budget, and the runs."""
    every = [one for one in kept if one.outcome == DONE]
    for way in WAYS:
        own = [one for one in every if one.cell.way == way]
        if way == DEFAULT:
            yield "default, no more damage than faithful", "ladder", EQUAL, own
            yield "default at 0.5 %", "ladder", DEFAULT_BUDGET, own
            for part in PARTS:
                yield f"`{part}` of the default, no more damage than faithful", part, EQUAL, own
        elif any("ladder" in one.found for one in own):
            yield f"`{way}`, no more damage than faithful", "ladder", EQUAL, own
            yield f"`{way}` at 0.5 %", "ladder", DEFAULT_BUDGET, own
        else:
            yield way if way == FAITHFUL else f"`{way}`", "own", None, own


def _by_case(
    own: Sequence[Kept], ladder: str, budget: float | str | None, kept: Sequence[Kept]
) -> dict[str, list[Outcome]]:
    found: dict[str, list[Outcome]] = {}
    if budget is None:
        for one in own:
            found.setdefault(f"{one.cell.subject} {one.cell.case}", []).append(outcome(one))
        return found
    ways = {one.cell.way for one in own}
    for pair in pairs(kept, (FAITHFUL, ways.pop())) if ways else ():
        if ladder in pair.default.found:
            key = f"{pair.faithful.cell.subject} {pair.faithful.cell.case}"
            found.setdefault(key, []).append(pair.default_at(budget, ladder))
    return found


def _by_network(kept: Sequence[Kept]) -> str:
    rows = []
    for subject in SUBJECTS:
        both = [pair for pair in pairs(kept) if pair.faithful.cell.subject == subject]
        if not both:
            continue
        targets = ", ".join(f"`{name}`" for name in dict.fromkeys(pair.faithful.found["target"] for pair in both))
        seconds = [np.mean([one.seconds for one in of(kept, subject, way)] or [np.nan]) for way in (FAITHFUL, DEFAULT)]
        apricot = of(kept, subject, "apricot")
        seconds.append(np.mean([one.seconds for one in apricot]) if apricot else np.nan)
        told = ", ".join("-" if np.isnan(own) else f"{own:.0f}" for own in seconds)
        theirs = published.SECONDS[subject]
        rates = [rate_at(outcomes) for outcomes in three(both)]
        rows.append([subject, targets, *rates, told, f"{theirs[0]}, {theirs[1]}"])
    heads = ["network", "faults", *HEADS, "seconds: faithful, default, apricot", "paper's seconds: its own, Apricot"]
    return table(heads, rows)


def rq6(kept: Sequence[Kept], pictures: Path | None) -> str:
    """Errors of women and of men before and after, with the spread over runs."""
    told: dict[str, dict[str, list[float]]] = {"women": {}, "men": {}}
    both = pairs(kept)
    contenders = {"faithful": [outcome(pair.faithful) for pair in both]}
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
        rows.append([gender, str(len(both)), f"{theirs[0]} → {theirs[1]}", *cells])
    return table(["errors, %", "runs", "paper", *told["women"]], rows) if both else "Not run yet."


def _error(one: Outcome, which: int, when: int) -> float:
    own = one.classes[which]
    return 0.0 if own is None else 100 * (1 - own[when] / own[0])


def rq7(kept: Sequence[Kept], pictures: Path | None) -> str:
    """Errors of both halves, and how sure the labellers were of what was repaired."""
    both = pairs(kept)
    if not both:
        return "Not run yet."
    rows = [["faithful", *_halves([pair.faithful for pair in both]), *_sure([pair.faithful for pair in both])]]
    equal = {"": [pair.default_at(EQUAL) for pair in both]}
    rows.append(["default, no more damage", str(len(both)), "", rate_at(equal), "", "", ""])
    rows.append(["default at 0.5 %", *_halves([p.default for p in both]), *_sure([p.default for p in both])])
    if pictures is not None:
        own = {"repaired": [], "not repaired": []}
        for pair in both:
            for name, key in zip(own, ("repaired", "unrepaired"), strict=True):
                own[name].append(pair.faithful.found["sure"][key][1])
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
