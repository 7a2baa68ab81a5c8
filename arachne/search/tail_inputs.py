"""What flows through the dense layers at the end of a model, computed once for all searches there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from arachne.backend import ModelBackend, Pull, Trace, Weights
from arachne.data.spill import SMALL, Filled, each_row
from arachne.data.split import Part
from arachne.evaluate.routes.functions import Function, apply, chain, slope
from arachne.evaluate.routes.tail_layers import BIAS
from arachne.lazy import LazyArray, as_array, concatenated, is_lazy
from arachne.search.tail_gradients import TailLayer, TailTrace, weight_gradients
from arachne.shards import SHARD
from arachne.values import Array, Inputs, LayerInfo, batches, count, take

ROWS = 512
"""How many inputs pass the layers of a tail at a time."""

TOGETHER, ROOM = 16, 32 << 20
"""How many shards a backend is asked for at a time, at most, and how many bytes of what flows through a layer: that is
copied once, for as many inputs."""

HELD = 1 << 30
"""How many bytes may be held of what flows through one layer; more goes to a temporary file."""

LARGEST = 16 << 30
"""How many bytes may be kept of what flows through one layer."""


class TailInputs:
    """What enters and leaves each layer of a dense tail in the original model.

    The framework runs everything up to the tail's first layer; the layers behind it are run in NumPy when asked for.
    """

    def __init__(
        self,
        backend: ModelBackend,
        layers: Sequence[LayerInfo],
        entering: Array,
        leaving: Array,
        rows: Array | None = None,
    ) -> None:
        """Keep what flows through the first layer.

        Args:
            backend: The model.
            layers: The layers of the tail.
            entering: What enters the first of them, float32 `(inputs, in)`.
            leaving: What leaves it before its function, float32 `(inputs, out)`.
            rows: Which of these inputs are meant, in order; all when None. Nothing is copied for them.
        """
        self._backend = backend
        self._infos = layers
        self._layers = {info.name: number for number, info in enumerate(layers)}
        self._first, self._rows = (entering, leaving), rows
        self._entering: list[Array | None] = [None]
        self._leaving: list[Array] = []

    @classmethod
    def of(cls, backend: ModelBackend, inputs: Inputs) -> TailInputs | None:
        """The longest tail that fits into memory; None where the last layer is not dense, or takes no vectors."""
        return cls.passed(backend, inputs, scores=False)[1]

    @classmethod
    def passed(
        cls, backend: ModelBackend, inputs: Inputs, *, scores: bool = True
    ) -> tuple[Array | None, TailInputs | None]:
        """The same and, from the same pass, the class scores `(n, classes)`, if they are wanted and there is a tail."""
        layers = fitting_tail(backend, count(inputs))
        if not layers:
            return None, None
        wide, high = layers[0].parameters["weight"].shape[::-1]
        spill = is_lazy(inputs) or 4 * count(inputs) * (wide + high) > HELD
        entering, leaving = (Filled(count(inputs), size, spill=spill) for size in (wide, high))
        found: list[Array] = []
        for rows in batches(count(inputs), _together(wide + high)):
            if scores:
                own, (use,) = backend.forward_through(take(inputs, rows), layers[0].name)
                found.append(own)
            else:
                (use,) = backend.activations(take(inputs, rows), layers[0].name)
            if use.leaving.ndim != 2 or use.entering["weight"].ndim != 2:
                return None, None
            entering[rows], leaving[rows] = use.entering["weight"], use.leaving
        return np.concatenate(found) if found else None, cls(backend, layers, entering.array, leaving.array)

    def __contains__(self, layer: str) -> bool:
        return layer in self._layers

    def __len__(self) -> int:
        return len(self._first[0]) if self._rows is None else len(self._rows)

    def take(self, rows: Array) -> TailInputs:
        """The same for some of the inputs, by their positions."""
        rows = np.asarray(rows, np.int64)
        return TailInputs(self._backend, self._infos, *self._first, rows if self._rows is None else self._rows[rows])

    def joined(self, other: TailInputs) -> TailInputs:
        """The same with the inputs of another one behind these."""
        first = self._infos[0].name
        entering = concatenated(self.entering(first), other.entering(first))
        return TailInputs(self._backend, self._infos, entering, concatenated(self.leaving(first), other.leaving(first)))

    @property
    def layers(self) -> list[str]:
        """The names of its layers, in order of execution."""
        return list(self._layers)

    def entering(self, layer: str) -> Array:
        """What enters a layer, float32 `(n, in)`."""
        self._run_to(layer)
        found = self._entering[self._layers[layer]]
        return self._taken(self._first[0]) if found is None else found

    def sources(self, layer: str, columns: Array) -> Array:
        """What some weights of a layer are multiplied with, float32 `(n, columns)`: 1 where a column is `BIAS`."""
        self._run_to(layer)
        whole = self._entering[self._layers[layer]]
        if whole is None and not is_lazy(self._first[0]):
            return _picked(self._taken(self._first[0][:, columns]), np.arange(len(columns)), columns == BIAS)
        return each_row(self.entering(layer), partial(_picked, columns=columns, ones=columns == BIAS))

    def leaving(self, layer: str) -> Array:
        """What leaves a layer before its function, float32 `(n, out)`."""
        self._run_to(layer)
        return self._leaving[self._layers[layer]]

    def trace(self, rows: Array, layers: Sequence[str]) -> Trace | None:
        """As `ModelBackend.trace`, of some of the inputs; None where a layer lies outside the tail."""
        found = self._from(rows, layers)
        return None if found is None else TailTrace(found, layers)

    def weight_gradients(self, rows: Array, pull: Pull, parameters: Sequence[tuple[str, str]]) -> Weights | None:
        """As `ModelBackend.weight_gradients`, of some of the inputs; None where a layer lies outside the tail."""
        found = self._from(rows, [layer for layer, _ in parameters])
        return None if found is None else weight_gradients(found, pull, parameters, ROWS)

    def _from(self, rows: Array, layers: Sequence[str]) -> list[TailLayer] | None:
        """What flows through the tail from the first of some layers on."""
        if not layers or not all(layer in self for layer in layers):
            return None
        own, found = self.take(rows), []
        for info in self._infos[min(self._layers[layer] for layer in layers) :]:
            functions = chain(info.followed_by) or ()
            if slope(functions) is None or not set(info.parameters) <= {"weight", "bias"}:
                return None
            weight = self._backend.get_weights(info.name)["weight"].astype(np.float32)
            found.append(TailLayer(info.name, weight, functions, own.entering(info.name), own.leaving(info.name)))
        return found

    def _taken(self, whole: Array) -> Array:
        """The rows that are meant. Few of a lazy array are read, many stay where they are."""
        found = whole
        if self._rows is not None:
            found = as_array(whole.take(self._rows)) if isinstance(whole, LazyArray) else np.asarray(whole[self._rows])
        return found[:] if is_lazy(found) and found.nbytes <= SMALL else found

    def _run_to(self, layer: str) -> None:
        if not self._leaving:
            self._leaving.append(self._taken(self._first[1]))
        for number in range(len(self._leaving), self._layers[layer] + 1):
            weights = self._backend.get_weights(self._infos[number].name)
            weight = weights["weight"].astype(np.float32)
            bias = weights["bias"].astype(np.float32) if "bias" in weights else None
            functions = chain(self._infos[number - 1].followed_by) or ()
            before = self._leaving[-1]
            if not is_lazy(before):
                entering = apply(functions, before)
                leaving = entering @ weight.T
                leaving = leaving if bias is None else leaving + bias
            else:
                entering, leaving = _run_by_piece(before, functions, weight, bias)
            self._entering.append(entering)
            self._leaving.append(leaving)


def _together(width: int) -> int:
    """How many inputs to ask for at a time where this many numbers of each flow through a layer: whole shards."""
    return SHARD * max(1, min(TOGETHER, ROOM // (4 * width * SHARD)))


def _run_by_piece(
    before: Array, functions: Sequence[Function], weight: Array, bias: Array | None
) -> tuple[Array, Array]:
    """What enters and leaves a layer, from what left the one before it, both kept in files."""
    entering, leaving = (Filled(len(before), width, spill=True) for width in weight.shape[::-1])
    for rows in batches(len(before), _together(sum(weight.shape))):
        own = apply(tuple(functions), before[rows])
        entering[rows] = own
        leaving[rows] = own @ weight.T if bias is None else own @ weight.T + bias
    return entering.array, leaving.array


def _picked(values: Array, columns: Array, ones: Array) -> Array:
    """Some columns, 1 in those that stand for a bias."""
    found = np.ascontiguousarray(values[:, columns])
    found[:, ones] = 1
    return found


def run_and_keep(backend: ModelBackend, inputs: Inputs) -> tuple[Array, TailInputs | None]:
    """One pass of the original model, of which everything a search in its tail needs is kept."""
    backend.look(inputs)
    scores, tail = TailInputs.passed(backend, inputs)
    return (backend.forward(inputs), None) if scores is None else (scores, tail)


def tail_of(backend: ModelBackend, part: Part, rows: Array | None = None) -> TailInputs | None:
    """The tail for some inputs of a part, all when None: as its pass was kept, or from another pass."""
    n = len(part) if rows is None else len(rows)
    if isinstance(part.kept, TailInputs) and part.kept.layers == [info.name for info in fitting_tail(backend, n)]:
        return part.kept if rows is None else part.kept.take(rows)
    return TailInputs.of(backend, part.data.inputs if rows is None else take(part.data.inputs, rows))


def fitting_tail(backend: ModelBackend, n: int) -> list[LayerInfo]:
    """The last layers of the dense tail for which what flows through the first of them, for `n` inputs, can be kept."""
    layers = dense_tail(backend)
    while layers and 4 * n * sum(layers[0].parameters["weight"].shape) > LARGEST:
        layers = layers[1:]
    return layers


def dense_tail(backend: ModelBackend) -> list[LayerInfo]:
    """The dense layers at the end of a model, each used once and joined by functions that are known here."""
    found: list[LayerInfo] = []
    for info in reversed(backend.layers):
        functions = chain(info.followed_by)
        if info.kind != "dense" or info.uses != 1 or functions is None or (not found and functions):
            break
        if found and found[-1].parameters["weight"].shape[1] != info.parameters["weight"].shape[0]:
            break
        found.append(info)
    return found[::-1]
