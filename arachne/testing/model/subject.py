"""Subject: a model under check with inputs and labels; and how results are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from arachne.model.backend import ModelBackend
from arachne.model.cut import weights_of
from arachne.model.values import Array, Inputs, LayerInfo, Weights, count

MAX_LAYERS = 8
"""Maximum number of layers that are checked one by one: the first, the last, and some between."""

COARSE_DTYPES = ("float16", "bfloat16")
"""Dtypes too coarse for small steps."""


class NotHereError(Exception):
    """A check that says nothing of this model, with the reason."""


def same(actual: Array, expected: Array, what: str) -> None:
    """Refuse arrays that differ in shape, or in value by more than the rounding of float32 in another order."""
    if np.shape(actual) != np.shape(expected):
        raise AssertionError(f"{what}: the shape is {np.shape(actual)}, expected {np.shape(expected)}")
    if not np.size(expected):
        return
    difference = float(np.max(np.abs(np.asarray(actual, np.float64) - expected)))
    allowed = 1e-3 * float(np.max(np.abs(expected))) + 1e-5
    if not difference <= allowed:
        raise AssertionError(
            f"{what}: off by up to {difference:.3g} where values go up to {np.max(np.abs(expected)):.3g}"
        )


class Subject:
    """A model, inputs it takes, and labels drawn at random.

    Args:
        backend: The model.
        inputs: `n` inputs it takes, an array or a mapping.
        reload: Opens a file that the model was saved to; None where files are not looked at.
        same: Refuses arrays that differ by more than rounding, with a name for what they are.
    """

    def __init__(
        self,
        backend: ModelBackend,
        inputs: Inputs,
        reload: Callable[[Path], ModelBackend] | None,
        same: Callable[[Array, Array, str], None] = same,
    ) -> None:
        self.backend, self.inputs, self.reload, self.same = backend, inputs, reload, same
        self.n = count(inputs)
        self.scores = np.array(backend.forward(inputs))
        self.labels = np.random.default_rng(1).integers(0, self.scores.shape[1], self.n)
        self._weights = {key: values.copy() for key, values in weights_of(backend).items()}

    @property
    def layers(self) -> list[LayerInfo]:
        """The layers that are looked at one by one."""
        found = list(self.backend.layers)
        chosen = np.unique(np.linspace(0, len(found) - 1, MAX_LAYERS).round().astype(int))
        return found if len(found) <= MAX_LAYERS else [found[number] for number in chosen]

    def restore(self) -> None:
        """Put every weight back."""
        for (layer, parameter), values in self._weights.items():
            self.backend.set_weights(layer, parameter, values)

    def perturb(self, layer: str) -> dict[tuple[str, str], Array]:
        """Return other values for every parameter of a layer, in its dtype."""
        rng = np.random.default_rng(sum(map(ord, layer)))
        found = {}
        for parameter, values in self.backend.get_weights(layer).items():
            spread = float(np.std(values)) or 0.1
            found[layer, parameter] = (values + 0.3 * spread * rng.normal(size=values.shape)).astype(values.dtype)
        return found

    def set(self, weights: Weights) -> None:
        """Set whole parameters."""
        for (layer, parameter), values in weights.items():
            self.backend.set_weights(layer, parameter, values)

    def fine(self) -> Iterator[tuple[LayerInfo, str]]:
        """Yield every parameter of the layers that is stored finely enough for small steps.

        Raises:
            NotHereError: None is.
        """
        found = [
            (info, name)
            for info in self.layers
            for name, own in info.parameters.items()
            if own.dtype not in COARSE_DTYPES
        ]
        if not found:
            raise NotHereError("the weights are stored in 16 bits, too coarse for finite differences")
        yield from found

    def needs_gradients(self) -> None:
        """Skip where the backend declares that it has none."""
        if not self.backend.SUPPORTS_GRADIENTS:
            raise NotHereError(f"backend '{self.backend.NAME}' declares SUPPORTS_GRADIENTS = False")


def equal(actual: Array, expected: Array, what: str) -> None:
    """Refuse arrays that are not equal bit for bit."""
    if actual.dtype != expected.dtype or not np.array_equal(actual, expected, equal_nan=True):
        raise AssertionError(f"{what}: expected the very same values")


def expect(holds: bool, otherwise: str) -> None:
    """Refuse what does not hold, with a sentence about what came instead."""
    if not holds:
        raise AssertionError(otherwise)
