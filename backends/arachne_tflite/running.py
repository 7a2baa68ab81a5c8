"""Run a model: scores by LiteRT on the file's own bytes, everything else by the translation in onnxruntime."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from arachne.adapting.outputs import SMALLEST_PROBABILITY
from arachne.decisions.decisions import decide
from arachne.errors import ModelError
from arachne.io.reading import error_text
from arachne.model.values import Array, Inputs, count, take
from arachne_onnx import running as onnx_running
from arachne_onnx.graph import Graph
from arachne_onnx.graph_inputs import fill
from arachne_onnx.output_head import OutputHead
from arachne_onnx.sessions import Device
from arachne_tflite.file import Tensor
from arachne_tflite.flatbuffer import with_outputs
from arachne_tflite.io import LoadedModel
from arachne_tflite.translate import CHANNELS_FIRST, TO_CHANNELS_FIRST

MAX_INTERPRETERS = 4
"""The largest number of interpreters with weights of their own; the oldest is dropped first."""

COMPARED_ROWS, CLOSE_ENOUGH, CLOSE_IN_WHOLE_NUMBERS = 4, 0.01, 0.35
"""How many inputs LiteRT and the translation are compared on, and how far apart their scores may be, as a share of the
largest: integer kernels round at other places than the translation."""


class Runner(onnx_running.Runner):
    """The translation of a file, with LiteRT's scores."""

    def __init__(
        self, model: LoadedModel, graph: Graph, head: OutputHead, device: Device, unused: Collection[str] = ()
    ) -> None:
        self._model = model
        tensors = model.translation.tensors
        if head.tensor not in tensors:  # an operator's inner result, which LiteRT does not give
            named = dict(zip(model.file.output_names, model.file.outputs, strict=True))
            inner = next(
                (name for name, (index, _) in tensors.items() if index == _output_of(graph, head, named)), None
            )
            if inner is None:
                raise ModelError("the model's class scores are no tensor of its file")
            head = OutputHead(inner, "logits", head.class_names)
        self._interpreters: dict[str, Interpreter] = {}
        self._compared = False
        super().__init__(graph, head, device, unused)

    def feeds(self, inputs: Inputs) -> dict[str, Array]:
        """Arrays for the inputs: whole numbers of a quantised input as the values they stand for."""
        given = inputs if isinstance(inputs, Mapping) else None
        quantised = {
            name: tensor
            for name, tensor in zip(self._model.file.input_names, self._model.file.inputs, strict=True)
            if tensor.has_grid
        }
        if given is None and len(self.graph.inputs) == 1:
            given = {next(iter(self.graph.inputs)): np.asarray(inputs)}
        if given is None or not quantised:
            return super().feeds(inputs)
        return super().feeds(
            {name: _values_of(np.asarray(array), quantised.get(name)) for name, array in given.items()}
        )

    def scores(self, inputs: Inputs) -> Array:
        """Class scores by LiteRT, as many inputs at a time as the file takes."""
        self.look(inputs)
        if not self._compared:
            self._compared = True
            self._compare(inputs)
        return self._lite_scores(inputs)

    def _compare(self, inputs: Inputs) -> None:
        """Refuse a file that the translation does not follow.

        Raises:
            ModelError: Their scores are far apart.
        """
        few = take(inputs, np.arange(min(COMPARED_ROWS, count(inputs))))
        ours, theirs = super().scores(few), self._lite_scores(few)
        rounded = any(tensor.has_grid for tensor in self._model.file.tensors)
        scale = max(float(np.abs(theirs).max(initial=0)), 1e-3)
        apart = float(np.abs(ours - theirs).max(initial=0)) / scale
        if not apart <= (CLOSE_IN_WHOLE_NUMBERS if rounded else CLOSE_ENOUGH):
            raise ModelError(
                f"LiteRT's scores and those of the model written as ONNX differ by {apart:.0%} of the largest, so its "
                "gradients would lead astray; please report the model"
            )

    def _lite_scores(self, inputs: Inputs) -> Array:
        file, lite = self._model.file, self._interpreter()
        given = {
            name: one for name, one in zip(file.input_names, file.inputs, strict=True) if name in self.graph.inputs
        }
        feeds, n = self.feeds(inputs), count(inputs)
        index, layout = self._model.translation.tensors[self.output_head.tensor]
        final, parts = self._final(), []
        for tensor in file.inputs:  # those that the scores do not depend on hold whatever the memory held
            lite.set_tensor(tensor.index, np.zeros(tensor.shape, tensor.dtype))
        rows = next(iter(given.values())).shape[0]
        for start in range(0, max(n, 1), rows):
            for name, tensor in given.items():
                values = fill(feeds[name][start : start + rows], rows)
                lite.set_tensor(tensor.index, _to_stored(values, tensor))
            try:
                lite.invoke()
            except (RuntimeError, ValueError) as error:
                raise ModelError(f"LiteRT cannot run the model: {error_text(error)}") from error
            raw = _values(lite.get_tensor(index), file.tensors[index])
            found = self._as_scores(raw if layout != CHANNELS_FIRST else raw.transpose(TO_CHANNELS_FIRST))
            if final is not None:
                _keep_ties(found, lite.get_tensor(final))
            parts.append(found[: max(0, min(rows, n - start))])
        return np.concatenate(parts)

    def _as_scores(self, raw: Array) -> Array:
        """Apply the translation's last nodes to LiteRT's outputs."""
        if self.output_head.kind == "sigmoid":
            column = raw.reshape(-1, 1)
            return np.concatenate([np.zeros_like(column), column], axis=1)
        if raw.ndim > 2 and sum(size != 1 for size in raw.shape[1:]) <= 1:
            raw = raw.reshape(len(raw), -1)
        if self.output_head.kind == "probabilities":
            return np.log(np.maximum(raw, np.float32(SMALLEST_PROBABILITY)))
        return np.array(raw, np.float32)

    def _final(self) -> int | None:
        """Return the softmax's output, if the scores are its inputs; it may have equal numbers where they differ."""
        if self.output_head.kind != "softmax":
            return None
        index, _ = self._model.translation.tensors[self.output_head.tensor]
        for operator in self._model.file.operators:
            if operator.name in ("SOFTMAX", "LOG_SOFTMAX") and operator.inputs[0] is self._model.file.tensors[index]:
                return operator.outputs[0].index
        return None

    def _interpreter(self) -> Interpreter:
        """Return LiteRT's interpreter of the file with the present weights."""
        changed = {name: self.values[name] for name in sorted(self.touched)}
        digest = hashlib.sha256()
        for name, values in changed.items():
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(values).data)
        key = digest.hexdigest()
        if key not in self._interpreters:
            if len(self._interpreters) >= MAX_INTERPRETERS:
                self._interpreters.pop(next(iter(self._interpreters)))
            self._interpreters[key] = self._make(self._model.content_with(changed))
        return self._interpreters[key]

    def _make(self, content: bytes) -> Interpreter:
        file = self._model.file
        index, _ = self._model.translation.tensors[self.output_head.tensor]
        wanted = [tensor.index for tensor in file.outputs]
        wanted += [one for one in (index, self._final()) if one is not None and one not in wanted]
        try:
            with _silent_first_time():
                lite = Interpreter(model_content=with_outputs(content, file.slots, wanted), num_threads=1)
                lite.allocate_tensors()
        except (RuntimeError, ValueError) as error:
            raise ModelError(f"LiteRT does not take the model: {error_text(error)}") from error
        return lite


@contextmanager
def _silent_first_time() -> Iterator[None]:
    """Keep LiteRT from announcing on standard error, once in each process, by which kernels it will run.

    It has no setting for that, and what is wrong with a model is in the exceptions it raises.
    """
    if _announced:
        yield
        return
    _announced.append(True)
    try:
        kept = os.dup(2)
    except OSError:  # there is no standard error
        yield
        return
    try:
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, 2)
        os.close(sink)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


_announced: list[bool] = []


def _output_of(graph: Graph, head: OutputHead, named: Mapping[str, Tensor]) -> int | None:
    """Return the output of the file that is computed from a tensor."""
    behind = {head.tensor}
    for node in graph.nodes:
        if not behind.isdisjoint(node.input):
            behind |= set(node.output)
    return next((tensor.index for name, tensor in named.items() if name in behind), None)


def _values_of(array: Array, tensor: Tensor | None) -> Array:
    """Return the values that given whole numbers stand for; other numbers are values already."""
    if tensor is None or str(array.dtype) != tensor.dtype:
        return array
    return _values(array, tensor)


def _values(stored: Array, tensor: Tensor) -> Array:
    if not tensor.has_grid or tensor.grid is None:
        return np.asarray(stored)
    values: Array = (stored.astype(np.float32) - np.float32(tensor.grid.zero[0])) * tensor.grid.scale[0]
    return values


def _to_stored(values: Array, tensor: Tensor) -> Array:
    """Return an input as the file takes it."""
    if not tensor.has_grid or tensor.grid is None:
        return np.ascontiguousarray(values, tensor.dtype)
    limits = np.iinfo(tensor.dtype)
    whole = np.rint(values / tensor.grid.scale[0]) + np.float32(tensor.grid.zero[0])
    stored: Array = np.clip(whole, limits.min, limits.max).astype(tensor.dtype)
    return stored


def _keep_ties(scores: Array, output: Array) -> None:
    """Let the largest score be where the output's first largest number is.

    A softmax in steps of 1/256 gives equal numbers for different scores; who reads the output takes the first of them.
    """
    rows = np.arange(len(scores))
    ours, theirs = decide(scores), decide(output.reshape(scores.shape))
    scores[rows, ours], scores[rows, theirs] = scores[rows, theirs].copy(), scores[rows, ours].copy()
