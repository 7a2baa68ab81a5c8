"""The fast path: the model held open at a layer, everything that no candidate can change computed once.

The nodes fall into two parts: those behind the tensors a search may change, and all others. The others run once for all
inputs, and what the first part takes from them is kept, inputs first, so that rows can be chosen. A candidate runs the
first part alone, with its own values for the tensors it touches as inputs of the session.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping

import numpy as np
from onnx import NodeProto, helper

from arachne.backend import Cut, Weights
from arachne.errors import UnknownLayerError, did_you_mean
from arachne.values import Array, Inputs, batches, count
from arachne_onnx.channels import SHARE, FewChannels, changed_channels
from arachne_onnx.graph import Graph, TensorType, reads
from arachne_onnx.layers import Layer
from arachne_onnx.running import MEMORY, Runner, fill
from arachne_onnx.sessions import Program


class NotCuttableError(Exception):
    """A tensor crosses the cut whose rows cannot be told apart."""


class OnnxCut(Cut):
    """A graph held open at the earliest of some layers.

    Args:
        runner: The model; it has been looked at.
        inputs: The inputs, kept.
        layers: The layers by name, in order of execution.
        check: Refuses values of a wrong shape.
        trace_outputs: What leaves the first layer, for kinds whose outputs are no tensor of the forward graph.
    """

    def __init__(
        self,
        runner: Runner,
        inputs: Inputs,
        layers: Mapping[str, Layer],
        check: Callable[[str, str, Array], None],
        trace_outputs: Callable[[Array | None], Array],
    ) -> None:
        self.layer = next(iter(layers))
        self._runner = runner
        self._layers = layers
        self._check = check
        self._trace_outputs = trace_outputs
        self._feeds = runner.feeds(inputs)
        self._n = count(inputs)
        self._values = dict(runner.values)  # arrays are replaced when set, never changed: this is how they are now
        self._graph = runner.graph
        self._kept: dict[str, Array] = {}
        self._programs: dict[Hashable, Program] = {}
        first = layers[self.layer]
        self._leaving = first.uses[0].leaving.name
        whole = first.info.kind != "recurrent" and first.uses[0].leaving.part is None
        self.CONTINUES_FROM_OUTPUTS = whole  # type: ignore[misc]  # differs from layer to layer here
        self._plans: dict[frozenset[str], tuple[list[NodeProto], list[str]]] = {}
        # Vectors are often shared between layers by exporters, and then lead further to the front than the matrices.
        self._matrices = frozenset(
            layer.stored[name].name for layer in layers.values() for name in layer.info.weights or layer.stored
        )
        self._keep(self._plan(self._matrices)[1])
        self._tell_apart(self._plan(frozenset(p.name for layer in layers.values() for p in layer.stored.values()))[1])
        made = {name for node in self._plan(self._matrices)[0] for name in node.output}
        self._step = max(1, MEMORY // max(1, sum(runner.bytes_per_row.get(name, 0) for name in made)))
        self._first = {name: place.view(self._values[place.name]) for name, place in first.stored.items()}
        plain = FewChannels.serves(first) and first.uses[0].node.input[0] in self._plan(self._matrices)[1]
        self._channels = FewChannels(runner.device, self._graph, first) if plain else None

    def outputs(self, rows: Array | None = None) -> Array:
        """Computed once for all rows when first asked for."""
        if not self.CONTINUES_FROM_OUTPUTS:
            return self._trace_outputs(rows)
        self._keep([self._leaving])
        return np.array(_rows(self._kept[self._leaving], rows), np.float32)

    def scores_from_outputs(self, outputs: Array, rows: Array | None = None) -> Array:
        """The nodes behind what leaves the layer, fed with other values for it."""
        if not self.CONTINUES_FROM_OUTPUTS:
            raise NotImplementedError(f"what leaves layer '{self.layer}' is no tensor of its own to continue from")
        nodes, taken = self._plan(frozenset({self._leaving}))
        crossing = [name for name in taken if name != self._leaving]
        self._keep(crossing)
        program = self._program("outputs", nodes, [*crossing, self._leaving], ())
        dtype = self._dtype(self._leaving)
        given = {self._leaving: np.asarray(outputs).astype(dtype, copy=False)}
        return self._run(program, crossing, given, {}, rows)

    def scores_with(self, weights: Weights, rows: Array | None = None) -> Array:
        """The nodes behind the touched tensors, fed with those the candidate changes."""
        changed: dict[str, Array] = {}
        for (layer, parameter), values in weights.items():
            if layer not in self._layers:
                raise UnknownLayerError(f"the cut was not made for layer '{layer}'" + did_you_mean(layer, self._layers))
            values = np.asarray(values)
            known = self._layers[layer].info.parameters.get(parameter)
            if known is None or known.shape != values.shape:  # looked at here, because looking a layer up takes time
                self._check(layer, parameter, values)
            place = self._layers[layer].stored[parameter]
            if not place.moves:  # stored as it is: wide layers are copied no more often than they must be
                changed[place.name] = values.astype(self._values[place.name].dtype, copy=False)
                continue
            if place.name not in changed:
                changed[place.name] = np.array(self._values[place.name])
            place.put(changed[place.name], values)
        few = self._few_channels(weights)
        if few is not None:
            return self._scores_with_channels(weights, few, rows)
        names = frozenset(changed)
        nodes, crossing = self._plan(self._matrices if names <= self._matrices else names)
        self._keep(crossing)
        return self._run(self._program(names, nodes, crossing, changed), crossing, {}, changed, rows)

    def _plan(self, tensors: frozenset[str]) -> tuple[list[NodeProto], list[str]]:
        """The nodes behind some tensors, and what they take from outside."""
        if tensors not in self._plans:
            nodes = _behind(self._graph, tensors)
            self._plans[tensors] = nodes, self._crossing(nodes)
        return self._plans[tensors]

    def _few_channels(self, weights: Weights) -> Array | None:
        """The output channels of the first layer a candidate changes, if it changes nothing else and these are few."""
        if self._channels is None or any(layer != self.layer for layer, _ in weights):
            return None
        after = {parameter: np.asarray(values) for (_, parameter), values in weights.items()}
        channels = changed_channels(self._first, after)
        return channels if len(channels) * SHARE <= len(self._first["weight"]) else None

    def _scores_with_channels(self, weights: Weights, channels: Array, rows: Array | None) -> Array:
        if self._channels is None:
            raise RuntimeError("the layer has no channels to change")
        outputs = self.outputs(rows)
        if len(channels):
            name = self._channels.input
            values = {**self._first, **{parameter: np.asarray(values) for (_, parameter), values in weights.items()}}
            parts = [
                self._channels.run(self._feed(name, rows, part, size), values, channels)[: part.stop - part.start]
                for part, size in self._parts(len(outputs))
            ]
            outputs[:, channels] = np.concatenate(parts)
        return self.scores_from_outputs(outputs, rows)

    def _crossing(self, nodes: list[NodeProto]) -> list[str]:
        """The tensors these nodes take from outside, weights apart."""
        made = {name for node in nodes for name in node.output}
        read = {name for node in nodes for name in reads(node)}
        return sorted(read - made - set(self._graph.constants))

    def _program(self, key: Hashable, nodes: list[NodeProto], crossing: list[str], fed: Collection[str]) -> Program:
        if key not in self._programs:
            inputs = {name: self._type(name) for name in crossing}
            for name in fed:
                value = self._values[name]
                inputs[name] = TensorType(helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            outputs = [self._graph.scores]
            self._programs[key] = Program(
                self._runner.device, self._graph, inputs, outputs, nodes=nodes, constants=self._frozen()
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
        for part, size in self._parts(n):
            feeds: dict[str, Array] = dict(weights)
            for name in crossing:
                feeds[name] = self._feed(name, rows, part, size)
            for name, array in given.items():
                feeds[name] = self._together(name, fill(array[part], size))
            scores = program.run(feeds)[self._graph.scores]
            parts.append(scores if size == part.stop - part.start else np.array(scores[: part.stop - part.start]))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _parts(self, n: int) -> Iterator[tuple[slice, int]]:
        """Rows to run together, and how many a run must be filled up to."""
        fixed = self._runner.fixed
        step = fixed or self._step
        for part in batches(n, step) if n else [slice(0, 0)]:
            yield part, fixed or max(1, part.stop - part.start)

    def _feed(self, name: str, rows: Array | None, part: slice, size: int) -> Array:
        if name in self._runner.shapes_by_n:
            start, slope = self._runner.shapes_by_n[name]
            return np.asarray(start + size * slope)
        kept, fold = self._kept[name], self._runner.folds[name]
        if fold.axis is None:
            return np.asarray(kept[0])
        if rows is None and fold.plain and size == len(kept):  # every candidate of a search comes this way
            return kept
        return self._together(name, fill(_rows(kept, rows)[part], size))

    def _together(self, name: str, array: Array) -> Array:
        fold = self._runner.folds[name]
        return array if fold.plain else np.ascontiguousarray(fold.together(array))

    def _fold_axis(self, name: str) -> int | None:
        return self._runner.folds[name].axis

    def _keep(self, names: Collection[str]) -> None:
        """Compute tensors once for all inputs and keep them, inputs first."""
        missing = [name for name in names if name not in self._kept and name not in self._runner.shapes_by_n]
        if not missing:
            return
        self._tell_apart(missing)
        computed = [name for name in missing if name not in self._graph.inputs]
        found: dict[str, list[Array]] = {name: [] for name in missing}
        nodes = self._graph.needed(computed)
        program = None
        if computed:
            read = {name for node in nodes for name in reads(node)}
            inputs = {name: kind for name, kind in self._graph.inputs.items() if name in read}
            program = Program(self._runner.device, self._graph, inputs, computed, nodes=nodes, constants=self._frozen())
        for feeds, n in self._runner.batches(self._feeds):
            values = {**feeds, **(program.run(feeds) if program is not None else {})}
            size = len(next(iter(feeds.values())))
            for name in missing:
                if self._fold_axis(name) is None:
                    found[name] = [values[name][None]]
                else:
                    found[name].append(self._runner.apart(name, values[name], n, size))
        for name, parts in found.items():
            self._kept[name] = np.ascontiguousarray(np.concatenate(parts) if len(parts) > 1 else parts[0])

    def _tell_apart(self, names: Collection[str]) -> None:
        for name in names:
            if name not in self._runner.folds and name not in self._runner.shapes_by_n:
                raise NotCuttableError(f"the rows of '{name}' cannot be told apart")

    def _frozen(self) -> dict[str, Array]:
        return {name: value for name, value in self._values.items() if name in self._runner.touched}

    def _type(self, name: str) -> TensorType:
        kind = self._graph.type_of(name)
        if kind is None:
            raise NotCuttableError(f"the type of '{name}' is not known")
        # Sizes that are told let onnxruntime optimise as it does for the whole model, and then the bits agree too.
        sizes = None if kind.shape is None else tuple(size if isinstance(size, int) else None for size in kind.shape)
        return TensorType(kind.element, sizes)

    def _dtype(self, name: str) -> np.dtype[np.generic]:
        dtype: np.dtype[np.generic] = helper.tensor_dtype_to_np_dtype(self._type(name).element)
        return dtype


def _behind(graph: Graph, tensors: Collection[str]) -> list[NodeProto]:
    """The nodes that depend on these tensors and that the scores depend on, in order."""
    reached = set(tensors)
    behind = []
    for node in graph.nodes:
        if not reached.isdisjoint(reads(node)) and reached.isdisjoint(node.output):
            behind.append(node)
            reached.update(node.output)
    return behind


def _rows(array: Array, rows: Array | None) -> Array:
    return array if rows is None else array[rows]
