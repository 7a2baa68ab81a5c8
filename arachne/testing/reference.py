"""`ReferenceBackend`: the contract in plain NumPy, with hand-written gradients.

A test double, a worked example for authors of backends, and the arbiter when two frameworks disagree. It is written to
be read: a forward pass is a loop over the nodes, a backward pass the same loop in reverse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from arachne.adapting.plain_fit import plain_fit
from arachne.errors import ModelError
from arachne.model.backend import LossGradient, ModelBackend, Trace, WeightFile, Weights, compute_gradient
from arachne.model.fitting import OnStep, Plan
from arachne.model.values import Activation, Array, Description, Inputs, LayerInfo, ParameterInfo, batches, count
from arachne.testing import reference_file
from arachne.testing.networks import Network
from arachne.testing.nodes import Layer, Node
from arachne.testing.reference_cut import ReferenceCut
from arachne.testing.running import (
    ByLayer,
    Values,
    check_inputs,
    leaving_of,
    nodes_behind,
    run,
    run_back,
    weight_gradients,
)


class ReferenceBackend(ModelBackend):
    """A network spec that runs.

    Example:
        >>> backend = ReferenceBackend(mlp([4, 8, 3], seed=0))
        >>> backend.forward(np.zeros((2, 4), np.float32)).shape
        (2, 3)
    """

    NAME = "reference"
    SUFFIXES = (".refnet",)
    SUPPORTS_FIT = True

    def __init__(
        self, network: Network, *, dtype: str = "float32", batch_size: int = 512, source: str | None = None
    ) -> None:
        """Take a copy of a spec's weights.

        Args:
            network: The spec; it is never changed.
            dtype: What weights are stored and everything is computed in. With `float64` the scores are float64 too,
                beyond the contract: finite differences need them.
            batch_size: How many inputs pass through at once.
            source: Where the network came from, for `describe`.
        """
        self.native = network
        self._network = network.with_scores()
        self._dtype = np.dtype(dtype)
        self._batch_size = batch_size
        self._source = source
        self._weights: ByLayer = {
            name: {parameter: np.array(values, self._dtype) for parameter, values in layer.parameters.items()}
            for name, layer in network.layers.items()
        }
        # Kept, because it is read often and never changes: only weights do.
        self._layers = tuple(self._describe_layer(layer) for layer in self._network.layers.values())

    @classmethod
    def load(
        cls,
        source: Any,
        *,
        weights: Path | None = None,
        device: str | None = None,
        output: str | None = None,
        trust_code: bool = False,
    ) -> Self:
        """Make a backend of a `Network` or of a `.refnet` file, which holds no code that could run."""
        if isinstance(source, Network):
            return cls(source)
        if weights is not None or output is not None:
            raise ModelError("a reference network has its weights in one file and a single output")
        network, dtype = reference_file.read_network(Path(source))
        return cls(network, dtype=dtype, source=str(source))

    @classmethod
    def weight_file(cls, path: Path) -> WeightFile:
        """Open the weights of a `.refnet` file for patching."""
        return reference_file.RefnetWeights(path)

    @property
    def layers(self) -> Sequence[LayerInfo]:
        """The layers in the order in which the spec's nodes use them."""
        return self._layers

    def _get_weights(self, layer: str) -> Mapping[str, Array]:
        """A copy of every parameter of a layer."""
        return {parameter: values.copy() for parameter, values in self._weights[layer].items()}

    def _set_weights(self, layer: str, parameter: str, values: Array) -> None:
        """Copy other values into one parameter."""
        # A new array rather than new values in the old one: cuts and traces keep the old weights without copying them.
        self._weights[layer] = {**self._weights[layer], parameter: np.array(values, self._dtype)}

    def _forward(self, inputs: Inputs) -> Array:
        """Class scores `(n, classes)`."""
        scores = self._network.nodes[-1].name
        return np.concatenate([self._run(part)[scores] for part in self._parts(inputs)])

    def _activations(self, inputs: Inputs, layer: str) -> tuple[Activation, ...]:
        """Trace the layer and return its activations."""
        return self._make_trace(inputs, [layer]).activations[layer]

    def _weight_gradients(self, inputs: Inputs, loss: LossGradient, parameters: Sequence[tuple[str, str]]) -> Weights:
        """Carry the loss gradient back from the scores and multiply it with each layer's inputs."""
        total = {(layer, parameter): np.zeros_like(self._weights[layer][parameter]) for layer, parameter in parameters}
        layers = {layer for layer, _ in parameters}
        nodes = nodes_behind(self._network, layers)
        for values, gradients in self._passes(inputs, loss, nodes):
            found = weight_gradients(self._network, layers, values, gradients, self._weights)
            for key, sums in total.items():
                sums += found[key]
        return total

    def _output_gradients(self, inputs: Inputs, layer: str, seed: Array) -> tuple[Array, ...]:
        """The seed carried back to each use of a layer."""
        return self._make_trace(inputs, [layer]).output_gradients(seed)[layer]

    def _input_gradients(self, inputs: Inputs, loss: LossGradient) -> Inputs:
        """Carry the loss gradient back from the scores to the inputs."""
        parts = [gradients for _, gradients in self._passes(inputs, loss, self._network.nodes)]
        named = check_inputs(self._network, inputs, self._dtype)
        found = {name: np.concatenate([values[:0], *(part[name] for part in parts)]) for name, values in named.items()}
        return found if isinstance(inputs, Mapping) else next(iter(found.values()))

    def _fit(self, inputs: Inputs, labels: Array, plan: Plan, on_step: OnStep) -> Weights:
        """Gradient steps in NumPy, which is all the framework there is."""
        return plain_fit(self, inputs, labels, plan, on_step=on_step)

    def _trace(self, inputs: Inputs, layers: Sequence[str]) -> Trace:
        """Every value of one pass, kept; a backward pass over them for each seed."""
        return self._make_trace(inputs, layers)

    def _cut(self, inputs: Inputs, layers: Sequence[str]) -> ReferenceCut:
        """The values that cross the cut, kept; see `arachne.testing.reference_cut`."""
        touched = [info for info in self.layers if info.name in layers]
        cut = ReferenceCut(self._network, dict(self._weights), touched, self._batch_size)
        cut.keep([self._run(part) for part in self._parts(inputs)])
        return cut

    def halve_batches(self) -> int | None:
        """Halve the batches, down to single inputs."""
        if self._batch_size <= 1:
            return None
        self._batch_size //= 2
        return self._batch_size

    def save(self, path: Path) -> None:
        """Write the network with its current weights as a `.refnet` file."""
        reference_file.write_network(path, self.native, self._weights)

    def describe(self) -> Description:
        """NumPy, on the processor."""
        return Description(
            backend=self.NAME,
            framework=f"numpy {np.__version__}",
            format="refnet",
            device="cpu",
            scores=self.score_kind,
            source=self._source,
        )

    def _describe_layer(self, layer: Layer) -> LayerInfo:
        return LayerInfo(
            name=layer.name,
            kind=layer.kind,
            parameters={
                parameter: ParameterInfo(values.shape, str(self._dtype))
                for parameter, values in layer.parameters.items()
            },
            geometry=layer.geometry,
            uses=len(self._network.uses(layer.name)),
            followed_by=self._network.followers(layer),
        )

    def _make_trace(self, inputs: Inputs, layers: Sequence[str]) -> ReferenceTrace:
        uses = {layer: self._network.uses(layer) for layer in layers}
        parts = [self._run(part) for part in self._parts(inputs)]
        return ReferenceTrace(self._network, dict(self._weights), parts, uses)

    def _run(self, values: Values) -> Values:
        return run(self._network, self._network.nodes, values, self._weights)

    def _passes(self, inputs: Inputs, loss: LossGradient, nodes: Sequence[Node]) -> Iterator[tuple[Values, Values]]:
        """Part by part, the values of a pass and the gradients with respect to those around these nodes."""
        scores, done = self._network.nodes[-1].name, 0
        for part in self._parts(inputs):
            values = self._run(part)
            rows = slice(done, done + len(values[scores]))
            done = rows.stop
            if rows.stop > rows.start:
                seed = compute_gradient(loss, values[scores], rows).astype(self._dtype, copy=False)
                yield values, run_back(self._network, values, seed, self._weights, nodes)

    def _slices(self, inputs: Inputs) -> list[slice]:
        # No inputs are still one part, an empty one, so that the shapes of the results come out right.
        return list(batches(max(count(inputs), 1), self._batch_size))

    def _parts(self, inputs: Inputs) -> Iterable[Values]:
        named = check_inputs(self._network, inputs, self._dtype)
        for rows in self._slices(inputs):
            yield {name: values[rows] for name, values in named.items()}


class ReferenceTrace(Trace):
    """One forward pass, part by part, with every value kept."""

    def __init__(
        self, network: Network, weights: ByLayer, parts: Sequence[Values], uses: Mapping[str, tuple[Node, ...]]
    ) -> None:
        self._network = network
        self._weights = weights
        self._parts = parts
        self._uses = uses
        self.n = sum(len(part[network.nodes[-1].name]) for part in parts)
        self.activations = {layer: tuple(self._activation(node) for node in nodes) for layer, nodes in uses.items()}

    def _output_gradients(self, seed: Array) -> Mapping[str, tuple[Array, ...]]:
        """One backward pass for all layers."""
        scores = self._network.nodes[-1].name
        start, gradients = 0, []
        for part in self._parts:
            stop = start + len(part[scores])
            gradients.append(run_back(self._network, part, seed[start:stop].astype(part[scores].dtype), self._weights))
            start = stop
        return {
            layer: tuple(np.concatenate(self._leaving_gradients(node, gradients)) for node in nodes)
            for layer, nodes in self._uses.items()
        }

    def _activation(self, node: Node) -> Activation:
        layer = self._layer(node)
        found = [layer.entering(entering, self._weights[layer.name]) for entering in self._entering(node)]
        leaving = [leaving_of(self._network, node, part, self._weights) for part in self._parts]
        return Activation(
            {name: np.concatenate([part[name] for part in found]) for name in found[0]}, np.concatenate(leaving)
        )

    def _leaving_gradients(self, node: Node, gradients: Sequence[Values]) -> list[Array]:
        """The gradient at what leaves a use of a layer, part by part, from those at the values."""
        layer = self._layer(node)
        return [
            layer.leaving_gradient(part[node.name], entering, self._weights[layer.name])
            for part, entering in zip(gradients, self._entering(node), strict=True)
        ]

    def _entering(self, node: Node) -> Iterable[list[Array]]:
        return ([part[source] for source in node.sources] for part in self._parts)

    def _layer(self, node: Node) -> Layer:
        layer = self._network.layer_of(node)
        if layer is None:
            raise TypeError(f"node '{node.name}' uses no layer")
        return layer
