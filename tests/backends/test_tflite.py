"""TFLite files: LiteRT's scores, weights in their places, float16 and whole numbers, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arachne.errors import ModelError
from arachne.model.values import Array
from arachne.testing.networks import convnet, mlp

pytest.importorskip("ai_edge_litert")
pytest.importorskip("onnxruntime")

from ai_edge_litert.interpreter import Interpreter

from arachne_tflite import TfliteBackend
from arachne_tflite.conformance import FileWriter, file_of
from arachne_tflite.file import TfliteFile
from arachne_tflite.weights import TfliteWeightFile

pytestmark = pytest.mark.backend("tflite")

RNG = np.random.default_rng(3)
WEIGHT, BIAS = RNG.normal(size=(6, 5)).astype(np.float32), RNG.normal(size=6).astype(np.float32)
LAST = RNG.normal(size=(3, 6)).astype(np.float32)
INPUTS = RNG.normal(size=(40, 5)).astype(np.float32)


def quantise(values: Array, axis: int | None = 0) -> tuple[Array, dict[str, Any]]:
    """Round to int8, with a scale for each row or one for all."""
    over = None if axis is None else tuple(number for number in range(values.ndim) if number != axis)
    scale = np.abs(values).max(axis=over, keepdims=True) / 127
    grid = {"scale": scale.reshape(-1), "zero": np.zeros(scale.size, np.int64), "axis": axis or 0}
    return np.rint(values / scale).astype(np.int8), grid


def int8_file(*, softmax: bool = True, steps: float = 0.02) -> bytes:
    """A perceptron in whole numbers from end to end, as converters write it; `steps` are those of its logits."""
    writer = FileWriter()
    first, second = (quantise(values) for values in (WEIGHT, LAST))
    given: dict[str, Any] = {"scale": 0.05, "zero": 3}
    hidden: dict[str, Any] = {"scale": 0.04, "zero": -128}
    logits: dict[str, Any] = {"scale": steps, "zero": 0}
    x = writer.tensor("x", (1, 5), "int8", **given)
    h = writer.tensor("hidden/Relu", (1, 6), "int8", **hidden)
    z = writer.tensor("last/MatMul", (1, 3), "int8", **logits)
    bias = {"scale": 0.05 * first[1]["scale"], "zero": np.zeros(6, np.int64)}
    dense = [
        (x, first, "hidden", np.rint(BIAS / bias["scale"]), bias, h, 1),
        (h, second, "last", np.zeros(3), {"scale": 0.04 * second[1]["scale"], "zero": np.zeros(3, np.int64)}, z, 0),
    ]
    for source, (whole, grid), name, offsets, offset_grid, made, activation in dense:
        weight = writer.tensor(f"{name}/kernel", whole.shape, "int8", whole, **grid)
        stored = writer.tensor(f"{name}/bias", offsets.shape, "int32", offsets.astype(np.int32), **offset_grid)
        writer.operator(
            "FULLY_CONNECTED",
            [source, weight, stored],
            [made],
            "FullyConnectedOptions",
            fusedActivationFunction=activation,
        )
    if not softmax:
        return writer.content([x], [z])
    p = writer.tensor("p", (1, 3), "int8", scale=1 / 256, zero=-128)
    writer.operator("SOFTMAX", [z], [p], "SoftmaxOptions", beta=1.0)
    return writer.content([x], [p])


def half_file() -> bytes:
    """A perceptron whose weights are stored in float16 and widened before they are used."""
    writer = FileWriter()
    x, h, z = (writer.tensor(name, shape) for name, shape in (("x", (1, 5)), ("h", (1, 6)), ("z", (1, 3))))
    for name, source, values, made in (("hidden", x, WEIGHT, h), ("last", h, LAST, z)):
        stored = writer.tensor(f"{name}/kernel", values.shape, "float16", values)
        wide = writer.tensor(f"{name}/wide", values.shape)
        writer.operator("DEQUANTIZE", [stored], [wide], "DequantizeOptions")
        writer.operator("FULLY_CONNECTED", [source, wide], [made], "FullyConnectedOptions")
    return writer.content([x], [z])


def by_litert(content: bytes, inputs: Array) -> Array:
    """The output of LiteRT itself, input by input."""
    lite = Interpreter(model_content=content)
    lite.allocate_tensors()
    (given,), (made,) = lite.get_input_details(), lite.get_output_details()
    found = []
    for row in inputs:
        fed = row[None]
        if given["dtype"] != np.float32:
            scale, zero = given["quantization"]
            fed = np.clip(np.rint(fed / scale) + zero, -128, 127).astype(given["dtype"])
        lite.set_tensor(given["index"], fed)
        lite.invoke()
        found.append(lite.get_tensor(made["index"])[0])
    return np.array(found)


@pytest.mark.parametrize(
    "content",
    [int8_file(), int8_file(softmax=False), int8_file(steps=0.001), half_file()],
    ids=["int8", "int8 logits", "int8 with ties", "float16"],
)
def test_decisions_are_those_of_litert(content: bytes) -> None:
    output = by_litert(content, INPUTS)
    scores = TfliteBackend.load(content).forward(INPUTS)
    assert np.array_equal(scores.argmax(axis=1), output.argmax(axis=1))


def test_equal_probabilities_are_decided_as_the_output_decides_them() -> None:
    """Steps of a thousandth make logits that differ where a softmax in steps of 1/256 gives equal numbers."""
    output = by_litert(int8_file(steps=0.001), INPUTS)
    assert (np.sort(output, axis=1)[:, -1] == np.sort(output, axis=1)[:, -2]).any()


def test_translation_gives_the_scores_of_litert_in_whole_numbers() -> None:
    from arachne_onnx.running import Runner

    backend = TfliteBackend.load(int8_file())
    assert np.array_equal(Runner.scores(backend._runner, INPUTS), backend.forward(INPUTS))


def test_whole_numbers_as_inputs_are_those_of_the_file() -> None:
    backend = TfliteBackend.load(int8_file(softmax=False))
    whole = np.clip(np.rint(INPUTS / np.float32(0.05)) + 3, -128, 127).astype(np.int8)
    assert np.array_equal(backend.forward(whole), backend.forward(INPUTS))


@pytest.mark.parametrize("content", [int8_file(), half_file(), file_of(convnet())], ids=["int8", "half", "convnet"])
def test_saving_changes_the_bytes_of_weights_alone(content: bytes, tmp_path: Path) -> None:
    backend = TfliteBackend.load(content)
    layer = backend.layers[0]
    values = backend.get_weights(layer.name)["weight"]
    changed = np.array(values)
    changed.flat[2] = values.flat[3]
    backend.set_weights(layer.name, "weight", changed)
    backend.save(tmp_path / "other.tflite")
    written = (tmp_path / "other.tflite").read_bytes()
    differing = [place for place, (old, new) in enumerate(zip(content, written, strict=True)) if old != new]
    assert 0 < len(differing) <= np.dtype(layer.parameters["weight"].dtype).itemsize
    again = TfliteBackend.load(tmp_path / "other.tflite")
    assert np.array_equal(again.get_weights(layer.name)["weight"], backend.get_weights(layer.name)["weight"])
    inputs = again.example_inputs(6)
    assert np.array_equal(again.forward(inputs), backend.forward(inputs))
    backend.set_weights(layer.name, "weight", values)
    backend.save(tmp_path / "back.tflite")
    assert (tmp_path / "back.tflite").read_bytes() == content


def test_weight_file_reads_what_the_backend_reads(tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(file_of(convnet()))
    file, backend = TfliteWeightFile(tmp_path / "net.tflite"), TfliteBackend.load(tmp_path / "net.tflite")
    for layer, parameter in file.parameters():
        assert np.array_equal(file.read(layer, parameter), backend.get_weights(layer)[parameter])


def test_layers_have_their_own_names_and_dtypes() -> None:
    layers = TfliteBackend.load(int8_file()).layers
    assert [layer.name for layer in layers] == ["hidden", "last"]
    assert [layer.parameters["weight"].dtype for layer in layers] == ["int8", "int8"]
    assert [layer.parameters["bias"].dtype for layer in layers] == ["int32", "int32"]


def test_shared_buffer_is_one_weight() -> None:
    writer = FileWriter()
    square = np.ascontiguousarray(WEIGHT[:5])
    x, h, z = (writer.tensor(name, (1, 5)) for name in ("x", "h", "z"))
    first = writer.tensor("one/kernel", (5, 5), values=square)
    second = writer.tensor("two/kernel", (5, 5))
    writer.graph.tensors[second].buffer = writer.graph.tensors[first].buffer
    writer.operator("FULLY_CONNECTED", [x, first], [h], "FullyConnectedOptions")
    writer.operator("FULLY_CONNECTED", [h, second], [z], "FullyConnectedOptions")
    (layer,) = TfliteBackend.load(writer.content([x], [z])).layers
    assert layer.uses == 2


def one_operator(name: str, shape: Sequence[int], made: Sequence[int], kind: str = "", **options: Any) -> bytes:
    """A file of one operator between an input and a fully connected layer."""
    writer = FileWriter()
    x, y = writer.tensor("x", shape), writer.tensor("y", made)
    writer.operator(name, [x], [y], kind, **options)
    size = int(np.prod(made))
    weight, z = writer.tensor("w", (3, size), values=np.ones((3, size))), writer.tensor("z", (1, 3))
    writer.operator("FULLY_CONNECTED", [y, weight], [z], "FullyConnectedOptions")
    return writer.content([x], [z])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (one_operator("UNIQUE", (1, 4), (1, 4)), "does not know: UNIQUE"),
        (one_operator("RELU", (1, 4), (1, 5)), "says that its tensor 'y' has shape"),
        (one_operator("MAX_POOL_2D", (1, 4, 4, 1), (1, 2, 2, 1), "Pool2DOptions"), "stride or dilation that is none"),
        (int8_file()[:-40], "cut short"),
        (b"TFL3", "does not begin like one"),
    ],
    ids=["unknown operator", "other shape", "no stride", "cut short", "no table"],
)  # fmt: skip
def test_file_that_makes_no_sense_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        TfliteBackend.load(content)


def test_file_is_read_as_the_runtime_reads_it() -> None:
    file = TfliteFile.read(file_of(mlp([4, 8, 3])), "net.tflite")
    lite = Interpreter(model_content=file.content)
    lite.allocate_tensors()
    told = {one["index"]: one for one in lite.get_tensor_details()}
    for tensor in file.tensors:
        assert tuple(told[tensor.index]["shape"]) == tensor.shape
        assert told[tensor.index]["name"] == tensor.name
        if tensor.values is not None:
            assert np.array_equal(lite.get_tensor(tensor.index), tensor.values)


def test_float_patch_is_rounded_to_the_int8_file(tmp_path: Path) -> None:
    """Found on the float network, applied to the file in whole numbers, taken out again bit for bit."""
    from arachne.patch.commands import apply, diff, revert

    writer = FileWriter()
    x, h, z = (writer.tensor(name, shape) for name, shape in (("x", (1, 5)), ("h", (1, 6)), ("z", (1, 3))))
    for name, source, values, made in (("hidden", x, WEIGHT, h), ("last", h, LAST, z)):
        stored = writer.tensor(f"{name}/kernel", values.shape, "float32", values)
        writer.operator("FULLY_CONNECTED", [source, stored], [made], "FullyConnectedOptions")
    (tmp_path / "float.tflite").write_bytes(writer.content([x], [z]))
    (tmp_path / "int8.tflite").write_bytes(int8_file())
    backend = TfliteBackend.load(tmp_path / "float.tflite")
    changed = np.array(LAST)
    changed[1, 2] *= 0.3
    backend.set_weights("last", "weight", changed)
    backend.save(tmp_path / "changed.tflite")
    patch = diff(tmp_path / "float.tflite", tmp_path / "changed.tflite")
    done = apply(patch, tmp_path / "int8.tflite", tmp_path / "patched.tflite")
    assert done is not None
    assert [pair.how for pair in done.match.pairs] == ["quantised"]
    patched = TfliteBackend.load(tmp_path / "patched.tflite").get_weights("last")["weight"]
    scale = float(np.abs(LAST).max(axis=1)[1]) / 127
    assert patched[1, 2] == pytest.approx(changed[1, 2], abs=scale / 2)
    revert(patch, tmp_path / "patched.tflite", tmp_path / "back.tflite")
    assert (tmp_path / "back.tflite").read_bytes() == int8_file()
