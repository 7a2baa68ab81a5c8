"""Run a Keras model batch by batch, with its own or other weights."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import keras
import numpy as np
from keras import layers as kl
from keras import ops

from arachne.adapting.outputs import are_probabilities
from arachne.adapting.running import MAX_BATCH_ROWS, BatchRunner, translate_error
from arachne.errors import DataError, ModelError
from arachne.model.values import Array, Inputs, LayerInfo
from arachne_keras.autodiff import FRAMEWORK, to_array
from arachne_keras.following_ops import followed_by
from arachne_keras.functional import (
    build_graph,
    first_call_shapes,
    input_names,
    merge_padding,
    opaque_graph,
    with_inputs,
)
from arachne_keras.graph import Graph, OpCall, Values, WholeModelCall, functional
from arachne_keras.kinds import Kind, Layer
from arachne_keras.layers import kinds_in
from arachne_keras.output_head import check_output_head, find_output_head, finish, without_activation
from arachne_keras.watch import Watch

MAX_BATCH_NUMBERS = 1 << 24
"""The largest total number of elements in the values of one batch."""

TRIAL_LENGTH = 8
"""The length an axis of any length has in a trial pass."""


class Runner(BatchRunner):
    """A model that runs.

    Attributes:
        model: The Keras model.
        graph: Its steps up to the input of the output head.
        kinds: Its Keras layers with repairable weights.
        layers: Its repairable layers, in order of execution.
        users: The numbers of the steps that use each layer.
        output_head: `softmax`, `sigmoid`, `sigmoids` (several), `probabilities` or `logits`.
        notes: Assumptions about the model.
        trainers: Its trainers by optimiser, made on demand.
    """

    def __init__(self, model: Any, output: str | None = None, device: str | None = None) -> None:
        self.model = model
        self.device = device
        self.notes: list[str] = []
        self.trainers: dict[str, Any] = {}
        graph = functional(model)
        self.names: tuple[str, ...] | None = None if graph is None else input_names(graph)
        self._tensors = [] if graph is None else list(graph.inputs)
        self.graph = opaque_graph(model, output) if graph is None else build_graph(graph, output)
        self._refuse_state()
        self.output_head = find_output_head(self.graph)
        self.fixed = next((t.shape[0] for t in self._tensors if t.shape[0] is not None), None)
        self.rows = self.fixed or affordable(self.graph, self.graph.steps)
        self.kinds, self.users = self._find()
        merge_padding(self.graph, self.kinds)
        self.layers: dict[str, Layer] = {layer.name: layer for kind in self.kinds for layer in kind.layers}
        self._uses = {name: len(users) for name, users in self.users.items()}
        self._count_steps()
        if self._tensors:
            self.output_head = check_output_head(self.graph.shapes[self.graph.output], self.output_head)
        if self.output_head == "":
            self._try()

    def infos(self) -> dict[str, LayerInfo]:
        """The `LayerInfo` of each layer."""
        return {
            name: layer.info(
                uses=self._uses[name], followed_by=followed_by(self.graph, layer, self.users, self.output_head)
            )
            for name, layer in self.layers.items()
        }

    def scores(self, inputs: Inputs, watch: Watch | None = None) -> Any:
        """Compute the class scores of one batch as a tensor, padded rows included."""
        values = self.graph_inputs(inputs)
        return self.scores_from(values, self.graph.steps, watch)

    def scores_from(self, values: Values, steps: Sequence[OpCall], watch: Watch | None = None) -> Any:
        """Run steps on given values and return the class scores."""
        with self.faults(), contextlib.nullcontext() if watch is None else watch.watching():
            return finish(self.graph.run(values, steps)[self.graph.output], self.output_head)

    def graph_inputs(self, inputs: Inputs) -> Values:
        """Return the inputs of one batch as tensors, by their slots in the graph."""
        arrays = [self.pad(array) for array in self.check_inputs(inputs)]
        dtypes = [tensor.dtype for tensor in self._tensors] or [None] * len(arrays)
        tensors = [ops.convert_to_tensor(a, dtype=d) for a, d in zip(arrays, dtypes, strict=True)]
        if not self._tensors:
            self.graph = with_inputs(self.graph, list(inputs) if isinstance(inputs, Mapping) else None, len(tensors))
        return dict(zip(self.graph.inputs, tensors, strict=True))

    def check_inputs(self, inputs: Inputs) -> list[Array]:
        """Check the inputs and return them as arrays, in the model's order.

        Raises:
            DataError: Another shape, dtype or set of names than the model takes.
        """
        if isinstance(inputs, Mapping):
            named = {name: np.asarray(values) for name, values in inputs.items()}
            if self.names is not None and set(named) != set(self.names):
                raise DataError(f"the model takes the inputs {_quote_names(self.names)}, got {_quote_names(named)}")
            arrays = [named[name] for name in self.names or named]
        elif self.names is not None and len(self.names) > 1:
            raise DataError(f"the model takes a mapping with the inputs {_quote_names(self.names)}, got one array")
        else:
            arrays = [np.asarray(inputs)]
        shapes = [tensor.shape for tensor in self._tensors] or [None] * len(arrays)
        for array, shape in zip(arrays, shapes, strict=True):
            _check_array(array, shape)
        return arrays

    def batches(self, inputs: Inputs) -> Iterator[Inputs]:
        """Yield inputs in batches, checked; one empty batch if there are none."""
        self.check_inputs(inputs)
        return self.split_batches(inputs)

    def stateless(self, values: Mapping[int, Any], variables: Collection[Any]) -> Any:
        """Return a context that replaces the model's variables by these tensors, given by the id of a variable."""
        return keras.StatelessScope([(v, values[id(v)]) for v in variables if id(v) in values])

    def on_device(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context for the requested device."""
        return contextlib.nullcontext() if self.device is None else keras.device(self.device)

    @contextlib.contextmanager
    def faults(self) -> Iterator[None]:
        """Report an error inside the model as a fault of the inputs."""
        try:
            with self.on_device():
                yield
        except (ValueError, TypeError, RuntimeError, IndexError, ArithmeticError) as error:
            raise translate_error(error, "the model does not take these inputs") from error
        except Exception as error:
            # TensorFlow's own errors share no base class with anything but Exception.
            if type(error).__module__.partition(".")[0] != "tensorflow":
                raise
            raise translate_error(error, "the model does not take these inputs") from error

    def _find(self) -> tuple[list[Kind], dict[str, list[int]]]:
        kinds: dict[int, Kind] = {}
        users: dict[str, list[int]] = {}
        names: set[str] = set()
        for number, step in enumerate(self.graph.steps):
            shape = self.graph.shapes[next(iter(step.takes.values()))] if step.takes else None
            for kind in kinds_in(step.operation, step.prefix, shape or None, isinstance(step, WholeModelCall)):
                known = kinds.setdefault(id(kind.keras), kind)
                for layer in known.layers:
                    if layer.name not in users and layer.name in names:
                        raise ModelError(
                            f"the model has two layers called '{layer.name}'; give them names of their own"
                        )
                    names.add(layer.name)
                    users.setdefault(layer.name, []).append(number)
        return list(kinds.values()), users

    def _count_steps(self) -> None:
        """A layer in a `TimeDistributed` is used once for each step; a dense one takes all of them at once."""
        for kind in self.kinds:
            if kind.wrapper is None or kind.name == "dense":
                continue
            for layer in kind.layers:
                steps = [self.graph.steps[number] for number in self.users[layer.name]]
                lengths = [self.graph.shapes[next(iter(step.takes.values()))] for step in steps]
                self._uses[layer.name] = sum(shape[1] or 1 if len(shape) > 1 else 1 for shape in lengths)

    def _try(self) -> None:
        """Run a trial pass to find the order of the layers and the output head, which the graph does not show."""
        shapes = [tuple(t.shape) for t in self._tensors] or first_call_shapes(self.model)
        if not shapes:
            self.output_head = "logits"
            self.notes.append("the model tells no input shape, so its layers are in order of declaration")
            return
        sizes = [[TRIAL_LENGTH if size is None else size for size in shape[1:]] for shape in shapes]
        rng = np.random.default_rng(0)
        arrays = [rng.normal(size=(self.fixed or 2, *size)).astype(np.float32) for size in sizes]
        watch = Watch(self.kinds, self.layers)
        try:
            inputs = arrays[0] if len(arrays) == 1 else dict(zip(self.names or (), arrays, strict=True))
            self.output_head = "logits"
            with FRAMEWORK.no_gradients():
                output = to_array(self.scores(inputs, watch))
        except DataError as error:
            self.notes.append(f"a trial pass failed, so layers are in order of declaration: {error}")
            return
        step = self.graph.steps[0]
        if isinstance(step, WholeModelCall):
            self.output_head = self._find_last_activation(step, inputs, output)
        elif are_probabilities(output):
            self.output_head = "probabilities"
        self.output_head = check_output_head((None, *output.shape[1:]), self.output_head)
        if isinstance(step, WholeModelCall):
            seen = {name: uses for name, uses in watch.uses.items() if uses}
            first = {name: uses[0].number for name, uses in seen.items()}
            self.layers = {name: self.layers[name] for name in sorted(seen, key=first.__getitem__)}
            self._uses = {name: len(uses) for name, uses in seen.items()}

    def _find_last_activation(self, step: WholeModelCall, inputs: Inputs, output: Array) -> str:
        """Find the last activation of an opaque model: applied to the output without it, it gives the output."""
        for layer in reversed(list(self.model._flatten_layers(include_self=False))):
            ended, found = without_activation(layer)
            if not ended:
                continue
            self.graph.steps[0] = replace(step, takes=self.graph.steps[0].takes, ended=ended)
            with FRAMEWORK.no_gradients():
                left = self.scores(inputs)
                again = ops.softmax(left, axis=-1) if found == "softmax" else ops.sigmoid(left)
            if np.allclose(to_array(again), output, atol=1e-6):
                return found
        self.graph.steps[0] = replace(step, takes=self.graph.steps[0].takes)
        return "probabilities" if are_probabilities(output) else "logits"

    def _refuse_state(self) -> None:
        for layer in self.model._flatten_layers():
            if getattr(layer, "stateful", False) and isinstance(layer, (kl.RNN, kl.Bidirectional)):
                raise ModelError(
                    f"layer '{layer.name}' keeps its state from batch to batch (stateful=True), so scores depend on "
                    "the order of the inputs"
                )


def affordable(graph: Graph, steps: Sequence[OpCall], most: int = MAX_BATCH_ROWS) -> int:
    """Return the batch size that these steps have memory for."""
    shapes = [graph.shapes[slot] for step in steps for slot in step.gives]
    numbers = sum(int(np.prod([64 if size is None else size for size in shape[1:]])) for shape in shapes)
    return max(1, min(most, MAX_BATCH_NUMBERS // max(numbers, 1)))


def _check_array(array: Array, shape: tuple[int | None, ...] | None) -> None:
    if shape is None:
        return
    same_rank = len(shape) == array.ndim
    if not same_rank or any(want not in (None, got) for want, got in zip(shape[1:], array.shape[1:], strict=True)):
        wanted = ", ".join("n" if i == 0 else "any" if size is None else str(size) for i, size in enumerate(shape))
        raise DataError(f"the model takes inputs of shape ({wanted}), got {array.shape}")


def _quote_names(names: Collection[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
