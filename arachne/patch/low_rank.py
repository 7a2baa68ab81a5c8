"""A low-rank edit in a patch: its checks against one tensor, and how it is written down.

The vectors are float32 and the residue is compressed bytes, both as base64. The hashes of the tensor before and after
are always known, so no single weight is listed.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from arachne.errors import PatchError
from arachne.model.values import Address, Array
from arachne.patch.base import BaseTensor, fingerprints, tensor_sha256
from arachne.patch.change import TensorChange, outside_grid
from arachne.patch.weight_change import WeightChange, changes_of_tensor
from arachne.weights.edit import LowRankEdit
from arachne.weights.storage import FILE_STORAGES, IntegerGrid

CLIPPED_SHARE = 0.01
"""The share of a float edit, in squares, that may lie beyond the range of a quantised file."""


@dataclass(frozen=True)
class LowRankChange(TensorChange):
    """Everything a low-rank edit does to one tensor.

    Attributes:
        edit: The edit, with its residue.
        inverted: Whether the edit is taken out instead of put in.
    """

    edit: LowRankEdit
    inverted: bool = False

    @classmethod
    def from_edit(cls, values: Array, edit: LowRankEdit, *, uses: int = 1) -> LowRankChange:
        """Make the change that an edit makes to a tensor with these values.

        Raises:
            PatchError: The edit is for another shape, or leaves weights that are not finite.
        """
        storage = edit.storage
        before = np.asarray(values, storage.carrier)
        name = f"{edit.layer}.{edit.parameter}"
        try:
            after = edit.add(before)
        except ValueError as error:
            raise PatchError(f"'{name}': {error}") from error
        if not (np.isfinite(before).all() and np.isfinite(after).all()):
            raise PatchError(f"the low-rank edit leaves values in '{name}' that are not finite in {storage.name}")
        hashes = tensor_sha256(before), tensor_sha256(after)
        marks = fingerprints(before, _rows_of(edit))
        tensor = BaseTensor(edit.layer, edit.parameter, tuple(values.shape), storage.name, *hashes, uses, marks)
        return cls(tensor, (), edit.with_residue(before))

    @property
    def weights(self) -> int:
        """How many weights the edit moves."""
        return self.edit.changed_weights

    @property
    def touched_rows(self) -> Set[int]:
        return set(_rows_of(self.edit))

    @property
    def description(self) -> str:
        """`, by a matrix of rank 2 and size 0.12`."""
        word = "without" if self.inverted else "by"
        return f", {word} a matrix of rank {self.edit.rank} and size {self.edit.size:.3g}"

    @cached_property
    def _inverse(self) -> TensorChange:
        tensor = self.tensor
        swapped = replace(tensor, sha256=tensor.patched_sha256, patched_sha256=tensor.sha256, fingerprints=())
        return replace(self, tensor=swapped, inverted=not self.inverted)

    def count(self, values: Array) -> tuple[int, int]:
        """Count the weights that have their new value, and those that have their old one: all or none."""
        content = tensor_sha256(values)
        return self.weights * (content == self.tensor.patched_sha256), self.weights * (content == self.tensor.sha256)

    def fits_but_for_its_weights(self, values: Array, dtype: str) -> bool:
        return False

    def move_to(self, layer: str, parameter: str) -> LowRankChange:
        tensor = replace(self.tensor, layer=layer, parameter=parameter)
        return replace(self, tensor=tensor, edit=replace(self.edit, layer=layer, parameter=parameter))

    def derive(
        self, values: Array, dtype: str, factors: Mapping[int, float], grid: IntegerGrid | None = None
    ) -> TensorChange | None:
        scale = np.array([factors.get(row, 1.0) for row in range(len(self.edit.left))], np.float32)
        storage = FILE_STORAGES[dtype] if grid is None else grid
        edit = replace(self.edit, left=self.edit.left * scale[:, None], storage=storage, residue=None)
        if grid is not None:
            _check_fits(edit, grid.to_float(values), grid)
        return low_rank_change(values, edit, uses=self.tensor.uses)

    def contains(self, other: TensorChange) -> bool:
        """Whether another change is this very one."""
        bare = [replace(change.tensor, fingerprints=()) for change in (self, other)]
        return isinstance(other, LowRankChange) and bare[0] == bare[1] and self.to_json() == other.to_json()

    def to_json(self) -> dict[str, Any]:
        """The edit as the patch's text has it."""
        edit = self.edit
        found = {
            "layer": edit.layer,
            "parameter": edit.parameter,
            "rank": edit.rank,
            "left": _encode(edit.left.astype("<f4").tobytes()),
            "right": _encode(edit.right.astype("<f4").tobytes()),
            "residue": _encode(edit.residue or b""),
        }
        return {**found, "direction": "out"} if self.inverted else found

    def _check_old_values(self, current: Array, where: str) -> None:
        if tensor_sha256(current) != self.tensor.sha256:
            raise PatchError(
                f"'{self.tensor.name}' in '{where}' is not the tensor this patch was made for: its weights differ"
            )

    def _is_put_on(self, current: Array) -> bool:
        return tensor_sha256(current) == self.tensor.patched_sha256

    def _put_new(self, current: Array) -> Array:
        try:
            if self.inverted:
                return self.edit.remove(current)
            self.edit.check_residue(current.size)
            return self.edit.add(current)
        except ValueError as error:
            raise PatchError(f"'{self.tensor.name}': {error}") from error


def low_rank_change(values: Array, edit: LowRankEdit, *, uses: int = 1) -> TensorChange | None:
    """Make the change that an edit makes to a tensor of a file; None if it changes nothing.

    Whole numbers that change are listed where that is shorter than the vectors.

    Args:
        values: The numbers that the file holds, in canonical layout.
        edit: The edit; its storage is what these numbers stand for.
        uses: How often the model calls the layer.

    Raises:
        PatchError: The edit is for another shape, or leaves weights that are not finite.
    """
    if not isinstance(edit.storage, IntegerGrid):
        found = LowRankChange.from_edit(values, edit, uses=uses)
        return None if found.tensor.sha256 == found.tensor.patched_sha256 else found
    grid, whole = edit.storage, edit.in_whole_numbers()
    try:
        after = grid.to_stored(edit.add(grid.to_float(values)))
    except ValueError as error:
        raise PatchError(f"'{edit.layer}.{edit.parameter}': {error}") from error
    changed = int(np.count_nonzero(after != values))
    if whole is not None and changed > edit.left.size + edit.right.size:
        found = LowRankChange.from_edit(values, whole, uses=uses)
        if found.tensor.patched_sha256 == tensor_sha256(np.asarray(after, whole.storage.carrier)):
            return found
    entries = changes_of_tensor(edit.key, grid.name, values, after)
    return TensorChange.of(values, entries, uses=uses) if entries else None


def read_low_rank(item: Mapping[str, Any], tensors: Sequence[BaseTensor]) -> LowRankChange:
    """Read one low-rank edit of a checked document.

    Raises:
        PatchError: Its tensor is not listed, or vectors and tensor do not fit each other.
    """
    key, rank = (item["layer"], item["parameter"]), item["rank"]
    tensor = next((one for one in tensors if (one.layer, one.parameter) == key), None)
    if tensor is None:
        raise PatchError(f"the patch changes '{'.'.join(key)}', but its base does not list that tensor")
    if None in (tensor.sha256, tensor.patched_sha256):
        raise PatchError(f"the patch gives no two hashes of '{tensor.name}', which a low-rank edit needs")
    try:
        left, right = (np.frombuffer(_decode(item[side]), "<f4").reshape(-1, rank) for side in ("left", "right"))
        edit = LowRankEdit(*key, left, right, tensor.storage, _decode(item["residue"]))
    except ValueError as error:
        raise PatchError(f"the low-rank edit of '{tensor.name}' is damaged: {error}") from error
    rows = tensor.shape[0] if tensor.shape else 0
    if len(edit.left) != rows or len(edit.left) * len(edit.right) != int(np.prod(tensor.shape, dtype=object)):
        raise PatchError(
            f"the low-rank edit of '{tensor.name}' is for {len(edit.left)} × {len(edit.right)} weights, but its base "
            f"says {tensor.shape}"
        )
    return LowRankChange(tensor, (), edit, item.get("direction") == "out")


def check_apart(low_rank: Sequence[LowRankChange], entries: Sequence[WeightChange]) -> None:
    """Refuse a patch that changes one tensor in two ways.

    Raises:
        PatchError: It does.
    """
    keys = [change.key for change in low_rank]
    listed = {(entry.address.layer, entry.address.parameter) for entry in entries}
    for number, key in enumerate(keys):
        if key in keys[:number] or key in listed:
            raise PatchError(f"the patch changes '{'.'.join(key)}' twice, by a low-rank edit and otherwise")


def _rows_of(edit: LowRankEdit) -> list[int]:
    """The rows that an edit changes."""
    return np.flatnonzero(edit.left.any(axis=1)).tolist() if edit.right.any() else []


def _check_fits(edit: LowRankEdit, values: Array, grid: IntegerGrid) -> None:
    """Refuse an edit that loses more than a small share of its squared effect by leaving the range of a grid.

    Raises:
        PatchError: Clipped, it would be another change.
    """
    matrix = np.asarray(values, np.float64).reshape(len(edit.left), -1)
    product = edit.left.astype(np.float64) @ edit.right.astype(np.float64).T
    scale, zero = (np.broadcast_to(whole, values.shape).reshape(matrix.shape) for whole in (grid.scale, grid.zero))
    wanted = matrix + product
    beyond = wanted - np.clip(wanted, (grid.low - zero) * scale, (grid.high - zero) * scale)
    if (beyond**2).sum() > CLIPPED_SHARE * (product**2).sum():
        size = np.abs(beyond).ravel()
        worst = int(np.flatnonzero(size == size.max())[0])
        index = tuple(int(one) for one in np.unravel_index(worst, values.shape))
        where = Address(edit.layer, edit.parameter, index)
        raise outside_grid(grid, float(scale.flat[worst]), int(zero.flat[worst]), where, float(wanted.flat[worst]))


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("its bytes are no base64") from error
