"""Hostile TFLite files. Each is a small network with something changed in a table, or bytes that are none."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.safety import valid
from tests.safety.case import Case
from tests.safety.lazy import Lazy

conformance: Any = Lazy("arachne_tflite.conformance")
schema: Any = Lazy("ai_edge_litert.schema_py_generated")

Edit = Callable[[Any], object]
"""Changes a writer whose tensors and operators are complete."""

SCAN = ["scan", "net.tflite", "--data", "data.npz"]

BIG, MINUS = 2**31 - 1, -1
X, FILTERS, FILTER_BIAS, FILTERED, POOLED, FLAT, WEIGHT, BIAS, LOGITS, OUTPUT, SHAPE = range(11)
"""The tensors of the network, by number."""

CONV, POOL, RESHAPE, DENSE, SOFTMAX = range(5)
"""Its operators."""


def network() -> Any:
    """A writer of the network for the demo's digits: convolution, pool, dense, softmax."""
    rng = np.random.default_rng(0)
    writer = conformance.FileWriter()
    writer.tensor("x", (1, 1, 8, 8))
    writer.tensor("conv/kernel", (4, 3, 3, 8), values=rng.normal(size=(4, 3, 3, 8)))
    writer.tensor("conv/bias", (4,), values=rng.normal(size=4))
    writer.tensor("filtered", (1, 1, 8, 4))
    writer.tensor("pooled", (1, 1, 4, 4))
    writer.tensor("flat", (1, 16))
    writer.tensor("dense/kernel", (10, 16), values=rng.normal(size=(10, 16)))
    writer.tensor("dense/bias", (10,), values=rng.normal(size=10))
    writer.tensor("logits", (1, 10))
    writer.tensor("p", (1, 10))
    writer.tensor("shape", (2,), "int32", values=np.array([-1, 16]))
    same: dict[str, Any] = {"padding": 0, "strideH": 1, "strideW": 1}
    writer.operator(
        "CONV_2D", [X, FILTERS, FILTER_BIAS], [FILTERED], "Conv2DOptions", **same, fusedActivationFunction=1
    )
    pool: dict[str, Any] = {"padding": 1, "strideH": 1, "strideW": 2, "filterHeight": 1, "filterWidth": 2}
    writer.operator("MAX_POOL_2D", [FILTERED], [POOLED], "Pool2DOptions", **pool)
    writer.operator("RESHAPE", [POOLED, SHAPE], [FLAT])
    writer.operator("FULLY_CONNECTED", [FLAT, WEIGHT, BIAS], [LOGITS], "FullyConnectedOptions")
    writer.operator("SOFTMAX", [LOGITS], [OUTPUT], "SoftmaxOptions", beta=1.0)
    return writer


def content(edit: Edit | None = None, ends: tuple[list[int], list[int]] = ([X], [OUTPUT])) -> bytes:
    """The bytes of the network after an edit."""
    writer = network()
    if edit is not None:
        edit(writer)
    found: bytes = writer.content(*ends)
    return found


def model(folder: Path, name: str = "net.tflite") -> str:
    """The network, unchanged."""
    (folder / name).write_bytes(content())
    return name


def _scan(make: Callable[[], bytes]) -> Callable[[Path], list[str]]:
    def case(folder: Path) -> list[str]:
        valid.data(folder)
        (folder / "net.tflite").write_bytes(make())
        return SCAN

    return case


def scan_after(edit: Edit) -> Callable[[Path], list[str]]:
    """The network after an edit, and a scan of it."""
    return _scan(lambda: content(edit))


def tensor(number: int, **fields: Any) -> Edit:
    """Other values for fields of a tensor."""

    def edit(writer: Any) -> None:
        for name, value in fields.items():
            setattr(writer.graph.tensors[number], name, np.array(value, np.int32) if isinstance(value, list) else value)

    return edit


def operator(number: int, **fields: Any) -> Edit:
    """Other values for fields of an operator."""

    def edit(writer: Any) -> None:
        for name, value in fields.items():
            setattr(
                writer.graph.operators[number], name, np.array(value, np.int32) if isinstance(value, list) else value
            )

    return edit


def option(number: int, **fields: Any) -> Edit:
    """Other values for options of an operator."""

    def edit(writer: Any) -> None:
        for name, value in fields.items():
            setattr(writer.graph.operators[number].builtinOptions, name, value)

    return edit


def code(number: int, builtin: int) -> Edit:
    """Another operator in the place of one."""

    def edit(writer: Any) -> None:
        chosen = writer.model.operatorCodes[writer.graph.operators[number].opcodeIndex]
        chosen.builtinCode, chosen.deprecatedBuiltinCode = builtin, min(builtin, 127)

    return edit


def store(number: int, data: bytes) -> Edit:
    """Other bytes for a stored tensor."""

    def edit(writer: Any) -> None:
        writer.model.buffers[writer.graph.tensors[number].buffer].data = np.frombuffer(data, np.uint8)

    return edit


def values(number: int, value: float) -> Edit:
    """One number of a stored tensor that is none."""

    def edit(writer: Any) -> None:
        buffer = writer.model.buffers[writer.graph.tensors[number].buffer]
        numbers = np.array(buffer.data).view(np.float32)
        numbers[1] = value
        buffer.data = numbers.view(np.uint8)

    return edit


def grid(number: int, scale: Any, zero: Any, axis: int = 0, kind: int = 9) -> Edit:
    """A weight in int8, with any scales."""

    def edit(writer: Any) -> None:
        chosen = writer.graph.tensors[number]
        size = int(np.prod(chosen.shape))
        told = schema.QuantizationParametersT()
        told.scale, told.zeroPoint = np.atleast_1d(np.float32(scale)), np.atleast_1d(np.int64(zero))
        told.quantizedDimension = axis
        chosen.quantization, chosen.type = told, kind
        writer.model.buffers[chosen.buffer].data = np.zeros(size, np.uint8)

    return edit


def share_buffer(writer: Any) -> None:
    """Two tensors of one buffer, with another shape."""
    writer.graph.tensors[BIAS].buffer = writer.graph.tensors[WEIGHT].buffer


def sparse(writer: Any) -> None:
    """A weight with a table of places."""
    writer.graph.tensors[WEIGHT].sparsity = schema.SparsityParametersT()
    writer.graph.tensors[WEIGHT].sparsity.traversalOrder = np.array([0, 1], np.int32)


def twice(writer: Any) -> None:
    """Two graphs."""
    writer.model.subgraphs.append(writer.graph)


def custom(name: str) -> Edit:
    """A custom operator."""

    def edit(writer: Any) -> None:
        chosen = writer.model.operatorCodes[writer.graph.operators[SOFTMAX].opcodeIndex]
        chosen.builtinCode = chosen.deprecatedBuiltinCode = 32
        chosen.customCode = name
        writer.graph.operators[SOFTMAX].builtinOptionsType, writer.graph.operators[SOFTMAX].builtinOptions = 0, None

    return edit


def swap_operators(writer: Any) -> None:
    """Operators in another order than they depend on each other."""
    operators = writer.graph.operators
    operators[DENSE], operators[RESHAPE] = operators[RESHAPE], operators[DENSE]


def many_operators(writer: Any) -> None:
    """One operator sixty thousand times."""
    writer.graph.operators = [*writer.graph.operators, *[writer.graph.operators[POOL]] * 60_000]


def signature(writer: Any, place: int, graph: int = 0) -> None:
    """A signature of a tensor or a graph that is not there."""
    made, entry = schema.SignatureDefT(), schema.TensorMapT()
    entry.name, entry.tensorIndex = "x", place
    made.inputs, made.outputs, made.signatureKey, made.subgraphIndex = [entry], [entry], "serve", graph
    writer.model.signatureDefs = [made]


def overwrite(offset: Callable[[bytes], int], number: int, code: str = "<I") -> Callable[[Path], list[str]]:
    """The network with a number put over its bytes."""

    def make() -> bytes:
        data = bytearray(content())
        struct.pack_into(code, data, offset(bytes(data)), number)
        return bytes(data)

    return _scan(make)


def root(data: bytes) -> int:
    """Where the model's table begins."""
    return int(struct.unpack_from("<I", data)[0])


def vtable(data: bytes) -> int:
    """Where the slots of the model's table begin."""
    return root(data) - int(struct.unpack_from("<i", data, root(data))[0])


def slot(number: int) -> Callable[[bytes], int]:
    """Where a slot of the model's table is."""
    return lambda data: vtable(data) + 4 + 2 * number


def field(number: int) -> Callable[[bytes], int]:
    """Where a field of the model's table is."""
    return lambda data: root(data) + int(struct.unpack_from("<H", data, slot(number)(data))[0])


def vector(number: int) -> Callable[[bytes], int]:
    """Where a vector that the model's table leads to begins."""
    return lambda data: field(number)(data) + int(struct.unpack_from("<I", data, field(number)(data))[0])


def _cut_at(share: int) -> Callable[[bytes], bytes]:
    return lambda data: data[: len(data) * share // 100]


SIZES = {"none": [], "nothing": [0], "negative": [1, MINUS], "huge": [BIG, BIG], "twice-as-large": [20, 16],
         "turned": [16, 10], "of-nine-axes": [1] * 9, "of-a-million": [1_000_000, 1_000_000]}  # fmt: skip
PLACES = {"minus-two": -2, "behind-the-last": 11, "largest": BIG, "smallest": -(2**31)}
NUMBERS = {"zero": 0, "minus-one": MINUS, "largest": BIG, "smallest": -(2**31), "sixty-five-thousand": 65_536}
CONTENTS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "one-byte": lambda data: b"T",
    "identifier-alone": lambda data: b"\0\0\0\0TFL3",
    "zeros": lambda data: b"\0\0\0\0TFL3" + bytes(4096),
    "ones": lambda data: b"\xff\xff\xff\xffTFL3" + b"\xff" * 4096,
    "other-identifier": lambda data: data[:4] + b"TFL2" + data[8:],
    "text": lambda data: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    "zip": lambda data: b"PK\3\4" + data,
    "page": lambda data: b"<!DOCTYPE html><html><body>Not found</body></html>",
    "root-in-itself": lambda data: struct.pack("<I", 4) + data[4:],
    "root-at-end": lambda data: struct.pack("<I", len(data) - 2) + data[4:],
    "shifted": lambda data: data[:8] + b"\0" + data[8:],
    **{f"cut-at-{share}-percent": _cut_at(share) for share in (3, 10, 25, 50, 75, 90, 99)},
}  # fmt: skip


def _cases() -> list[Case]:
    found: list[tuple[str, str, Callable[[Path], list[str]]]] = []
    for name, change in CONTENTS.items():
        found.append((f"bytes-{name}", "bytes", _scan(lambda change=change: change(content()))))  # type: ignore[misc]
    for name, sizes in SIZES.items():
        for place, number in (
            ("input", X),
            ("weight", WEIGHT),
            ("filters", FILTERS),
            ("result", LOGITS),
            ("flat", FLAT),
        ):
            found.append((f"{place}-of-size-{name}", "size", scan_after(tensor(number, shape=sizes))))
    for name, index in PLACES.items():
        for number, what in ((CONV, "convolution"), (DENSE, "dense"), (SOFTMAX, "softmax")):
            found.append((f"{what}-reads-tensor-{name}", "place", scan_after(operator(number, inputs=[index, 1, 2]))))
            found.append((f"{what}-writes-tensor-{name}", "place", scan_after(operator(number, outputs=[index]))))
        found.append((f"model-takes-tensor-{name}", "place", _scan(lambda p=index: content(None, ([p], [OUTPUT])))))  # type: ignore[misc]
        found.append((f"model-gives-tensor-{name}", "place", _scan(lambda p=index: content(None, ([X], [p])))))  # type: ignore[misc]
    for name, value in NUMBERS.items():
        for option_name in ("strideH", "strideW", "dilationHFactor", "dilationWFactor"):
            found.append(
                (f"convolution-{option_name}-{name}", "option", scan_after(option(CONV, **{option_name: value})))
            )
        for option_name in ("strideH", "strideW", "filterHeight", "filterWidth"):
            found.append((f"pool-{option_name}-{name}", "option", scan_after(option(POOL, **{option_name: value}))))
    for number in (2, 17, -3, 100):
        found.append((f"convolution-padding-{number}", "option", scan_after(option(CONV, padding=number))))
        found.append(
            (f"convolution-activation-{number}", "option", scan_after(option(CONV, fusedActivationFunction=number + 8)))
        )
        found.append((f"pool-padding-{number}", "option", scan_after(option(POOL, padding=number))))
    for builtin in (
        10,
        15,
        27,
        31,
        33,
        44,
        48,
        80,
        103,
        109,
        118,
        119,
        122,
        129,
        131,
        136,
        142,
        146,
        159,
        170,
        209,
        500,
    ):
        found.append((f"softmax-is-operator-{builtin}", "operator", scan_after(code(SOFTMAX, builtin))))
    for builtin in (0, 2, 3, 4, 9, 18, 36, 39, 45, 67, 83, 126):
        found.append((f"reshape-is-operator-{builtin}", "operator", scan_after(code(RESHAPE, builtin))))
    for dtype in (5, 8, 11, 12, 13, 14, 17, 18, 19, 21, 99):
        found.append((f"weight-of-type-{dtype}", "type", scan_after(tensor(WEIGHT, type=dtype))))
    for dtype in (1, 2, 4, 6, 9):
        found.append((f"result-of-type-{dtype}", "type", scan_after(tensor(LOGITS, type=dtype))))
    for name, odd in (("nan", np.nan), ("infinite", np.inf)):
        found.append((f"weight-{name}", "value", scan_after(values(WEIGHT, odd))))
        found.append((f"scale-{name}", "value", scan_after(grid(WEIGHT, odd, 0))))
        found.append((f"beta-{name}", "value", scan_after(option(SOFTMAX, beta=float(odd)))))
    for name, scale, zero in (
        ("zero", 0.0, 0),
        ("negative", -1.0, 0),
        ("of-three", [1.0] * 3, [0] * 3),
        ("tiny", 1e-45, 300),
    ):
        found.append((f"scale-{name}", "value", scan_after(grid(WEIGHT, scale, zero))))
    found += [
        ("scales-without-zeros", "value", scan_after(grid(WEIGHT, [1.0] * 10, [0, 0]))),
        ("scales-of-axis-seven", "value", scan_after(grid(WEIGHT, [1.0] * 10, [0] * 10, axis=7))),
        ("scales-of-axis-minus-one", "value", scan_after(grid(WEIGHT, [1.0] * 10, [0] * 10, axis=-1))),
        ("weight-bytes-missing", "size", scan_after(store(WEIGHT, b""))),
        ("weight-one-byte-short", "size", scan_after(store(WEIGHT, bytes(639)))),
        ("weight-one-byte-long", "size", scan_after(store(WEIGHT, bytes(641)))),
        ("shape-stored-as-other", "size", scan_after(store(SHAPE, struct.pack("<2i", 7, 9)[:4]))),
        ("buffers-shared-by-two-shapes", "size", scan_after(share_buffer)),
        ("buffer-number-largest", "place", scan_after(tensor(WEIGHT, buffer=2**32 - 1))),
        ("weights-sparse", "type", scan_after(sparse)),
        ("graphs-two", "structure", scan_after(twice)),
        ("graphs-none", "structure", scan_after(lambda writer: setattr(writer.model, "subgraphs", []))),
        ("tensors-none", "structure", scan_after(lambda writer: setattr(writer.graph, "tensors", []))),
        ("operators-none", "structure", scan_after(lambda writer: setattr(writer.graph, "operators", []))),
        ("operators-unlisted", "structure", scan_after(lambda writer: setattr(writer.model, "operatorCodes", []))),
        ("operators-out-of-order", "structure", scan_after(swap_operators)),
        ("operators-sixty-thousand", "structure", scan_after(many_operators)),
        ("operator-reads-itself", "structure", scan_after(operator(SOFTMAX, inputs=[OUTPUT]))),
        ("operator-writes-its-input", "structure", scan_after(operator(SOFTMAX, outputs=[LOGITS]))),
        ("operator-writes-a-weight", "structure", scan_after(operator(SOFTMAX, outputs=[WEIGHT]))),
        ("operator-writes-nothing", "structure", scan_after(operator(SOFTMAX, outputs=[]))),
        ("operator-writes-twice", "structure", scan_after(operator(SOFTMAX, outputs=[OUTPUT, OUTPUT]))),
        ("operator-without-inputs", "structure", scan_after(operator(DENSE, inputs=[]))),
        ("operator-with-hundred-inputs", "structure", scan_after(operator(SOFTMAX, inputs=[LOGITS, *[-2] * 100]))),
        ("operator-custom", "operator", scan_after(custom("Evil"))),
        ("operator-custom-with-a-path", "operator", scan_after(custom("../../lib.so\x1b[2J"))),
        ("options-of-another-operator", "option", scan_after(operator(SOFTMAX, builtinOptionsType=1))),
        ("state-kept", "type", scan_after(tensor(FLAT, isVariable=True))),
        ("signature-of-no-tensor", "place", scan_after(lambda writer: signature(writer, 999))),
        ("signature-of-no-graph", "place", scan_after(lambda writer: signature(writer, X, 3))),
        ("version-two", "structure", scan_after(lambda writer: setattr(writer.model, "version", 2))),
        ("inputs-none", "structure", _scan(lambda: content(None, ([], [OUTPUT])))),
        ("outputs-none", "structure", _scan(lambda: content(None, ([X], [])))),
        ("input-twice", "structure", _scan(lambda: content(None, ([X, X], [OUTPUT])))),
        ("input-stored", "structure", _scan(lambda: content(None, ([X, WEIGHT], [OUTPUT])))),
        ("output-is-the-input", "structure", _scan(lambda: content(None, ([X], [X])))),
        ("output-is-a-weight", "structure", _scan(lambda: content(None, ([X], [WEIGHT])))),
        ("slots-before-the-file", "offset", overwrite(root, BIG, "<i")),
        ("slots-behind-the-file", "offset", overwrite(root, -BIG, "<i")),
        ("slots-of-no-length", "offset", overwrite(vtable, 0, "<H")),
        ("slots-of-odd-length", "offset", overwrite(vtable, 7, "<H")),
        ("slots-of-largest-length", "offset", overwrite(vtable, 65_535, "<H")),
        ("table-of-no-length", "offset", overwrite(lambda data: vtable(data) + 2, 0, "<H")),
        ("table-of-largest-length", "offset", overwrite(lambda data: vtable(data) + 2, 65_535, "<H")),
    ]
    for number, name in ((1, "codes"), (2, "graphs"), (4, "buffers")):
        found += [
            (f"{name}-slot-outside", "offset", overwrite(slot(number), 60_000, "<H")),
            (f"{name}-at-zero", "offset", overwrite(field(number), 0)),
            (f"{name}-outside", "offset", overwrite(field(number), 2**32 - 1)),
            (f"{name}-at-the-end", "offset", overwrite(field(number), BIG)),
            (f"{name}-four-milliard", "offset", overwrite(vector(number), 2**32 - 1)),
            (f"{name}-million", "offset", overwrite(vector(number), 1_000_000)),
        ]  # fmt: skip
    return [Case(f"tflite-{name}", "tflite", attack, make) for name, attack, make in found]


CASES = _cases()
