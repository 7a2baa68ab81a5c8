"""A patch as text that can be read in a review: the evidence first, then one weight per line, decimals beside bits.

What only a program reads comes behind that: hashes of tensors and rows, and last where the patch came from.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from arachne.errors import PatchError
from arachne.io.reading import error_text, parse_json, read_bytes
from arachne.model.values import Address
from arachne.patch.base import BaseTensor, Fingerprint, PatchBase
from arachne.patch.low_rank import LowRankChange
from arachne.patch.schema import SCHEMA, check, check_version
from arachne.patch.weight_change import WeightChange
from arachne.weights.storage import FILE_STORAGES

MAX_BYTES = 32 << 20
"""A longer text is no patch, and is not read; the values of a large patch lie in a file of their own."""


def write_text(
    base: PatchBase,
    entries: Sequence[WeightChange],
    provenance: Mapping[str, Any],
    evidence: Mapping[str, Any],
    values: Mapping[str, Any] | None = None,
    low_rank: Sequence[LowRankChange] = (),
) -> str:
    """The text of a patch; `values` names the file that holds the entries when they are too many for a text.

    Raises:
        PatchError: Provenance or evidence hold what JSON does not (NaN, objects).
    """
    parts = [f'"schema": "{SCHEMA}"', f'"evidence": {_block(evidence)}', *_change_parts(entries, low_rank)]
    if values is not None:
        parts.append(f'"values": {_line(values)}')
    parts.append(_base_part(base))
    prints = [_fingerprint_members(tensor, mark) for tensor in base.tensors for mark in tensor.fingerprints]
    if prints:
        parts.append(f'"fingerprints": {_lines(prints, 2)}')
    parts.append(f'"provenance": {_block(provenance)}')
    return "{\n  " + ",\n  ".join(parts) + "\n}\n"


def write_changes(entries: Sequence[WeightChange], low_rank: Sequence[LowRankChange]) -> str:
    """The text of what a patch changes and of nothing else, which its digest is made of: it never changes its form."""
    parts = [f'"schema": "{SCHEMA}"', _base_part(PatchBase()), *_change_parts(entries, low_rank)]
    return "{\n  " + ",\n  ".join([*parts, '"provenance": {}', '"evidence": {}']) + "\n}\n"


def _base_part(base: PatchBase) -> str:
    head = {"file": base.file, "sha256": base.sha256, "backend": base.backend}
    head |= {} if base.content is None else {"content": base.content}
    members = [f'    "{name}": {_line(value)}' for name, value in head.items()]
    members.append(f'    "tensors": {_lines(map(_tensor_members, base.tensors), 4)}')
    return '"base": {\n' + ",\n".join(members) + "\n  }"


def _change_parts(entries: Sequence[WeightChange], low_rank: Sequence[LowRankChange]) -> list[str]:
    parts = [f'"entries": {_lines(map(_entry_members, entries), 2)}']
    if low_rank:
        parts.append(f'"low_rank": {_lines((change.to_json() for change in low_rank), 2)}')
    return parts


def checked_size(text: str) -> str:
    """Refuse a text that readers would refuse as too large: such a low-rank edit needs a file of its own.

    Raises:
        PatchError: It is too large.
    """
    if len(text) > MAX_BYTES:
        raise PatchError(f"the patch has {len(text):,} characters, and at most {MAX_BYTES:,} can be read again")
    return text


def read_file(path: Path) -> str:
    """The text in a file.

    Raises:
        PatchError: Nothing is there, it is too large, or it is no text.
    """
    try:
        return read_bytes(path, "patch", MAX_BYTES, PatchError).decode("utf-8")
    except UnicodeDecodeError as error:
        raise PatchError(f"'{path}' is no patch: it is not text; the patch comes before the model") from error


def read_text(text: str) -> dict[str, Any]:
    """The document in a text, checked against the schema.

    Raises:
        PatchError: No JSON, cut off, a key twice, a number that is not finite, another schema.
    """
    try:
        document = parse_json(text)
    except json.JSONDecodeError as error:
        raise PatchError(
            f"the patch is not valid JSON at line {error.lineno}, column {error.colno}: cut off, edited by hand, or "
            "no patch"
        ) from error
    except ValueError as error:
        raise PatchError(f"the patch is not valid JSON: {error_text(error)}") from error
    check_version(document)
    check(document)
    checked: dict[str, Any] = document
    return checked


def read_base(document: Mapping[str, Any]) -> PatchBase:
    """The base in a checked document."""
    marks: dict[tuple[str, str], list[Fingerprint]] = {}
    for mark in document.get("fingerprints", ()):
        found = Fingerprint(mark["row"], float(mark["norm"]), tuple(map(float, mark["projections"])))
        marks.setdefault((mark["layer"], mark["parameter"]), []).append(found)
    base = document["base"]
    tensors = tuple(_read_tensor(tensor, marks) for tensor in base["tensors"])
    return PatchBase(base["file"], base["sha256"], base["backend"], tensors, base.get("content"))


def read_entry(item: Mapping[str, Any]) -> WeightChange:
    """One entry of a checked document.

    Raises:
        PatchError: Decimal and bits disagree, or the value is not finite.
    """
    dtype = item["dtype"]
    storage = FILE_STORAGES[dtype]
    address = Address(item["layer"], item["parameter"], tuple(item["index"]))
    for name in ("old", "new"):
        bits, value = item[f"{name}_bits"], float(item[name])
        if len(bits) != storage.digits:
            raise PatchError(f"the {name} bits '{bits}' of {address} are not those of a {dtype}")
        if not math.isfinite(storage.from_bits(bits)):
            raise PatchError(f"the {name} value of {address} is not finite or out of range for {dtype} (bits {bits})")
        if storage.bits(value) != bits:
            raise PatchError(
                f"the {name} value of {address} is {value!r} in decimal and "
                f"{storage.shortest(storage.from_bits(bits))!r} in bits ({bits}): the patch was edited by hand"
            )
    return WeightChange(address, dtype, item["old_bits"], item["new_bits"])


def _read_tensor(item: Mapping[str, Any], marks: Mapping[tuple[str, str], list[Fingerprint]]) -> BaseTensor:
    if item["sha256"] is None and item["patched_sha256"] is None:
        raise PatchError(f"the patch gives no hash of '{item['layer']}.{item['parameter']}', neither before nor after")
    if math.prod(item["shape"]) >= 1 << 48:
        raise PatchError(f"the patch gives '{item['layer']}.{item['parameter']}' the shape {tuple(item['shape'])}")
    return BaseTensor(
        item["layer"],
        item["parameter"],
        tuple(item["shape"]),
        item["dtype"],
        item["sha256"],
        item["patched_sha256"],
        item.get("uses", 1),
        tuple(marks.get((item["layer"], item["parameter"]), ())),
    )


def _entry_members(entry: WeightChange) -> dict[str, Any]:
    address = entry.address
    return {
        "layer": address.layer,
        "parameter": address.parameter,
        "index": list(address.index),
        "dtype": entry.dtype,
        "old": entry.storage.shortest(entry.old),
        "new": entry.storage.shortest(entry.new),
        "old_bits": entry.old_bits,
        "new_bits": entry.new_bits,
    }


def _tensor_members(tensor: BaseTensor) -> dict[str, Any]:
    members = {
        "layer": tensor.layer,
        "parameter": tensor.parameter,
        "shape": list(tensor.shape),
        "dtype": tensor.dtype,
        "sha256": tensor.sha256,
        "patched_sha256": tensor.patched_sha256,
    }
    return members if tensor.uses == 1 else {**members, "uses": tensor.uses}


def _fingerprint_members(tensor: BaseTensor, mark: Fingerprint) -> dict[str, Any]:
    return {
        "layer": tensor.layer,
        "parameter": tensor.parameter,
        "row": mark.row,
        "norm": mark.norm,
        "projections": list(mark.projections),
    }


def _lines(items: Iterable[Mapping[str, Any]], indent: int) -> str:
    """A list with one object per line."""
    rows = [" " * (indent + 2) + _line(item) for item in items]
    return "[\n" + ",\n".join(rows) + "\n" + " " * indent + "]" if rows else "[]"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)


def _block(value: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(dict(value), ensure_ascii=False, allow_nan=False, default=_plain, indent=2)
    except (TypeError, ValueError) as error:
        raise PatchError(f"provenance and evidence must be plain JSON: {error}") from error
    return text.replace("\n", "\n  ")


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays as JSON has them."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"'{type(value).__name__}' has no place in JSON")
