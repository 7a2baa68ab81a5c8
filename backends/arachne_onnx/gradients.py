"""Gradients behind a cut: the forward nodes behind it, then the backward nodes, in two sessions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from arachne.backend import Pull, Weights
from arachne.errors import ModelError
from arachne.values import Array
from arachne_onnx.derivative import Derivative, backward_program, pulled_back
from arachne_onnx.kept import Kept, NotCuttableError
from arachne_onnx.layers import Layer
from arachne_onnx.running import MEMORY, Runner
from arachne_onnx.sessions import Program
from arachne_onnx.stored import Stored


class CutGradients:
    """Gradients with respect to the stored tensors of some layers. Nothing is computed before they are asked for.

    Args:
        runner: The model; it has been looked at.
        forward: What the cut keeps of the forward graph; arrays that the differentiable graph has too are shared.
        layers: The layers by name.
        frozen: Stored tensors that were not as in the file when the model was cut, in the dtypes of gradients.
    """

    def __init__(self, runner: Runner, forward: Kept, layers: Mapping[str, Layer], frozen: Mapping[str, Array]) -> None:
        self._runner = runner
        self._forward_kept = forward
        self._kept = Kept(runner, runner.deep, forward.feeds, frozen)
        self._places = {(name, key): place for name, layer in layers.items() for key, place in layer.stored.items()}
        self._names = sorted({place.name for place in self._places.values()})
        self._plan: _Plan | None = None

    def at(self, values: Mapping[str, Array], pull: Pull, rows: Array | None, n: int) -> Weights:
        """The gradients of a loss over `n` chosen rows, where the stored tensors have these values.

        Raises:
            NotCuttableError: A tensor that is needed cannot be kept row by row.
        """
        if self._plan is None:
            self._plan = _Plan(self._runner, self._kept, self._forward_kept, self._names)
        constants = self._runner.deep.constants
        weights = {name: values[name].astype(constants[name].dtype, copy=False) for name in self._names}
        totals = {name: np.zeros(constants[name].shape, np.float32) for name in self._names}
        for found in self._plan.run(weights, pull, rows, n):
            for name, gradient in found.items():
                totals[name] += gradient
        return gradients_of(self._places, totals)


class _Plan:
    """The two sessions, and what they take from before the cut."""

    def __init__(self, runner: Runner, kept: Kept, forward: Kept, names: list[str]) -> None:
        self._runner, self._kept, self._names = runner, kept, names
        try:
            self._derivative: Derivative = runner.derivative(names)
        except ModelError as error:
            raise NotCuttableError(str(error)) from error
        graph = kept.graph
        behind = kept.behind(names)
        made = {name for node in behind for name in node.output}
        outputs = sorted({graph.scores, *(name for name in self._derivative.saved if name in made)})
        nodes = graph.needed(outputs, kept.crossing(behind))
        self._crossing = sorted({*kept.crossing(nodes), *(set(self._derivative.saved) - made)})
        kept.share(forward, self._crossing)
        kept.keep(self._crossing)
        inputs = {name: kept.type_of(name) for name in kept.crossing(nodes)}
        inputs |= {name: kept.type_of(name) for name in names}
        self._forward = Program(runner.device, graph, inputs, outputs, nodes=nodes, constants=kept.frozen)
        self._backward: Program | None = None
        self._step = max(1, MEMORY // max(1, 2 * sum(runner.bytes_per_row.get(name, 0) for name in made)))

    def run(self, weights: Mapping[str, Array], pull: Pull, rows: Array | None, n: int) -> Iterator[dict[str, Array]]:
        """Batch by batch, the gradients by stored tensor."""
        runs = self._runs(weights, rows, n)
        for found, _ in pulled_back(runs, self._derivative, self._forward, self._back, pull):
            yield {name: found[gradient] for name, gradient in self._derivative.gradients.items()}

    def _runs(
        self, weights: Mapping[str, Array], rows: Array | None, n: int
    ) -> Iterator[tuple[dict[str, Array], int, int]]:
        for part, size in self._kept.parts(n, self._step):
            crossing = {name: self._kept.feed(name, rows, part, size) for name in self._crossing}
            yield {**weights, **crossing}, part.stop - part.start, size

    def _back(self, values: Mapping[str, Array]) -> Program:
        if self._backward is None:
            self._backward = backward_program(
                self._runner.device, self._derivative, values, self._names, self._kept.frozen
            )
        return self._backward


def gradients_of(places: Mapping[tuple[str, str], Stored], gradients: Mapping[str, Array]) -> Weights:
    """The gradients of parameters, out of those of the stored tensors they lie in, as fresh arrays."""
    return {key: np.array(place.view(gradients[place.name]), np.float32, order="C") for key, place in places.items()}
