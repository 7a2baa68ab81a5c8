"""The fast path: the model held open at a layer, everything that no candidate can change computed once.

The nodes fall into two parts: those behind the tensors a search may change, and all others. The others run once for all
inputs, and the results that the first part needs are stored, batch first, so that rows can be selected. A candidate
runs the first part alone, with its own values for the tensors it touches as inputs of the session.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping

import numpy as np
from onnx import NodeProto, helper

from arachne.model.backend import Cut, LossGradient, Weights
from arachne.model.values import Array, Inputs, count
from arachne.weights.storage import IntegerGrid
from arachne_onnx.channels import MIN_CHANNEL_RATIO, FewChannels, changed_channels
from arachne_onnx.cut_cache import CutCache, NotCuttableError, select_rows
from arachne_onnx.gradients import CutGradients
from arachne_onnx.graph import TensorType
from arachne_onnx.graph_inputs import fill
from arachne_onnx.layers import Layer
from arachne_onnx.parameter_slice import ParameterSlice
from arachne_onnx.running import MAX_BATCH_BYTES, MOSTLY_UNCHANGED, Runner
from arachne_onnx.sessions import Program


class OnnxCut(Cut):
    """A graph held open at the earliest of some layers.

    Args:
        runner: The model, after `look`.
        inputs: All inputs.
        layers: The layers by name, in order of execution.
        trace_outputs: Computes outputs of the first layer, for kinds whose outputs are no tensor of the forward graph.
        plain: Makes the plain cut with the present weights.
    """

    def __init__(
        self,
        runner: Runner,
        inputs: Inputs,
        layers: Mapping[str, Layer],
        trace_outputs: Callable[[Array | None], Array],
        plain: Callable[[], Cut],
    ) -> None:
        first = next(iter(layers.values()))
        whole = first.info.kind != "recurrent" and first.uses[0].leaving.part is None
        super().__init__(first.info.name, [layer.info for layer in layers.values()], continues_from_outputs=whole)
        self._runner = runner
        self._layers = layers
        self._trace_outputs = trace_outputs
        self._plain = plain
        self._n = count(inputs)
        self._values = dict(
            runner.values
        )  # `set` replaces arrays and never writes into them, so this keeps their present values
        self._graph = runner.graph
        self._cache = CutCache(runner, runner.graph, runner.feeds(inputs), runner.weights_for(runner.graph))
        self._gradients = CutGradients(runner, self._cache, layers, runner.weights_for(runner.deep))
        self._programs: dict[Hashable, Program] = {}
        self._before: dict[ParameterSlice, tuple[Array, IntegerGrid]] = {}
        self._leaving = first.uses[0].leaving.name
        self._plans: dict[frozenset[str], tuple[list[NodeProto], list[str]]] = {}
        # Vectors are often shared between layers by exporters, and then lead further to the front than the matrices.
        self._matrices = frozenset(
            layer.stored[name].name for layer in layers.values() for name in layer.info.weights or layer.stored
        )
        self._cache.keep(self._plan(self._matrices)[1])
        self._cache.check_separable(
            self._plan(frozenset(p.name for layer in layers.values() for p in layer.stored.values()))[1]
        )
        made = {name for node in self._plan(self._matrices)[0] for name in node.output}
        self._step = max(1, MAX_BATCH_BYTES // max(1, sum(runner.bytes_per_row.get(name, 0) for name in made)))
        self._first = {name: slice_.read(self._values[slice_.name]) for name, slice_ in first.stored.items()}
        serves = FewChannels.serves(first) and first.uses[0].node.input[0] in self._plan(self._matrices)[1]
        self._channels = FewChannels(runner.device, self._graph, first) if serves else None

    def outputs(self, rows: Array | None = None) -> Array:
        """Compute the outputs of all rows at the first call."""
        if not self.continues_from_outputs:
            return self._trace_outputs(rows)
        self._cache.keep([self._leaving])
        return np.array(select_rows(self._cache.arrays[self._leaving], rows), np.float32)

    def _scores_from_outputs(self, outputs: Array, rows: Array | None) -> Array:
        """Run the nodes behind the layer on other outputs."""
        nodes, taken = self._plan(frozenset({self._leaving}))
        crossing = [name for name in taken if name != self._leaving]
        self._cache.keep(crossing)
        program = self._program("outputs", nodes, [*crossing, self._leaving], ())
        dtype = self._cache.dtype_of(self._leaving)
        given = {self._leaving: np.asarray(outputs).astype(dtype, copy=False)}
        return self._run(program, crossing, given, {}, rows)

    def _scores_with(self, weights: Weights, rows: Array | None) -> Array:
        """Run the nodes behind the touched tensors, with the changed tensors as inputs."""
        changed = self._replace_parameters(weights)
        few = self._few_channels(weights)
        if few is not None:
            return self._scores_with_channels(weights, few, rows)
        names = frozenset(changed)
        nodes, crossing = self._plan(self._matrices if names <= self._matrices else names)
        self._cache.keep(crossing)
        return self._run(self._program(names, nodes, crossing, changed), crossing, {}, changed, rows)

    def _weight_gradients(self, weights: Weights, loss: LossGradient, rows: Array | None) -> Weights:
        """Run the nodes behind the touched tensors and their derivatives; full passes if a tensor mixes the inputs."""
        values = {**self._values, **self._replace_parameters(weights)}
        try:
            return self._gradients.at(values, loss, rows, self._n if rows is None else len(rows))
        except NotCuttableError:
            return self._plain().weight_gradients(weights, loss, rows)

    def _replace_parameters(self, weights: Weights) -> dict[str, Array]:
        """Return the stored tensors of these parameters with the new values."""
        changed: dict[str, Array] = {}
        for (layer, parameter), values in weights.items():
            values = np.asarray(values)
            slice_ = self._layers[layer].stored[parameter]
            if (
                not slice_.moves and slice_.grid is None
            ):  # stored in canonical layout: no copy of a wide layer is needed
                changed[slice_.name] = values.astype(self._values[slice_.name].dtype, copy=False)
                continue
            if slice_.name not in changed:
                changed[slice_.name] = np.array(self._values[slice_.name])
            if not self._write_changed(slice_, changed[slice_.name], values):
                slice_.write(changed[slice_.name], values)
        return changed

    def _write_changed(self, slice_: ParameterSlice, stored: Array, values: Array) -> bool:
        """Round only the values that differ from those at the cut; False if it has to be all of them."""
        if slice_.grid is None:
            return False
        if slice_ not in self._before:
            grid = slice_.canonical_grid(stored.shape)
            if grid is None:
                return False
            self._before[slice_] = slice_.read(self._values[slice_.name]), grid
        before, grid = self._before[slice_]
        places = np.flatnonzero(values != before)
        return len(places) <= values.size * MOSTLY_UNCHANGED and slice_.write_some(stored, values, places, grid)

    def _plan(self, tensors: frozenset[str]) -> tuple[list[NodeProto], list[str]]:
        """Return the nodes behind some tensors, and the tensors that cross the cut."""
        if tensors not in self._plans:
            nodes = self._cache.behind(tensors)
            self._plans[tensors] = nodes, self._cache.crossing(nodes)
        return self._plans[tensors]

    def _few_channels(self, weights: Weights) -> Array | None:
        """Return the changed output channels of the first layer, if only a few of them and nothing else changes."""
        if self._channels is None or any(layer != self.layer for layer, _ in weights):
            return None
        after = {parameter: np.asarray(values) for (_, parameter), values in weights.items()}
        channels = changed_channels(self._first, after)
        return channels if len(channels) * MIN_CHANNEL_RATIO <= len(self._first["weight"]) else None

    def _scores_with_channels(self, weights: Weights, channels: Array, rows: Array | None) -> Array:
        if self._channels is None:
            raise RuntimeError("the layer has no channels to change")
        outputs = self.outputs(rows)
        if len(channels):
            name = self._channels.input
            values = {**self._first, **{parameter: np.asarray(values) for (_, parameter), values in weights.items()}}
            parts = [
                self._channels.run(self._cache.feed(name, rows, part, size), values, channels)[: part.stop - part.start]
                for part, size in self._cache.parts(len(outputs), self._step)
            ]
            outputs[:, channels] = np.concatenate(parts)
        return self.scores_from_outputs(outputs, rows)

    def _program(self, key: Hashable, nodes: list[NodeProto], crossing: list[str], fed: Collection[str]) -> Program:
        if key not in self._programs:
            inputs = {name: self._cache.type_of(name) for name in crossing}
            for name in fed:
                value = self._values[name]
                inputs[name] = TensorType(helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            outputs = [self._graph.scores]
            self._programs[key] = Program(
                self._runner.device, self._graph, inputs, outputs, nodes=nodes, constants=self._cache.frozen
            )
        return self._programs[key]

    def _run(
        self,
        program: Program,
        crossing: Collection[str],
        given: Mapping[str, Array],
        weights: Mapping[str, Array],
        rows: Array | None,
    ) -> Array:
        n = self._n if rows is None else len(rows)
        parts = []
        for part, size in self._cache.parts(n, self._step):
            feeds: dict[str, Array] = dict(weights)
            for name in crossing:
                feeds[name] = self._cache.feed(name, rows, part, size)
            for name, array in given.items():
                feeds[name] = self._cache.from_batch_first(name, fill(array[part], size))
            scores = program.run(feeds)[self._graph.scores]
            parts.append(scores if size == part.stop - part.start else np.array(scores[: part.stop - part.start]))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
