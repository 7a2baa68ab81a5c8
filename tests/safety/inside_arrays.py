"""Random changes inside of an npz of ours whose outside stays right: its JSON object, its arrays and their hashes."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np

from arachne.io.arrays import _digest
from arachne.io.own_key import make_mark
from tests.safety import valid
from tests.safety.inside import in_json

Array = np.ndarray[Any, np.dtype[Any]]

EXTREMES = (0, -1, 1, 2**31, 2**62, np.nan, np.inf, -np.inf, 1e300)


def in_about(content: bytes, rng: np.random.Generator) -> bytes:
    """Values of the JSON object replaced, removed, doubled, or put where another stands."""
    about, arrays = _unpack(content)
    return _pack(json.loads(in_json(json.dumps(about).encode(), rng)), arrays)


def in_arrays(content: bytes, rng: np.random.Generator) -> bytes:
    """One to three arrays of another type, shape or content, or left out; hashes that are kept of them are right."""
    about, arrays = _unpack(content)
    for _ in range(int(rng.integers(1, 4))):
        names = [name for name in arrays if name != "mark"]
        if not names:
            break
        name = names[int(rng.integers(len(names)))]
        changed = _change(arrays, name, rng)
        if changed is None:
            del arrays[name]
        else:
            arrays[name] = changed
    if isinstance(about.get("arrays"), dict):
        about["arrays"] = {name: _digest(array) for name, array in arrays.items() if name != "mark"}
    return _pack(about, arrays)


def _change(arrays: dict[str, Array], name: str, rng: np.random.Generator) -> Array | None:
    array, other = arrays[name], arrays[list(arrays)[int(rng.integers(len(arrays)))]]
    kind = int(rng.integers(8))
    if kind == 0:
        return None
    if kind == 1:
        return other.copy()
    if kind == 2:
        return array[:-1] if array.ndim else array.reshape(1)
    if kind == 3:
        return array[None] if rng.integers(2) else array.reshape(-1)
    if kind == 4:
        return np.concatenate([array, array]) if array.ndim else array
    types = ("u1", "i8", "f4", "f8", "?", "U5", "c8", "i2", ">i4")
    with np.errstate(all="ignore"):
        if kind == 5:
            return array.astype(types[int(rng.integers(len(types)))])
        extreme = EXTREMES[int(rng.integers(len(EXTREMES)))]
        if kind == 6:
            return np.full(array.shape, np.float64(extreme)).astype(array.dtype)
        changed = array.copy()
        if changed.size:
            changed.reshape(-1)[int(rng.integers(changed.size))] = np.float64(extreme).astype(array.dtype)
        return changed


def _unpack(content: bytes) -> tuple[dict[str, Any], dict[str, Array]]:
    with np.load(io.BytesIO(content)) as stored:
        arrays = {name: stored[name] for name in stored.files}
    return json.loads(arrays.pop("about").tobytes()), arrays


def _pack(about: Any, arrays: dict[str, Array]) -> bytes:
    """Pack the object and the arrays again; a mark is that of the new object, or nothing behind it would be read."""
    stream = io.BytesIO()
    text = json.dumps(about).encode()
    if "mark" in arrays:
        arrays["mark"] = np.frombuffer(make_mark(valid.KEY, text), np.uint8)
    np.savez(stream, allow_pickle=False, about=np.frombuffer(text, np.uint8), **arrays)
    return stream.getvalue()
