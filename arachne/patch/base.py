"""The base of a patch: the tensors it touches, by content, and the file they came from.

The tensors decide whether a patch fits; the file's name and hash are for information. So a patch still fits a file
whose other layers were trained further, and never one in which a touched tensor differs in a single bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from arachne.model.values import Array
from arachne.text import Brief
from arachne.weights.storage import FILE_STORAGES, Storage

PROJECTIONS = 4


@dataclass(frozen=True)
class Fingerprint:
    """A few numbers that recognise one row of a tensor, also when an exporter has multiplied it by a factor.

    Attributes:
        row: The index along the first axis; 0 for a vector, which is one row.
        norm: The row's Euclidean norm.
        projections: The row times fixed vectors of +1 and -1, `PROJECTIONS` numbers.
    """

    row: int
    norm: float
    projections: tuple[float, ...]


@dataclass(frozen=True)
class BaseTensor(Brief):
    """One touched tensor.

    Attributes:
        layer: The layer.
        parameter: The parameter.
        shape: Its canonical shape.
        dtype: The dtype it is stored in.
        sha256: Hash of its content before the patch, as `tensor_sha256` has it; None where it was never seen.
        patched_sha256: The same after the patch. At least one of the two is known.
        uses: How often the model calls the layer; the patch changes every use.
        fingerprints: One per touched row.
    """

    layer: str
    parameter: str
    shape: tuple[int, ...]
    dtype: str
    sha256: str | None
    patched_sha256: str | None
    uses: int = 1
    fingerprints: tuple[Fingerprint, ...] = ()

    @property
    def storage(self) -> Storage:
        """The storage of the tensor."""
        return FILE_STORAGES[self.dtype]

    @property
    def name(self) -> str:
        """`fc2.weight`."""
        return f"{self.layer}.{self.parameter}"


@dataclass(frozen=True)
class PatchBase(Brief):
    """The model that a patch was made for.

    Attributes:
        file: The name of the model's file, where it came from one.
        sha256: That file's hash.
        backend: The backend the model was in.
        tensors: The touched tensors, in the order of the model.
        content: All tensors of the model in one number, `content_of`; None where they were not looked at.
    """

    file: str | None = None
    sha256: str | None = None
    backend: str | None = None
    tensors: tuple[BaseTensor, ...] = field(default=())
    content: str | None = None

    @property
    def patched_content(self) -> str | None:
        """`content` of the patched model; None if it is not known."""
        if self.content is None or any(None in (tensor.sha256, tensor.patched_sha256) for tensor in self.tensors):
            return None
        before = content_of((tensor.name, str(tensor.sha256)) for tensor in self.tensors)
        after = content_of((tensor.name, str(tensor.patched_sha256)) for tensor in self.tensors)
        return _number(int(self.content, 16) - int(before, 16) + int(after, 16))


def content_of(tensors: Iterable[tuple[str, str]]) -> str:
    """All tensors of a model in one number: the sum of a hash of each, by name and `tensor_sha256`, modulo `2**256`.

    A sum, so that what it becomes when a patch changes some of them can be told from the patch alone.
    """
    hashes = (hashlib.sha256(f"{name}\0{content}".encode()).hexdigest() for name, content in tensors)
    return _number(sum(int(digest, 16) for digest in hashes))


def _number(value: int) -> str:
    return f"{value % 2**256:064x}"


def tensor_sha256(values: Array) -> str:
    """Hash of a tensor's content: its little-endian float32 bytes in canonical layout.

    float16 and bfloat16 fit into float32 exactly, so a tensor keeps its hash when it is widened. float64 does not fit
    and is hashed in its own eight bytes.
    """
    carrier = "<f8" if values.dtype == np.float64 else "<f4"
    return hashlib.sha256(np.ascontiguousarray(values, dtype=carrier).data).hexdigest()


def fingerprints(values: Array, rows: Iterable[int]) -> tuple[Fingerprint, ...]:
    """The fingerprints of some rows of a tensor `(rows, ...)`, without those that would overflow."""
    found = (fingerprint(values, row) for row in sorted(set(rows)))
    return tuple(mark for mark in found if mark is not None)


def fingerprint(values: Array, row: int) -> Fingerprint | None:
    """The fingerprint of one row of a tensor `(rows, ...)`; a vector is one row, number 0. None if it overflows."""
    flat = np.asarray((values[None] if values.ndim < 2 else values)[row], np.float64).ravel()
    with np.errstate(over="ignore"):
        return _mark(row, float(flat @ flat), _signs(flat.size) @ flat)


def shift_fingerprint(mark: Fingerprint, size: int, values: Mapping[int, tuple[float, float]]) -> Fingerprint | None:
    """The fingerprint of a row of `size` weights after some of them changed: `position -> (old, new)`."""
    old, new = np.array(list(values.values()), np.float64).reshape(-1, 2).T
    with np.errstate(over="ignore", invalid="ignore"):
        projections = np.array(mark.projections) + _signs(size)[:, list(values)] @ (new - old)
        return _mark(mark.row, max(mark.norm**2 + float(new @ new - old @ old), 0.0), projections)


def row_of(index: tuple[int, ...]) -> int:
    """The row an index falls into."""
    return index[0] if len(index) > 1 else 0


@lru_cache(maxsize=4)
def _signs(size: int) -> Array:
    """Fixed vectors of +1 and -1, `(PROJECTIONS, size)`: bits of the splitmix64 sequence, the same on every machine."""
    state = (np.arange(size, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    bits = (state[None] >> np.arange(PROJECTIONS, dtype=np.uint64)[:, None]) & np.uint64(1)
    return np.asarray(1.0 - 2.0 * bits.astype(np.float64))


def _mark(row: int, square: float, projections: Array) -> Fingerprint | None:
    """Ten digits of each number: more than float32 holds, and short enough to read. None where it would overflow."""
    if not (np.isfinite(square) and np.isfinite(projections).all()):
        return None
    norm, *others = (float(f"{number:.10g}") for number in (np.sqrt(square), *projections))
    return Fingerprint(row, norm, tuple(others))
