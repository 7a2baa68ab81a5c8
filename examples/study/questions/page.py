"""The page of the study and its figures, from the result files alone: no measured number is typed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from examples.study.questions import page_text as text
from examples.study.questions import published
from examples.study.questions.headline import Lines, draw, headline
from examples.study.questions.kept import DONE, RESULTS, Kept, read, read_facts
from examples.study.questions.repairing import DEFAULT
from examples.study.questions.tables import table
from examples.study.questions.tell_alpha import rq4
from examples.study.questions.tell_confusions import backends, reference, rq2, rq3
from examples.study.questions.tell_localising import rq1
from examples.study.questions.tell_people import rq6, rq7
from examples.study.questions.tell_rivals import rq5
from examples.study.questions.wanted import wanted_table
from examples.study.questions.working import is_present
from examples.study.sources import PROJECT

PAGE = PROJECT / "reports" / "reproducing-the-paper.md"
PICTURES = "pictures"
NEED_BOTH = ("rq6",)
"""Their figures need the paper's repair and the default."""

QUESTIONS = ("reference", "rq1", "rq2", "rq3", "rq4", "rq5", "rq6", "rq7")


def write(folder: Path = RESULTS, page: Path = PAGE) -> None:
    """Write page and figures."""
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(page_of(folder, page.parent / PICTURES), encoding="utf8")


def page_of(folder: Path = RESULTS, pictures: Path | None = None) -> str:
    """The page; its figures are drawn into `pictures`, if that is given."""
    lines: Lines = {name: read(folder, name) for name in QUESTIONS}
    if pictures is not None:
        draw(lines, pictures / "study-headline.svg")
    parts = [
        text.HEAD,
        _section("## Held-out repair at equal held-out damage", text.HEADLINE, headline(lines)),
        _figure(lines, "rq3", text.HEADLINE_FIGURE, picture="headline"),
        _section("## What was wanted, and what came out", text.WANTED, wanted_table(lines), text.WHY),
        _section("## The networks", text.NETWORKS, _networks(folder)),
        _section("## RQ1: does localisation find a fault?", text.RQ1, rq1(lines["rq1"], pictures)),
        _figure(lines, "rq1", text.RQ1_FIGURE),
        _section("## RQ2: a random tenth of all errors", text.RQ2, rq2(lines["rq2"]), text.RQ2_WHY),
        _section("## RQ3: do repairs hold on other inputs?", text.RQ3, rq3(lines["rq3"], pictures, short=True)),
        _figure(lines, "rq3", text.RQ3_FIGURE, text.RQ3_WHY),
        _section("### On the network of the authors' own code", text.REFERENCE, reference(lines["reference"])),
        _section("### Through other backends", text.BACKENDS, backends(lines["rq3"]), text.BACKENDS_WHY),
        _section("## RQ4: what alpha does", text.RQ4, rq4(lines["rq4"], pictures)),
        _figure(lines, "rq4", text.RQ4_FIGURE, text.RQ4_WHY),
        _section("## RQ5: beside every rival", text.RQ5, rq5(lines["rq5"], pictures, short=True)),
        _figure(lines, "rq5", text.RQ5_FIGURE, text.RQ5_WHY),
        _section("## RQ6: fairness", text.RQ6, rq6(lines["rq6"], pictures)),
        _figure(lines, "rq6", text.RQ6_FIGURE, text.RQ6_WHY),
        _section("## RQ7: text", text.RQ7, rq7(lines["rq7"], pictures)),
        _figure(lines, "rq7", text.RQ7_FIGURE, text.RQ7_WHY),
        text.AGAIN,
        _made_with(lines),
        text.PLANTED,
        text.SAME,
        text.OWN_STUDY,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def section(folder: Path, question: str) -> str:
    """The tables of one question."""
    lines: Lines = {name: read(folder, name) for name in QUESTIONS}
    own = lines[question]
    drawn = {"rq1": rq1, "rq3": rq3, "rq4": rq4, "rq5": rq5, "rq6": rq6, "rq7": rq7}
    told = drawn[question](own, None) if question in drawn else {"rq2": rq2, "reference": reference}[question](own)
    return f"{question}\n\n{told}"


def _section(*parts: str) -> str:
    return "\n\n".join(parts)


def _figure(lines: Lines, name: str, caption: str, *more: str, picture: str = "") -> str:
    """The figure of a question with its caption, if there is anything to draw, and what is to be said after it."""
    ways = {one.cell.way for one in lines[name] if one.outcome == DONE}
    drawn = len(ways) > 1 if name in NEED_BOTH or picture else bool(ways)
    return _section(
        *((f"![{picture or name.upper()}]({PICTURES}/study-{picture or name}.svg)", caption) if drawn else ()), *more
    )


def _networks(folder: Path) -> str:
    rows = []
    for name, facts in read_facts(folder).items():
        theirs = published.ACCURACY.get(name)
        paper = "" if theirs is None else f"{theirs:.4f}"
        weights, seconds = f"{facts['weights']:,}", f"{facts['seconds']:.0f}"
        rows.append([name, f"{facts['test_accuracy']:.4f}", paper, weights, seconds, published.SMALLER.get(name, "")])
    return table(["network", "test accuracy", "paper's", "weights", "processor s", "what is smaller"], rows)


def _made_with(lines: Lines) -> str:
    """Versions behind the numbers, how many measurements there are, and those that gave none."""
    kept = [one for own in lines.values() for one in own]
    names = dict.fromkeys(name for one in kept for name in one.versions if name != "sources")
    told = ", ".join(f"{name} {' and '.join(sorted({one.versions[name] for one in kept}))}" for name in names)
    minutes = sum(one.seconds for one in kept) / 60
    lost = [f"- {one.cell}: {one.outcome}" for one in kept if one.outcome != DONE]
    more = "\n\nNot possible:\n\n" + "\n".join(lost) if lost else ""
    made = f"{len(kept)} measurements, {minutes:.0f} minutes of processor time, made with {told}."
    return f"{made}{_of_which_default(kept)}{more}"


def _of_which_default(kept: Sequence[Kept]) -> str:
    """Say which of the default's lines are of the present default, by question and network."""
    counts: dict[str, list[bool]] = {}
    for one in kept:
        if one.cell.way.partition("@")[0] == DEFAULT:
            backend = one.cell.way.partition("@")[2]
            name = f"{one.cell.question} {one.cell.subject}{f' through {backend}' if backend else ''}"
            counts.setdefault(name, []).append(is_present(one))
    told = ", ".join(f"{name} {sum(own)} of {len(own)}" for name, own in counts.items() if any(own))
    older = sum(not one for own in counts.values() for one in own)
    if not older:
        return ""
    return (
        f"\n\nThe default search has changed since the first runs. Made with the present one: {told or 'none'}. The "
        f"other {older} runs of the default are of an earlier one, until the commands above make them again."
    )
