"""Byte-surgical weight files: a patched copy differs from its source only in the changed weights (and checksums).

All formats of `weight_readers` end in the same table, the location of every tensor in the file; reading and writing
need nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from arachne.adapting.zips import write_copy
from arachne.errors import ModelError, WeightShapeError
from arachne.model.values import Array, Weights
from arachne.model.weight_file import WeightFile
from arachne.weights.storage import BFLOAT16
from arachne_torch.archive import Archive
from arachne_torch.derived import axis_of, decompose_weight, normed_pairs
from arachne_torch.names import addresses

DTYPES = {
    "float64": "<f8",
    "float32": "<f4",
    "float16": "<f2",
    "bfloat16": "<u2",
    "int64": "<i8",
    "int32": "<i4",
    "int16": "<i2",
    "int8": "|i1",
    "uint8": "|u1",
    "bool": "|b1",
}
"""How each stored dtype is read; bfloat16 as the bits it is."""

FLOATS = ("float64", "float32", "float16", "bfloat16")

EXACT = ("float64", "float32")
"""Dtypes in which weight norm can be computed from the file alone, bit for bit."""


MAX_AXES, MAX_NUMBER = 32, 1 << 48
"""How many axes a tensor may have, and how large a size, a stride or an offset."""


@dataclass(frozen=True)
class TensorLocation:
    """The location of a tensor in the file.

    Attributes:
        dtype: As it is stored.
        shape: Its shape.
        strides: Elements from one index to the next, per axis.
        offset: Byte of the file at which its first element stands.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def __post_init__(self) -> None:
        """Refuse impossible shapes and offsets, even if they would take few bytes."""
        if len(self.shape) > MAX_AXES or max((*self.shape, *self.strides, self.offset), default=0) > MAX_NUMBER:
            raise ValueError("a tensor has more axes, or a larger size, than any tensor can have")

    @property
    def span(self) -> int:
        """Bytes from its first element to the end of its last."""
        if 0 in self.shape:
            return 0
        last = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return (last + 1) * np.dtype(DTYPES[self.dtype]).itemsize

    @property
    def nbytes(self) -> int:
        """Bytes it takes in memory: more than its span if one number is stored for many elements."""
        return math.prod(self.shape) * np.dtype(DTYPES[self.dtype]).itemsize

    def over(self, data: bytearray | memoryview) -> Array:
        """The stored elements as a view of these `span` bytes."""
        flat: Array = np.frombuffer(data, DTYPES[self.dtype])
        steps = tuple(stride * flat.itemsize for stride in self.strides)
        return np.lib.stride_tricks.as_strided(flat, self.shape, steps)


class TorchWeightFile(WeightFile):
    """The weights of one file by address, and by their names in the state dict.

    Args:
        path: The file.
        locations: Where each tensor lies, in the file's order.
        archive: The zip archive around them, whose checksums have to follow.
        trainable: The names of those that are parameters, where the file tells.
        scripted: Whether the file is TorchScript.
    """

    def __init__(
        self,
        path: Path,
        locations: Mapping[str, TensorLocation],
        archive: Archive | None = None,
        trainable: Collection[str] = (),
        *,
        scripted: bool = False,
    ) -> None:
        self.path = path
        self.scripted = scripted
        self.trainable = frozenset(trainable)
        self.locations = dict(locations)
        self._archive = archive
        floats = {name: location.shape for name, location in locations.items() if location.dtype in FLOATS}
        self._normed = normed_pairs({name: shape for name, shape in floats.items() if locations[name].dtype in EXACT})
        made = {part: name for name, pair in self._normed.items() for part in pair}
        shapes = {}
        for name in floats:
            whole = made.get(name, name)
            shapes[whole] = floats[self._normed.get(whole, (name,))[-1]]  # what weight norm makes is like the direction
        self._stored = {
            address: stored
            for name, shape in shapes.items()
            for address, stored in addresses(name, shape, shapes.get(name.removesuffix("weight") + "bias"))
        }

    def parameters(self) -> Sequence[tuple[str, str]]:
        """Every floating-point tensor, in the file's order."""
        return tuple(self._stored)

    def _read(self, layer: str, parameter: str) -> Array:
        """One parameter; torch stores the canonical layout, some parameters together in one tensor."""
        stored = self._stored[layer, parameter]
        return np.array(stored.view(self._whole(stored.name)), order="C")

    def _whole(self, name: str) -> Array:
        """A tensor of the file, or the weight that weight norm makes of two of them."""
        if name not in self._normed:
            return self.tensor(name)
        g, v = (torch.from_numpy(self.tensor(part)) for part in self._normed[name])
        return np.asarray(torch._weight_norm(v, g, axis_of(g, v)))

    def _dtype(self, layer: str, parameter: str) -> str:
        """The dtype it is stored in."""
        name = self._stored[layer, parameter].name
        return self.locations[self._normed.get(name, (name,))[-1]].dtype

    def _rewrite(self, destination: Path, weights: Weights) -> None:
        """Copy the file, write the weights over their old bytes, and set the checksums of an archive right."""
        tensors: dict[str, Array] = {}
        for (layer, parameter), values in weights.items():
            stored = self._stored[layer, parameter]
            tensor = tensors.setdefault(stored.name, self._whole(stored.name))
            stored.view(tensor)[...] = values
        for name in [name for name in tensors if name in self._normed]:
            weight = torch.from_numpy(tensors.pop(name))
            g, v = (torch.from_numpy(self.tensor(part)) for part in self._normed[name])
            made = decompose_weight(weight, g, v, axis_of(g, v))
            tensors |= dict(zip(self._normed[name], (np.asarray(part) for part in made), strict=True))
        self.rewrite_tensors(destination, tensors)

    def tensor(self, name: str) -> Array:
        """One tensor by its name in the state dict, as a fresh array."""
        location = self.locations[name]
        with self.path.open("rb") as file:
            file.seek(location.offset)
            stored = location.over(bytearray(file.read(location.span)))
        return BFLOAT16.to_float(stored) if location.dtype == "bfloat16" else np.array(stored, order="C")

    def rewrite_tensors(self, destination: Path, tensors: Mapping[str, Array]) -> None:
        """Write a copy of the file with other values of some tensors, by their names in the state dict."""
        edits: dict[int, bytearray] = {}
        for name, values in tensors.items():
            location = self.locations[name]
            self._check(name, location, values)
            with self.path.open("rb") as file:
                file.seek(location.offset)
                data = bytearray(file.read(location.span))
            location.over(data)[...] = BFLOAT16.to_stored(values) if location.dtype == "bfloat16" else values
            if edits.setdefault(location.offset, data) != data:
                raise ModelError(f"'{name}' shares its bytes with another weight that is given another value")
        write_copy(self.path, destination, edits, None if self._archive is None else self._archive.zip)

    def _check(self, name: str, location: TensorLocation, values: Array) -> None:
        if values.shape != location.shape:
            raise WeightShapeError(f"'{name}' has shape {location.shape}, got values of shape {values.shape}")
        # An axis longer than 1 with stride 0: one stored number stands for many.
        if any(size > 1 and stride == 0 for size, stride in zip(location.shape, location.strides, strict=True)):
            raise ModelError(f"'{name}' stores one number for many weights, so they cannot be changed one by one")
