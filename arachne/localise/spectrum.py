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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from arachne.data.part import Part
from arachne.errors import UsageError
from arachne.localise.observe import observe_part
from arachne.localise.ranked import Ranked
from arachne.model.backend import ActivationAccumulator, ModelBackend
from arachne.model.passes import PassState
from arachne.model.values import Activation, Array, LayerInfo, Weights
from arachne.plugins.options import option

NEURON_KINDS = ("dense", "conv", "conv_transpose")
EMPTY = np.empty(0)
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
        failing, passing = (self._active(backend, part, rows, layers) for rows in (part.negatives, positives))
        found: dict[tuple[str, str], Array] = {}
        for info in layers:
            counts = failing.counts[info.name], passing.counts[info.name]
            suspicious = FORMULAS[self.formula](*counts, len(part.negatives), len(positives))
            for own in sorted(self.parameters(info)):
                found[info.name, own] = _spread_to_weights(suspicious, backend.get_weights(info.name)[own])
        return found

    def _active(self, backend: ModelBackend, part: Part, rows: Array, layers: Sequence[LayerInfo]) -> ActiveCounts:
        """Count the inputs on which each neuron is active."""
        found = ActiveCounts({info.name: info for info in layers}, self.active_above)
        if len(rows):
            observe_part(backend, part, rows, list(found.counts), found)
        return found


class ActiveCounts(ActivationAccumulator):
    """The number of inputs on which each neuron of some layers is active, float64 `(out,)` by layer.

    Args:
        layers: The layers by name.
        above: A neuron is active if its value is above this.
    """

    def __init__(self, layers: Mapping[str, LayerInfo], above: float) -> None:
        self._layers, self._above = layers, above
        self.counts = {name: np.zeros(info.parameters["weight"].shape[0]) for name, info in layers.items()}

    def activation(self, layer: str, use: int, activation: Activation) -> None:
        leaving = activation.leaving
        axis = leaving.ndim - 1 if self._layers[layer].kind == "dense" else 1
        others = tuple(number for number in range(1, leaving.ndim) if number != axis)
        self.counts[layer] += (leaving.mean(axis=others) > self._above).sum(axis=0)

    def gradient(self, layer: str, use: int, gradient: Array) -> None:
        """Gradients do not count."""

    def split(self) -> Self:
        return type(self)(self._layers, self._above)

    def merge(self, other: Self) -> None:
        for name, own in other.counts.items():
            self.counts[name] += own

    def state(self) -> PassState:
        return {str(number): own for number, own in enumerate(self.counts.values())}

    def restore(self, state: PassState) -> bool:
        found = {name: state.get(str(number), EMPTY) for number, name in enumerate(self.counts)}
        fits = all(found[name].shape == own.shape for name, own in self.counts.items())
        self.counts = found if fits else self.counts
        return fits


def _spread_to_weights(suspicious: Array, weights: Array) -> Array:
    """Give each weight its neuron's suspiciousness, and a little more to larger weights to break ties."""
    size = np.abs(weights.astype(np.float64))
    most = float(size.max()) or 1.0
    return suspicious.reshape(-1, *(1,) * (weights.ndim - 1)) * (1 + 1e-9 * size / most) + 1e-12 * size / most


def _divide(above: Array, below: Array) -> Array:
    return np.divide(above, below, out=np.zeros_like(above, dtype=np.float64), where=below > 0)
