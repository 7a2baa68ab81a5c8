"""The picture of reports/arena.md: what each contender gains on inputs it has not seen, against what it loses there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from examples.study.questions.figures import panels, save_figure

Line = list[tuple[float, float]]
"""Points of a line or marks of others, each what is lost and what is gained."""

COLOURS = {
    "auto": "#00796b",
    "auto, with training data": "#004d40",
    "last-layer": "#f9a825",
    "bias": "#9e9e9e",
    "tune": "#1e88e5",
    "tune@anchored": "#8e24aa",
    "the paper's search": "#d84315",
}


def draw_curves(
    path: Path, arenas: Mapping[str, tuple[Mapping[str, Line], Mapping[str, Line], tuple[str, str], float]]
) -> None:
    """Draw a panel for each arena: our lines, others' published marks, the names of both axes, and the most lost."""
    figure, row = panels(len(arenas), width=4.6, height=4.0)
    for axes, (title, (ours, published, (gained, lost), most)) in zip(row, arenas.items(), strict=True):
        for name, line in ours.items():
            xs, ys = zip(*line, strict=True)
            axes.plot(xs, ys, marker="o", markersize=4, lw=1.6, label=name, color=COLOURS.get(name))
        for name, line in published.items():
            for x, y in line:
                axes.plot([x], [y], marker="x", color="black", ls="")
                axes.annotate(name, (x, y), xytext=(4, 3), textcoords="offset points", fontsize=7)
        axes.set(title=title, xlabel=lost, ylabel=gained)
        axes.set_xlim(right=most)
        axes.grid(color="#dddddd", lw=0.6)
        axes.legend(fontsize=7)
    save_figure(figure, path)
