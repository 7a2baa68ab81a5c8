"""Layers inside the bodies of Loop and Scan, and recurrent operators with `clip`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper

import arachne
from arachne.errors import UsageError
from arachne.model.values import Array
from arachne_onnx import OnnxBackend
from arachne_onnx.sessions import Program
from tests.backends.test_onnx_strangers import check_gradients, make_model, value

pytestmark = pytest.mark.backend("onnx")

STEPS, WIDTH, UNITS = 4, 3, 5


def sequences(n: int = 5) -> Array:
    return np.random.default_rng(0).normal(size=(n, STEPS, WIDTH)).astype(np.float32)


def stored_weights() -> dict[str, Array]:
    rng = np.random.default_rng(1)
    shapes = {"kernel": (WIDTH, UNITS), "recurrence": (UNITS, UNITS), "out": (UNITS, 3)}
    return {name: (rng.normal(size=shape) / 2).astype(np.float32) for name, shape in shapes.items()}


def own_scores(model: ModelProto, x: Array) -> Array:
    scores: Array = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    return scores


def step(element: str) -> list[Any]:
    return [
        helper.make_node("MatMul", [element, "kernel"], ["entered"]),
        helper.make_node("MatMul", ["before", "recurrence"], ["recurred"]),
        helper.make_node("Add", ["entered", "recurred"], ["sum"]),
        helper.make_node("Tanh", ["sum"], ["after"]),
        helper.make_node("Identity", ["after"], ["kept"]),
    ]


START = [
    helper.make_node("Shape", ["x"], ["size"], start=0, end=1),
    helper.make_node("Concat", ["size", "units"], ["state_size"], axis=0),
    helper.make_node("ConstantOfShape", ["state_size"], ["start"]),
]


def make_scan(direction: int = 0) -> ModelProto:
    """A Scan over the second axis; the scores are made of the last state and of all kept ones."""
    body = helper.make_graph(
        step("element"),
        "body",
        [value("before", ["n", UNITS]), value("element", ["n", WIDTH])],
        [value("after", ["n", UNITS]), value("kept", ["n", UNITS])],
    )
    options = {"scan_input_axes": [1], "scan_input_directions": [direction], "scan_output_axes": [1]}
    nodes = [
        *START,
        helper.make_node("Scan", ["start", "x"], ["last", "all"], body=body, num_scan_inputs=1, **options),
        helper.make_node("ReduceMean", ["all", "second"], ["mean"], keepdims=0),
        helper.make_node("Add", ["last", "mean"], ["both"]),
        helper.make_node("MatMul", ["both", "out"], ["y"]),
    ]
    weights = {**stored_weights(), "units": np.array([UNITS]), "second": np.array([1])}
    made_of = make_model(nodes, [value("x", ["n", STEPS, WIDTH])], [value("y", ["n", 3])], weights)
    made_of.opset_import[0].version = 18
    return made_of


def make_loop(length: int | str = STEPS, rounds: str = "declared") -> ModelProto:
    """A Loop whose number of steps is a length of its input, a constant, or whatever a condition that counts says."""
    going = [helper.make_node("Identity", ["yes"], ["goes_on"])]
    if rounds == "condition":
        going = [
            helper.make_node("Add", ["i", "one"], ["next"]),
            helper.make_node("Cast", ["next"], ["real"], to=TensorProto.FLOAT),
            helper.make_node("Less", ["real", "limit"], ["goes_on"]),
        ]
    body = helper.make_graph(
        [helper.make_node("Gather", ["x", "i"], ["element"], axis=1), *step("element"), *going],
        "body",
        [value("i", [], TensorProto.INT64), value("going", [], TensorProto.BOOL), value("before", ["n", UNITS])],
        [value("goes_on", [], TensorProto.BOOL), value("after", ["n", UNITS])],
    )
    nodes = [
        *START,
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "one"], ["length"]),
        helper.make_node("Loop", ["length" if rounds == "declared" else "", "yes", "start"], ["last"], body=body),
        helper.make_node("MatMul", ["last", "out"], ["y"]),
    ]
    numbers = {"units": np.array([UNITS]), "one": np.array(1), "yes": np.array(True), "limit": np.float32(STEPS)}
    constants = {name: np.asarray(number) for name, number in numbers.items()}
    return make_model(
        nodes, [value("x", ["n", length, WIDTH])], [value("y", ["n", 3])], {**stored_weights(), **constants}
    )


@pytest.mark.parametrize("model", [make_scan(), make_scan(1), make_loop(), make_loop(rounds="condition")])
def test_layers_inside_a_body_are_used_once_in_every_step(model: ModelProto) -> None:
    backend, x = OnnxBackend.load(model), sequences()
    np.testing.assert_allclose(backend.forward(x), own_scores(model, x), atol=1e-6)
    assert {info.name: info.uses for info in backend.layers} == {"kernel": STEPS, "recurrence": STEPS, "out": 1}
    assert not backend.unreachable
    check_gradients(backend, x)
    first, *_ = backend.activations(x, "kernel")
    np.testing.assert_allclose(first.leaving, first.entering["weight"] @ stored_weights()["kernel"], atol=1e-5)
    gradients = backend.trace(x, ["recurrence"]).output_gradients(np.ones((len(x), 3), np.float32))
    assert [gradient.shape for gradient in gradients["recurrence"]] == [(len(x), UNITS)] * STEPS


def test_a_patched_file_keeps_its_loop(tmp_path: Path) -> None:
    backend, x = OnnxBackend.load(make_loop()), sequences()
    weights = backend.get_weights("recurrence")["weight"] + np.float32(0.25)
    found = backend.cut(x, ["recurrence"]).scores_with({("recurrence", "weight"): weights})
    backend.set_weights("recurrence", "weight", weights)
    np.testing.assert_allclose(found, backend.forward(x), atol=1e-6)
    backend.save(tmp_path / "new.onnx")
    again = onnxruntime.InferenceSession(str(tmp_path / "new.onnx"))
    np.testing.assert_allclose(again.run(None, {"x": x})[0], backend.forward(x), atol=1e-6)
    assert len((tmp_path / "new.onnx").read_bytes()) == len(make_loop().SerializeToString())


def test_a_loop_of_any_length_says_why_its_weights_are_out_of_reach() -> None:
    backend = OnnxBackend.load(make_loop("length"))
    np.testing.assert_allclose(backend.forward(sequences()), own_scores(make_loop("length"), sequences()), atol=1e-6)
    assert [info.name for info in backend.layers] == ["out"]
    assert "number of steps is only known when the model runs" in backend.unreachable["recurrence"]


@pytest.mark.parametrize(
    ("operator", "options"),
    [
        ("LSTM", {}),
        ("LSTM", {"direction": "bidirectional"}),
        ("LSTM", {"input_forget": 1}),
        ("GRU", {}),
        ("GRU", {"linear_before_reset": 1}),
        ("RNN", {}),
    ],
)
def test_gradients_pass_recurrent_operators_that_clip(operator: str, options: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    gates, ways = {"LSTM": 4, "GRU": 3, "RNN": 1}[operator], 2 if "direction" in options else 1
    shapes = {
        "W": (ways, gates * UNITS, WIDTH),
        "R": (ways, gates * UNITS, UNITS),
        "B": (ways, 2 * gates * UNITS),
        "V": (ways * UNITS, 3),
    }
    nodes = [
        helper.make_node("Transpose", ["x"], ["turned"], perm=[1, 0, 2]),
        helper.make_node(operator, ["turned", "W", "R", "B"], ["", "h"], hidden_size=UNITS, clip=0.7, **options),
        helper.make_node("Transpose", ["h"], ["back"], perm=[1, 0, 2]),
        helper.make_node("Flatten", ["back"], ["flat"]),
        helper.make_node("MatMul", ["flat", "V"], ["y"]),
    ]
    weights = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    model = make_model(nodes, [value("x", ["n", STEPS, WIDTH])], [value("y", ["n", 3])], weights)
    backend, x = OnnxBackend.load(model), sequences()
    np.testing.assert_allclose(backend.forward(x), own_scores(model, x), atol=1e-6)
    assert not backend.unreachable
    runner = backend._runner
    written_out = Program(runner.device, runner.deep, runner.inputs_of(runner.deep, runner.deep.nodes), ["y"])
    np.testing.assert_allclose(written_out.run({"x": x})["y"], own_scores(model, x), atol=1e-5)
    check_gradients(backend, x)


def test_a_shape_for_sizes_that_the_file_leaves_free_brings_them_into_reach() -> None:
    free, x = make_loop("length"), sequences()
    shape = "x".join(map(str, (1, *x.shape[1:])))
    backend = arachne.load(free, feeds={"x": shape})
    assert {info.name: info.uses for info in backend.layers} == {"kernel": STEPS, "recurrence": STEPS, "out": 1}
    np.testing.assert_allclose(backend.forward(x), own_scores(free, x), atol=1e-6)
    assert isinstance(backend, OnnxBackend)
    check_gradients(backend, x)
    with pytest.raises(UsageError, match=r"the model's input 'x' takes \?x\?x\d+, which 1x2 does not fit"):
        arachne.load(free, feeds={"x": "1x2"})
    with pytest.raises(UsageError, match="no input 'y'"):
        arachne.load(free, feeds={"y": shape})


def test_a_patch_of_a_loop_of_any_length_is_applied_and_reverted(tmp_path: Path) -> None:
    source, changed = tmp_path / "free.onnx", tmp_path / "changed.onnx"
    onnx.save(make_loop("length"), source)
    backend = arachne.load(source, feeds={"x": f"1x{STEPS}x{WIDTH}"})
    weights = backend.get_weights("recurrence")["weight"]
    weights[1, 2] += np.float32(0.25)
    backend.set_weights("recurrence", "weight", weights)
    backend.save(changed)
    patch = arachne.diff(source, changed)
    assert [str(entry.address) for entry in patch.entries] == ["recurrence.weight[1, 2]"]
    arachne.apply(patch, source, tmp_path / "again.onnx")
    assert (tmp_path / "again.onnx").read_bytes() == changed.read_bytes()
    arachne.revert(patch, changed, tmp_path / "back.onnx")
    assert (tmp_path / "back.onnx").read_bytes() == source.read_bytes()
