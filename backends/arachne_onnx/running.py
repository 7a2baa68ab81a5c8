"""Run a graph: inputs in batches, changed weights as session inputs, and a first run that analyses the model."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from onnx import NodeProto

from arachne.adapting.batch_axis import BatchAxis, MixedInputsError
from arachne.adapting.outputs import are_probabilities
from arachne.adapting.running import MAX_BATCH_ROWS, BatchRunner
from arachne.errors import DataError, ModelError
from arachne.model.backend import LossGradient
from arachne.model.values import Array, Inputs, count
from arachne_onnx.batch_axis import find_batch_axis, guess_batch_axis, linear_in_n
from arachne_onnx.derivative import Derivative, backward_program, loss_gradients
from arachne_onnx.graph import Graph, TensorType, infer_types, reads
from arachne_onnx.graph_inputs import feeds_of, fill, fixed_batch, probe, vary
from arachne_onnx.grids import find_grids
from arachne_onnx.normalise import differentiable, learn_types, make_padding_explicit
from arachne_onnx.output_head import OutputHead, append_scores, check_output_head
from arachne_onnx.rules import UnknownShapeError
from arachne_onnx.sessions import Device, Program

MAX_SESSIONS = 12
"""The largest number of sessions; the oldest is dropped first."""

MAX_BATCH_BYTES = 1 << 28
"""The intermediate results of one run may take about this many bytes."""

MOSTLY_UNCHANGED = 0.1
"""Up to this share of changed whole numbers, only these are converted: a layer has many, and a search changes few."""


class Runner(BatchRunner):
    """A graph on a device: the forward graph, the differentiable one, and their sessions.

    Weights live in `values`. Those that differ from the file are inputs of the sessions, so that setting them again
    costs no new session; all others stay constants, which is faster. Once weights are restored, the first sessions run
    again and give the same bits as before.
    """

    def __init__(self, graph: Graph, head: OutputHead, device: Device, unused: Collection[str] = ()) -> None:
        self.device = device
        self.output_head = head
        self.unused = frozenset(unused)
        self.bare = replace(graph, inputs={name: kind for name, kind in graph.inputs.items() if name not in unused})
        self.values: dict[str, Array] = dict(graph.constants)
        self.grids = find_grids(graph)
        self.touched: set[str] = set()
        self.fixed = fixed_batch(self.bare)
        self.rows = self.fixed or MAX_BATCH_ROWS
        self.batch_axes: dict[str, BatchAxis] = {}
        self.shapes_by_n: dict[str, tuple[Array, Array]] = {}
        self.bytes_per_row: dict[str, int] = {}
        self.looked = False
        self._programs: dict[Hashable, Program] = {}
        self._derivatives: dict[Hashable, Derivative] = {}
        self._prepare()

    def _prepare(self) -> None:
        self.graph = replace(self.bare, nodes=list(self.bare.nodes), types=dict(self.bare.types))
        append_scores(self.graph, self.output_head)
        infer_types(self.graph)
        self.score_graph = self._as_written()
        self.deep = differentiable(self.graph)
        self._programs.clear()
        self._derivatives.clear()

    def _as_written(self) -> Graph:
        """Return the graph that scores are computed by: that of the file, where the one for gradients only is near."""
        graph = self.graph
        if graph.as_written is None:
            return graph
        made = {name for node in graph.as_written for name in node.output}
        return replace(
            graph, nodes=[*graph.as_written, *(node for node in graph.nodes if made.isdisjoint(node.output))]
        )

    def set(self, name: str, value: Array) -> None:
        """Set a stored tensor; the array is not copied and must not change afterwards."""
        self.values[name] = value
        if np.array_equal(value, self.bare.constants[name]):
            self.touched.discard(name)
        else:
            self.touched.add(name)

    def program(self, key: Hashable, make: Callable[[], Program]) -> Program:
        """Return the session of a key for the tensors that are touched now, made at the first call."""
        full = (key, frozenset(self.touched))
        if full not in self._programs:
            if len(self._programs) >= MAX_SESSIONS:
                self._programs.pop(next(iter(self._programs)))
            self._programs[full] = make()
        return self._programs[full]

    def derivative(self, wanted: Sequence[str]) -> Derivative:
        """Return the gradient graph for some tensors; it does not depend on the weights."""
        key = tuple(wanted)
        if key not in self._derivatives:
            try:
                self._derivatives[key] = Derivative(self.deep, wanted)
            except (NotImplementedError, UnknownShapeError) as error:
                raise ModelError(f"no gradient can be taken: {error}") from error
        return self._derivatives[key]

    def loss_gradients(
        self, inputs: Inputs, wanted: Sequence[str], loss: LossGradient
    ) -> Iterator[tuple[dict[str, Array], int]]:
        """Yield the gradients of a loss with respect to some tensors for each batch, and its number of rows."""
        derivative, key = self.derivative(wanted), tuple(wanted)
        outputs = sorted({self.deep.scores, *derivative.saved} - set(self.deep.inputs))
        forward = self.program(("forward", key), lambda: self.whole(derivative.graph, outputs))
        weights = self.weights_for(self.deep)

        def backward(values: Mapping[str, Array]) -> Program:
            return self.program(
                ("backward", key), lambda: backward_program(self.device, derivative, values, self.touched)
            )

        runs = (({**feeds, **weights}, n, self.padded_size(n)) for feeds, n in self.batches(inputs))
        for found, n in loss_gradients(runs, derivative, forward, backward, loss):
            yield {name: found[gradient] for name, gradient in derivative.gradients.items()}, n

    @contextmanager
    def temporary_weights(self, values: Mapping[str, Array], touched: Collection[str]) -> Iterator[None]:
        """Replace the values of the stored tensors for a while."""
        kept = dict(self.values), set(self.touched)
        try:
            self.values, self.touched = dict(values), set(touched)
            yield
        finally:
            self.values, self.touched = kept

    def inputs_of(self, graph: Graph, nodes: Sequence[NodeProto]) -> dict[str, TensorType]:
        """Return the inputs of a session of these nodes: model inputs, and the touched weights that they read."""
        read = {name for node in nodes for name in reads(node)}
        fed = {name: kind for name, kind in graph.inputs.items() if name in read}
        for name in sorted(self.touched & read):
            kind = graph.type_of(name)
            if kind is not None:
                fed[name] = kind
        return fed

    def weights_for(self, graph: Graph) -> dict[str, Array]:
        """The touched weights, in the dtype a graph computes with."""
        return {name: self.for_graph(graph, name, self.values[name]) for name in self.touched & graph.constants.keys()}

    def for_graph(self, graph: Graph, name: str, stored: Array) -> Array:
        """Return a stored tensor as a graph computes with it: in its dtype, or the values of a grid."""
        known = graph.constants[name]
        if stored.dtype == known.dtype or name not in self.grids:
            return stored.astype(known.dtype, copy=False)
        places = np.flatnonzero(stored != self.bare.constants[name])
        if len(places) > stored.size * MOSTLY_UNCHANGED:
            return self.grids[name].to_float(stored).astype(known.dtype, copy=False)
        if not len(places):
            return known
        values = np.array(known, order="C")
        changed = self.grids[name].at(places, stored.shape).to_float(stored.reshape(-1)[places])
        values.reshape(-1)[places] = changed
        return values

    def whole(self, graph: Graph, outputs: Sequence[str], extra: Graph | None = None) -> Program:
        """A session from the model's inputs to some tensors."""
        source = extra or graph
        nodes = source.select_nodes(outputs)
        return Program(self.device, source, self.inputs_of(source, nodes), outputs, nodes=nodes)

    def scores(self, inputs: Inputs) -> Array:
        """Class scores `(n, classes)`."""
        self.look(inputs)
        name, changed = self.graph.scores, self.touched & self.grids.keys()
        if changed:
            program, weights = self._constant_program(sorted(changed)), {}
        else:
            program, weights = self.score_program(), self.weights_for(self.graph)
        rows = None if self.graph.as_written is None else self.fixed or 1
        parts = [program.run({**feeds, **weights})[name][:n] for feeds, n in self.batches(inputs, rows)]
        return np.concatenate(parts)

    def score_program(self) -> Program:
        """Return the session that computes the scores."""
        return self.program("scores", lambda: self.whole(self.score_graph, [self.graph.scores]))

    def _constant_program(self, changed: Sequence[str]) -> Program:
        """Return a session with changed whole numbers as constants, whose scores are those of a saved copy.

        onnxruntime chooses other kernels, which round differently, where they are inputs of a session.
        """
        digest = hashlib.sha256(b"".join(np.ascontiguousarray(self.values[name]).data for name in sorted(self.touched)))
        graph = self.score_graph
        nodes = graph.select_nodes([graph.scores])
        read = {name for node in nodes for name in reads(node)}
        inputs = {name: kind for name, kind in graph.inputs.items() if name in read}
        return self.program(
            ("constant", *changed, digest.hexdigest()),
            lambda: Program(self.device, graph, inputs, [graph.scores], nodes=nodes, constants=self.weights_for(graph)),
        )

    def batches(self, inputs: Inputs, rows: int | None = None) -> Iterator[tuple[dict[str, Array], int]]:
        """Yield inputs in batches, each with its number of rows without padding; a batch has at least one row."""
        feeds = self.feeds(inputs)
        for part in self.row_batches(count(inputs), rows):
            size = part.stop - part.start
            yield {name: fill(array[part], self.padded_size(size)) for name, array in feeds.items()}, size

    def feeds(self, inputs: Inputs) -> dict[str, Array]:
        """Arrays for the model's inputs, checked and in their dtypes.

        Raises:
            DataError: Inputs the model does not take.
        """
        return feeds_of(inputs, self.graph.inputs, self.unused, self.graph.whole_inputs)

    def look(self, inputs: Inputs) -> None:
        """Run the model on a few inputs to find shapes, batch axes, its output head and its memory.

        Raises:
            ModelError: The outputs are not class scores.
        """
        if self.looked:
            return
        feeds = probe(self.feeds(inputs), self.fixed or 3)
        if self.fixed is not None:
            self._try_any_batch(feeds)
            feeds = probe(self.feeds(inputs), self.fixed or 3)
        longer, shorter = self._look_at(feeds)
        found = self._check_scores(longer)
        if found.kind == "logits" and are_probabilities(longer[self.graph.scores]):
            found = replace(found, kind="probabilities")
        if found != self.output_head:
            self.output_head = found
            self._prepare()
            longer, shorter = self._look_at(feeds)
        learn_types(self.deep, [longer, shorter])
        learn_types(self.graph, [longer, shorter])
        make_padding_explicit(self.deep)
        make_padding_explicit(self.graph)
        self._learn_batch_axes(longer, shorter)
        self._programs.clear()
        self.looked = True

    def _look_at(self, feeds: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
        names = [name for node in self.deep.nodes for name in node.output if name]
        nodes = self.deep.nodes
        program = Program(self.device, self.deep, self.inputs_of(self.deep, nodes), names, nodes=nodes)
        weights = self.weights_for(self.deep)
        other = {
            name: np.roll(array, 1, axis=0) if self.fixed is not None else array[1:] for name, array in feeds.items()
        }
        runs = []
        for fed in (feeds, other):
            run = program.run({**fed, **weights}, first=True)
            runs.append({**fed, **{name: value for name, value in run.items() if isinstance(value, np.ndarray)}})
        return runs[0], runs[1]

    def _check_scores(self, seen: Mapping[str, Array]) -> OutputHead:
        raw = seen.get(self.output_head.tensor, seen[self.graph.scores])
        return check_output_head(self.output_head, seen[self.graph.scores].shape, self.fixed or 3, raw.shape)

    def _learn_batch_axes(self, longer: Mapping[str, Array], shorter: Mapping[str, Array]) -> None:
        for name, array in longer.items():
            if self.fixed is not None:
                batch_axis = guess_batch_axis(array, shorter[name], self.fixed)
            else:
                batch_axis = find_batch_axis(array, shorter[name])
                by_n = linear_in_n(array, shorter[name]) if batch_axis is None else None
                if by_n is not None:
                    self.shapes_by_n[name] = by_n
            if batch_axis is not None:
                self.batch_axes[name] = batch_axis
            self.bytes_per_row[name] = array.nbytes // (self.fixed or 3)
        self.fit_rows(sum(self.bytes_per_row.values()), MAX_BATCH_BYTES)

    def _try_any_batch(self, feeds: Mapping[str, Array]) -> None:
        """Drop a declared batch size if two batches at once have the scores that each has alone."""
        fixed, kept, weights = self.fixed, self.bare, self.weights_for(self.graph)
        other = {name: vary(array) if fixed == 1 else np.roll(array, 1, axis=0) for name, array in feeds.items()}
        program = self.whole(self.graph, [self.graph.scores])
        alone = [program.run({**batch, **weights}, first=True)[self.graph.scores] for batch in (feeds, other)]
        free = {
            name: TensorType(kind.element, ("n", *(kind.shape or ())[1:])) for name, kind in self.bare.inputs.items()
        }
        twice = {name: np.concatenate([array, other[name]]) for name, array in feeds.items()}
        self.bare = replace(kept, inputs=free, types={})
        self.fixed = None
        try:
            self._prepare()
            both = self.whole(self.graph, [self.graph.scores]).run(
                {**twice, **self.weights_for(self.graph)}, first=True
            )
            found, wanted = both[self.graph.scores], np.concatenate(alone)
            agrees = found.shape == wanted.shape and np.allclose(found, wanted, rtol=1e-3, atol=1e-4)
        except (DataError, ModelError):
            agrees = False
        if not agrees:
            self.bare, self.fixed = kept, fixed
            self._prepare()

    def to_batch_first(self, name: str, array: Array, n: int, padded: int) -> Array:
        """Return the rows of the first `n` inputs, batch first."""
        batch_axis = self.batch_axes.get(name)
        try:
            if batch_axis is not None:
                return batch_axis.to_batch_first(array, padded)[:n]
        except MixedInputsError:
            pass
        raise DataError(f"cannot tell which part of '{name}' belongs to which input")
