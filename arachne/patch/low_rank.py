"""A low-rank edit in a patch: its checks against one tensor, and how it is written down.

The vectors are float32 and the residue is compressed bytes, both as base64. The hashes of the tensor before and after
are always known, so no single weight is listed.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from arachne.errors import PatchError
from arachne.model.values import Array
from arachne.patch.base import BaseTensor, tensor_sha256
from arachne.patch.change import TensorChange
from arachne.patch.weight_change import WeightChange
from arachne.weights.edit import LowRankEdit
from arachne.weights.storage import FILE_STORAGES, IntegerGrid


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
        tensor = BaseTensor(edit.layer, edit.parameter, tuple(values.shape), storage.name, *hashes, uses)
        return cls(tensor, (), edit.with_residue(before))

    @property
    def weights(self) -> int:
        """How many weights the edit moves."""
        return self.edit.changed_weights

    @property
    def description(self) -> str:
        """`, by a matrix of rank 2 and size 0.12`."""
        word = "without" if self.inverted else "by"
        return f", {word} a matrix of rank {self.edit.rank} and size {self.edit.size:.3g}"

    @cached_property
    def _inverse(self) -> TensorChange:
        tensor = self.tensor
        swapped = replace(tensor, sha256=tensor.patched_sha256, patched_sha256=tensor.sha256)
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
        """Make the same edit of a tensor with the same values that is stored in another dtype."""
        return LowRankChange.from_edit(values, replace(self.edit, storage=FILE_STORAGES[dtype]), uses=self.tensor.uses)

    def contains(self, other: TensorChange) -> bool:
        """Whether another change is this very one."""
        return isinstance(other, LowRankChange) and self.tensor == other.tensor and self.to_json() == other.to_json()

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


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("its bytes are no base64") from error
