"""The study's figures as SVG; the same lines give the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

COLOURS = {
    "bl": "#00796b",
    "gl": "#f9a825",
    "rs": "#9e9e9e",
    "spectrum": "#8e24aa",
    "contrast": "#1e88e5",
    "fisher": "#d84315",
    "faithful": "#d84315",
    "default": "#00796b",
    "bias": "#9e9e9e",
    "last": "#f9a825",
}
Series = Mapping[str, tuple[Sequence[float], Sequence[float]]]
"""By the name of a line: its points, x and y."""


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure."""
    import matplotlib

    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context({"svg.hashsalt": "arachne", "svg.fonttype": "none"}):
        figure.savefig(path, format="svg", metadata={"Date": None})


def panels(count: int, *, width: float = 4.0, height: float = 3.6, **shared: Any) -> tuple[Any, Any]:
    """A figure with panels side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * count, height), layout="constrained")
    return figure, figure.subplots(1, count, squeeze=False, **shared)[0]


def lines(path: Path, groups: Mapping[str, Series], *, x: str, y: str, log: bool = False, step: bool = False) -> None:
    """A panel of lines for each group."""
    figure, row = panels(len(groups), sharey=True)
    row[0].set(ylabel=y)
    for axes, (title, series) in zip(row, groups.items(), strict=True):
        for name, (xs, ys) in series.items():
            colour = COLOURS.get(name.partition(" ")[0])
            style = {"drawstyle": "steps-post"} if step else {"marker": "o", "markersize": 4}
            axes.plot(xs, ys, label=name, color=colour, lw=1.6, **style)
        axes.set(title=title, xlabel=x)
        if log:
            axes.set_xscale("log")
        axes.grid(color="#dddddd", lw=0.6)
        axes.legend(fontsize=8)
    save_figure(figure, path)


def dots(path: Path, groups: Mapping[str, Series], *, x: str, y: str, diagonal: bool = False) -> None:
    """A panel of dots for each group; the mean of each kind is a larger one."""
    figure, row = panels(len(groups), sharey=True)
    row[0].set(ylabel=y)
    for axes, (title, series) in zip(row, groups.items(), strict=True):
        for name, (xs, ys) in series.items():
            colour = COLOURS.get(name.partition(" ")[0])
            axes.scatter(xs, ys, s=14, alpha=0.5, color=colour, label=name)
            if len(xs):
                axes.scatter([np.mean(xs)], [np.mean(ys)], s=90, color=colour, marker="D", edgecolors="black")
        if diagonal:
            axes.plot([0, 1], [0, 1], color="#bbbbbb", lw=0.8)
        axes.set(title=title, xlabel=x)
        axes.grid(color="#dddddd", lw=0.6)
        axes.legend(fontsize=8)
    save_figure(figure, path)


def bars(path: Path, groups: Mapping[str, Mapping[str, Sequence[float]]], *, y: str) -> None:
    """A panel for each group: by name of a bar, its values; the bar is their mean, dots are the runs."""
    figure, row = panels(len(groups), sharey=True)
    row[0].set(ylabel=y)
    for axes, (title, own) in zip(row, groups.items(), strict=True):
        for place, (name, values) in enumerate(own.items()):
            colour = COLOURS.get(name.partition(" ")[0], "#90a4ae")
            axes.bar([place], [np.mean(values)], color=colour, alpha=0.6)
            spread = np.linspace(-0.25, 0.25, len(values)) if len(values) > 1 else [0.0]
            axes.scatter(place + np.asarray(spread), values, s=8, color="black")
        axes.set(title=title)
        axes.set_xticks(range(len(own)), list(own), rotation=30, ha="right", fontsize=8)
        axes.grid(axis="y", color="#dddddd", lw=0.6)
    save_figure(figure, path)
