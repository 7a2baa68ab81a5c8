"""Pictures of a localisation, drawn by matplotlib when one is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from arachne.errors import UsageError
from arachne.io.files import atomic_write
from arachne.localise.base import Localisation
from arachne.text import pluralise, printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("svg", "png", "pdf")
MOST_POINTS = 20_000
"""How many weights beside the suspects a picture shows at most: the most suspicious ones."""


def save_localisation(localisation: Localisation, path: Path) -> None:
    """Draw both scores of the weights with the suspects marked, into an svg, png or pdf file."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise UsageError(f"cannot draw '{path.name}'; known endings: {', '.join(FORMATS)}")
    figure = localisation_figure(localisation)
    atomic_write(path, lambda stream: figure.savefig(stream, format=kind, dpi=150))


def localisation_figure(localisation: Localisation) -> Figure:
    """Gradient loss against forward impact of every weight, one colour per layer, the suspects ringed."""
    from matplotlib.figure import Figure

    if not localisation.scores:
        raise UsageError(f"localiser '{localisation.method}' gives no scores, so there is nothing to draw")
    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.add_subplot()
    largest = max(len(part) for part in localisation.scores)
    for number, part in enumerate(localisation.scores):
        losses, impacts = part.gradient_loss.ravel(), part.forward_impact.ravel()
        if largest > MOST_POINTS:
            kept = np.argsort(-(losses / (losses.max() or 1) + impacts / (impacts.max() or 1)))[:MOST_POINTS]
            losses, impacts = losses[kept], impacts[kept]
        label = _plain(f"{part.layer}.{part.parameter}")
        axes.scatter(losses, impacts, s=4, alpha=0.5, color=f"C{number % 10}", label=label, rasterized=True)
    suspects = np.array([localisation.score(address) for address in localisation.suspects.addresses])
    axes.scatter(
        suspects[:, 0], suspects[:, 1], s=60, facecolors="none", edgecolors="crimson", linewidths=1.5, label="suspects"
    )
    for address, (loss, impact) in zip(localisation.suspects.addresses, suspects, strict=True):
        axes.annotate(_plain(str(address)), (loss, impact), textcoords="offset points", xytext=(5, 4), fontsize=7)
    axes.set_xlabel("gradient loss, negatives / (1 + positives)")
    axes.set_ylabel("forward impact, negatives / (1 + positives)")
    axes.set_title(f"{pluralise(len(localisation.suspects), 'suspect')} among {localisation.n_candidates:,} weights")
    axes.legend(loc="upper right", fontsize=7)
    return figure


def _plain(name: str) -> str:
    """A name that matplotlib takes as text: neither as a formula nor as a label to leave out."""
    return "\N{ZERO WIDTH SPACE}" * name.startswith("_") + printable(name).replace("$", r"\$")
