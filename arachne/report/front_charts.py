"""Repaired against broken as inline SVG: the front of one repair, and the fronts of several searchers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from arachne.report.charts import HEIGHT, TOP, Axes, Drawing
from arachne.report.front_page import makers

SERIES = (("seen", "seen"), ("choose", "choose"), ("held_out", "held out"))
BREAK_TICKS = (0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)
COLOURS = 8
"""How many colours the page has for makers."""

SHAPES: tuple[tuple[tuple[float, float], ...], ...] = (
    (),
    ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    ((0, -1.15), (1.1, 0.85), (-1.1, 0.85)),
    ((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)),
    ((-1.1, -0.85), (1.1, -0.85), (0, 1.15)),
    ((-0.4, -1.1), (0.4, -1.1), (0.4, -0.4), (1.1, -0.4), (1.1, 0.4), (0.4, 0.4), (0.4, 1.1), (-0.4, 1.1),
     (-0.4, 0.4), (-1.1, 0.4), (-1.1, -0.4), (-0.4, -0.4)),
    ((-1.1, -1.1), (0, -0.35), (1.1, -1.1), (0.35, 0), (1.1, 1.1), (0, 0.35), (-1.1, 1.1), (-0.35, 0)),
    ((-1, -1), (1, -1), (-1, 1), (1, 1)),
    ((-0.85, -1.1), (1.15, 0), (-0.85, 1.1)),
    ((-1.2, -0.5), (1.2, -0.5), (1.2, 0.5), (-1.2, 0.5)),
)  # fmt: skip
"""Corners of the marks for makers, in units of their radius; none for a circle."""


def front_chart(front: Mapping[str, Any]) -> Markup:
    """Every point three times: as seen, where points were compared, and held out; makers by shape."""
    points, names = front["points"], makers(front)
    drawing = Drawing(460, HEIGHT, f"repaired against broken of {len(points)} candidate patches, and the budget")
    counts = [point[part] for point in points for part, _ in SERIES if point[part]]
    axes = _axes(drawing, counts, front["budget"])
    for part, word in SERIES:
        held_out = part == "held_out"
        for number, point in enumerate(points):
            if point[part] is None:
                continue
            label = f"{point['made_by']}, {word}: {_counts_text(point[part])}, {point['weights']:,} weights"
            css = f"series {part}" + (" chosen" if point["chosen"] and held_out else "")
            shape = names.index(point["made_by"])
            at = _at(axes, point[part])
            _mark(drawing, at, shape, 5.5 if held_out else 3.5, label, f'class="{css}" data-point="{number}"')
    for point in points:
        if point["chosen"] and point["held_out"]:
            x, y = _at(axes, point["held_out"])
            drawing.add("circle", cx=x, cy=y, r=10, cls="ring")
    return drawing.finish()


def searchers_chart(rows: Sequence[Mapping[str, Any]], budget: float) -> Markup:
    """Held out: what each searcher takes as the budget grows, as a curve or a point; the rest of its front is faint.

    What it takes within the budget is ringed; the budget is a line.
    """
    drawn = [row for row in rows if row["points"]]
    drawing = Drawing(460, HEIGHT, f"held-out repaired against broken of {len(drawn)} searchers, and the budget")
    axes = _axes(drawing, [point for row in drawn for point in row["points"]], budget)
    for row in drawn:
        colour = f"maker-{row['colour'] % COLOURS}"
        points = [_at(axes, row["points"][number]) for number in row["curve"]]
        if len(points) > 1:
            drawing.line(points, f"line {colour}")
        for number, point in enumerate(row["points"]):
            label = f"{row['searcher']}: {_counts_text(point)}"
            css = f"made {colour}" + ("" if number in row["curve"] else " faint")
            _mark(drawing, _at(axes, point), row["colour"], 3.2, label, f'class="{css}"')
    for row in drawn:
        if row["held_out"]:
            x, y = _at(axes, row["held_out"])
            colour = f"maker-{row['colour'] % COLOURS}"
            label = f"{row['searcher']} within the budget: {_counts_text(row['held_out'])}"
            _mark(drawing, (x, y), row["colour"], 6, label, f'class="made {colour}"')
            drawing.add("circle", cx=x, cy=y, r=10, cls="ring")
    return drawing.finish()


def maker_mark(number: int, css: str) -> Markup:
    """The mark of a maker alone, for a legend."""
    drawing = Drawing(16, 16, "", css="legend")
    _mark(drawing, (8, 8), number, 5.5, "", f'class="{css}"')
    return drawing.finish()


def _axes(drawing: Drawing, counts: Sequence[Mapping[str, Any]], budget: float) -> Axes:
    """Broken on a square-root scale, so that small budgets have room; repaired from nothing to all; the budget."""
    most = max([*(_rate(count, "broken", "positives") for count in counts), 2 * budget if budget < 1 else 0, 0.002])
    axes = Axes(drawing, (0, 1.03 * math.sqrt(most)), (0, 1))
    ticks = {math.sqrt(tick): f"{100 * tick:g} %" for tick in BREAK_TICKS if tick <= 1.05 * most}
    axes.draw(_apart(ticks), {k / 5: f"{20 * k} %" for k in range(6)}, "broken", "repaired")
    if 0 < budget < 1:
        x, bottom = axes.at(math.sqrt(budget), 0)
        drawing.add("line", x1=x, x2=x, y1=2, y2=bottom, cls="budget")
        drawing.add("text", f"budget {100 * budget:g} %", x=x + 4, y=TOP - 2, cls="tick")
    return axes


def _apart(ticks: Mapping[float, str]) -> dict[float, str]:
    """Those ticks that leave room for their numbers."""
    room = max(ticks) / 8
    kept: dict[float, str] = {}
    for position, text in sorted(ticks.items(), reverse=True):
        if not kept or min(kept) - position >= room or position == 0:
            kept[position] = text
    return kept


def _at(axes: Axes, counts: Mapping[str, Any]) -> tuple[float, float]:
    return axes.at(math.sqrt(_rate(counts, "broken", "positives")), _rate(counts, "repaired", "negatives"))


def _rate(counts: Mapping[str, Any], part: str, whole: str) -> float:
    return counts[part] / counts[whole] if counts[whole] else 0.0


def _counts_text(counts: Mapping[str, Any]) -> str:
    return (
        f"{counts['repaired']:,} of {counts['negatives']:,} repaired, "
        f"{counts['broken']:,} of {counts['positives']:,} broken"
    )


def _mark(drawing: Drawing, at: tuple[float, float], shape: int, radius: float, label: str, attributes: str) -> None:
    """A mark whose shape tells the maker; `attributes` are ours and need no escaping."""
    x, y = at
    corners = SHAPES[shape % len(SHAPES)]
    if not corners:
        drawing.mark(f'circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"', attributes, label)
        return
    points = " ".join(f"{x + radius * across:.1f},{y + radius * down:.1f}" for across, down in corners)
    drawing.mark(f'polygon points="{points}"', attributes, label)
