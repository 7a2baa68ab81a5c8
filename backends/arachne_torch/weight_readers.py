"""Find the tensors of `.safetensors`, `.pt`/`.pth` and `.pt2` files: each format is read into one table of locations.

No code from a file runs, and torch is not asked to read it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from safetensors import SafetensorError

from arachne.errors import ModelError, UnsafeModelError
from arachne.io.reading import parse_json
from arachne_torch.archive import Archive
from arachne_torch.legacy import is_legacy, read_legacy
from arachne_torch.pickles import TensorRecord, read_module, read_pickle
from arachne_torch.script import is_script, read_script
from arachne_torch.weights import DTYPES, MAX_AXES, MAX_NUMBER, TensorLocation, TorchWeightFile

SAFETENSORS = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}

EXPORTED = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32", 8: "float64"} | {
    12: "bool",
    13: "bfloat16",
}
"""The numbers exported programs give to dtypes (`torch._export.serde.schema.ScalarType`)."""

MAX_HEADER_BYTES = 100 * 2**20

ALWAYS_ALLOWED_BYTES = 64 * 2**20
"""A file's tensors may always take this many bytes."""


def open_safetensors(path: Path) -> TorchWeightFile:
    """Read the header after the format's own library has checked it: overlaps, holes, keys that stand twice, sizes."""
    total = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if total < 8 or length > min(MAX_HEADER_BYTES, total - 8):
            raise ModelError(f"'{path.name}' is no safetensors file: its header does not fit into it")
        text = file.read(length)
    try:
        header = parse_json(text)
        with safetensors.safe_open(path, "numpy"):
            pass
        locations = {
            name: _locate_safetensor(name, entry, 8 + length)
            for name, entry in header.items()
            if name != "__metadata__"
        }
    except (SafetensorError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"'{path.name}' is no safetensors file: {str(error)[:160]}") from error
    return TorchWeightFile(path, locations)


def _locate_safetensor(name: str, entry: Mapping[str, Any], start: int) -> TensorLocation:
    if entry["dtype"] not in SAFETENSORS:
        raise ValueError(f"tensor '{name}' has the unknown dtype '{entry['dtype']}'")
    if len(entry["shape"]) > MAX_AXES:  # before their product is taken from every axis on
        raise ValueError(f"tensor '{name}' has {len(entry['shape']):,} axes, expected {MAX_AXES} at most")
    shape = tuple(int(size) for size in entry["shape"])
    begin, end = (int(value) for value in entry["data_offsets"])
    location = TensorLocation(SAFETENSORS[entry["dtype"]], shape, _contiguous(shape), start + begin)
    if end - begin != location.span:
        raise ValueError(f"tensor '{name}' does not lie where the header says")
    return location


def _read_state(data: bytes, path: Path, modules: bool) -> Mapping[str, Any] | None:
    """Return the state dict in a pickle; that of a whole pickled module where those will do."""
    try:
        return state_dict_in(read_pickle(data, path.name))
    except UnsafeModelError:
        found = read_module(data, path.name) if modules else None
        if not found:
            raise
        return found


def open_module_weights(path: Path) -> TorchWeightFile:
    """Read a state dict, or the weights of a whole pickled module: its classes are not looked up, and nothing runs."""
    return open_state_dict(path, modules=True) if path.suffix.lower() in (".pt", ".pth") else open_weights(path)


def open_state_dict(path: Path, *, modules: bool = False) -> TorchWeightFile:
    """Read the pickle of a `.pt` file with an interpreter that builds tensors' locations and nothing else.

    Args:
        path: The file.
        modules: Whether the weights of a whole pickled module will do.
    """
    if is_legacy(path):
        content, extents = read_legacy(path)
        records = _require_records(state_dict_in(content), path)
        return TorchWeightFile(path, _locate_tensors(path, records, lambda record: extents[record.key]))
    archive = Archive.open(path)
    root = archive.root()
    archive.require_little_endian()
    scripted = is_script(archive)
    content = read_script(archive) if scripted else _read_state(archive.read(f"{root}/data.pkl"), path, modules)
    locations = _locate_tensors(
        path, _require_records(content, path), lambda record: archive.extent(f"{root}/data/{record.key}")
    )
    return TorchWeightFile(path, locations, archive, scripted=scripted)


def _require_records(records: Mapping[str, Any] | None, path: Path) -> Mapping[str, Any]:
    if records is None:
        raise ModelError(f"'{path.name}' holds no state dict: a mapping from names to tensors was expected")
    if not records:
        raise ModelError(
            f"'{path.name}' is TorchScript whose weights were frozen into its code, where they have no names; save "
            "the module before torch.jit.freeze"
        )
    return records


def open_program(path: Path, part: str = "weights") -> TorchWeightFile:
    """Read one of the two tables of a `.pt2` archive: its `weights`, or its `constants`."""
    archive = Archive.open(path)
    root = archive.root()
    archive.require_little_endian()
    config = archive.json(f"{root}/data/{part}/model_{part}_config.json")
    try:
        if any(entry["use_pickle"] or entry["tensor_meta"] is None for entry in config["config"].values()):
            raise UnsafeModelError(f"'{path.name}' holds pickled {part}, and opening them would run code")
        records = {name: _program_record(entry) for name, entry in config["config"].items()}
        trainable = {name for name, entry in config["config"].items() if entry["is_param"]}
    except (LookupError, TypeError, AttributeError) as error:
        raise ModelError(f"'{path.name}' has a table of {part} that cannot be read: {str(error)[:160]}") from error
    locations = _locate_tensors(path, records, lambda record: archive.extent(f"{root}/data/{part}/{record.key}"))
    return TorchWeightFile(path, locations, archive, trainable)


def _program_record(entry: Mapping[str, Any]) -> TensorRecord:
    meta = entry["tensor_meta"]
    numbers = {name: tuple(_whole(size["as_int"]) for size in meta[name]) for name in ("sizes", "strides")}
    dtype = EXPORTED.get(_whole(meta["dtype"]), f"dtype {meta['dtype']}")
    offset = _whole(meta["storage_offset"]["as_int"])
    return TensorRecord(str(entry["path_name"]), dtype, offset, numbers["sizes"], numbers["strides"])


def _whole(value: Any) -> int:
    if type(value) is not int or abs(value) > MAX_NUMBER:
        raise TypeError(f"a whole number was expected, got {str(value)[:60]!r}")
    return value


MAX_LISTED = 100
"""Items of a list that are looked at for a state dict."""


def state_dict_in(content: Any) -> Mapping[str, Any] | None:
    """The state dict itself, or the one inside a list or a checkpoint (`state_dict`, `model_state_dict`, `model`)."""
    waiting, seen = [content], set()
    while waiting:
        found = waiting.pop()
        if isinstance(found, (list, tuple)) and len(found) <= MAX_LISTED and id(found) not in seen:
            seen.add(id(found))
            waiting += reversed(found)  # the first comes first
        if not isinstance(found, Mapping) or id(found) in seen:  # a checkpoint may hold itself
            continue
        seen.add(id(found))
        if any(isinstance(value, TensorRecord) for value in found.values()):
            return {name: value for name, value in found.items() if isinstance(name, str)}
        waiting += [found.get(key) for key in ("model", "model_state_dict", "state_dict")]
    return None


def _locate_tensors(
    path: Path, records: Mapping[str, Any], extent: Callable[[TensorRecord], tuple[int, int]]
) -> dict[str, TensorLocation]:
    """Locate the tensors and check that each lies inside its storage."""
    locations = {}
    for name, record in records.items():
        if not isinstance(record, TensorRecord) or record.dtype not in DTYPES:
            continue
        start, size = extent(record)
        offset = start + record.offset * np.dtype(DTYPES[record.dtype]).itemsize
        negative = record.offset < 0 or min((*record.shape, *record.strides), default=0) < 0
        try:
            locations[name] = TensorLocation(record.dtype, record.shape, record.strides, offset)
            outside = negative or offset + locations[name].span > start + size
        except ValueError:
            outside = True
        if outside:
            raise ModelError(f"'{path.name}' says that tensor '{name}' lies outside its storage")
    _check_total(locations, path)
    return locations


def _check_total(locations: Mapping[str, TensorLocation], path: Path) -> None:
    """Refuse tensors that take far more memory than the file: one number repeated, one range under many names.

    Raises:
        UnsafeModelError: They do.
    """
    size = path.stat().st_size
    once = sum(location.nbytes for location in set(locations.values()))
    total = sum(location.nbytes for location in locations.values())
    if once > 2 * size + ALWAYS_ALLOWED_BYTES or total > 8 * size + ALWAYS_ALLOWED_BYTES:
        raise UnsafeModelError(f"'{path.name}' has {size:,} bytes, its tensors would take {max(once, total):,}")


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def open_weights(path: Path) -> TorchWeightFile:
    """The weights of a file, by its ending."""
    openers = {".safetensors": open_safetensors, ".pt": open_state_dict, ".pth": open_state_dict, ".pt2": open_program}
    suffix = path.suffix.lower()
    if suffix not in openers:
        raise ModelError(f"'{path.name}' is no weight file of torch; known endings: {', '.join(openers)}")
    return openers[suffix](path)
