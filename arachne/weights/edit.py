"""Edit: how weights change, either single ones (`SparseEdit`) or a whole matrix by a few vectors (`LowRankEdit`)."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from arachne.model.values import Array, Weights
from arachne.text import Brief
from arachne.weights.selection import Selection, WeightSource
from arachne.weights.storage import FILE_STORAGES, IntegerGrid, Storage

BLOCK = 1 << 20
"""How many weights of a matrix are changed at a time."""


class Edit(Brief, ABC):
    """A change of weights that can be applied to whole parameters."""

    @property
    @abstractmethod
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """The `(layer, parameter)` pairs it changes, each once."""

    @property
    @abstractmethod
    def changed_weights(self) -> int:
        """How many weights it changes; of a low-rank edit, how many it moves before rounding."""

    @property
    @abstractmethod
    def size(self) -> float:
        """The Euclidean length of the change."""

    @abstractmethod
    def apply(self, weights: Weights) -> dict[tuple[str, str], Array]:
        """Return copies of the whole parameters it changes, out of `weights`, with the change in them."""

    @abstractmethod
    def to_sparse(self, source: WeightSource) -> SparseEdit:
        """Return the same change of a model weight by weight; what rounding leaves unchanged is left out."""


@dataclass(frozen=True, eq=False)
class SparseEdit(Edit):
    """New values of single weights.

    Attributes:
        selection: The weights, with the values they have before.
        values: Their new values, float64 `(k,)`, as the model stores them.
    """

    selection: Selection
    values: Array

    @property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        return self.selection.parameters

    @property
    def changed_weights(self) -> int:
        return int(np.count_nonzero(self.values != self.selection.values))

    @property
    def size(self) -> float:
        return float(np.linalg.norm(self.values - self.selection.values))

    def apply(self, weights: Weights) -> dict[tuple[str, str], Array]:
        return self.selection.put(self.values, weights)

    def to_sparse(self, source: WeightSource) -> SparseEdit:
        kept = np.flatnonzero(self.values != self.selection.values)
        return SparseEdit(self.selection.take(kept), self.values[kept])


@dataclass(frozen=True, eq=False)
class LowRankEdit(Edit):
    """A sum of outer products added to one parameter: `W' = round(W + left rightᵀ)`, and what undoes the rounding.

    A kernel is the matrix of its first axis and all others. The products are summed in float64, one after the other, so
    that every machine rounds to the same bits. A parameter of whole numbers changes by whole steps: what one weight
    cannot take is carried on to the next of its row, so that a change of less than a step each is not lost.

    Attributes:
        layer: The layer.
        parameter: The parameter.
        left: float32 `(out, rank)`.
        right: float32 `(in, rank)`.
        storage: What the parameter can hold.
        residue: By how many storable numbers `round(W' - left rightᵀ)` misses each weight, compressed; None until
            `with_residue` has seen the weights.
    """

    layer: str
    parameter: str
    left: Array
    right: Array
    storage: Storage
    residue: bytes | None = None

    def __post_init__(self) -> None:
        for name in ("left", "right"):
            vectors = np.ascontiguousarray(getattr(self, name), np.float32)
            if vectors.ndim != 2 or not vectors.size or not np.isfinite(vectors).all():
                raise ValueError(
                    f"'{name}' of a low-rank edit should be finite numbers (rows, rank), got {vectors.shape}"
                )
            object.__setattr__(self, name, vectors)
        if self.left.shape[1] != self.right.shape[1]:
            raise ValueError(f"the sides of a low-rank edit differ in rank: {self.left.shape}, {self.right.shape}")

    @property
    def key(self) -> tuple[str, str]:
        """Layer and parameter."""
        return self.layer, self.parameter

    @property
    def rank(self) -> int:
        """How many outer products are added."""
        return int(self.left.shape[1])

    @property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        return (self.key,)

    @property
    def changed_weights(self) -> int:
        moved = (int(np.count_nonzero(vectors.any(axis=1))) for vectors in (self.left, self.right))
        return next(moved) * next(moved)

    @property
    def size(self) -> float:
        left, right = self.left.astype(np.float64), self.right.astype(np.float64)
        return float(np.sqrt(max(0.0, float(((left.T @ left) * (right.T @ right)).sum()))))

    def apply(self, weights: Weights) -> dict[tuple[str, str], Array]:
        return {self.key: self.add(weights[self.key])}

    def add(self, values: Array) -> Array:
        """Return a parameter with the edit added, rounded to values it can hold."""
        found = np.empty(values.size, self.storage.carrier)
        for part, storage, old, product in self._parts(values):
            found[part] = storage.round(old + product)
        return found.reshape(values.shape)

    def with_residue(self, values: Array) -> LowRankEdit:
        """Return the edit with the residue that takes it back from a parameter with these values, bit for bit."""
        missed = np.empty(values.size, np.int64)
        for part, storage, old, product in self._parts(values):
            back = storage.round(storage.round(old + product).astype(np.float64) - product)
            missed[part] = storage.ordinals(old) - storage.ordinals(back)
        return replace(self, residue=_compress(missed))

    def check_residue(self, count: int) -> None:
        """Refuse an edit that could not be taken back from a parameter of this many weights.

        Raises:
            ValueError: Its residue is damaged, or one of another parameter.
        """
        if self.residue is not None:
            _decompress(self.residue, count)

    def remove(self, values: Array) -> Array:
        """Return a parameter that carries the edit as it was before, bit for bit.

        Raises:
            ValueError: The edit has no residue, or one of another parameter.
        """
        if self.residue is None:
            raise ValueError("the low-rank edit was never fitted to weights, so that it cannot be taken back")
        missed = _decompress(self.residue, values.size)
        found = np.empty(values.size, self.storage.carrier)
        for part, storage, new, product in self._parts(values):
            found[part] = storage.from_ordinals(storage.ordinals(storage.round(new - product)) + missed[part])
        return found.reshape(values.shape)

    def in_whole_numbers(self) -> LowRankEdit | None:
        """Return the same edit of the whole numbers that a file holds; None if a row has steps of several sizes."""
        if not isinstance(self.storage, IntegerGrid):
            return None
        steps = self._steps_of_rows(self.storage)
        return (
            None if steps is None else replace(self, left=self.left / steps, storage=FILE_STORAGES[self.storage.name])
        )

    def to_sparse(self, source: WeightSource) -> SparseEdit:
        whole = Selection.whole(source, self.parameters)
        before = source.read_weights(self.layer)[self.parameter]
        return SparseEdit(whole, np.asarray(self.add(before), np.float64).ravel()).to_sparse(source)

    def _parts(self, values: Array) -> Iterator[tuple[slice, Storage, Array, Array]]:
        """Go through a parameter some rows at a time, flattened: where they lie, their storage, values and products.

        Values and sums of products are float64; nothing is fused or reordered.
        """
        height, width = len(self.left), len(self.right)
        if height * width != values.size or len(values) != height:
            raise ValueError(f"a low-rank edit of {height} × {width} cannot change {values.shape}")
        steps = self._steps_of_rows(self.storage) if isinstance(self.storage, IntegerGrid) else None
        left = (self.left if steps is None else (self.left / steps).astype(np.float32)).astype(np.float64)
        right = self.right.astype(np.float64)
        whole, step = values.reshape(height, width), max(1, BLOCK // width)
        for start in range(0, height, step):
            rows = slice(start, min(height, start + step))
            product = np.multiply.outer(left[rows, 0], right[:, 0])
            for number in range(1, self.rank):
                product += np.multiply.outer(left[rows, number], right[:, number])
            part = slice(rows.start * width, rows.stop * width)
            storage = self.storage.at(np.arange(part.start, part.stop), values.shape)
            if isinstance(storage, IntegerGrid):
                scale = storage.scale.reshape(product.shape)
                product = _in_whole_steps(product if steps is not None else product / scale) * scale
            yield part, storage, whole[rows].astype(np.float64).ravel(), product.ravel()

    def _steps_of_rows(self, grid: IntegerGrid) -> Array | None:
        """Return the step of each row's whole numbers `(out, 1)` or `(1, 1)`; None if there are several in a row."""
        scale = grid.scale
        if scale.ndim and scale.size not in (1, scale.shape[0]):
            return None
        return scale.reshape(-1, 1)


def _in_whole_steps(product: Array) -> Array:
    """Round a change `(rows, n)` to whole numbers, carrying each rounding error on along its row."""
    return np.diff(np.rint(np.cumsum(product, axis=1)), axis=1, prepend=0.0)


def _compress(numbers: Array) -> bytes:
    """Whole numbers, mostly small, as bytes: their width, then the lowest byte of each, the next of each, and so on.

    Signs go into the lowest bit, so that the upper bytes are mostly zero. Runs of equal bytes are all that is worth
    looking for: on 4 million weights that took 0.24 s and 0.96 bits a weight, zlib's best level 10 s and 0.89.
    """
    folded = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    width = next(size for size in (1, 2, 4, 8) if int(folded.max(initial=0)) < 1 << (8 * size))
    planes = folded.astype(f"<u{width}").view(np.uint8).reshape(-1, width).T
    writer = zlib.compressobj(strategy=zlib.Z_RLE)
    return bytes([width]) + writer.compress(planes.tobytes()) + writer.flush()


def _decompress(residue: bytes, count: int) -> Array:
    """Read `count` numbers that `_compress` wrote, in no more memory than they need.

    Raises:
        ValueError: It is none, or of another number of weights.
    """
    width = residue[0] if residue else 0
    if width not in (1, 2, 4, 8):
        raise ValueError("the residue of a low-rank edit is damaged")
    reader = zlib.decompressobj()
    try:
        planes = reader.decompress(residue[1:], count * width + 1)
    except zlib.error as error:
        raise ValueError("the residue of a low-rank edit is damaged") from error
    if len(planes) != count * width or not reader.eof or reader.unused_data:
        raise ValueError("the residue of a low-rank edit is not that of this many weights")
    folded = np.frombuffer(planes, np.uint8).reshape(width, count).T.copy().view(f"<u{width}").ravel().astype(np.uint64)
    return (folded >> np.uint64(1)).view(np.int64) ^ -(folded & np.uint64(1)).view(np.int64)
