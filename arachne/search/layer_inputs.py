"""The inputs of a layer for each fitness input: one vector each, and samples of the vectors that its weights meet."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from arachne.data.lazy.spill_file import RowBuffer
from arachne.errors import UsageError
from arachne.localise.linear_maps import Convolution
from arachne.model.lazy import is_lazy
from arachne.model.sharding import SHARD, read_shards
from arachne.model.values import EVEN, Activation, Array, LayerInfo, batches, blocks, count, take
from arachne.scoring.low_rank import is_in_tail
from arachne.scoring.tail_cache import TAIL_BATCH
from arachne.search.directions import MAX_MOMENT_ROWS, max_moment_rows
from arachne.search.problem import Problem

MAX_SAMPLED_INPUTS, POSITIONS_PER_INPUT = 600, 64
"""From how many inputs of a convolution patches are taken, and how many patches of each."""


MAX_PIECE_BYTES, MAX_READ_BYTES = 256 << 20, 8 << 20
"""The most bytes of what enters and leaves a layer that make a piece, and that a cut gives at a time."""

SAMPLE_SHARE = 32
"""Samples take 1 / SAMPLE_SHARE of the memory limit, as float32; arrays made of them take several times that."""


class LayerInputs(ABC):
    """The inputs of a layer.

    Attributes:
        parameter: The parameter that it is multiplied with.
    """

    parameter = "weight"

    @abstractmethod
    def pieces(self) -> Iterator[tuple[slice, Array]]:
        """Give rows of fitness inputs, and one vector `(width,)` for each: `(rows, width)`, until the next are read."""

    @abstractmethod
    def samples(self, rows: Array) -> tuple[Array, Array]:
        """Return vectors that the weights meet, float32 `(N, n)`, of some inputs, and which input each is of `(N,)`.

        They are lazy where they would take more than a share of the memory that may be held.
        """

    def columns(self, differences: Array) -> Array:
        """Return differences of `pieces` `(width, k)` as vectors that the weights meet `(n, columns)`."""
        return differences


class TailInputs(LayerInputs):
    """The inputs of a layer in the dense tail, which are at hand."""

    def __init__(self, problem: Problem, layer: str) -> None:
        if problem.tail is None:
            raise ValueError("the model has no dense tail")
        self._tail, self._layer, self._problem = problem.tail, layer, problem
        self._width = problem.backend.info(layer).parameters["weight"].shape[1]

    def pieces(self) -> Iterator[tuple[slice, Array]]:
        for rows in batches(len(self._tail), TAIL_BATCH):
            yield rows, self._tail.read_entering(self._layer, rows)

    def samples(self, rows: Array) -> tuple[Array, Array]:
        rows = spread(rows, max_moment_rows(self._width))
        held = self._tail.view_entering(self._layer, rows)
        if not is_lazy(held) and held.nbytes <= self._problem.backend.memory // SAMPLE_SHARE:
            return held, rows
        found = _buffer(self._problem, len(rows), self._width)
        for part in blocks(found.array, len(rows)):
            found[part] = self._tail.read_entering(self._layer, rows[part])
        return found.array, rows


class PassedInputs(LayerInputs):
    """The inputs of a dense or recurrent layer anywhere, from passes of the original model.

    Where the layer works on several positions, such as the words of a text, an input's vector is the mean over them,
    and its sample one of them, each position in turn. What enters the transpose of the weight is left out.
    """

    def __init__(self, problem: Problem, info: LayerInfo) -> None:
        self._problem, self._info = problem, info
        self.parameter = info.weights[0]
        self._width = info.parameters[self.parameter].shape[1]

    def pieces(self) -> Iterator[tuple[slice, Array]]:
        for rows, entering in self._run(np.arange(len(self._problem.fitness_inputs))):
            yield rows, entering.mean(axis=1)

    def samples(self, rows: Array) -> tuple[Array, Array]:
        rows = spread(rows, max_moment_rows(self._width))
        found = _buffer(self._problem, len(rows), self._width)
        for part, entering in self._run(rows):
            each = np.arange(len(entering))
            found[part] = entering[each, rows[part] % entering.shape[1]]
        return found.array, rows

    def _run(self, rows: Array) -> Iterator[tuple[slice, Array]]:
        """Give what enters the layer, `(rows, positions, n)`."""
        for part, uses in _read_uses(self._problem, self._info.name, rows):
            number = part.stop - part.start
            own = [use.entering[self.parameter].reshape(number, -1, self._width) for use in uses if not use.transposed]
            yield part, np.concatenate(own, axis=1) if own else np.zeros((number, 1, self._width))


class MapInputs(LayerInputs):
    """The inputs of a convolution: an input's vector is its whole map, and the weights meet its patches."""

    def __init__(self, problem: Problem, info: LayerInfo) -> None:
        if info.geometry is None or info.geometry.groups != 1 or info.uses != 1:
            raise UsageError(f"'{info.name}' is a convolution in groups, or used several times")
        self._problem, self._info, self._map = problem, info, Convolution(info)
        self._shape: tuple[int, ...] = ()

    def pieces(self) -> Iterator[tuple[slice, Array]]:
        for rows, maps in self._run(np.arange(len(self._problem.fitness_inputs))):
            yield rows, maps.reshape(len(maps), -1)

    def samples(self, rows: Array) -> tuple[Array, Array]:
        width = int(np.prod(self._info.parameters["weight"].shape[1:]))
        rows = spread(rows, MAX_SAMPLED_INPUTS)
        each = max(1, max_moment_rows(width, MAX_MOMENT_ROWS * 16) // max(1, len(rows)))
        found, positions = _buffer(self._problem, 0, width), 0
        for part, maps in self._run(rows):
            for at, (number, own) in enumerate(zip(rows[part], maps, strict=True), part.start):
                patches = self._map.columns(own)
                kept = spread(np.arange(patches.shape[1]), min(each, POSITIONS_PER_INPUT), int(number))
                if not positions:
                    found, positions = _buffer(self._problem, len(rows) * len(kept), width), len(kept)
                found[slice(at * positions, (at + 1) * positions)] = patches[:, kept].T
        return found.array, np.repeat(rows, positions)

    def columns(self, differences: Array) -> Array:
        maps = differences.T.reshape(-1, *self._shape)
        none = np.zeros((int(np.prod(self._info.parameters["weight"].shape[1:])), 0), differences.dtype)
        return np.concatenate([none, *map(self._map.columns, maps)], axis=1)

    def _run(self, rows: Array) -> Iterator[tuple[slice, Array]]:
        for part, (use,) in _read_uses(self._problem, self._info.name, rows):
            maps = use.entering["weight"]
            if maps.ndim != 2 + len(self._info.parameters["weight"].shape[2:]):
                raise UsageError(f"'{self._info.name}' is a convolution over several frames at once")
            self._shape = maps.shape[1:]
            yield part, maps


def _read_uses(problem: Problem, layer: str, rows: Array) -> Iterator[tuple[slice, tuple[Activation, ...]]]:
    """Give what enters a layer for some fitness inputs, piece by piece: from a cut there, or from passes.

    Trials in the layer need the cut anyway, and the model has run up to it then. A piece from a cut overwrites the one
    before it, and has no more of what leaves the layer than one row.
    """
    first = problem.activation_at(layer, rows[:1])
    if first is None:
        inputs = problem.fitness_inputs.inputs
        for part, piece in read_shards(take(inputs, rows) if len(rows) < count(inputs) else inputs):
            yield part, problem.backend.activations(piece, layer)
        return
    size = max(1, first.leaving.nbytes + sum(array.nbytes for array in first.entering.values()))
    parts = list(batches(len(rows), max(EVEN, min(SHARD, MAX_PIECE_BYTES // size))))
    most = max((part.stop - part.start for part in parts), default=0)
    entering = {name: np.empty((most, *array.shape[1:]), array.dtype) for name, array in first.entering.items()}
    for part in parts:
        own = rows[part]
        for block in batches(len(own), max(EVEN, MAX_READ_BYTES // size)):
            if (found := problem.activation_at(layer, own[block])) is not None:
                for name, array in entering.items():
                    array[block] = found.entering[name]
        yield part, (replace(first, entering={name: array[: len(own)] for name, array in entering.items()}),)


def _buffer(problem: Problem, n: int, width: int) -> RowBuffer:
    """Make room for so many vectors, in a file where they would take more than a share of what may be held."""
    return RowBuffer(n, width, spill=True, most=problem.backend.memory // SAMPLE_SHARE)


def read_layer_inputs(problem: Problem, info: LayerInfo) -> LayerInputs:
    """Take what enters a layer from the model's dense tail, where it lies there, or from passes."""
    if is_in_tail(problem.tail, (info.name, "weight")):
        return TailInputs(problem, info.name)
    return MapInputs(problem, info) if info.kind == "conv" else PassedInputs(problem, info)


def spread(rows: Array, most: int, offset: int = 0) -> Array:
    """Return at most so many of some rows, evenly spread; `offset` shifts which ones."""
    if len(rows) <= most:
        return rows
    positions = np.linspace(0, len(rows), most, endpoint=False).astype(np.int64)
    found: Array = rows[np.sort((positions + offset) % len(rows))]
    return found
