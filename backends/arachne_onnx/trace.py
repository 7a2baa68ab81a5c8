"""A trace: activations of several layers from one pass, and any number of gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from arachne.adapting.outputs import join_activations, join_gradients
from arachne.model.backend import Trace
from arachne.model.values import Activation, Array, Inputs, count
from arachne_onnx.derivative import SEED, Derivative, backward_program
from arachne_onnx.graph import Graph
from arachne_onnx.graph_inputs import fill
from arachne_onnx.kinds import plain_norm
from arachne_onnx.layers import Layer
from arachne_onnx.reader import LayerUse, Signal
from arachne_onnx.running import Runner


class OnnxTrace(Trace):
    """Activations of some layers and, for gradients, the tensors that the backward nodes read.

    A forward session returns the activations and these tensors; a second session runs the backward nodes alone, so
    further gradients need no forward pass.

    Args:
        runner: The model, after `look`.
        inputs: `n` inputs.
        layers: The layers by name.
        gradients: Whether `output_gradients` will be asked for.
    """

    def __init__(self, runner: Runner, inputs: Inputs, layers: Mapping[str, Layer], *, gradients: bool = True) -> None:
        self._runner = runner
        self._layers = layers
        self._then = dict(runner.values), set(runner.touched)  # the weights as they are now
        self.n = count(inputs)
        tensors = sorted({use.gradient.name for layer in layers.values() for use in layer.uses})
        key = tuple(layers)
        self._derivative = runner.derivative(tensors) if gradients else None
        graph = _with_norms(runner.deep if self._derivative is None else self._derivative.graph, layers, runner.deep)
        signals = {signal.name for layer in layers.values() for use in layer.uses for signal in _signals(use)}
        saved = [] if self._derivative is None else self._derivative.saved
        fed = set(runner.deep.inputs)
        outputs = sorted((signals | set(saved) | {runner.deep.scores}) - fed)
        program = runner.program(("trace", key, gradients), lambda: runner.whole(runner.deep, outputs, graph))
        weights = runner.weights_for(runner.deep)
        seen: list[dict[str, list[Activation]]] = []
        scores: list[Array] = []
        self._kept: list[tuple[dict[str, Array], int, int]] = []
        for feeds, n in runner.batches(inputs):
            values = {**feeds, **program.run({**feeds, **weights})}
            size = len(next(iter(feeds.values())))
            seen.append(
                {
                    name: [_activation(runner, use, values, n, size) for use in layer.uses]
                    for name, layer in layers.items()
                }
            )
            scores.append(np.asarray(values[runner.deep.scores][:n], np.float32))
            if gradients:
                self._kept.append(({name: values[name] for name in saved}, n, size))
        self.saved_bytes = sum(array.nbytes for saved, _, _ in self._kept for array in saved.values())
        self.activations = join_activations(seen, self.n)
        self.scores = np.concatenate(scores)
        """Class scores `(n, classes)` of the pass."""

    def _output_gradients(self, seed: Array) -> Mapping[str, tuple[Array, ...]]:
        """Run the backward nodes once per batch, for all layers together."""
        if self._derivative is None:
            raise RuntimeError("this trace was made without gradients")
        with self._runner.temporary_weights(*self._then):
            parts = self._backward(self._derivative, seed)
        return join_gradients(parts)

    def _backward(self, derivative: Derivative, seed: Array) -> list[dict[str, list[Array]]]:
        """Compute the gradients of each layer's uses for every batch."""
        runner, names = self._runner, derivative.gradients
        program = runner.program(
            ("backward of a trace", tuple(self._layers)),
            lambda: backward_program(runner.device, derivative, self._kept[0][0], runner.touched),
        )
        weights = runner.weights_for(runner.deep)
        parts: list[dict[str, list[Array]]] = []
        done = 0
        for saved, n, size in self._kept:
            rows = slice(done, done + n)
            found = program.run({**saved, **weights, SEED: fill(np.asarray(seed[rows], np.float32), size)})
            gradients = {name: runner.to_batch_first(name, found[names[name]], n, size) for name in names}
            parts.append({name: self._read(layer, gradients, rows) for name, layer in self._layers.items()})
            done += n
        return parts

    def _read(self, layer: Layer, gradients: Mapping[str, Array], rows: slice) -> list[Array]:
        """Return the gradients at a layer's uses; zeros if the scores do not depend on a use."""
        return [
            np.array(use.gradient.read(gradients[use.gradient.name]))
            if use.gradient.name in gradients
            else np.zeros_like(activation.leaving[rows])
            for use, activation in zip(layer.uses, self.activations[layer.info.name], strict=True)
        ]


def _signals(use: LayerUse) -> list[Signal]:
    return [use.leaving, *use.entering.values()]


def _with_norms(graph: Graph, layers: Mapping[str, Layer], types: Graph) -> Graph:
    """Add nodes that compute the normalised inputs of norms."""
    nodes, constants = list(graph.nodes), dict(graph.constants)
    added = []
    for layer in layers.values():
        for use in layer.uses:
            if layer.info.kind == "norm":
                node, more = plain_norm(use, types)
                added.append(node)
                constants.update(more)
    return replace(graph, nodes=[*nodes, *added], constants=constants) if added else graph


def _activation(runner: Runner, use: LayerUse, values: Mapping[str, Array], n: int, size: int) -> Activation:
    def read(signal: Signal, like: str | None = None) -> Array:
        array = signal.read(runner.to_batch_first(like or signal.name, values[signal.name], n, size))
        return np.array(array, np.float32 if array.dtype.kind == "f" else array.dtype)

    norm = "scale" in use.entering
    entering = {name: read(signal, use.leaving.name if norm else None) for name, signal in use.entering.items()}
    return Activation(entering, read(use.leaving))
