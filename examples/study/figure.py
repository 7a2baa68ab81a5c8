"""The figure: repaired against broken, a line for each searcher through its budgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from examples.study.budgets import AUTO, BUDGETS
from examples.study.runs import Run
from examples.study.summary import searchers_of, summarise

COLOURS = {
    "auto": "#00796b",
    "bias": "#9e9e9e",
    "last-layer": "#f9a825",
    "margin": "#1e88e5",
    "margin@hidden": "#8e24aa",
    "margin@conv": "#6d4c41",
    "de": "#d84315",
}


def draw(panels: Mapping[str, Sequence[Run]], path: Path) -> None:
    """Draw a panel for each group of runs into an svg file; the same runs give the same bytes."""
    import matplotlib
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(panels), 4.0), layout="constrained")
    row = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    row[0].set(ylabel="repaired, share of held-out negatives", ylim=(0, 1))
    for axes, (title, runs) in zip(row, panels.items(), strict=True):
        for searcher in searchers_of(runs):
            found = [one for budget in BUDGETS if (one := summarise(runs, searcher, budget)) is not None]
            if not found:
                continue
            broken, repaired = [100 * one.damage.value for one in found], [one.repair.value for one in found]
            spread = [
                [one.repair.value - one.repair.low for one in found],
                [one.repair.high - one.repair.value for one in found],
            ]
            wide = 2.4 if searcher == AUTO else 1.2
            bars = spread if searcher == AUTO else None
            axes.errorbar(
                broken, repaired, yerr=bars, color=COLOURS.get(searcher), label=searcher, lw=wide, elinewidth=0.8,
                marker="o", markersize=3 + wide, capsize=2,
            )  # fmt: skip
        axes.set(title=title, xlabel="broken, % of held-out positives")
        axes.set_xlim(left=0)
        axes.grid(color="#dddddd", lw=0.6)
        axes.legend(loc="lower right", fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context({"svg.hashsalt": "arachne", "svg.fonttype": "none"}):
        figure.savefig(path, format="svg", metadata={"Date": None})
