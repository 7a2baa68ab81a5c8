"""The values of a patch with thousands of weights: a safetensors file beside the text, which has its hash.

For every touched tensor it holds `NAME.index` (I64, one row per weight), `NAME.old` and `NAME.new` in the stored
dtype, and `NAME.fingerprints` (F64: row, norm, projections). The format is an 8-byte length, a JSON header, and bytes;
it is read and written here in NumPy: safetensors would be one more package for every user, and its writer sorts the
tensors, which would give stored patches other hashes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from arachne.errors import PatchError
from arachne.io.reading import error_text, parse_json, read_bytes
from arachne.model.values import Address, Array
from arachne.patch.base import PROJECTIONS, BaseTensor, Fingerprint, PatchBase
from arachne.patch.change import TensorChange
from arachne.patch.weight_change import WeightChange

CODES = {
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "int8": "I8",
    "uint8": "U8",
    "int32": "I32",
}
_STORED: dict[str, str] = {
    "F16": "<u2",
    "BF16": "<u2",
    "F32": "<u4",
    "F64": "<u8",
    "I64": "<i8",
    "I8": "u1",
    "U8": "u1",
    "I32": "<u4",
}
MAX_HEADER, MAX_VALUES = 16 << 20, 1 << 30
"""Bytes of the header, and of the whole file; more are no patch, and are not read."""


def write_values(changes: Sequence[TensorChange]) -> bytes:
    """The bytes of the file; the same changes always give the same bytes."""
    arrays: dict[str, tuple[str, Array]] = {}
    for change in (change for change in changes if change.entries):
        tensor, entries = change.tensor, change.entries
        code = CODES[tensor.dtype]
        index = np.array([entry.address.index for entry in entries], "<i8").reshape(len(entries), len(tensor.shape))
        arrays[f"{tensor.name}.index"] = "I64", index
        for part in ("old", "new"):
            bits = [int(getattr(entry, f"{part}_bits"), 16) for entry in entries]
            arrays[f"{tensor.name}.{part}"] = code, np.array(bits, _STORED[code])
        marks = [(mark.row, mark.norm, *mark.projections) for mark in tensor.fingerprints]
        table = np.array(marks, "<f8").reshape(len(marks), 2 + PROJECTIONS)
        arrays[f"{tensor.name}.fingerprints"] = "F64", table
    return _pack(arrays)


def read_values(
    path: Path, sha256: str, base: PatchBase, low_rank: Sequence[TensorChange] = ()
) -> tuple[PatchBase, tuple[WeightChange, ...]]:
    """The base with its fingerprints, and the entries; tensors that change by `low_rank` edits have none.

    Raises:
        PatchError: The file is missing, is another one, or does not hold what the base lists.
    """
    content = read_bytes(path, "file of a patch's values", MAX_VALUES, PatchError)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise PatchError(f"'{path.name}' is not the file the patch keeps its values in: its hash is another")
    arrays = _unpack(content, path.name)
    tensors: list[BaseTensor] = []
    entries: list[WeightChange] = []
    whole = {change.key for change in low_rank}
    for tensor in base.tensors:
        if (tensor.layer, tensor.parameter) in whole:
            tensors.append(tensor)
            continue
        try:
            parts = {part: arrays.pop(f"{tensor.name}.{part}") for part in ("index", "old", "new", "fingerprints")}
        except KeyError as error:
            raise PatchError(f"'{path.name}' has no {error}, which the patch needs") from error
        tensors.append(replace(tensor, fingerprints=_fingerprints(parts["fingerprints"], path.name)))
        entries += _entries(tensor, parts, path.name)
    if arrays:
        raise PatchError(f"'{path.name}' holds '{min(arrays)}', which the patch does not list")
    return replace(base, tensors=tuple(tensors)), tuple(entries)


def _entries(tensor: BaseTensor, parts: Mapping[str, tuple[str, Array]], name: str) -> list[WeightChange]:
    code, width = CODES[tensor.dtype], tensor.storage.digits
    index_code, index = parts["index"]
    count = len(index)
    fits = index_code == "I64" and index.shape == (count, len(tensor.shape)) and (index >= 0).all()
    if not fits or any(parts[part][0] != code or parts[part][1].shape != (count,) for part in ("old", "new")):
        raise PatchError(f"'{name}' holds '{tensor.name}' in another form than the patch says")
    entries = []
    for where, old, new in zip(index.tolist(), parts["old"][1].tolist(), parts["new"][1].tolist(), strict=True):
        address = Address(tensor.layer, tensor.parameter, tuple(where))
        entry = WeightChange(address, tensor.dtype, format(old, f"0{width}x"), format(new, f"0{width}x"))
        if not (math.isfinite(tensor.storage.from_bits(entry.old_bits)) and math.isfinite(entry.new)):
            raise PatchError(f"'{name}' holds a value of {address} that is not finite")
        entries.append(entry)
    return entries


def _fingerprints(part: tuple[str, Array], name: str) -> tuple[Fingerprint, ...]:
    code, bits = part
    if code != "F64" or bits.ndim != 2 or bits.shape[1] != 2 + PROJECTIONS:
        raise PatchError(f"'{name}' holds fingerprints in another form than this version of Arachne reads")
    table = bits.view("<f8")
    if not (np.isfinite(table).all() and (table[:, :2] >= 0).all() and (table[:, 0] < 1 << 48).all()):
        raise PatchError(f"'{name}' holds fingerprints that are not those of rows")
    return tuple(Fingerprint(int(row[0]), row[1], tuple(row[2:])) for row in table.tolist())


def _pack(arrays: Mapping[str, tuple[str, Array]]) -> bytes:
    header: dict[str, Any] = {}
    offset = 0
    for name, (code, array) in arrays.items():
        header[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *(array.tobytes() for _, array in arrays.values())])


def _unpack(content: bytes, name: str) -> dict[str, tuple[str, Array]]:
    """Arrays by name, as the bits they are stored in.

    Raises:
        PatchError: Not a whole, well-formed file.
    """
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > min(MAX_HEADER, len(content) - 8):
        raise PatchError(f"'{name}' is no safetensors file, or is cut off")
    data = content[8 + length :]
    try:
        header = parse_json(content[8 : 8 + length])
        header.pop("__metadata__", None)
        arrays, end = {}, 0
        for key, item in header.items():
            start, stop = item["data_offsets"]
            stored = np.dtype(_STORED[item["dtype"]])
            shape = tuple(int(n) for n in item["shape"])
            if (
                len(shape) > 64
                or start != end
                or stop - start != math.prod(shape) * stored.itemsize
                or min(shape, default=1) < 0
            ):
                raise ValueError(f"'{key}' is not where the header says")
            arrays[key] = item["dtype"], np.frombuffer(data[start:stop], stored).reshape(shape)
            end = stop
        if end != len(data):
            raise ValueError("bytes are left over")
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise PatchError(f"'{name}' is no well-formed safetensors file: {error_text(error)}") from error
    return arrays
