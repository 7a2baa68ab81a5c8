"""ONNX files of other people: scikit-learn pipelines, training graphs, float64, inputs of another shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import arachne
from arachne.decisions.losses import cross_entropies, cross_entropy
from arachne.errors import DataError, UsageError
from arachne.model.values import Array, Inputs
from arachne_onnx import OnnxBackend
from tests import commands

pytestmark = pytest.mark.backend("onnx")


def rows(n: int = 12, width: int = 16) -> Array:
    return np.random.default_rng(0).normal(size=(n, width)).astype(np.float32)


def value(name: str, shape: list[Any], element: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, element, shape)


def make_model(nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: dict[str, Array]) -> ModelProto:
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "net", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check_gradients(backend: OnnxBackend, inputs: Inputs, step: float = 1e-3) -> None:
    """Weight gradients of the mean cross-entropy against central differences, for some weights of every parameter."""
    labels = np.arange(len(backend.forward(inputs))) % backend.forward(inputs).shape[1]
    rng = np.random.default_rng(0)
    for (layer, parameter), gradient in backend.weight_gradients(inputs, cross_entropy(labels)).items():
        weights = backend.get_weights(layer)[parameter]
        for _ in range(4):
            place = tuple(int(rng.integers(size)) for size in weights.shape)
            losses = []
            for sign in (1, -1):
                moved = weights.copy()
                moved[place] += sign * step
                backend.set_weights(layer, parameter, moved)
                losses.append(float(cross_entropies(backend.forward(inputs).astype(np.float64), labels).mean()))
            backend.set_weights(layer, parameter, weights)
            expected = (losses[0] - losses[1]) / (2 * step)
            assert gradient[place] == pytest.approx(expected, rel=2e-2, abs=5e-4), (layer, parameter, place)


def rename_domain(model: ModelProto) -> ModelProto:
    """Put ONNX' own operators under their domain's name."""
    for node in model.graph.node:
        node.domain = node.domain or "ai.onnx"
    for entry in model.opset_import:
        entry.domain = entry.domain or "ai.onnx"
    return model


def pipeline(dtype: type) -> tuple[ModelProto, Any, Array]:
    skl2onnx = pytest.importorskip("skl2onnx")
    from sklearn.datasets import load_digits
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, y = load_digits(return_X_y=True)
    x = x.astype(dtype)
    with pytest.warns(ConvergenceWarning):
        fitted = make_pipeline(
            StandardScaler(), MLPClassifier((8,), activation="tanh", max_iter=5, random_state=0)
        ).fit(x[:400], y[:400])
    return skl2onnx.to_onnx(fitted, x[:1], options={"zipmap": False}), fitted, x[400:460]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("named", [False, True])
def test_a_scikit_learn_pipeline_scores_as_scikit_learn_does(dtype: type, named: bool) -> None:
    model, fitted, x = pipeline(dtype)
    backend = OnnxBackend.load(rename_domain(model) if named else model)
    np.testing.assert_array_equal(backend.predict(x), fitted.predict(x))
    np.testing.assert_array_equal(backend.predict(x.astype(np.float64)), fitted.predict(x))
    check_gradients(backend, x)


def training_graph() -> ModelProto:
    rng = np.random.default_rng(1)
    weights = {
        "w1": rng.normal(size=(16, 8)).astype(np.float32),
        "w2": rng.normal(size=(8, 3)).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Div", ["r", "keep_prob"], ["kept"]),
        helper.make_node("MatMul", ["kept", "w2"], ["scores"]),
        helper.make_node("Sub", ["scores", "y_"], ["difference"]),
        helper.make_node("ReduceMean", ["difference"], ["loss"], keepdims=0),
    ]
    inputs = [value("x", ["n", 16]), value("y_", ["n", 3]), value("keep_prob", [])]
    return make_model(nodes, inputs, [value("scores", ["n", 3]), value("loss", [])], weights)


def test_inputs_the_scores_do_not_depend_on_are_left_out_and_others_can_be_fixed() -> None:
    backend = arachne.load(training_graph(), feeds={"keep_prob": 0.5, "y_": 0})
    x = rows()
    w1, w2 = (numpy_helper.to_array(tensor) for tensor in training_graph().graph.initializer)
    np.testing.assert_allclose(backend.forward(x), np.maximum(x @ w1, 0) / 0.5 @ w2, rtol=1e-4, atol=1e-4)
    assert "the scores do not depend on y_" in " ".join(backend.describe().notes)
    labels = np.zeros((len(x), 3), np.float32)
    np.testing.assert_array_equal(backend.forward({"x": x, "y_": labels}), backend.forward(x))
    assert isinstance(backend, OnnxBackend)
    check_gradients(backend, x)


def test_an_input_that_is_no_data_is_asked_for() -> None:
    backend = arachne.load(training_graph())
    with pytest.raises(DataError, match=r"takes 2 inputs by name \(x, keep_prob\), got one array.*or constants"):
        backend.forward(rows())
    with pytest.raises(UsageError, match="no input 'keep_pro'; did you mean 'keep_prob'"):
        arachne.load(training_graph(), feeds={"keep_pro": 1})
    with pytest.raises(UsageError, match=r"takes arrays of shape \(\), got a value of shape \(2,\)"):
        arachne.load(training_graph(), feeds={"keep_prob": [1, 2]})
    with pytest.raises(UsageError, match="every input of the model is fixed"):
        arachne.load(training_graph(), feeds={"keep_prob": 1, "x": 0})


def test_a_switch_that_is_fixed_takes_its_branch() -> None:
    weights = {"w": np.random.default_rng(2).normal(size=(16, 3)).astype(np.float32)}
    branches = {
        f"{name}_branch": helper.make_graph([node], name, [], [value("out", ["n", 3])])
        for name, node in (
            ("then", helper.make_node("Sub", ["s", "s"], ["out"])),
            ("else", helper.make_node("Identity", ["s"], ["out"])),
        )
    }
    nodes = [helper.make_node("MatMul", ["x", "w"], ["s"]), helper.make_node("If", ["training"], ["y"], **branches)]
    inputs = [value("x", ["n", 16]), value("training", [], TensorProto.BOOL)]
    backend = arachne.load(make_model(nodes, inputs, [value("y", ["n", 3])], weights), feeds={"training": False})
    np.testing.assert_allclose(backend.forward(rows()), rows() @ weights["w"], rtol=1e-4, atol=1e-5)
    assert isinstance(backend, OnnxBackend)
    check_gradients(backend, rows())


def test_the_command_line_feeds_constants_and_names_the_option(tmp_path: Path) -> None:
    onnx.save(training_graph(), str(tmp_path / "net.onnx"))
    x = rows(60)
    y = arachne.load(training_graph(), feeds={"keep_prob": 1}).predict(x)
    y[:12] = (y[:12] + 1) % 3
    np.savez(tmp_path / "val.npz", x=x, y=y)
    scan = ("scan", "net.onnx", "--data", "val.npz", "--no-causes")
    asked = commands.arachne(*scan, cwd=tmp_path)
    assert asked.code == 3
    assert "(--feed NAME=VALUE)" in asked.err
    fed = commands.arachne(*scan, "--feed", "keep_prob=1", cwd=tmp_path)
    assert fed.code == 0, fed.err
    assert "accuracy 80.0 %" in fed.out
    wrong = commands.arachne(*scan, "--feed", "keep_prob=half", cwd=tmp_path)
    assert wrong.code == 2
    assert "as in keep_prob=1, or a shape, as in x=1x3x32x32, got 'keep_prob=half'" in wrong.err


@pytest.mark.parametrize(("given", "step"), [((1, 4, 4), "shape=4x4"), ((4, 4, 1), "shape=4x4"), ((16,), "shape=4x4")])
def test_inputs_of_another_shape_are_told_what_makes_them_fit(
    tmp_path: Path, given: tuple[int, ...], step: str
) -> None:
    weights = {"w": np.random.default_rng(2).normal(size=(16, 3)).astype(np.float32)}
    nodes = [helper.make_node("Flatten", ["x"], ["f"]), helper.make_node("MatMul", ["f", "w"], ["y"])]
    onnx.save(make_model(nodes, [value("x", ["n", 4, 4])], [value("y", ["n", 3])], weights), str(tmp_path / "net.onnx"))
    x = rows(60)
    np.savez(tmp_path / "val.npz", x=x.reshape(-1, *given), y=np.argmax(x @ weights["w"], axis=1))
    scan = ("scan", "net.onnx", "--data", "val.npz", "--no-causes")
    ran = commands.arachne(*scan, cwd=tmp_path)
    assert ran.code == 3
    assert f"the preprocessing '{step}' makes them fit, with an accuracy of 100 %" in ran.err
    assert "(--preprocess STEPS)" in ran.err
    assert commands.arachne(*scan, "--preprocess", step, cwd=tmp_path).code == 0
