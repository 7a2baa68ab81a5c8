"""Gradients behind a cut: the forward nodes behind it, then the backward nodes, in two sessions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from arachne.errors import ModelError
from arachne.model.backend import LossGradient, Weights
from arachne.model.values import Array
from arachne_onnx.cut_cache import CutCache, NotCuttableError
from arachne_onnx.derivative import Derivative, backward_program, loss_gradients
from arachne_onnx.layers import Layer
from arachne_onnx.parameter_slice import ParameterSlice
from arachne_onnx.running import MAX_BATCH_BYTES, Runner
from arachne_onnx.sessions import Program


class CutGradients:
    """Gradients with respect to the stored tensors of some layers; nothing is computed before the first call of `at`.

    Args:
        runner: The model, after `look`.
        forward: The cache of the forward graph; arrays that are also in the differentiable graph are shared.
        layers: The layers by name.
        frozen: Weights that differed from the file when the model was cut, in the dtypes of gradients.
    """

    def __init__(
        self, runner: Runner, forward: CutCache, layers: Mapping[str, Layer], frozen: Mapping[str, Array]
    ) -> None:
        self._runner = runner
        self._forward_cache = forward
        self._cache = CutCache(runner, runner.deep, forward.feeds, frozen)
        self._slices = {(name, key): slice_ for name, layer in layers.items() for key, slice_ in layer.stored.items()}
        self._names = sorted({slice_.name for slice_ in self._slices.values()})
        self._plan: _Plan | None = None

    def at(self, values: Mapping[str, Array], loss: LossGradient, rows: Array | None, n: int) -> Weights:
        """Return the gradients of a loss over `n` rows, for these values of the stored tensors.

        Raises:
            NotCuttableError: A tensor that is needed cannot be kept row by row.
        """
        if self._plan is None:
            self._plan = _Plan(self._runner, self._cache, self._forward_cache, self._names)
        constants = self._runner.deep.constants
        weights = {name: self._runner.for_graph(self._runner.deep, name, values[name]) for name in self._names}
        totals = {name: np.zeros(constants[name].shape, np.float32) for name in self._names}
        for found in self._plan.run(weights, loss, rows, n):
            for name, gradient in found.items():
                totals[name] += gradient
        return gradients_of(self._slices, totals)


class _Plan:
    """The two sessions, and the tensors they read from before the cut."""

    def __init__(self, runner: Runner, cache: CutCache, forward: CutCache, names: list[str]) -> None:
        self._runner, self._cache, self._names = runner, cache, names
        try:
            self._derivative: Derivative = runner.derivative(names)
        except ModelError as error:
            raise NotCuttableError(str(error)) from error
        graph = cache.graph
        behind = cache.behind(names)
        made = {name for node in behind for name in node.output}
        outputs = sorted({graph.scores, *(name for name in self._derivative.saved if name in made)})
        nodes = graph.select_nodes(outputs, cache.crossing(behind))
        self._crossing = sorted({*cache.crossing(nodes), *(set(self._derivative.saved) - made)})
        cache.share(forward, self._crossing)
        cache.keep(self._crossing)
        inputs = {name: cache.type_of(name) for name in cache.crossing(nodes)}
        inputs |= {name: cache.type_of(name) for name in names}
        self._forward = Program(runner.device, graph, inputs, outputs, nodes=nodes, constants=cache.frozen)
        self._backward: Program | None = None
        self._step = max(1, MAX_BATCH_BYTES // max(1, 2 * sum(runner.bytes_per_row.get(name, 0) for name in made)))

    def run(
        self, weights: Mapping[str, Array], loss: LossGradient, rows: Array | None, n: int
    ) -> Iterator[dict[str, Array]]:
        """Yield the gradients of each batch by stored tensor."""
        runs = self._runs(weights, rows, n)
        for found, _ in loss_gradients(runs, self._derivative, self._forward, self._back, loss):
            yield {name: found[gradient] for name, gradient in self._derivative.gradients.items()}

    def _runs(
        self, weights: Mapping[str, Array], rows: Array | None, n: int
    ) -> Iterator[tuple[dict[str, Array], int, int]]:
        for part, size in self._cache.parts(n, self._step):
            crossing = {name: self._cache.feed(name, rows, part, size) for name in self._crossing}
            yield {**weights, **crossing}, part.stop - part.start, size

    def _back(self, values: Mapping[str, Array]) -> Program:
        if self._backward is None:
            self._backward = backward_program(
                self._runner.device, self._derivative, values, self._names, self._cache.frozen
            )
        return self._backward


def gradients_of(slices: Mapping[tuple[str, str], ParameterSlice], gradients: Mapping[str, Array]) -> Weights:
    """Return the gradients of parameters, from those of the stored tensors, as fresh arrays."""
    return {key: np.array(slice_.view(gradients[slice_.name]), np.float32, order="C") for key, slice_ in slices.items()}
