"""A TFLite file as values: its tensors, its operators and the bytes of its weights, all checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from arachne.errors import ModelError
from arachne.model.values import Array
from arachne_tflite.flatbuffer import Reader, Table
from arachne_tflite.schema import DTYPES, OPERATORS, OTHER_DTYPES

IDENTIFIER, VERSION = b"TFL3", 3

MAX_SIZE, MAX_RANK, MAX_OPERATORS = 1 << 31, 8, 50_000
"""The largest size of an axis, the largest number of axes, and of operators."""

ACTIVATION_DTYPES = ("int8", "uint8", "int16")
"""The dtypes of quantised tensors."""


@dataclass(frozen=True)
class Grid:
    """The values that whole numbers stand for: `scale · (number - zero)`, along one axis or all alike."""

    scale: Array
    zero: Array
    axis: int


@dataclass(frozen=True)
class Tensor:
    """A tensor of the file.

    Attributes:
        index: Its number.
        name: Its name, which may be empty or that of others.
        shape: Its sizes; those that the file leaves free are 1.
        dtype: What it holds.
        grid: What its whole numbers stand for; None where they stand for themselves.
        buffer: The number of the buffer with its values.
        start: The first byte of these values in the file; None where they are computed.
        values: The values, read-only; None where they are computed.
        free: Whether a size other than the first is left free.
    """

    index: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    grid: Grid | None
    buffer: int
    start: int | None
    values: Array | None
    free: bool

    @property
    def has_grid(self) -> bool:
        """Whether it holds whole numbers that stand for others."""
        return self.grid is not None and self.dtype in (*ACTIVATION_DTYPES, "int32")


@dataclass(frozen=True)
class Operator:
    """An operator: its name, its inputs (None where an optional one is left out), outputs and options."""

    name: str
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor, ...]
    options: Mapping[str, Any]


@dataclass(frozen=True)
class TfliteFile:
    """A file that was read.

    Attributes:
        name: What to call it in sentences.
        content: Its bytes.
        tensors: All tensors.
        operators: The operators in order of execution.
        inputs: The tensors that are given.
        outputs: The tensors that are asked for.
        input_names: The names of the inputs that a signature gives, otherwise those of their tensors.
        output_names: The names of the outputs.
        slots: Where the fields of the subgraph begin.
    """

    name: str
    content: bytes
    tensors: Sequence[Tensor]
    operators: Sequence[Operator]
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    input_names: Sequence[str]
    output_names: Sequence[str]
    slots: Mapping[str, int]

    @classmethod
    def read(cls, content: bytes, name: str) -> TfliteFile:
        """Read a file.

        Raises:
            ModelError: It is no TFLite file, or one with parts that are not read.
        """
        if len(content) < 16 or content[4:8] != IDENTIFIER:
            raise ModelError(f"'{name}' is no TFLite model, or it was cut short: it does not begin like one")
        reader = Reader(content, name)
        model = reader.root("Model")
        if model["version"] != VERSION:
            raise ModelError(f"'{name}' has schema version {model['version']}, expected {VERSION}")
        graphs = model["subgraphs"] or []
        if len(graphs) != 1:
            raise ModelError(
                f"'{name}' has {len(graphs)} graphs, expected one: loops, conditions and stored states are not read; "
                "convert with recurrent layers unrolled (unroll=True in Keras)"
            )
        return _Checker(reader, model, graphs[0]).file()


class _Checker:
    """Makes values of the tables of a model."""

    def __init__(self, reader: Reader, model: Table, graph: Table) -> None:
        self.reader, self.model, self.graph, self.name = reader, model, graph, reader.name
        self.buffers = model["buffers"] or []
        self.spans: dict[int, tuple[int, int]] = {}
        for number, buffer in enumerate(self.buffers):
            if buffer["offset"] > 1 or buffer["size"] > 1:
                raise ModelError(f"'{self.name}' keeps weights behind its tables, which Arachne does not read")
            data = buffer["data"]
            if data is not None and len(data):
                start = reader.follow(buffer.slots["data"]) + 4
                self.spans[number] = start, start + len(data)
        self._check_overlaps()

    def _check_overlaps(self) -> None:
        """Refuse buffers that share bytes: who changes one changes the other."""
        behind = 0
        for start, end in sorted(self.spans.values()):
            if start < behind:
                raise ModelError(f"'{self.name}' has buffers that lie over each other")
            behind = end

    def file(self) -> TfliteFile:
        """Return the file's values."""
        tensors = [self._tensor(number, table) for number, table in enumerate(self.graph["tensors"] or [])]
        inputs, outputs = (self._ends(tensors, end) for end in ("inputs", "outputs"))
        operators = self._operators(tensors, inputs)
        made = {tensor.index for one in operators for tensor in one.outputs}
        lost = [tensor for tensor in outputs if tensor.index not in made]
        if lost:
            raise ModelError(f"'{self.name}' computes no output '{lost[0].name}'")
        names = self._signature()
        if len({tensor.index for tensor in inputs}) != len(inputs) or any(one.start is not None for one in inputs):
            raise ModelError(f"'{self.name}' takes an input twice, or one that it stores")
        return TfliteFile(
            self.name,
            self.reader.content,
            tensors,
            operators,
            inputs,
            outputs,
            _unique([names["inputs"].get(tensor.index, tensor.name) for tensor in inputs]),
            _unique([names["outputs"].get(tensor.index, tensor.name) for tensor in outputs]),
            self.graph.slots,
        )

    def _ends(self, tensors: Sequence[Tensor], end: str) -> list[Tensor]:
        numbers = self.graph[end]
        if numbers is None or not len(numbers):
            raise ModelError(f"'{self.name}' has no {end}")
        if min(numbers) < 0 or max(numbers) >= len(tensors):
            raise ModelError(f"'{self.name}' has {end} that are none of its tensors")
        return [tensors[number] for number in numbers]

    def _signature(self) -> dict[str, dict[int, str]]:
        """Return the names that the only signature gives to inputs and outputs, by tensor."""
        found: dict[str, dict[int, str]] = {"inputs": {}, "outputs": {}}
        signatures = self.model["signature_defs"] or []
        for signature in signatures:
            if signature["subgraph_index"]:
                raise ModelError(f"'{self.name}' has a signature of a graph that it does not have")
            for end in found:
                known = set(map(int, self.graph[end]))
                for entry in signature[end] or []:
                    if entry["tensor_index"] not in known:
                        raise ModelError(f"'{self.name}' has a signature with {end} that its graph does not have")
                    if len(signatures) == 1 and entry["name"]:
                        found[end][entry["tensor_index"]] = entry["name"]
        return found

    def _tensor(self, index: int, table: Table) -> Tensor:
        name = table["name"] or f"tensor_{index}"
        if table["type"] not in DTYPES:
            held = OTHER_DTYPES.get(table["type"], f"values of the unknown type {table['type']}")
            raise ModelError(f"'{self.name}' has a tensor '{name[:80]}' that holds {held}, which Arachne cannot repair")
        if table["is_variable"]:
            raise ModelError(
                f"'{self.name}' keeps a state between inputs in '{name[:80]}', so inputs are not repaired alone; "
                "convert with recurrent layers unrolled (unroll=True in Keras)"
            )
        dtype = DTYPES[table["type"]]
        shape = tuple(map(int, table["shape"])) if table["shape"] is not None else ()
        signature = table["shape_signature"]
        if len(shape) > MAX_RANK or any(size < 0 or size > MAX_SIZE for size in shape):
            raise ModelError(f"'{self.name}' has a tensor '{name[:80]}' with sizes that no tensor has")
        free = signature is not None and bool((np.asarray(signature[1:]) < 0).any())
        if signature is not None and len(signature) not in (0, len(shape)):
            raise ModelError(f"'{self.name}' has a tensor '{name[:80]}' with two numbers of axes")
        if not 0 <= table["buffer"] < max(1, len(self.buffers)) or table["external_buffer"]:
            raise ModelError(f"'{self.name}' has a tensor '{name[:80]}' in a buffer that it does not have")
        values, start = self._values(table["buffer"], dtype, shape, name)
        return Tensor(
            index, name, shape, dtype, self._grid(table, name, dtype, shape), table["buffer"], start, values, free
        )

    def _values(self, buffer: int, dtype: str, shape: tuple[int, ...], name: str) -> tuple[Array | None, int | None]:
        if buffer not in self.spans:
            return None, None
        start, end = self.spans[buffer]
        kind, many = np.dtype(dtype).newbyteorder("<"), math.prod(shape)
        if many * kind.itemsize != end - start:
            raise ModelError(
                f"'{self.name}' has {end - start:,} bytes for its tensor '{name[:80]}', "
                f"which takes {many * kind.itemsize:,}"
            )
        if start % kind.itemsize:
            raise ModelError(f"'{self.name}' has a tensor '{name[:80]}' whose numbers do not begin where numbers can")
        values = np.frombuffer(self.reader.content, kind, many, start).reshape(shape)
        if values.dtype.kind == "f" and np.isnan(values).any():
            raise ModelError(f"'{self.name}' has a weight '{name[:80]}' with a value that is not a number")
        return values.astype(dtype, copy=False), start

    def _grid(self, table: Table, name: str, dtype: str, shape: tuple[int, ...]) -> Grid | None:
        stored = table["quantization"]
        if stored is None or stored["scale"] is None or not len(stored["scale"]):
            return None
        scale = np.asarray(stored["scale"], np.float32)
        zero = np.zeros(len(scale), np.int64)
        if stored["zero_point"] is not None and len(stored["zero_point"]):
            zero = np.asarray(stored["zero_point"], np.int64)
        axis = stored["quantized_dimension"]
        if len(zero) != len(scale) or not (np.isfinite(scale) & (scale > 0)).all():
            raise ModelError(f"'{self.name}' has a tensor '{name[:80]}' whose scales are no scales")
        if len(scale) > 1 and (not 0 <= axis < len(shape) or shape[axis] != len(scale)):
            raise ModelError(
                f"'{self.name}' has a tensor '{name[:80]}' with {len(scale)} scales, which fit no axis of it"
            )
        if np.dtype(dtype).kind not in "iu":
            return None
        limits = np.iinfo(dtype)
        if (zero < limits.min).any() or (zero > limits.max).any():
            raise ModelError(f"'{self.name}' has a tensor '{name[:80]}' whose zero is none of its numbers")
        return Grid(scale, zero.astype(dtype), axis if len(scale) > 1 else 0)

    def _operators(self, tensors: Sequence[Tensor], inputs: Sequence[Tensor]) -> list[Operator]:
        codes, found = self.model["operator_codes"] or [], []
        tables = self.graph["operators"] or []
        if not tables or len(tables) > MAX_OPERATORS:
            raise ModelError(f"'{self.name}' has {len(tables):,} operators, expected between 1 and {MAX_OPERATORS:,}")
        known = {tensor.index for tensor in inputs} | {one.index for one in tensors if one.start is not None}
        for table in tables:
            if table["opcode_index"] >= len(codes):
                raise ModelError(f"'{self.name}' uses an operator that it does not list")
            name = self._operator_name(codes[table["opcode_index"]])
            ends = []
            for end in ("inputs", "outputs"):
                numbers = [int(number) for number in table[end]] if table[end] is not None else []
                if any(number < (-1 if end == "inputs" else 0) or number >= len(tensors) for number in numbers):
                    raise ModelError(f"'{self.name}' has {end} of {name} that are none of its tensors")
                ends.append([None if number < 0 else tensors[number] for number in numbers])
            given, made = ends[0], [tensor for tensor in ends[1] if tensor is not None]
            # LiteRT allows a stored tensor without bytes, whose values are then whatever the memory holds.
            unknown = [one for one in given if one is not None and one.index not in known]
            if unknown:
                raise ModelError(f"'{self.name}' reads '{unknown[0].name[:80]}' before it is computed")
            again = [one for one in made if one.index in known]
            if again or not made:
                raise ModelError(f"'{self.name}' has a {name} that computes nothing, or what is there already")
            known |= {one.index for one in made}
            if len({one.index for one in made}) != len(made):
                raise ModelError(f"'{self.name}' has a {name} that computes one tensor twice")
            if table["custom_options"] is not None and len(table["custom_options"]) and name != "CUSTOM":
                raise ModelError(f"'{self.name}' has a {name} with options of its own, which are not read")
            found.append(Operator(name, tuple(given), tuple(made), table["builtin_options"] or {}))
        return found

    def _operator_name(self, code: Table) -> str:
        number = max(code["deprecated_builtin_code"], code["builtin_code"])
        if code["custom_code"] and number == OPERATORS.index("CUSTOM"):
            return f"custom operator '{code['custom_code'][:60]}'"
        return OPERATORS[number] if 0 <= number < len(OPERATORS) else f"operator {number}"


def _unique(names: Sequence[str]) -> list[str]:
    """Return names without the endings of old exports (`:0`), each with a number where it is not the only one."""
    taken: list[str] = []
    for name in names:
        stem = name.removesuffix(":0")
        taken.append(stem if stem not in taken else f"{stem}_{len(taken)}")
    return taken
