"""reports/arena.md, from the committed results alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from examples.arena import page_text as text
from examples.arena.store import load

T_95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78}
"""The two-sided 95 % point of Student's distribution for so many seeds."""

LENET5_PUBLISHED = (
    ("NeuRecover", 9.84, 1.38, "", ""),
    ("Arachne (the authors' code)", 12.70, 0.41, "72 s", ""),
    ("CARE", 13.97, 0.61, "268 s", ""),
    ("I-Repair", 15.56, 0.23, "", ""),
    ("Few-shot mix", 17.78, 0.25, "9 min", ""),
    ("INNER", 21.90, 1.77, "35 s", ""),
    ("DeepRepair", 22.54, 0.37, "70 min", ""),
    ("HybridRepair", 27.30, 0.53, "", ""),
    ("HUDD", 50.79, 0.33, "65 s", "training data"),
    ("Editable", 73.65, 0.41, "78 h", "training data"),
    ("Apricot", 73.97, 0.39, "13 h 46", "training data"),
)

ACAS_PUBLISHED = {
    "N29": {"CARE": (99.31, 0.00, 168), "PRDNN": (98.37, 0.00, 24), "VeRe": (99.94, 0.22, 8.6)},
    "N19": {"CARE": (99.98, 0.01, 123), "PRDNN": (100, 0, 3.4), "VeRe": (100, 0, 5.3)},
}


def page() -> str:
    """Return the page as Markdown."""
    return "\n".join([text.HEAD, text.PICTURE, _rivals(), _lenet5(), _badnets(), _fog(), _adult(), _acas(), text.WHY])


def _rivals() -> str:
    cells = load("rivals")
    rows = []
    for by, name, published in (("arachne", "Arachne", "12.70 @ .41"), ("apricot", "Apricot", "73.97 @ .39")):
        own = [cells[key] for key in sorted(cells) if key.startswith(f"lenet5 {by}")]
        repaired = " ".join(f"{_share(one['repaired'], one['negatives']):.1f}" for one in own)
        broken = " ".join(f"{_share(one['broken'], one['inputs']):.2f}" for one in own)
        rows.append((f"LeNet5 after {name}", f"repaired {repaired} %, broken {broken} %", published))
    if "aprnn fog" in cells:
        gained, lost = (100 * (cells[f"aprnn {name}"]["after"] - cells[f"aprnn {name}"]["before"]) for name in _WEATHER)
        rows.append(("3x100 after APRNN", f"generalisation {gained:.2f}, drawdown {-lost:.2f}", "31.53, 1.28"))
    return text.RIVALS + "\n" + _table(("weights", "counted here", "published"), rows)


_WEATHER = ("fog", "clear")


@dataclass(frozen=True)
class Measure:
    """The counts of a patch on held-out inputs, as an arena reads them.

    Attributes:
        arena: Its results.
        gained: The good that a point of a cell does, in percent or points.
        lost: The harm.
        at: The damage that contenders are compared at.
        columns: How the table calls both.
    """

    arena: str
    gained: Callable[[Any, Any], float]
    lost: Callable[[Any, Any], float]
    at: float
    columns: tuple[str, str]


PANELS = {"lenet5": ("LeNet5, all errors", 2.0), "badnets": ("NNrepair's poisoned CNN", 1.0), "fog": ("fog", 1.5)}
"""The panels of the picture, and how much is lost at the right edge of each."""

MEASURES = {
    "lenet5": Measure(
        "lenet5",
        lambda cell, point: _share(point["repaired"], cell["negatives"]),
        lambda cell, point: _share(point["broken"], cell["inputs"]),
        0.41,
        ("repaired %", "broken %"),
    ),
    "badnets": Measure(
        "badnets",
        lambda cell, point: _share(point["poisoned"] - cell["before"]["poisoned"], cell["inputs"]),
        lambda cell, point: _share(cell["before"]["clean"] - point["clean"], cell["inputs"]),
        0.1,
        ("points on poisoned inputs", "points lost on clean ones"),
    ),
    "fog": Measure(
        "fog",
        lambda cell, point: _share(point["fog"] - cell["before"]["fog"], cell["fog_inputs"]),
        lambda cell, point: _share(cell["before"]["clear"] - point["clear"], cell["clear_inputs"]),
        0.5,
        ("generalisation", "drawdown"),
    ),
}


def _compare(measure: Measure, published: Sequence[Sequence[str]]) -> str:
    """Return the table of an arena: their rows, ours, and below it the curves of ours by budget."""
    cells = load(measure.arena)
    rows, curves = [[*row, ""] for row in published], []
    for name in _contenders(cells):
        own = _cells(cells, name)
        shown = f"**{name}**" if name.startswith("auto") else name
        chosen = [(measure.gained(one, one["chosen"]), measure.lost(one, one["chosen"])) for one in own]
        line = _curve(own, measure)
        point = mean(one for one, _ in chosen), mean(one for _, one in chosen)
        level = _at_damage([(0.0, 0.0), *(line.values() or [point])], measure.at)
        gained, lost = _spread([one for one, _ in chosen]), _spread([one for _, one in chosen], ".2f")
        seconds = mean(one["seconds"] for one in own)
        rows.append([shown, gained, lost, f"{seconds:.0f}", str(len(own)), level])
        curves += [[shown, *(f"{a:.1f} @ {b:.2f}" for a, b in line.values())]] if line else []
    head = ("by", *measure.columns, "seconds", "seeds or note", f"at {measure.at:g} lost")
    budgets = [f"{100 * budget:g} %" for budget in (0.001, 0.002, 0.0041, 0.005, 0.01, 0.02)]
    return f"{_table(head, rows)}\nBy budget, {measure.columns[0]} @ {measure.columns[1]}:\n\n" + _table(
        ("by", *budgets), curves
    )


def write(page_path: Path) -> None:
    """Write the page and its picture."""
    from examples.arena.curves import draw_curves

    page_path.write_text(page(), "utf-8")
    marks: dict[str, dict[str, list[tuple[float, float]]]] = {
        "lenet5": {
            name.partition(" (")[0]: [(broken, repaired)]
            for name, repaired, broken, *_ in LENET5_PUBLISHED
            if name != "Editable"
        },
        "fog": {"APRNN": [(1.28, 31.53)]},
    }
    drawn = {}
    for name, (title, most) in PANELS.items():
        measure, cells = MEASURES[name], load(name)
        ours = {}
        for by in _contenders(cells):
            own = _cells(cells, by)
            points = [(measure.lost(one, one["chosen"]), measure.gained(one, one["chosen"])) for one in own]
            point = mean(lost for lost, _ in points), mean(gained for _, gained in points)
            ours[by] = [(lost, gained) for gained, lost in _curve(own, measure).values()] or [point]
        drawn[title] = ours, marks.get(name, {}), measure.columns, most
    draw_curves(page_path.parent / "pictures" / "arena.svg", drawn)


def _lenet5() -> str:
    rows = [(f"{name}, as published", f"{a:.1f}", f"{b:.2f}", *more) for name, a, b, *more in LENET5_PUBLISHED]
    return text.LENET5 + "\n" + _compare(MEASURES["lenet5"], rows)


def _badnets() -> str:
    return text.BADNETS + "\n" + _compare(MEASURES["badnets"], [("NNrepair, as published", "45.56", "", "", "")])


def _fog() -> str:
    published = ("APRNN, as published", "31.53", "1.28", "5 (32 cores, Gurobi)", "")
    return text.FOG + "\n" + _compare(MEASURES["fog"], [published])


def _adult() -> str:
    cells = load("adult")
    rows = []
    own = _cells(cells, "auto")
    for number, one in enumerate(own):
        before, after = one["before"], one["chosen"]
        less = 100 * (1 - after["odds"] / before["odds"])
        rows.append(
            (
                f"network {number + 1}",
                f"{before['odds']:.3f} → {after['odds']:.3f}",
                f"{less:.0f} %",
                f"{before['f1']:.3f} → {after['f1']:.3f}",
                f"{100 * before['accuracy']:.1f} → {100 * after['accuracy']:.1f}",
                f"{one['seconds']:.0f}",
            )
        )
    for by in _contenders(cells):
        every = _cells(cells, by)
        less = _spread([100 * (1 - one["chosen"]["odds"] / one["before"]["odds"]) for one in every], ".0f")
        lower = mean(one["before"]["f1"] - one["chosen"]["f1"] for one in every)
        seconds = mean(one["seconds"] for one in every)
        name = "**auto**, mean" if by == "auto" else f"{by}, mean of {len(every)}"
        rows.append((name, "", f"{less} %", f"{lower:+.3f} lower", "", f"{seconds:.0f}"))
    head = ("network", "equalised-odds difference", "less", "F1", "accuracy %", "seconds")
    return text.ADULT + "\n" + _table(head, rows) + "\n" + _reach()


def _reach() -> str:
    cells = list(load("reach").values())
    rows = []
    for name in cells[0]["published"]:
        own = [100 * one["published"][name] for one in cells]
        halves = [one["halves"].get(name) for one in cells]
        drawn = "" if None in halves else f"{100 * mean(halves):.0f} %"
        rows.append((name, " ".join(f"{one:.0f}" for one in own), f"{_spread(own, '.0f')} %", drawn))
    return text.REACH + "\n" + _table(("rule", "networks 1 to 5", "mean", "random halves"), rows)


def _acas() -> str:
    rows = []
    for name, own in load("acas").items():
        kept, changed = _share(own["keep_rule_now"], own["test_states"]), _share(own["changed"], own["kept"])
        rows.append((f"{name}, **Arachne**, no labels", f"{kept:.2f}", f"{changed:.2f}", f"{own['seconds']:.0f}"))
        for by, (repaired, broken, seconds) in ACAS_PUBLISHED[name].items():
            rows.append((f"{name}, {by}, as published", f"{repaired:.2f}", f"{broken:.2f}", f"{seconds:g}"))
    return (
        text.ACAS
        + "\n"
        + _table(("by", "test states that keep the rule, %", "test decisions changed, %", "seconds"), rows)
    )


def _contenders(cells: dict[str, Any]) -> list[str]:
    """Return the contenders that have cells, ours first."""
    names = dict.fromkeys(key.rpartition("/")[0] for key in cells)
    return sorted(names, key=lambda name: (not name.startswith("auto"), name))


def _cells(cells: dict[str, Any], name: str) -> list[Any]:
    return [cells[key] for key in sorted(cells) if key.rpartition("/")[0] == name]


def _curve(cells: Sequence[Any], measure: Measure) -> dict[float, tuple[float, float]]:
    """Return what each budget gains and loses, as means over cells; nothing of a search that knows no budgets."""
    found: dict[float, list[tuple[float, float]]] = {}
    if not any(point["by"] for one in cells for point in one["curve"]):
        return {}
    for one in cells:
        for point in one["curve"]:
            found.setdefault(point["budget"], []).append((measure.gained(one, point), measure.lost(one, point)))
    return {budget: (mean(a for a, _ in own), mean(b for _, b in own)) for budget, own in found.items()}


def _at_damage(points: Sequence[tuple[float, float]], damage: float) -> str:
    """Return the gain at a damage, between the two points of a curve around it; past its end, what the end gains."""
    reached = [gained for gained, lost in points if lost <= damage]
    for (gained, lost), (more, most) in pairwise(sorted(points, key=lambda one: one[1])):
        if lost <= damage < most:
            reached.append(gained + (more - gained) * (damage - lost) / (most - lost))
    return f"{max(reached):.1f}"


def _share(count: float, total: float) -> float:
    return 100 * count / total


def _spread(values: Sequence[float], form: str = ".1f") -> str:
    """Return a mean and the half width of its interval: `33.1 ± 2.0`."""
    if len(values) < 2:
        return f"{mean(values):{form}}"
    half = T_95[len(values)] * stdev(values) / len(values) ** 0.5
    return f"{mean(values):{form}} ± {half:{form.lstrip('+')}}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
