"""Fisher ratio: what a weight does for the negatives' margins, over what it does to the positives'.

With m the margin of an input (score of the true class - best other), σ the standard deviation of the weight's
parameter, and means over inputs:

    score_i = |mean over negatives of dm/dw_i| σ / sqrt(mean over positives of (dm/dw_i)^2 σ^2 + damping * D)

where D is the mean over all weights of what stands before it, so that `damping` is a plain number. σ is what a step of
a weight is measured in, and makes layers comparable: weights are ranked over all layers together.

The mean of squares comes from gradients of sums with random signs, as in `arachne.search.influence`: the positives fall
into groups, and the expectation of (Σ ± g_n)^2 over a group is Σ g_n^2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne.backend import ModelBackend
from arachne.data.split import Part
from arachne.localise.ranked import Ranked
from arachne.losses import margin
from arachne.options import option
from arachne.values import Array, Weights

GROUPS = 32
"""Into how many groups the positives fall; where there are no more positives than that, their squares are exact."""


@dataclass(frozen=True, kw_only=True)
class Fisher(Ranked):
    """The weights that move the negatives' margins most for what they do to the positives'.

    Attributes:
        damping: How much of the mean square over all weights is added to that of each; without it, weights through
            which nothing flows in positives would come first however little they do.
    """

    name = "fisher"

    damping: float = option(0.1, "What is added to each weight's square, in mean squares.", least=0)

    def _scores(self, backend: ModelBackend, part: Part, positives: Array, *, rng: np.random.Generator) -> Weights:
        parameters = [
            (info.name, own) for info in self.deep_enough(self.layers(backend)) for own in sorted(self.parameters(info))
        ]
        steep = _gradients(backend, part, parameters)
        squares = _mean_squares(backend, part, positives, parameters, rng=rng)
        for place in parameters:
            deviation = float(backend.get_weights(place[0])[place[1]].astype(np.float64).std())
            steep[place] = np.abs(steep[place]) * deviation
            squares[place] = squares[place] * deviation**2
        damped = self.damping * np.concatenate([values.ravel() for values in squares.values()]).mean()
        return {place: _ratio(steep[place], np.sqrt(squares[place] + damped)) for place in parameters}


def _mean_squares(
    backend: ModelBackend,
    part: Part,
    positives: Array,
    parameters: list[tuple[str, str]],
    *,
    rng: np.random.Generator,
) -> dict[tuple[str, str], Array]:
    """The positives' mean (dm/dw)^2 of every weight."""
    found = {(name, own): np.zeros(backend.info(name).parameters[own].shape) for name, own in parameters}
    for rows in np.array_split(rng.permutation(positives), min(GROUPS, len(positives))) if len(positives) else ():
        signs = rng.choice(np.array([-1.0, 1.0]), len(rows))
        pull = margin(part.data.labels[rows], signs)
        for place, values in part.weight_gradients(backend, rows, pull, parameters).items():
            found[place] += np.square(values, out=values if values.flags.writeable else None)
    return {place: values / max(1, len(positives)) for place, values in found.items()}


def _gradients(backend: ModelBackend, part: Part, parameters: list[tuple[str, str]]) -> dict[tuple[str, str], Array]:
    """The gradient of the negatives' mean margin, float64."""
    found = part.weight_gradients(backend, part.negatives, margin(part.data.labels[part.negatives]), parameters)
    return {place: np.asarray(found[place], np.float64) for place in parameters}


def _ratio(above: Array, below: Array) -> Array:
    """Above over below; 0 where nothing is above, however small below is."""
    return np.divide(above, below, out=np.where(above > 0, np.inf, 0.0), where=below > 0)
