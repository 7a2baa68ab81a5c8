"""Spectrum: neurons that are active when the fault happens and not otherwise (DeepFault, Eniser et al. 2019).

A neuron is active on an input if its value before the non-linearity is above a threshold; the neurons of a convolution
are its channels, by their mean over positions. With n_a and n_i the negatives on which a neuron is active and inactive,
p_a and p_i the positives:

    tarantula   (n_a / (n_a + n_i)) / (n_a / (n_a + n_i) + p_a / (p_a + p_i))
    ochiai      n_a / sqrt((n_a + n_i) (n_a + p_a))
    dstar       n_a^3 / (p_a + n_i)

A weight is as suspicious as the neuron it leads to; among equals, the largest weights come first. The neurons of the
last layer are the classes themselves, so they are left out unless the user names that layer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from arachne.data.part import Part
from arachne.errors import UsageError
from arachne.localise.ranked import Ranked
from arachne.model.backend import ModelBackend
from arachne.model.values import Array, LayerInfo, Weights, batches
from arachne.plugins.options import option

NEURON_KINDS = ("dense", "conv", "conv_transpose")
INPUTS_AT_ONCE = 256
POWER = 3
"""The exponent of D*."""


def tarantula(failing: Array, passing: Array, n_failing: int, n_passing: int) -> Array:
    """Compare the shares of the negatives and of the positives on which a neuron is active."""
    share, other = failing / max(1, n_failing), passing / max(1, n_passing)
    return _divide(share, share + other)


def ochiai(failing: Array, passing: Array, n_failing: int, n_passing: int) -> Array:
    """Return the cosine between "active" and "fails"."""
    return _divide(failing, np.sqrt(n_failing * (failing + passing)))


def dstar(failing: Array, passing: Array, n_failing: int, n_passing: int) -> Array:
    """A sharper variant of Ochiai; a neuron that is active on exactly the negatives is infinitely suspicious."""
    with np.errstate(divide="ignore"):
        return np.where(failing > 0, failing**POWER / (passing + (n_failing - failing)), 0.0)


FORMULAS: dict[str, Callable[[Array, Array, int, int], Array]] = {
    "tarantula": tarantula,
    "ochiai": ochiai,
    "dstar": dstar,
}


@dataclass(frozen=True, kw_only=True)
class Spectrum(Ranked):
    """The weights that enter neurons which are active when the fault happens and not otherwise.

    Attributes:
        formula: The formula of a neuron's suspiciousness.
        active_above: A neuron is active if its value before the non-linearity is above this.
    """

    name = "spectrum"

    NEEDS_SINGLE_LABEL = True
    NEEDS_GRADIENTS: ClassVar[bool] = False

    formula: str = option("tarantula", "How suspicious a neuron is.", choices=tuple(FORMULAS))
    active_above: float = option(0.0, "Above which value a neuron is active.")

    def _scores(self, backend: ModelBackend, part: Part, positives: Array, *, rng: np.random.Generator) -> Weights:
        layers = [info for info in self.layers(backend) if info.kind in NEURON_KINDS]
        if not self.include and len(layers) > 1:
            layers = layers[:-1]
        if not layers:
            raise UsageError("the model has no dense or convolutional layer whose neurons could be counted")
        found: dict[tuple[str, str], Array] = {}
        for info in layers:
            failing, passing = (self._active(backend, part, rows, info) for rows in (part.negatives, positives))
            suspicious = FORMULAS[self.formula](failing, passing, len(part.negatives), len(positives))
            for own in sorted(self.parameters(info)):
                found[info.name, own] = _spread_to_weights(suspicious, backend.get_weights(info.name)[own])
        return found

    def _active(self, backend: ModelBackend, part: Part, rows: Array, info: LayerInfo) -> Array:
        """Count the inputs on which each neuron of a layer is active, float64 `(out,)`."""
        count = np.zeros(info.parameters["weight"].shape[0])
        for some in batches(len(rows), INPUTS_AT_ONCE):
            for use in backend.activations(part.data.take(rows[some]).inputs, info.name):
                axis = use.leaving.ndim - 1 if info.kind == "dense" else 1
                others = tuple(number for number in range(1, use.leaving.ndim) if number != axis)
                count += (use.leaving.mean(axis=others) > self.active_above).sum(axis=0)
        return count


def _spread_to_weights(suspicious: Array, weights: Array) -> Array:
    """Give each weight its neuron's suspiciousness, and a little more to larger weights to break ties."""
    size = np.abs(weights.astype(np.float64))
    most = float(size.max()) or 1.0
    return suspicious.reshape(-1, *(1,) * (weights.ndim - 1)) * (1 + 1e-9 * size / most) + 1e-12 * size / most


def _divide(above: Array, below: Array) -> Array:
    return np.divide(above, below, out=np.zeros_like(above, dtype=np.float64), where=below > 0)
