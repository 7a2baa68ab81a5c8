"""TailCache: the activations of the dense layers at the end of a model, computed once for all searches there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from arachne.data.lazy.spill_file import SPILL_ABOVE_BYTES, SPILL_COLUMNS_ABOVE_BYTES, RowBuffer, map_rows
from arachne.data.part import Part
from arachne.model.backend import LossGradient, ModelBackend, Trace, Weights
from arachne.model.lazy import HeldRows, LazyArray, as_array, concatenate, is_lazy
from arachne.model.sharding import SHARD
from arachne.model.values import EVEN, Array, Inputs, LayerInfo, batches, count, take
from arachne.scoring.dense_layers import BIAS
from arachne.scoring.functions import Function, apply, chain, slope
from arachne.scoring.tail_gradients import TailLayer, TailTrace, weight_gradients

TAIL_BATCH = 512
"""The number of inputs that run through a tail at a time."""

MAX_SHARDS_AT_ONCE, MAX_COPY_BYTES = 16, 32 << 20
"""The most shards that a backend runs at a time, and the most bytes of a layer's activations, which are copied once."""

MAX_HELD_BYTES = 1 << 30
"""The most bytes of one layer's activations in memory; more go to a temporary file."""

MAX_LAYER_BYTES = 16 << 30
"""The most bytes of one layer's activations that are cached at all."""


HELD_SHARE = 8
"""Activations of lazy inputs stay in memory up to one part of this many of what may be held."""

ROWS_IN_CACHE = 64
"""Columns are picked from so many rows at a time, so that these are still in the processor's cache."""


class TailCache:
    """The activations that enter and leave each layer of a dense tail in the original model.

    The framework runs everything up to the tail's first layer; the layers behind it run in NumPy on demand.
    """

    def __init__(
        self,
        backend: ModelBackend,
        layers: Sequence[LayerInfo],
        entering: Array,
        leaving: Array,
        rows: Array | None = None,
        *,
        rounded: bool = False,
    ) -> None:
        """Keep the activations of the first layer.

        Args:
            backend: The model.
            layers: The layers of the tail.
            entering: The inputs of the first of them, float32 `(inputs, in)`.
            leaving: Its outputs before its function, float32 `(inputs, out)`.
            rows: The rows that this cache covers, in order; all when None. They are not copied.
            rounded: Whether steps that round are run without it.
        """
        self._backend, self.rounded = backend, rounded
        self._infos = layers
        self._layers = {info.name: number for number, info in enumerate(layers)}
        self._first, self._rows = (entering, leaving), rows
        self._entering: list[Array | None] = [None]
        self._leaving: list[Array] = []

    @classmethod
    def of(cls, backend: ModelBackend, inputs: Inputs, *, rounded: bool = False) -> TailCache | None:
        """Cache the longest tail that fits into memory; None if the last layer is not dense, or takes no vectors."""
        return cls.run_model(backend, inputs, scores=False, rounded=rounded)[1]

    @classmethod
    def run_model(
        cls, backend: ModelBackend, inputs: Inputs, *, scores: bool = True, rounded: bool = False
    ) -> tuple[Array | None, TailCache | None]:
        """Run the model once; return class scores `(n, classes)`, if wanted, and the cache, None without a tail."""
        layers = fitting_tail(backend, count(inputs), rounded=rounded)
        if not layers:
            return None, None
        wide, high = layers[0].parameters["weight"].shape[::-1]
        spill = is_lazy(inputs) or 4 * count(inputs) * (wide + high) > min(MAX_HELD_BYTES, backend.memory)
        held = _most_held(backend.memory)
        entering, leaving = (RowBuffer(count(inputs), size, spill=spill, most=held) for size in (wide, high))
        found: list[Array] = []
        for rows in batches(count(inputs), _rows_at_once(wide + high, backend.memory)):
            if scores:
                own, (use,) = backend.forward_through(take(inputs, rows), layers[0].name)
                found.append(own)
            else:
                (use,) = backend.activations(take(inputs, rows), layers[0].name)
            if use.leaving.ndim != 2 or use.entering["weight"].ndim != 2:
                return None, None
            entering[rows], leaving[rows] = use.entering["weight"], use.leaving
        cache = cls(backend, layers, entering.array, leaving.array, rounded=rounded)
        return np.concatenate(found) if found else None, cache

    def __contains__(self, layer: str) -> bool:
        return layer in self._layers

    def __len__(self) -> int:
        return len(self._first[0]) if self._rows is None else len(self._rows)

    def take(self, rows: Array) -> TailCache:
        """Return the cache of some of the inputs, by their positions."""
        rows = np.asarray(rows, np.int64)
        rows = rows if self._rows is None else self._rows[rows]
        return TailCache(self._backend, self._infos, *self._first, rows, rounded=self.rounded)

    def concatenate(self, other: TailCache) -> TailCache:
        """Return a cache with the inputs of another one behind these."""
        first = self._infos[0].name
        entering = concatenate(self.entering(first), other.entering(first))
        leaving = concatenate(self.leaving(first), other.leaving(first))
        return TailCache(self._backend, self._infos, entering, leaving, rounded=self.rounded)

    @property
    def is_in_file(self) -> bool:
        """Whether the activations of the first layer are read from a file."""
        return is_lazy(self._first[0]) or is_lazy(self._first[1])

    @property
    def layers(self) -> list[str]:
        """The names of its layers, in order of execution."""
        return list(self._layers)

    def entering(self, layer: str) -> Array:
        """Return the activations that enter a layer, float32 `(n, in)`."""
        self._run_to(layer)
        found = self._entering[self._layers[layer]]
        return self._select_rows(self._first[0]) if found is None else found

    def read_entering(self, layer: str, rows: Array | slice) -> Array:
        """Return the activations that enter a layer for some of the inputs, `(rows, in)`; only these are copied."""
        whole, rows = self._held_entering(layer, rows)
        return np.asarray(whole[rows])

    def view_entering(self, layer: str, rows: Array) -> Array:
        """Return the activations that enter a layer for some of the inputs, `(rows, in)`; they are copied when read."""
        whole, found = self._held_entering(layer, rows)
        return as_array((whole if isinstance(whole, LazyArray) else LazyArray(HeldRows(whole))).take(found))

    def _held_entering(self, layer: str, rows: Array | slice) -> tuple[Array, Array | slice]:
        """Return the array in which the activations that enter a layer are held, and where some inputs lie in it."""
        self._run_to(layer)
        found = self._entering[self._layers[layer]]
        if found is None:
            return self._first[0], rows if self._rows is None else self._rows[rows]
        return found, rows

    def sources(self, layer: str, columns: Array) -> Array:
        """Return the factors of some weights of a layer, float32 `(n, columns)`: 1 where a column is `BIAS`.

        Where they are many and most of what enters the layer, they are copied when rows are read.
        """
        self._run_to(layer)
        whole = self._entering[self._layers[layer]]
        if is_lazy(self._first[0] if whole is None else whole):
            return map_rows(self.entering(layer), partial(_pick_columns, columns=columns))
        held, rows = self._held_entering(layer, slice(None))
        found = LazyArray(PickedColumns(held, columns)).take(rows)
        many = found.nbytes > SPILL_COLUMNS_ABOVE_BYTES and 2 * len(columns) >= held.shape[1]
        return as_array(found) if many else found[:]

    def leaving(self, layer: str) -> Array:
        """Return the activations that leave a layer before its function, float32 `(n, out)`."""
        self._run_to(layer)
        return self._leaving[self._layers[layer]]

    def trace(self, rows: Array, layers: Sequence[str]) -> Trace | None:
        """Trace layers for some of the inputs; None where a layer lies outside the tail."""
        found = self._from(rows, layers)
        return None if found is None else TailTrace(found, layers)

    def weight_gradients(
        self, rows: Array, loss_gradient: LossGradient, parameters: Sequence[tuple[str, str]]
    ) -> Weights | None:
        """Return gradients of a loss over some of the inputs; None where a layer lies outside the tail."""
        found = self._from(rows, [layer for layer, _ in parameters])
        return None if found is None else weight_gradients(found, loss_gradient, parameters, TAIL_BATCH)

    def can_run_from(self, layer: str) -> bool:
        """Whether a layer lies in the tail, and it and all layers behind it can be run and differentiated in NumPy."""
        behind = self._infos[self._layers[layer] :] if layer in self else ()
        return bool(behind) and all(
            slope(self._functions(info)) is not None and set(info.parameters) <= {"weight", "bias"} for info in behind
        )

    def project(self, layer: str, vectors: Array) -> Array:
        """Project the inputs of a layer onto each vector `(in, k)`, float32 `(n, k)`, without copying them."""
        found = np.zeros((len(self), vectors.shape[1]), np.float32)
        for part in batches(len(self), TAIL_BATCH):
            found[part] = self.read_entering(layer, part) @ vectors
        return found

    def layers_from(self, layer: str, *, with_inputs: bool = True) -> list[TailLayer]:
        """Return the layers from one on, with their activations in the original model; what enters them if asked.

        The first one's weights are those that the model has whenever they are read; others are copied.
        """
        found: list[TailLayer] = []
        for info in self._infos[self._layers[layer] :]:
            read = self._backend.get_weights if found else self._backend.read_weights
            weights = read(info.name)
            weight, bias = (
                weights[name].astype(np.float32, copy=False) if name in weights else None for name in ("weight", "bias")
            )
            if weight is None:
                raise ValueError("a layer of a dense tail has a weight")
            functions = self._functions(info)
            leaving = self.leaving(info.name)
            arriving = self.entering(info.name) if with_inputs else leaving[:0]
            found.append(TailLayer(info.name, weight, functions, arriving, leaving, bias))
        return found

    def _from(self, rows: Array, layers: Sequence[str]) -> list[TailLayer] | None:
        """Return the layers of the tail from the first of some on, with their activations of some inputs."""
        if not layers or not all(layer in self for layer in layers):
            return None
        first = min(layers, key=self._layers.__getitem__)
        return self.take(rows).layers_from(first) if self.can_run_from(first) else None

    def _functions(self, info: LayerInfo) -> tuple[Function, ...]:
        return chain(info.followed_by, rounded=self.rounded) or ()

    def _select_rows(self, whole: Array) -> Array:
        """Select the rows of this cache; a small lazy array is read into memory, a large one stays lazy."""
        found = whole
        if self._rows is not None:
            found = as_array(whole.take(self._rows)) if isinstance(whole, LazyArray) else np.asarray(whole[self._rows])
        return found[:] if is_lazy(found) and found.nbytes <= _most_held(self._backend.memory) else found

    def _run_to(self, layer: str) -> None:
        if not self._leaving:
            self._leaving.append(self._select_rows(self._first[1]))
        for number in range(len(self._leaving), self._layers[layer] + 1):
            weights = self._backend.get_weights(self._infos[number].name)
            weight = weights["weight"].astype(np.float32, copy=False)
            bias = weights["bias"].astype(np.float32, copy=False) if "bias" in weights else None
            functions = self._functions(self._infos[number - 1])
            before = self._leaving[-1]
            if not is_lazy(before):
                entering = apply(functions, before)
                leaving = entering @ weight.T
                leaving = leaving if bias is None else leaving + bias
            else:
                entering, leaving = _run_by_piece(before, functions, weight, bias, self._backend.memory)
            self._entering.append(entering)
            self._leaving.append(leaving)


def _most_held(memory: int) -> int:
    """Return the most bytes of a spilled layer's activations that stay in memory."""
    return min(SPILL_ABOVE_BYTES, memory // HELD_SHARE)


def _rows_at_once(width: int, memory: int) -> int:
    """Return how many inputs to run at a time if a layer has this many activations per input.

    They are whole shards, unless one takes more of the memory than may be held.
    """
    fitting = min(MAX_COPY_BYTES, memory) // (4 * width)
    return (
        SHARD * max(1, min(MAX_SHARDS_AT_ONCE, fitting // SHARD)) if 4 * width * SHARD <= memory else max(EVEN, fitting)
    )


def _run_by_piece(
    before: Array, functions: Sequence[Function], weight: Array, bias: Array | None, memory: int
) -> tuple[Array, Array]:
    """Compute the activations of a layer from the outputs of the one before it, in files unless they are small."""
    entering, leaving = (
        RowBuffer(len(before), width, spill=True, most=_most_held(memory)) for width in weight.shape[::-1]
    )
    for rows in batches(len(before), _rows_at_once(sum(weight.shape), memory)):
        own = apply(tuple(functions), before[rows])
        entering[rows] = own
        leaving[rows] = own @ weight.T if bias is None else own @ weight.T + bias
    return entering.array, leaving.array


class PickedColumns(HeldRows):
    """Some columns of an array that is in memory anyway; a column is 1 throughout where its number is `BIAS`.

    Args:
        array: The array, `(n, width)`.
        columns: The numbers of the columns.
    """

    def __init__(self, array: Array, columns: Array) -> None:
        super().__init__(array)
        self._columns = columns
        self.kinds = {"": ((len(columns),), array.dtype)}

    def read(self, name: str, rows: Array) -> Array:
        found = np.empty((len(rows), len(self._columns)), self._array.dtype)
        for part in batches(len(rows), ROWS_IN_CACHE):
            _pick_columns(self._array[rows[part]], self._columns, found[part])
        return found


def _pick_columns(values: Array, columns: Array, out: Array | None = None) -> Array:
    """Select columns; those of a bias are 1."""
    found: Array = np.take(values, columns, axis=1, out=out, mode="wrap")
    found[:, columns == BIAS] = 1
    return found


def run_and_keep(backend: ModelBackend, inputs: Inputs) -> tuple[Array, TailCache | None]:
    """Run the original model once; return its outputs, and the activations of its tail for the searches there."""
    backend.look(inputs)
    scores, tail = TailCache.run_model(backend, inputs)
    return (backend.forward(inputs), None) if scores is None else (scores, tail)


def tail_of(backend: ModelBackend, part: Part, rows: Array | None = None) -> TailCache | None:
    """Return the tail cache for some inputs of a part, all when None: from its first pass, or from another one."""
    n = len(part) if rows is None else len(rows)
    cache = part.cached_activations
    if isinstance(cache, TailCache) and cache.layers == [info.name for info in fitting_tail(backend, n)]:
        return cache if rows is None else cache.take(rows)
    return TailCache.of(backend, part.data.inputs if rows is None else take(part.data.inputs, rows))


def fitting_tail(backend: ModelBackend, n: int, *, rounded: bool = False) -> list[LayerInfo]:
    """Return the last layers of the dense tail whose first layer's activations of `n` inputs can be cached."""
    layers = dense_tail(backend, rounded=rounded)
    while layers and 4 * n * sum(layers[0].parameters["weight"].shape) > MAX_LAYER_BYTES:
        layers = layers[1:]
    return layers


def dense_tail(backend: ModelBackend, *, rounded: bool = False) -> list[LayerInfo]:
    """Return the dense layers at the end of a model, each used once and joined by known functions.

    Where `rounded`, steps between them may round to whole numbers.
    """
    found: list[LayerInfo] = []
    for info in reversed(backend.layers):
        functions = chain(info.followed_by, rounded=rounded)
        if info.kind != "dense" or info.uses != 1 or functions is None or (not found and functions):
            break
        if not found and info.parameters["weight"].shape[0] == 1:  # one logit, perhaps read as two scores
            break
        if found and found[-1].parameters["weight"].shape[1] != info.parameters["weight"].shape[0]:
            break
        found.append(info)
    return found[::-1]
