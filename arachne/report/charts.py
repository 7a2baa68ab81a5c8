"""Small drawings as inline SVG. Colours are the page's CSS variables, so that light, dark and print all work."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from markupsafe import Markup

from arachne.text import pluralise

WIDTH, HEIGHT = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 54, 22, 12, 44
CROWDED = 60
"""More marks than this on one map are drawn smaller."""


class Drawing:
    """An SVG picture with a title for those who cannot see it."""

    def __init__(self, width: float, height: float, title: str, *, css: str = "chart") -> None:
        self._head = (
            f'<svg class="{css}" viewBox="0 0 {width:g} {height:g}" role="img" '
            f'preserveAspectRatio="xMidYMid meet"><title>{escape(title)}</title>'
        )
        self._body: list[str] = []

    def add(self, name: str, text: str | None = None, /, **attributes: Any) -> None:
        """One element; underscores in attribute names become hyphens, `cls` is the class."""
        pairs = (
            (
                key.replace("cls", "class").replace("_", "-"),
                f"{v:.2f}".rstrip("0").rstrip(".") if isinstance(v, float) else v,
            )
            for key, v in attributes.items()
        )
        inside = " ".join(f'{key}="{escape(str(value))}"' for key, value in pairs)
        self._body.append(f"<{name} {inside}/>" if text is None else f"<{name} {inside}>{escape(text)}</{name}>")

    def dot(self, x: float, y: float, label: str, **attributes: Any) -> None:
        """A circle with a tooltip."""
        pairs = " ".join(f'{key.replace("cls", "class")}="{escape(str(value))}"' for key, value in attributes.items())
        self._body.append(f'<circle cx="{x:.2f}" cy="{y:.2f}" {pairs}><title>{escape(label)}</title></circle>')

    def mark(self, shape: str, attributes: str, label: str) -> None:
        """A shape with a tooltip; `attributes` are not escaped and must hold numbers only."""
        name = shape.partition(" ")[0]
        title = f"<title>{escape(label)}</title>" if label else ""
        self._body.append(f"<{shape} {attributes}>{title}</{name}>")

    def line(self, points: Iterable[tuple[float, float]], cls: str) -> None:
        """A line through points."""
        self.add("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points), cls=cls)

    def finish(self) -> Markup:
        """The whole picture; everything in it that came from a user is escaped."""
        return Markup(self._head + "".join(self._body) + "</svg>")  # each piece is escaped above


class Axes:
    """A frame with two linear axes."""

    def __init__(self, drawing: Drawing, x: tuple[float, float], y: tuple[float, float]) -> None:
        self._drawing = drawing
        self._x, self._y = _widen(x), _widen(y)

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Where a point of the data lies in the picture."""
        across = (x - self._x[0]) / (self._x[1] - self._x[0])
        up = (y - self._y[0]) / (self._y[1] - self._y[0])
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    def draw(
        self, x_ticks: Mapping[float, str], y_ticks: Mapping[float, str], x_label: str = "", y_label: str = ""
    ) -> None:
        """Grid lines, numbers and names."""
        for value, text in x_ticks.items():
            x, bottom = self.at(value, self._y[0])
            self._drawing.add("line", x1=x, x2=x, y1=TOP, y2=bottom, cls="grid")
            self._drawing.add("text", text, x=x, y=bottom + 16, text_anchor="middle", cls="tick")
        for value, text in y_ticks.items():
            left, y = self.at(self._x[0], value)
            self._drawing.add("line", x1=left, x2=WIDTH - RIGHT, y1=y, y2=y, cls="grid")
            self._drawing.add("text", text, x=left - 6, y=y + 4, text_anchor="end", cls="tick")
        middle = (LEFT + WIDTH - RIGHT) / 2
        self._drawing.add("text", x_label, x=middle, y=HEIGHT - 8, text_anchor="middle", cls="axis")
        if y_label:
            height = (TOP + HEIGHT - BOTTOM) / 2
            turn = f"rotate(-90 12 {height:g})"
            self._drawing.add("text", y_label, x=12, y=height, text_anchor="middle", transform=turn, cls="axis")


def localisation_chart(found: Mapping[str, Any]) -> Markup:
    """Both scores of every weight on logarithmic axes: a cloud of all, the suspects as dots, the front as a line."""
    cloud, suspects = found["cloud"], found["suspects"]
    marked = pluralise(len(suspects), "suspect")
    title = f"gradient loss and forward impact of {found['candidates']:,} weights, {marked} marked"
    drawing = Drawing(WIDTH, HEIGHT, title)
    decades = cloud["decades"]
    x0, y0 = (high - decades for high in cloud["high"])
    width, height = decades / (cloud["cells"][0] - 1), decades / (cloud["cells"][1] - 1)
    axes = Axes(drawing, (x0 - width, x0 + decades), (y0 - height, y0 + decades))
    ticks = [{float(power): f"1e{power}" for power in _powers(low, low + decades)} for low in (x0, y0)]
    axes.draw(ticks[0], ticks[1], "gradient loss", "forward impact")
    most = max((count for _, _, count in cloud["counts"]), default=1)
    for column, row, count in cloud["counts"]:
        left, bottom = axes.at(x0 + (column - 1) * width, y0 + (row - 1) * height)
        right, top = axes.at(x0 + column * width, y0 + row * height)
        shade = 0.15 + 0.7 * math.log1p(count) / math.log1p(most)
        drawing.add("rect", x=left, y=top, width=right - left, height=bottom - top, opacity=shade, cls="cloud")
    points = {s["address"]: axes.at(_log(s["gradient_loss"], x0), _log(s["forward_impact"], y0)) for s in suspects}
    drawing.line(sorted(points[s["address"]] for s in suspects if s["on_front"]), "front")
    for suspect in suspects:
        label = f"{suspect['address']}: {suspect['gradient_loss']:.3g}, {suspect['forward_impact']:.3g}"
        drawing.dot(
            *points[suspect["address"]], label, r=4, cls="suspect on-front" if suspect["on_front"] else "suspect"
        )
    return drawing.finish()


def fitness_chart(search: Mapping[str, Any]) -> Markup:
    """The best fitness of each generation, beside the fitness of the unchanged model."""
    history, original = search["history"], search["original_fitness"]
    values = [at["fitness"] for at in history]
    drawing = Drawing(
        WIDTH, HEIGHT, f"best fitness, from {values[0]:.1f} to {values[-1]:.1f}; unchanged {original:.1f}"
    )
    last = history[-1]["number"]
    low, high = _roomy(min([*values, original]), max([*values, original]))
    axes = Axes(drawing, (0, last), (low, high))
    axes.draw(_ticks(0, last, whole=True), _ticks(low, high), "generation")
    drawing.line([axes.at(0, original), axes.at(last, original)], "original")
    drawing.line([axes.at(at["number"], at["fitness"]) for at in history], "line good")
    return drawing.finish()


def counts_chart(search: Mapping[str, Any]) -> Markup:
    """Negatives repaired and positives broken by the best candidate, generation by generation."""
    history = search["history"]
    end = history[-1]
    title = f"seen inputs by generation; at the end {end['repaired']} repaired and {end['broken']} broken"
    drawing = Drawing(WIDTH, HEIGHT, title)
    top = 1.06 * (max(max(at["repaired"], at["broken"]) for at in history) or 1)
    axes = Axes(drawing, (0, end["number"]), (0, top))
    axes.draw(_ticks(0, end["number"], whole=True), _ticks(0, top, whole=True), "generation")
    for name, cls in (("repaired", "line good"), ("broken", "line bad")):
        drawing.line([axes.at(at["number"], at[name]) for at in history], cls)
    return drawing.finish()


def reliability_chart(before: Mapping[str, Any], after: Mapping[str, Any]) -> Markup:
    """How often the model is right at each confidence: on the diagonal it is as right as it is sure."""
    drawing = Drawing(WIDTH, HEIGHT, "share of right predictions by confidence, before and after")
    axes = Axes(drawing, (0, 1), (0, 1))
    ticks = {value / 5: f"{20 * value} %" for value in range(6)}
    axes.draw(ticks, ticks, "confidence", "right")
    drawing.line([axes.at(0, 0), axes.at(1, 1)], "original")
    most = max(max(curve["counts"], default=1) for curve in (before, after)) or 1
    for curve, cls, word in ((before, "line muted", "before"), (after, "line good", "after")):
        points = [
            (sure, right, count)
            for sure, right, count in zip(curve["confidence"], curve["accuracy"], curve["counts"], strict=True)
            if count
        ]
        drawing.line([axes.at(sure, right) for sure, right, _ in points], cls)
        for sure, right, count in points:
            label = f"{word}: {count:,} inputs at {100 * sure:.1f} %, {100 * right:.1f} % of them right"
            drawing.dot(
                *axes.at(sure, right), label, r=2 + round(4 * (count / most) ** 0.5, 1), cls=cls.replace("line", "dot")
            )
    return drawing.finish()


def interval_bar(
    value: float | None,
    span: tuple[float, float],
    *,
    cls: str = "muted",
    before: float | None = None,
    limit: float | None = None,
) -> Markup:
    """A share and its interval on a line from 0 to a round number, with what it was before and its limit, if any."""
    low, high = span
    top = next((t for t in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if max(high, before or 0, limit or 0) <= 0.8 * t), 1.0)
    drawing = Drawing(200, 28, f"95 % interval from {100 * low:.2f} % to {100 * high:.2f} %", css="interval")

    def at(share: float) -> float:
        return 6 + 188 * share / top

    drawing.add("line", x1=6, x2=194, y1=7, y2=7, cls="track")
    drawing.add("line", x1=at(low), x2=max(at(high), at(low) + 1), y1=7, y2=7, cls=f"range {cls}")
    if limit is not None:
        drawing.add("line", x1=at(limit), x2=at(limit), y1=0, y2=14, cls="limit")
    if before is not None:
        drawing.add("circle", cx=at(before), cy=7, r=4, cls="hollow")
    if value is not None:
        drawing.add("circle", cx=at(value), cy=7, r=4.5, cls=f"dot {cls}")
    drawing.add("text", "0", x=6, y=26, text_anchor="middle", cls="tick")
    drawing.add("text", f"{100 * top:g} %", x=198, y=26, text_anchor="end", cls="tick")
    return drawing.finish()


def change_bar(before: float | None, after: float | None, title: str) -> Markup:
    """Two shares as the ends of a dumbbell on a line from 0 to 1."""
    drawing = Drawing(200, 14, title, css="interval")
    drawing.add("line", x1=4, x2=196, y1=7, y2=7, cls="track")
    if before is not None and after is not None:
        cls = "good" if after > before else "bad" if after < before else "muted"
        drawing.add("line", x1=4 + 192 * before, x2=4 + 192 * after, y1=7, y2=7, cls=f"range {cls}")
        drawing.add("circle", cx=4 + 192 * before, cy=7, r=3, cls="hollow")
        drawing.add("circle", cx=4 + 192 * after, cy=7, r=4, cls=f"dot {cls}")
    return drawing.finish()


def group_scale(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """From where to where accuracies of groups are drawn: round numbers around all their intervals."""
    lows = [min(row["interval_before"][0], row["interval_after"][0]) for row in rows]
    highs = [max(row["interval_before"][1], row["interval_after"][1]) for row in rows]
    return math.floor(20 * min(lows, default=0)) / 20, math.ceil(20 * max(highs, default=1)) / 20


def group_bar(row: Mapping[str, Any], scale: tuple[float, float]) -> Markup:
    """A group's accuracy with its interval, before above after."""
    drawing = Drawing(200, 24, "accuracy with its 95 % interval, before above after", css="interval")
    low, high = scale

    def at(share: float) -> float:
        return 6 + 188 * (share - low) / max(high - low, 1e-9)

    before, after = row["accuracy_before"] or 0, row["accuracy_after"] or 0
    cls = "good" if after > before else "bad" if after < before else "muted"
    for y, when, value, tone in ((7, "before", before, "muted"), (17, "after", after, cls)):
        span = row[f"interval_{when}"]
        drawing.add("line", x1=6, x2=194, y1=y, y2=y, cls="track")
        drawing.add("line", x1=at(span[0]), x2=max(at(span[1]), at(span[0]) + 1), y1=y, y2=y, cls=f"range {tone}")
        drawing.add("circle", cx=at(value), cy=y, r=3.5, cls="hollow" if when == "before" else f"dot {tone}")
    return drawing.finish()


def weight_map(layer: Mapping[str, Any]) -> Markup:
    """A layer's matrix, rows are outputs: changed weights as dots, a change of it all as shades."""
    rows = layer["shape"][0] if layer["shape"] else 1
    columns = math.prod(layer["shape"][1:]) if len(layer["shape"]) > 1 else 1
    changed = pluralise(layer["changed"], "changed weight")
    title = f"{changed} in {layer['parameter']} of {layer['name']}, {rows} by {columns}"
    drawing = Drawing(120, 72, title, css="map")
    drawing.add("rect", x=1, y=1, width=118, height=70, rx=3, cls="matrix")
    for row, shares in enumerate(shades := layer.get("shades", ())):
        high, wide = 68 / len(shades), 116 / len(shares)
        for column, share in enumerate(shares):
            cell = {"x": 2 + column * wide, "y": 2 + row * high, "width": wide, "height": high}
            drawing.add("rect", **cell, opacity=float(share), cls="shade")
    for row, column in layer["marks"]:
        x, y = 4 + 112 * (column + 0.5) / columns, 4 + 64 * (row + 0.5) / rows
        drawing.dot(x, y, f"row {row}, column {column}", r=3 if len(layer["marks"]) <= CROWDED else 1.4, cls="mark")
    return drawing.finish()


def curves(channels: Sequence[Sequence[float]]) -> Markup:
    """A signal of up to three channels as lines."""
    drawing = Drawing(120, 60, f"signal of {pluralise(len(channels), 'channel')}", css="signal")
    values = [value for channel in channels for value in channel]
    low, high = _widen((min(values), max(values)))
    for number, channel in enumerate(channels):
        step = 116 / max(1, len(channel) - 1)
        points = [(2 + step * k, 57 - 54 * (value - low) / (high - low)) for k, value in enumerate(channel)]
        drawing.line(points, f"line channel-{number}")
    return drawing.finish()


def _widen(span: tuple[float, float]) -> tuple[float, float]:
    return span if span[1] > span[0] else (span[0] - 0.5, span[0] + 0.5)


def _roomy(low: float, high: float) -> tuple[float, float]:
    room = 0.06 * (high - low)
    return low - room, high + room


def _log(value: float, least: float) -> float:
    return max(math.log10(value), least) if value > 0 else least


def _powers(low: float, high: float) -> range:
    return range(math.ceil(low), math.floor(high) + 1, 2)


def _ticks(low: float, high: float, *, whole: bool = False) -> dict[float, str]:
    """About five round numbers between two."""
    low, high = _widen((low, high))
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 6)
    if whole:
        step = max(1, round(step))
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first + 1
    return {(first + k) * step: f"{(first + k) * step:,.6g}" for k in range(count)}
