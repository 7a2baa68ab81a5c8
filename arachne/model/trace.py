"""One pass of a model held open for gradients: `Trace`, and the plain one that every backend has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, final

from arachne.model.cut import temporary_weights, weights_of
from arachne.model.values import Activation, Array, Inputs, check_rows, count

if TYPE_CHECKING:
    from arachne.model.backend import ModelBackend


class Trace(ABC):
    """One forward pass of some inputs, kept open so that several gradients can be taken from it."""

    n: int
    """The number of inputs."""

    activations: Mapping[str, tuple[Activation, ...]]
    """The activations of each traced layer, one `Activation` per use."""

    saved_bytes: int = 0
    """Bytes of other tensors that it keeps for gradients."""

    @final
    def output_gradients(self, seed: Array) -> Mapping[str, tuple[Array, ...]]:
        """Return the vector-Jacobian product of the scores with respect to the outputs of every traced layer.

        Args:
            seed: `(n, ...)` like the outputs; row by row the vector the Jacobian is multiplied with.

        Returns:
            For each layer one array per use, in the shape of what leaves it: `(n, ...)`.
        """
        check_rows(self.n, seed, "rows of the seed")
        return self._output_gradients(seed)

    @abstractmethod
    def _output_gradients(self, seed: Array) -> Mapping[str, tuple[Array, ...]]:
        """Implementation of `output_gradients`; the seed has one row for each input."""


class PlainTrace(Trace):
    """A trace that runs one pass per layer, with the weights the model had when it was traced."""

    def __init__(self, backend: ModelBackend, inputs: Inputs, layers: Sequence[str]) -> None:
        self.n = count(inputs)
        self._backend = backend
        self._inputs = inputs
        self._weights = weights_of(backend)
        self.activations = {layer: backend.activations(inputs, layer) for layer in layers}

    def _output_gradients(self, seed: Array) -> Mapping[str, tuple[Array, ...]]:
        with temporary_weights(self._backend, self._weights):
            return {layer: self._backend.output_gradients(self._inputs, layer, seed) for layer in self.activations}
