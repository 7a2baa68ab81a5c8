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

import numpy as np

from arachne.data.part import Part
from arachne.decisions.losses import margin
from arachne.localise.observe import weight_gradients_of
from arachne.localise.ranked import Ranked
from arachne.model.backend import ModelBackend
from arachne.model.values import Array, Weights
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
        squares = _mean_squares(backend, part, positives, parameters, rng=rng)
        steep = _gradients(backend, part, parameters)
        for key, deviation in deviations.items():
            np.abs(steep[key], out=steep[key])
            steep[key] *= deviation
            squares[key] *= deviation**2
        damped = self.damping * np.concatenate([values.ravel() for values in squares.values()]).mean()
        for values in squares.values():
            np.sqrt(np.add(values, damped, out=values), out=values)
        return {key: _ratio(steep[key], squares.pop(key)) for key in parameters}


def _mean_squares(
    backend: ModelBackend,
    part: Part,
    positives: Array,
    parameters: list[tuple[str, str]],
    *,
    rng: np.random.Generator,
) -> dict[tuple[str, str], Array]:
    """Estimate the positives' mean (dm/dw)^2 of every weight."""
    found = {(name, own): np.zeros(backend.info(name).parameters[own].shape) for name, own in parameters}
    for rows in np.array_split(rng.permutation(positives), min(GROUPS, len(positives))) if len(positives) else ():
        signs = rng.choice(np.array([-1.0, 1.0]), len(rows))
        loss_gradient = margin(part.labels[rows], signs)
        for key, values in weight_gradients_of(backend, part, rows, loss_gradient, parameters).items():
            found[key] += np.square(values, out=values if values.flags.writeable else None)
    for values in found.values():
        values /= max(1, len(positives))
    return found


def _deviation(values: Array) -> float:
    """Return the standard deviation, as `std` does in float64, with one array for the values instead of two."""
    rest = values.astype(np.float64)
    rest -= rest.mean()
    return float(np.sqrt(np.square(rest, out=rest).mean()))


def _gradients(backend: ModelBackend, part: Part, parameters: list[tuple[str, str]]) -> dict[tuple[str, str], Array]:
    """Return the gradient of the negatives' mean margin, float64."""
    found = weight_gradients_of(backend, part, part.negatives, margin(part.labels[part.negatives]), parameters)
    return {key: np.array(found[key], np.float64) for key in parameters}


def _ratio(above: Array, below: Array) -> Array:
    """Divide, in the memory of `above`; 0 where that is 0, however small `below` is."""
    known = below > 0
    above[~known & (above > 0)] = np.inf
    return np.divide(above, below, out=above, where=known)
