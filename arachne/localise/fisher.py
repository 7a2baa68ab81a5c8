"""Fisher ratio: a weight's effect on the negatives' margins, divided by its effect on the positives'.

With m the margin of an input (score of the true class - best other), σ the standard deviation of the weight's
parameter, and means over inputs:

    score_i = |mean over negatives of dm/dw_i| σ / sqrt(mean over positives of (dm/dw_i)^2 σ^2 + damping * D)

where D is the mean of the first term under the root over all weights, so that `damping` has no unit. σ is the unit of a
weight's steps and makes layers comparable: weights are ranked over all layers together.

The mean of squares is estimated from gradients of sums with random signs, as in `arachne.search.influence`: the
positives are divided into groups, and the expectation of (Σ ± g_n)^2 over a group is Σ g_n^2.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from arachne.data.part import Part
from arachne.decisions.losses import margin
from arachne.localise.observe import weight_gradients_of
from arachne.localise.ranked import Ranked
from arachne.model.backend import ModelBackend
from arachne.model.values import Array, Weights, blocks
from arachne.plugins.options import option

GROUPS = 32
"""The number of groups of positives; with at most as many positives, their squares are exact."""


@dataclass(frozen=True, kw_only=True)
class Fisher(Ranked):
    """The weights with the largest effect on the negatives' margins relative to the positives'.

    Attributes:
        damping: The share of the mean square over all weights that is added to each weight's square; without it,
            weights that no positive activates would come first, however small their effect.
    """

    name = "fisher"

    damping: float = option(0.1, "What is added to each weight's square, in mean squares.", least=0)

    def _scores(self, backend: ModelBackend, part: Part, positives: Array, *, rng: np.random.Generator) -> Weights:
        parameters = [
            (info.name, own)
            for info in self.filter_by_depth(backend, part, self.layers(backend))
            for own in sorted(self.parameters(info))
        ]
        deviations = {key: _deviation(backend.get_weights(key[0])[key[1]]) for key in parameters}
        whole, squares = _mean_squares(backend, part, positives, parameters, rng=rng)
        shown = part.negatives
        steep = dict(weight_gradients_of(backend, part, shown, margin(part.labels[shown]), parameters))
        for key, deviation in deviations.items():
            squares[key] *= deviation**2
        damped = self.damping * whole.mean()
        return {key: _ratio(steep.pop(key), deviations[key], squares[key], damped) for key in parameters}


def _mean_squares(
    backend: ModelBackend,
    part: Part,
    positives: Array,
    parameters: list[tuple[str, str]],
    *,
    rng: np.random.Generator,
) -> tuple[Array, dict[tuple[str, str], Array]]:
    """Estimate the positives' mean (dm/dw)^2 of every weight, float64 `(n,)`, and as a view for each parameter."""
    shapes = {(name, own): backend.info(name).parameters[own].shape for name, own in parameters}
    edges = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes.values())])
    whole = np.zeros(edges[-1])
    found = {key: whole[slice(*own)].reshape(shapes[key]) for key, own in zip(shapes, pairwise(edges), strict=True)}
    for rows in np.array_split(rng.permutation(positives), min(GROUPS, len(positives))) if len(positives) else ():
        signs = rng.choice(np.array([-1.0, 1.0]), len(rows))
        loss_gradient = margin(part.labels[rows], signs)
        for key, values in weight_gradients_of(backend, part, rows, loss_gradient, parameters).items():
            found[key] += np.square(values, out=values if values.flags.writeable else None)
    whole /= max(1, len(positives))
    return whole, found


def _deviation(values: Array) -> float:
    """Return the standard deviation, as `std` does in float64, with one array for the values instead of two."""
    rest = values.astype(np.float64)
    rest -= rest.mean()
    return float(np.sqrt(np.square(rest, out=rest).mean()))


def _ratio(steep: Array, deviation: float, squares: Array, damped: float) -> Array:
    """Return |steep| deviation / sqrt(squares + damped), float64, in the memory of `squares`.

    It is 0 where the effect on the negatives is 0, however small the one on the positives is.
    """
    for rows in blocks(squares, len(squares)):
        above = np.abs(steep[rows].astype(np.float64)) * deviation
        below = np.sqrt(squares[rows] + damped)
        above[(below <= 0) & (above > 0)] = np.inf
        squares[rows] = np.divide(above, below, out=above, where=below > 0)
    return squares
