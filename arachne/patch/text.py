"""A patch as text that can be read in a review: fixed order of keys, one weight per line, decimals beside bits."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from arachne.dtypes import digits, from_bits, shortest, to_bits
from arachne.errors import PatchError
from arachne.patch.base import BaseTensor, Fingerprint, PatchBase
from arachne.patch.schema import SCHEMA, check, check_version
from arachne.patch.weight_change import WeightChange
from arachne.values import Address

MAX_BYTES = 256 << 20
"""A longer file is no patch, and is not read."""


def write_text(
    base: PatchBase,
    entries: Sequence[WeightChange],
    provenance: Mapping[str, Any],
    evidence: Mapping[str, Any],
    values: Mapping[str, Any] | None = None,
) -> str:
    """The text of a patch; `values` names the file that holds the entries when they are too many for a text.

    Raises:
        PatchError: Provenance or evidence hold what JSON does not (NaN, objects).
    """
    head = {"file": base.file, "sha256": base.sha256, "backend": base.backend}
    head |= {} if base.content is None else {"content": base.content}
    members = [f'    "{name}": {_line(value)}' for name, value in head.items()]
    members.append(f'    "tensors": {_lines(map(_tensor_members, base.tensors), 4)}')
    parts = [f'"schema": "{SCHEMA}"', '"base": {\n' + ",\n".join(members) + "\n  }"]
    parts.append(f'"entries": {_lines(map(_entry_members, entries), 2)}')
    if values is not None:
        parts.append(f'"values": {_line(values)}')
    parts.append(f'"provenance": {_block(provenance)}')
    parts.append(f'"evidence": {_block(evidence)}')
    prints = [_fingerprint_members(tensor, mark) for tensor in base.tensors for mark in tensor.fingerprints]
    if prints:
        parts.append(f'"fingerprints": {_lines(prints, 2)}')
    return "{\n  " + ",\n  ".join(parts) + "\n}\n"


def read_file(path: Path) -> str:
    """The text in a file.

    Raises:
        PatchError: Nothing is there, it is too large, or it is no text.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise PatchError(f"'{path}' is too large to be a patch")
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise PatchError(f"cannot read patch '{path}': {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise PatchError(f"'{path}' is no patch: it is not text") from error


def read_text(text: str) -> dict[str, Any]:
    """The document in a text, checked against the schema.

    Raises:
        PatchError: No JSON, cut off, a key twice, a number that is not finite, another schema.
    """
    try:
        document = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise PatchError(
            f"the patch is not valid JSON at line {error.lineno}, column {error.colno}: cut off, edited by hand, or "
            "no patch"
        ) from error
    except RecursionError as error:
        raise PatchError("the patch is nested too deeply to be one") from error
    except PatchError:
        raise
    except ValueError as error:
        raise PatchError(f"the patch is not valid JSON: {error}") from error
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
    address = Address(item["layer"], item["parameter"], tuple(item["index"]))
    for name in ("old", "new"):
        bits, value = item[f"{name}_bits"], float(item[name])
        if len(bits) != digits(dtype):
            raise PatchError(f"the {name} bits '{bits}' of {address} are not those of a {dtype}")
        if not math.isfinite(from_bits(bits, dtype)):
            raise PatchError(f"the {name} value of {address} is not finite or out of range for {dtype} (bits {bits})")
        if to_bits(value, dtype) != bits:
            raise PatchError(
                f"the {name} value of {address} is {value!r} in decimal and "
                f"{shortest(from_bits(bits, dtype), dtype)!r} in bits ({bits}): the patch was edited by hand"
            )
    return WeightChange(address, dtype, item["old_bits"], item["new_bits"])


def _read_tensor(item: Mapping[str, Any], marks: Mapping[tuple[str, str], list[Fingerprint]]) -> BaseTensor:
    if item["sha256"] is None and item["patched_sha256"] is None:
        raise PatchError(f"the patch gives no hash of '{item['layer']}.{item['parameter']}', neither before nor after")
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
        "old": shortest(entry.old, entry.dtype),
        "new": shortest(entry.new, entry.dtype),
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


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise PatchError(f"the patch has '{twice}' twice in one place")
    return members


def _refuse_constant(name: str) -> float:
    raise PatchError(f"the patch holds {name}, expected finite numbers only")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise PatchError(f"the patch holds {text}, which is out of range")
    return value
