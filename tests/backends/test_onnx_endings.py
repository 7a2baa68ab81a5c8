"""How ONNX models end, which of their outputs are class scores, and what is told of the way there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, helper

from arachne.errors import ModelError, UsageError
from arachne_onnx import OnnxBackend
from tests.backends.onnx_networks import build_model, numbers

pytestmark = pytest.mark.backend("onnx")

node = helper.make_node
W = numbers(3, 4, seed=1)


@pytest.mark.parametrize("last", ["Softmax", "LogSoftmax"])
def test_a_final_softmax_is_looked_behind(last: str) -> None:
    model = build_model([node("Gemm", ["x", "fc.weight"], ["g"], transB=1), node(last, ["g"], ["y"])], {"fc.weight": W})
    backend = OnnxBackend.load(model)
    x = numbers(5, 4)
    np.testing.assert_allclose(backend.forward(x), x @ W.T, atol=1e-5)
    assert backend.score_kind == "logits"


@pytest.mark.parametrize("shifted", [False, True])
def test_a_softmax_that_is_written_out_is_looked_behind(shifted: bool) -> None:
    before = [
        node("Gemm", ["x", "fc.weight"], ["g"], transB=1),
        node("ReduceMax", ["g", "axis"], ["m"], keepdims=0),
        node("Max", ["lowest", "m"], ["raised"]),
        node("Reshape", ["raised", "column"], ["wide"]),
        node("Sub", ["g", "wide"], ["d"]),
    ]
    nodes = [
        *(before if shifted else before[:1]),
        node("Exp", ["d" if shifted else "g"], ["e"]),
        node("ReduceSum", ["e", "axis"], ["s"]),
        node("Div", ["e", "s"], ["y"]),
    ]
    constants = {"axis": np.array([1]), "lowest": np.array(-np.inf, np.float32), "column": np.array([-1, 1])}
    backend = OnnxBackend.load(build_model(nodes, {"fc.weight": W, **constants}))
    x = numbers(5, 4)
    np.testing.assert_allclose(backend.forward(x), x @ W.T, atol=1e-5)
    assert backend.score_kind == "logits"
    assert backend.layers[0].followed_by == ()


@pytest.mark.parametrize("pair", [False, True])
def test_one_sigmoid_output_is_two_classes(pair: bool) -> None:
    nodes = [node("Gemm", ["x", "fc.weight"], ["g"], transB=1), node("Sigmoid", ["g"], ["p"])]
    if pair:
        nodes += [node("Sub", ["one", "p"], ["q"]), node("Concat", ["q", "p"], ["y"], axis=1)]
    weights = {"fc.weight": W[:1], "one": np.array(1, np.float32)}
    backend = OnnxBackend.load(build_model(nodes, weights, outputs=["y" if pair else "p"]))
    x = numbers(5, 4)
    expected = np.concatenate([np.zeros((5, 1)), x @ W[:1].T], axis=1)
    np.testing.assert_allclose(backend.forward(x), expected, atol=1e-5)


def test_probabilities_made_otherwise_become_log_probabilities() -> None:
    nodes = [
        node("Gemm", ["x", "fc.weight"], ["g"], transB=1),
        node("Softplus", ["g"], ["e"]),
        node("ReduceSum", ["e", "axis"], ["s"]),
        node("Div", ["e", "s"], ["y"]),
    ]
    backend = OnnxBackend.load(build_model(nodes, {"fc.weight": W, "axis": np.array([1])}))
    x = numbers(5, 4)
    positive = np.log1p(np.exp(x @ W.T))
    expected = np.log(positive / positive.sum(1, keepdims=True))
    np.testing.assert_allclose(backend.forward(x), expected, atol=1e-5)
    assert backend.score_kind == "log-probabilities"


def test_an_output_is_chosen_by_name() -> None:
    nodes = [
        node("Gemm", ["x", "a.weight"], ["first"], transB=1),
        node("Gemm", ["x", "b.weight"], ["second"], transB=1),
    ]
    model = build_model(nodes, {"a.weight": W, "b.weight": numbers(5, 4)}, outputs=["first", "second"])
    assert OnnxBackend.load(model, output="second").forward(numbers(2, 4)).shape == (2, 5)
    with pytest.raises(ModelError, match="2 outputs, name one with --output or output=: first, second"):
        OnnxBackend.load(model)
    with pytest.raises(UsageError, match="did you mean 'second'"):
        OnnxBackend.load(model, output="secnd")


@pytest.mark.parametrize(
    ("nodes", "shape", "wanted", "separate"),
    [
        ([node("Gemm", ["x", "w"], ["y"])], (4, 1), (5, 1), False),
        ([node("Gemm", ["x", "w"], ["g"]), node("Sigmoid", ["g"], ["y"])], (4, 3), (5, 3), True),
        ([node("Gemm", ["x", "w"], ["g"]), node("Reshape", ["g", "s"], ["y"])], (4, 8), (5, 4, 2), False),
    ],
    ids=["regression", "several_labels", "sequence"],
)
def test_outputs_of_any_shape_are_handed_on_for_a_task_to_read(
    nodes: list[NodeProto], shape: Any, wanted: tuple[int, ...], separate: bool
) -> None:
    backend = OnnxBackend.load(build_model(nodes, {"w": numbers(*shape), "s": np.array([-1, 4, 2])}))
    outputs = backend.forward(numbers(5, 4))
    np.testing.assert_allclose(outputs, (numbers(5, 4) @ numbers(*shape)).reshape(wanted), atol=1e-5)
    assert backend.separate_outputs is separate


def test_scores_with_axes_of_one_behind_them_are_class_scores() -> None:
    nodes = [
        node("Conv", ["x", "conv.weight"], ["c"]),
        node("GlobalAveragePool", ["c"], ["p"]),
        node("Softmax", ["p"], ["y"], axis=1),
    ]
    backend = OnnxBackend.load(build_model(nodes, {"conv.weight": numbers(3, 2, 1, 1)}, inputs={"x": (1, 2, 4, 4)}))
    x = numbers(6, 2, 4, 4)
    expected = np.einsum("nchw,kc->nk", x, numbers(3, 2)) / 16
    np.testing.assert_allclose(backend.forward(x), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("between", "words"),
    [
        ([node("Relu", ["a"], ["b"])], ("relu",)),
        ([node("Elu", ["a"], ["b"])], ("elu",)),
        ([node("Elu", ["a"], ["b"], alpha=0.5)], None),
        ([node("Gelu", ["a"], ["b"])], ("gelu",)),
        ([node("Gelu", ["a"], ["b"], approximate="tanh")], None),
        ([node("Clip", ["a", "zero", "six"], ["b"])], ("relu6",)),
        ([node("Clip", ["a", "zero"], ["b"])], None),
        ([node("Softmax", ["a"], ["b"])], None),
        ([node("Mul", ["a", "six"], ["b"])], None),
        ([node("Dropout", ["a"], ["d"]), node("Reshape", ["d", "rows"], ["b"])], ("flatten",)),
        ([node("Reshape", ["a", "other"], ["b"])], None),
    ],
    ids=["relu", "elu", "elu_half", "gelu", "gelu_tanh", "relu6", "clip", "softmax", "mul", "flatten", "reshape"],
)
def test_what_follows_a_layer_is_told_only_where_the_word_says_all(between: list[NodeProto], words: Any) -> None:
    nodes = [
        node("Gemm", ["x", "fc1.weight"], ["a"], transB=1),
        *between,
        node("Gemm", ["b", "fc2.weight"], ["y"], transB=1),
    ]
    constants = {"zero": np.array(0, np.float32), "six": np.array(6, np.float32)}
    shapes = {"rows": np.array([-1, 4]), "other": np.array([-1, 2])}
    weights = {"fc1.weight": numbers(4, 4), "fc2.weight": numbers(3, 2 if "other" in between[-1].input else 4)}
    backend = OnnxBackend.load(build_model(nodes, {**weights, **constants, **shapes}, opset=20))
    assert backend.layers[0].followed_by == words
    assert backend.layers[1].followed_by == ()


@pytest.mark.parametrize(
    ("pads", "value", "mode", "words"),
    [
        ([0, 0, 1, 1, 0, 0, 1, 0], 0.0, "constant", ("zero_pad",)),
        ([0, 0, 1, 1, 0, 0, 1, 0], 1.0, "constant", None),
        ([0, 0, 1, 1, 0, 0, 1, 0], 0.0, "reflect", None),
        ([0, 1, 0, 0, 0, 0, 0, 0], 0.0, "constant", None),
        ([0, 0, 1, 1, 0, 0, -1, 0], 0.0, "constant", None),
    ],
    ids=["zeros", "ones", "reflected", "channels", "cropped"],
)
def test_padding_is_told_where_zeros_stand_around_positions(
    pads: list[int], value: float, mode: str, words: Any
) -> None:
    nodes = [
        node("Conv", ["x", "a.weight"], ["a"]),
        node("Pad", ["a", "pads", "value"], ["b"], mode=mode),
        node("Conv", ["b", "b.weight"], ["c"]),
        node("GlobalAveragePool", ["c"], ["d"]),
        node("Flatten", ["d"], ["y"]),
    ]
    weights = {"a.weight": numbers(2, 1, 3, 3), "b.weight": numbers(3, 2 + pads[1], 1, 1)}
    constants = {"pads": np.array(pads), "value": np.array(value, np.float32)}
    backend = OnnxBackend.load(build_model(nodes, {**weights, **constants}, inputs={"x": ("n", 1, 7, 6)}))
    assert backend.layers[0].followed_by == words
    assert backend.layers[1].followed_by == ("global_average_pool", "flatten")
