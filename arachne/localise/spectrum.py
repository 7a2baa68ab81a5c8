"""Spectrum: neurons that are active when the fault happens and not otherwise (DeepFault, Eniser et al. 2019).

A neuron is active on an input where its value before the non-linearity is above a threshold; of a convolution, a
channel by its mean over positions. With n_a and n_i the negatives on which it is active and inactive, p_a and p_i the
positives:

    tarantula   (n_a / (n_a + n_i)) / (n_a / (n_a + n_i) + p_a / (p_a + p_i))
    ochiai      n_a / sqrt((n_a + n_i) (n_a + p_a))
    dstar       n_a^3 / (p_a + n_i)

A neuron's suspiciousness is lifted to the weights that enter it; among those, the largest come first. The last layer's
neurons are the classes themselves, so they are left out unless the user names that layer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from arachne.backend import ModelBackend
from arachne.data.split import Part
from arachne.errors import UsageError
from arachne.localise.ranked import Ranked
from arachne.options import option
from arachne.values import Array, LayerInfo, Weights, batches

KINDS = ("dense", "conv", "conv_transpose")
AT_ONCE = 256
POWER = 3
"""The star of D*."""


def tarantula(failing: Array, passing: Array, n_failing: int, n_passing: int) -> Array:
    """Shares of the negatives and positives a neuron is active on, against each other."""
    share, other = failing / max(1, n_failing), passing / max(1, n_passing)
    return _over(share, share + other)


def ochiai(failing: Array, passing: Array, n_failing: int, n_passing: int) -> Array:
    """The cosine between "active" and "fails"."""
    return _over(failing, np.sqrt(n_failing * (failing + passing)))


def dstar(failing: Array, passing: Array, n_failing: int, n_passing: int) -> Array:
    """As Ochiai, but sharper; a neuron that is active on just the negatives is infinitely suspicious."""
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
        formula: How suspicious a neuron is.
        threshold: Above which value before its non-linearity a neuron is active.
    """

    name = "spectrum"
    NEEDS_GRADIENTS: ClassVar[bool] = False

    formula: str = option("tarantula", "How suspicious a neuron is.", choices=tuple(FORMULAS))
    threshold: float = option(0.0, "Above which value a neuron is active.")

    def _scores(self, backend: ModelBackend, part: Part, positives: Array, *, rng: np.random.Generator) -> Weights:
        layers = [info for info in self.layers(backend) if info.kind in KINDS]
        if not self.include and len(layers) > 1:
            layers = layers[:-1]
        if not layers:
            raise UsageError("the model has no dense or convolutional layer whose neurons could be counted")
        found: dict[tuple[str, str], Array] = {}
        for info in layers:
            failing, passing = (self._active(backend, part, rows, info) for rows in (part.negatives, positives))
            suspicious = FORMULAS[self.formula](failing, passing, len(part.negatives), len(positives))
            for own in sorted(self.parameters(info)):
                found[info.name, own] = _lifted(suspicious, backend.get_weights(info.name)[own])
        return found

    def _active(self, backend: ModelBackend, part: Part, rows: Array, info: LayerInfo) -> Array:
        """On how many inputs each neuron of a layer is active, float64 `(out,)`."""
        count = np.zeros(info.parameters["weight"].shape[0])
        for some in batches(len(rows), AT_ONCE):
            for use in backend.activations(part.data.take(rows[some]).inputs, info.name):
                axis = use.leaving.ndim - 1 if info.kind == "dense" else 1
                others = tuple(number for number in range(1, use.leaving.ndim) if number != axis)
                count += (use.leaving.mean(axis=others) > self.threshold).sum(axis=0)
        return count


def _lifted(suspicious: Array, weights: Array) -> Array:
    """Each weight as suspicious as its neuron; of equal ones the larger weight is a little more so."""
    size = np.abs(weights.astype(np.float64))
    most = float(size.max()) or 1.0
    return suspicious.reshape(-1, *(1,) * (weights.ndim - 1)) * (1 + 1e-9 * size / most) + 1e-12 * size / most


def _over(above: Array, below: Array) -> Array:
    return np.divide(above, below, out=np.zeros_like(above, dtype=np.float64), where=below > 0)
