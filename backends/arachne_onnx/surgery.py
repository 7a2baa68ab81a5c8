"""Change weights in an ONNX file byte by byte: find the bytes of every stored number.

A model is a protobuf message: fields of a number, a kind and a content, nested. Walking the lengths leads to every
tensor and to the bytes of its numbers, so a patched copy differs from the original in those bytes alone; nothing is
serialised anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from onnx import StringStringEntryProto, TensorProto, helper

from arachne.errors import ModelError
from arachne.model.values import Array

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

GRAPH_IN_MODEL = 7
NODES, INITIALISERS = 1, 5
OUTPUTS, ATTRIBUTES = 2, 5
TENSOR, BODY, BODIES = 5, 6, 11
DIMS, TYPE, FLOATS, INTS, NAME, RAW, DOUBLES, EXTERNAL, LOCATION = 1, 2, 4, 5, 8, 9, 10, 13, 14


METADATA_IN_MODEL = 14


def metadata_entry(key: str, value: str) -> bytes:
    """The bytes of one more entry of a model's metadata; a protobuf message may be continued at its end.

    Raises:
        ModelError: It is longer than one byte can count.
    """
    entry = StringStringEntryProto(key=key, value=value).SerializeToString()
    if len(entry) > 127:
        raise ModelError(f"an entry of metadata should be short, got {len(entry)} bytes")
    return bytes([METADATA_IN_MODEL << 3 | BYTES, len(entry)]) + bytes(entry)


@dataclass
class TensorLocation:
    """The location of a tensor's numbers.

    Attributes:
        element: ONNX's number of the element type.
        shape: Its sizes.
        starts: The first byte of each run of numbers in the file, with the number of bytes.
        varints: The first byte and length of each number, if half precision is stored as variable-length integers.
        external: File, offset and length, if the numbers are in another file.
    """

    element: int = 0
    shape: tuple[int, ...] = ()
    starts: list[tuple[int, int]] = field(default_factory=list)
    varints: list[tuple[int, int]] = field(default_factory=list)
    external: dict[str, str] = field(default_factory=dict)

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The NumPy dtype of the stored numbers."""
        dtype: np.dtype[np.generic] = helper.tensor_dtype_to_np_dtype(self.element)
        return dtype


def locate_tensors(content: bytes | memoryview) -> dict[str, TensorLocation]:
    """Locate every tensor stored in a model, by name: initialisers and `Constant` nodes, also of bodies.

    Raises:
        ModelError: The bytes are no ONNX model, or it ends early.
    """
    locations: dict[str, TensorLocation] = {}
    view = memoryview(content)
    for number, kind, start, end in fields(view, 0, len(view)):
        if number == GRAPH_IN_MODEL and kind == BYTES:
            _graph(view, start, end, locations)
    return locations


def fields(view: memoryview, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of a message: number, kind, first byte of the content, first byte behind it."""
    at = start
    while at < end:
        key, at = varint(view, at, end)
        number, kind = key >> 3, key & 7
        match kind:
            case 0:
                _, behind = varint(view, at, end)
            case 1:
                behind = at + 8
            case 5:
                behind = at + 4
            case 2:
                length, at = varint(view, at, end)
                behind = at + length
            case _:
                raise ModelError("the file is no ONNX model: its fields make no sense")
        if behind > end:
            raise ModelError("the file is no whole ONNX model: it ends inside a field")
        yield number, kind, at, behind
        at = behind


def varint(view: memoryview, at: int, end: int) -> tuple[int, int]:
    """A variable-length integer, and the first byte behind it."""
    value = shift = 0
    while at < end and shift < 70:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ModelError("the file is no whole ONNX model: it ends inside a number")


def _graph(view: memoryview, start: int, end: int, locations: dict[str, TensorLocation]) -> None:
    for number, kind, first, behind in fields(view, start, end):
        if kind != BYTES:
            continue
        if number == INITIALISERS:
            _enter(locations, *_tensor(view, first, behind))
        elif number == NODES:
            _node(view, first, behind, locations)


def _node(view: memoryview, start: int, end: int, locations: dict[str, TensorLocation]) -> None:
    outputs, attributes = [], []
    for number, kind, first, behind in fields(view, start, end):
        if kind == BYTES and number == OUTPUTS:
            outputs.append(bytes(view[first:behind]).decode("utf-8", "replace"))
        elif kind == BYTES and number == ATTRIBUTES:
            attributes.append((first, behind))
    for first_attribute, end_attribute in attributes:
        for number, kind, first, behind in fields(view, first_attribute, end_attribute):
            if kind == BYTES and number == TENSOR and len(outputs) == 1:
                _enter(locations, outputs[0], _tensor(view, first, behind)[1])
            elif kind == BYTES and number in (BODY, BODIES):
                _graph(view, first, behind, locations)


def _enter(locations: dict[str, TensorLocation], name: str, location: TensorLocation) -> None:
    # Two bodies may store different tensors under one name: an address could mean either, so it means none.
    locations[name] = replace(location, element=TensorProto.UNDEFINED) if name in locations else location


def _tensor(view: memoryview, start: int, end: int) -> tuple[str, TensorLocation]:
    location, name, shape = TensorLocation(), "", []
    for number, kind, first, behind in fields(view, start, end):
        if number == DIMS and kind == VARINT:
            shape.append(varint(view, first, behind)[0])
        elif number == DIMS and kind == BYTES:
            at = first
            while at < behind:
                size, at = varint(view, at, behind)
                shape.append(size)
        elif number == TYPE and kind == VARINT:
            location.element = varint(view, first, behind)[0]
        elif number == NAME and kind == BYTES:
            name = bytes(view[first:behind]).decode("utf-8", "replace")
        elif number in (RAW, FLOATS, DOUBLES) and kind in (BYTES, FIXED32, FIXED64):
            location.starts.append((first, behind - first))
        elif number == INTS:
            at = first
            while at < behind:
                _, after = varint(view, at, behind)
                location.varints.append((at, after - at))
                at = after
        elif number == EXTERNAL and kind == BYTES:
            entry = {n: bytes(view[f:b]).decode("utf-8", "replace") for n, k, f, b in fields(view, first, behind)}
            location.external[entry.get(1, "")] = entry.get(2, "")
    location.shape = tuple(shape)
    return name, location


def write_tensor(content: bytearray, location: TensorLocation, values: Array, name: str) -> None:
    """Write a tensor's numbers into a copy of the file."""
    stored = np.ascontiguousarray(values.astype(location.dtype, copy=False))
    data = (
        stored.astype(stored.dtype.newbyteorder("<"), copy=False).tobytes()
        if stored.dtype.kind in "fiu"
        else stored.tobytes()
    )
    if location.varints:
        bits = np.frombuffer(data, "<u2")
        for (start, length), value in zip(location.varints, bits.tolist(), strict=True):
            content[start : start + length] = _encode_varint(value, length, name)
        return
    if sum(length for _, length in location.starts) != len(data):
        raise ModelError(f"weight '{name}' takes {len(data)} bytes, the file has another number of them for it")
    done = 0
    for start, length in location.starts:
        content[start : start + length] = data[done : done + length]
        done += length


def _encode_varint(value: int, length: int, name: str) -> bytes:
    """Encode a variable-length integer in exactly `length` bytes; the format allows leading zeros."""
    digits = []
    for position in range(length):
        more = 0x80 if position < length - 1 else 0
        digits.append((value & 0x7F) | more)
        value >>= 7
    if value:
        raise ModelError(
            f"weight '{name}' is stored as variable-length numbers and its new value needs more bytes than the old "
            "one; save the model with raw data first"
        )
    return bytes(digits)


def external_span(location: TensorLocation, size: int) -> tuple[int, int]:
    """Offset and length of an external tensor's numbers in a file of `size` bytes."""
    try:
        offset = int(location.external.get("offset") or 0)
        length = int(location.external.get("length") or size - offset)
    except ValueError as error:
        raise ModelError("an external tensor's offset or length is no number") from error
    wanted = math.prod(location.shape) * location.dtype.itemsize
    if offset < 0 or length < 0 or offset + length > size or length < wanted:
        raise ModelError(f"an external tensor lies outside its file '{location.external.get('location', '')}'")
    return offset, wanted


def rewrite(
    source: Path | bytes, beside: Mapping[str, Path], destination: Path, tensors: Mapping[str, Array]
) -> dict[Path, bytes]:
    """Return the contents of the files of a patched copy by destination, the model itself last.

    Args:
        source: The model's file, or its bytes.
        beside: The files beside it that hold weights, by their names in the model; no other file is touched.
        destination: Where the copy goes.
        tensors: The new values, by name.
    """
    content = bytearray(source if isinstance(source, bytes) else source.read_bytes())
    locations = locate_tensors(bytes(content))
    data = {name: bytearray(file.read_bytes()) for name, file in beside.items()}
    for name, values in tensors.items():
        location = locations[name]
        file = location.external.get("location")
        if file is None:
            write_tensor(content, location, values, name)
        else:
            offset, length = external_span(location, len(data[file]))
            stored = np.ascontiguousarray(values.astype(location.dtype, copy=False)).tobytes()
            data[file][offset : offset + length] = stored
    files = {destination.parent / file: bytes(changed) for file, changed in data.items()}
    return {**files, destination: bytes(content)}


RAW_ELEMENTS = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16})
"""Element types of floating-point weights."""

WHOLE_ELEMENTS = frozenset({TensorProto.INT8, TensorProto.UINT8, TensorProto.INT32})
"""Element types of quantised weights and biases."""
