"""Every gradient rule against finite differences, the common operators over random attributes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from arachne.model.values import Array
from arachne_onnx.derivative import SEED, Derivative
from arachne_onnx.sessions import Program
from tests.backends.onnx_numbers import DEVICE, check, check_in_single, gradients, graph_of, model_of

node = helper.make_node
QUICK = settings(max_examples=12)


def floats(*shape: int, seed: int = 0, low: float | None = None) -> Array:
    """Normal numbers, none of them within 0.02 of zero or of another: no rule is tested on its kink."""
    rng = np.random.default_rng(seed)
    size = int(np.prod(shape))
    values = (rng.permutation(size) - size / 2 + 0.5) / max(size, 1) * 4
    values = values + np.where(values >= 0, 0.05, -0.05)
    if low is not None:
        values = np.abs(values) + low
    return values.reshape(shape).astype(np.float32)


UNARY = (
    "Neg Abs Exp Relu Selu Softplus Softsign Sigmoid Tanh Identity Sin Cos Atan HardSwish Elu Celu LeakyRelu "
    "HardSigmoid Mish ThresholdedRelu"
)


@pytest.mark.parametrize("operator", UNARY.split())
def test_rule_of_a_function_of_one_variable(operator: str) -> None:
    check(node(operator, ["x"], ["y"]), {"x": floats(3, 5)}, ["x"])


@pytest.mark.parametrize("operator", ["Sqrt", "Reciprocal", "Log"])
def test_rule_of_a_function_of_positive_numbers(operator: str) -> None:
    check(node(operator, ["x"], ["y"]), {"x": floats(3, 5, low=0.3)}, ["x"])


@pytest.mark.parametrize(
    ("operator", "options"),
    [
        ("LeakyRelu", {"alpha": 0.3}),
        ("Elu", {"alpha": 0.7}),
        ("Celu", {"alpha": 0.7}),
        ("Selu", {"alpha": 1.2, "gamma": 0.9}),
        ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
        ("Softmax", {"axis": 0}),
        ("Softmax", {"axis": -1}),
        ("LogSoftmax", {"axis": 1}),
        ("LpNormalization", {"axis": 1, "p": 2}),
    ],
)
def test_rule_follows_the_attributes(operator: str, options: dict[str, Any]) -> None:
    check(node(operator, ["x"], ["y"], **options), {"x": floats(4, 5)}, ["x"])


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_rule_of_gelu(approximate: str) -> None:
    check_in_single(node("Gelu", ["x"], ["y"], approximate=approximate), {"x": floats(3, 5)}, ["x"], opset=20)


@pytest.mark.parametrize(
    ("operator", "options", "shape"),
    [
        ("Erf", {}, (3, 5)),
        ("LpNormalization", {"axis": 1, "p": 1}, (4, 5)),
        ("LRN", {"size": 3, "alpha": 0.5, "beta": 0.7, "bias": 1.1}, (2, 6, 3, 2)),
        ("LRN", {"size": 5}, (2, 6, 3, 1)),
    ],
)
def test_rule_where_the_reference_is_less_exact_than_the_runtime(operator: str, options: Any, shape: Any) -> None:
    check_in_single(node(operator, ["x"], ["y"], **options), {"x": floats(*shape)}, ["x"])


def test_rule_of_prelu_reaches_the_slope() -> None:
    check(node("PRelu", ["x", "s"], ["y"]), {"x": floats(2, 3, 4), "s": floats(3, 1, seed=1)}, ["x", "s"])


@QUICK
@given(
    operator=st.sampled_from(["Add", "Sub", "Mul", "Div", "Max", "Min", "Sum"]),
    left=st.sampled_from([(2, 3, 4), (3, 4), (4,), (1, 4), (2, 1, 1), ()]),
    right=st.sampled_from([(2, 3, 4), (3, 1), (1,), (2, 1, 4), ()]),
)
def test_rule_of_arithmetic_undoes_broadcasting(operator: str, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    values = {"a": floats(*left), "b": np.asarray(floats(*right, seed=1) + np.float32(0.013))}
    check(node(operator, ["a", "b"], ["y"]), values, ["a", "b"])


def test_rule_of_mean() -> None:
    check_in_single(node("Mean", ["a", "b"], ["y"]), {"a": floats(3, 4), "b": floats(2, 1, 4, seed=1)}, ["a", "b"])


@pytest.mark.parametrize("exponent", [2.0, 3.0, 0.5])
def test_rule_of_pow(exponent: float) -> None:
    values = {"x": floats(3, 4, low=0.2), "constp": np.array(exponent, dtype=np.float32)}
    check(node("Pow", ["x", "constp"], ["y"]), values, ["x"])


def test_rule_of_pow_reaches_the_exponent() -> None:
    check(node("Pow", ["x", "p"], ["y"]), {"x": floats(3, 4, low=0.2), "p": floats(4, seed=3)}, ["x", "p"])


def test_rule_of_where() -> None:
    values = {"constc": np.array([[True], [False], [True]]), "a": floats(3, 4), "b": floats(4, seed=1)}
    check(node("Where", ["constc", "a", "b"], ["y"]), values, ["a", "b"])


def test_rule_of_clip() -> None:
    values = {"x": floats(4, 4), "constl": np.float32(-0.7), "consth": np.float32(0.9)}
    check(node("Clip", ["x", "constl", "consth"], ["y"]), {k: np.asarray(v) for k, v in values.items()}, ["x"])


@QUICK
@given(
    trans_a=st.integers(0, 1),
    trans_b=st.integers(0, 1),
    alpha=st.sampled_from([1.0, 0.5]),
    beta=st.sampled_from([1.0, 2.0]),
    added=st.sampled_from([(4,), (2, 4), (1, 4), (2, 1), ()]),
)
def test_rule_of_gemm(trans_a: int, trans_b: int, alpha: float, beta: float, added: tuple[int, ...]) -> None:
    a, b = floats(2, 3), floats(3, 4, seed=1)
    values = {"a": a.T.copy() if trans_a else a, "b": b.T.copy() if trans_b else b, "c": floats(*added, seed=2)}
    operator = node("Gemm", ["a", "b", "c"], ["y"], transA=trans_a, transB=trans_b, alpha=alpha, beta=beta)
    check(operator, values, ["a", "b", "c"])


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((2, 3), (3, 4)),
        ((5, 2, 3), (3, 4)),
        ((5, 2, 3), (5, 3, 4)),
        ((2, 5, 2, 3), (5, 3, 4)),
        ((2, 3), (5, 3, 4)),
        ((5, 1, 2, 3), (1, 4, 3, 2)),
        ((3,), (3, 4)),
        ((2, 3), (3,)),
        ((5, 2, 3), (3,)),
        ((3,), (5, 3, 4)),
        ((3,), (3,)),
    ],
)
def test_rule_of_matmul(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    check(node("MatMul", ["a", "b"], ["y"]), {"a": floats(*left), "b": floats(*right, seed=1)}, ["a", "b"])


@QUICK
@given(
    axes=st.integers(1, 3),
    groups=st.sampled_from([1, 2, 4]),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
    pads=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    width=st.integers(1, 3),
    size=st.integers(6, 8),
)
def test_rule_of_conv(
    axes: int, groups: int, stride: int, dilation: int, pads: tuple[int, int], width: int, size: int
) -> None:
    values = {
        "x": floats(2, 4, *[size] * axes),
        "w": floats(4, 4 // groups, *[width] * axes, seed=1),
        "b": floats(4, seed=2),
    }
    operator = node(
        "Conv",
        ["x", "w", "b"],
        ["y"],
        group=groups,
        strides=[stride] * axes,
        dilations=[dilation] * axes,
        pads=[*[pads[0]] * axes, *[pads[1]] * axes],
    )
    check(operator, values, ["x", "w", "b"])


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "pads"),
    [
        ((3, 2), (1, 1), (1, 1), [1, 0, 1, 1]),
        ((3, 3), (2, 1), (1, 2), [0, 2, 1, 0]),
        ((1, 1), (2, 2), (1, 1), [0, 0, 0, 0]),
    ],
)
def test_rule_of_conv_with_many_channels(kernel: Any, stride: Any, dilation: Any, pads: list[int]) -> None:
    values = {"x": floats(2, 16, 7, 6), "w": floats(3, 16, *kernel, seed=1)}
    operator = node("Conv", ["x", "w"], ["y"], strides=stride, dilations=dilation, pads=pads)
    check(operator, values, ["x", "w"])


@pytest.mark.parametrize("shape", [(2, 3, 6), (2, 3, 6, 4), (2, 1, 4, 4, 2)])
def test_rule_of_max_pool_over_windows_side_by_side(shape: tuple[int, ...]) -> None:
    kernel = [2] * (len(shape) - 2)
    check(node("MaxPool", ["x"], ["y"], kernel_shape=kernel, strides=kernel), {"x": floats(*shape)}, ["x"])


def test_equal_maxima_of_windows_side_by_side_share_the_gradient() -> None:
    operator = node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], strides=[2, 2])
    x = np.array([[[[1, 1, 5, 2], [0, 1, 3, 4]]]], np.float32)
    graph = graph_of(model_of(operator, {"x": x}), {"x": x})
    found = Derivative(graph, ["x"])
    name = found.gradients["x"]
    program = Program(DEVICE, found.graph, found.graph.inputs, [name])
    gradient = program.run({"x": x, SEED: np.array([[[[3, 7]]]], np.float32)})[name]
    np.testing.assert_allclose(gradient, [[[[1, 1, 7, 0], [0, 1, 0, 0]]]])


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("stride", [1, 2])
def test_rule_of_conv_with_automatic_padding(mode: str, stride: int) -> None:
    values = {"x": floats(2, 2, 7, 6), "w": floats(3, 2, 4, 3, seed=1)}
    operator = node("Conv", ["x", "w"], ["y"], auto_pad=mode, strides=[stride, stride], kernel_shape=[4, 3])
    check(operator, values, ["x", "w"])


@QUICK
@given(
    axes=st.integers(1, 2),
    groups=st.sampled_from([1, 2]),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
    pad=st.integers(0, 1),
    extra=st.integers(0, 1),
)
def test_rule_of_conv_transpose(axes: int, groups: int, stride: int, dilation: int, pad: int, extra: int) -> None:
    values = {"x": floats(2, 4, *[4] * axes), "w": floats(4, 6 // groups, *[3] * axes, seed=1), "b": floats(6, seed=2)}
    operator = node(
        "ConvTranspose",
        ["x", "w", "b"],
        ["y"],
        group=groups,
        strides=[stride] * axes,
        dilations=[dilation] * axes,
        pads=[pad] * 2 * axes,
        output_padding=[min(extra, stride - 1)] * axes,
    )
    check_in_single(operator, values, ["x", "w", "b"])


@pytest.mark.parametrize(("operator", "option"), [("MaxPool", "ceil_mode"), ("AveragePool", "count_include_pad")])
@QUICK
@given(
    axes=st.integers(1, 2),
    width=st.integers(2, 3),
    stride=st.integers(1, 3),
    pad=st.integers(0, 1),
    setting=st.integers(0, 1),
    size=st.integers(5, 8),
)
def test_rule_of_pooling(
    operator: str, option: str, axes: int, width: int, stride: int, pad: int, setting: int, size: int
) -> None:
    walk: dict[str, Any] = {"kernel_shape": [width] * axes, "strides": [stride] * axes, "pads": [pad] * 2 * axes}
    pool = node(operator, ["x"], ["y"], **walk, **{option: setting})
    check(pool, {"x": floats(2, 3, *[size] * axes)}, ["x"])


@pytest.mark.parametrize("operator", ["GlobalAveragePool", "GlobalMaxPool"])
def test_rule_of_global_pooling(operator: str) -> None:
    check(node(operator, ["x"], ["y"]), {"x": floats(2, 3, 4, 5)}, ["x"])


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (2, 3, 4, 5)])
def test_rule_of_batch_normalization(shape: tuple[int, ...]) -> None:
    values = {
        "x": floats(*shape),
        "s": floats(3, seed=1),
        "b": floats(3, seed=2),
        "constm": floats(3, seed=3),
        "constv": floats(3, seed=4, low=0.5),
    }
    check(node("BatchNormalization", ["x", "s", "b", "constm", "constv"], ["y"], epsilon=0.01), values, ["x", "s", "b"])


def test_rule_of_instance_normalization() -> None:
    values = {"x": floats(2, 3, 4, 5), "s": floats(3, seed=1), "b": floats(3, seed=2)}
    check(node("InstanceNormalization", ["x", "s", "b"], ["y"]), values, ["x", "s", "b"], tolerance=5e-4)


@pytest.mark.parametrize("axis", [-1, 1, -2])
def test_rule_of_layer_normalization(axis: int) -> None:
    shape = (4, 5) if axis != -1 else (5,)
    values = {"x": floats(3, 4, 5), "s": floats(*shape, seed=1), "b": floats(*shape, seed=2)}
    check(
        node("LayerNormalization", ["x", "s", "b"], ["y"], axis=axis), values, ["x", "s", "b"], opset=17, tolerance=5e-4
    )


def test_rule_of_group_normalization() -> None:
    values = {"x": floats(2, 4, 3, 3), "s": floats(4, seed=1), "b": floats(4, seed=2)}
    check_in_single(node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2), values, ["x", "s", "b"], opset=21)


ints = np.array


@pytest.mark.parametrize(
    ("operator", "options", "more", "shape"),
    [
        ("Reshape", {}, {"consts": ints([4, -1])}, (2, 4, 3)),
        ("Flatten", {"axis": 2}, {}, (2, 4, 3)),
        ("Squeeze", {}, {"consts": ints([1])}, (2, 1, 3)),
        ("Unsqueeze", {}, {"consts": ints([0, 2])}, (2, 3)),
        ("Transpose", {"perm": [2, 0, 1]}, {}, (2, 3, 4)),
        ("Transpose", {}, {}, (2, 3, 4)),
        ("Expand", {}, {"consts": ints([2, 3, 4])}, (3, 1)),
        ("Tile", {}, {"consts": ints([2, 1, 3])}, (2, 3, 2)),
        ("Slice", {}, {"constb": ints([1, -2]), "conste": ints([3, 9]), "consta": ints([0, 2])}, (4, 2, 5)),
        (
            "Slice",
            {},
            {"constb": ints([-1]), "conste": ints([-9]), "consta": ints([1]), "constst": ints([-2])},
            (2, 6),
        ),
        ("Pad", {}, {"constp": ints([0, 1, 2, 0])}, (3, 4)),
        ("Pad", {"mode": "reflect"}, {"constp": ints([1, 2, 0, 1])}, (3, 4)),
        ("Pad", {"mode": "edge"}, {"constp": ints([1, 2, 0, 1])}, (3, 4)),
        ("Gather", {"axis": 0}, {"consti": ints([[0, 2], [2, -1]])}, (4, 3)),
        ("Gather", {"axis": 1}, {"consti": ints(1)}, (4, 3, 2)),
        ("Gather", {"axis": -1}, {"consti": ints([1, 1, 0])}, (4, 3, 2)),
        ("GatherElements", {"axis": 1}, {"consti": ints([[0, 2, 2], [1, 1, -1]])}, (2, 3)),
        ("GatherND", {}, {"consti": ints([[0, 1], [1, 0], [0, 1]])}, (2, 3, 2)),
        ("GatherND", {"batch_dims": 1}, {"consti": ints([[1], [2]])}, (2, 3, 2)),
        ("CumSum", {}, {"consta": ints(1)}, (2, 4)),
        ("CumSum", {"reverse": 1, "exclusive": 1}, {"consta": ints(0)}, (3, 4)),
        ("DepthToSpace", {"blocksize": 2}, {}, (1, 8, 2, 3)),
        ("DepthToSpace", {"blocksize": 2, "mode": "CRD"}, {}, (1, 8, 2, 3)),
        ("SpaceToDepth", {"blocksize": 2}, {}, (1, 2, 4, 6)),
        ("Trilu", {"upper": 0}, {}, (4, 4)),
    ],
)
def test_rule_of_moving_numbers(operator: str, options: dict[str, Any], more: dict[str, Array], shape: Any) -> None:
    values = {"x": floats(*shape), **{name: np.asarray(value, dtype=np.int64) for name, value in more.items()}}
    check(node(operator, list(values), ["y"], **options), values, ["x"])


def test_rule_of_concat_and_split() -> None:
    values = {"a": floats(2, 3), "b": floats(2, 1, seed=1), "consts": np.array([1, 3], dtype=np.int64)}
    nodes = [
        node("Concat", ["a", "b"], ["c"], axis=1),
        node("Split", ["c", "consts"], ["l", "r"], axis=1),
        node("Mul", ["r", "r"], ["y"]),
    ]
    check(nodes, values, ["a", "b"])


@pytest.mark.parametrize("reduction", ["none", "add"])
@pytest.mark.parametrize(
    ("operator", "options", "shape", "places", "updates"),
    [
        ("ScatterND", {}, (4, 3), [[0], [2]], (2, 3)),
        ("ScatterElements", {"axis": 1}, (3, 4), [[0, 2], [1, 3]], (2, 2)),
    ],
)
def test_rule_of_scattering(
    operator: str, options: dict[str, Any], shape: Any, places: Any, updates: Any, reduction: str
) -> None:
    values = {"x": floats(*shape), "consti": np.array(places, np.int64), "u": floats(*updates, seed=1)}
    check(node(operator, list(values), ["y"], **options, reduction=reduction), values, ["x", "u"])


def test_rule_of_top_k() -> None:
    values = {"x": floats(3, 5), "constk": np.array([2], dtype=np.int64)}
    check(node("TopK", ["x", "constk"], ["y", "i"]), values, ["x"])


REDUCTIONS = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceLogSumExp"]


@pytest.mark.parametrize("operator", [*REDUCTIONS, "ReduceSumSquare", "ReduceProd"])
@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("axes", [[1], [0, 2], [-1], None])
def test_rule_of_reductions(operator: str, keep: int, axes: list[int] | None) -> None:
    values: dict[str, Array] = {"x": floats(2, 3, 4, low=0.2 if operator == "ReduceProd" else None)}
    if axes is not None:
        values["consta"] = np.array(axes, dtype=np.int64)
    check(node(operator, list(values), ["y"], keepdims=keep), values, ["x"])


def test_rule_of_reduce_log_sum() -> None:
    values = {"x": floats(2, 3, low=0.3), "consta": np.array([1], dtype=np.int64)}
    check(node("ReduceLogSum", ["x", "consta"], ["y"], keepdims=0), values, ["x"])


@pytest.mark.parametrize(
    "equation",
    ["ij,jk->ik", "bij,bjk->bik", "...ij,jk->...ik", "bhqd,bhkd->bhqk", "ij,j->i", "ij->i", "ij,jk", "i,j->ij"],
)
def test_rule_of_einsum(equation: str) -> None:
    sizes = {"i": 2, "j": 3, "k": 4, "b": 2, "h": 3, "q": 2, "d": 5}
    terms = equation.partition("->")[0].split(",")
    shapes = [(2,) * ("..." in term) + tuple(sizes[c] for c in term if c != ".") for term in terms]
    values = {name: floats(*shape, seed=i) for i, (name, shape) in enumerate(zip("ab", shapes, strict=False))}
    check(node("Einsum", list(values), ["y"], equation=equation), values, list(values))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("place", ["half_pixel", "align_corners", "asymmetric"])
def test_rule_of_resize(mode: str, place: str) -> None:
    values = {"x": floats(2, 2, 3, 4), "consts": np.array([1, 1, 2, 1.5], dtype=np.float32)}
    operator = node("Resize", ["x", "", "consts"], ["y"], mode=mode, coordinate_transformation_mode=place)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(operator, values, ["x"])


def test_rule_of_resize_to_sizes() -> None:
    values = {"x": floats(2, 2, 3, 4), "constn": np.array([2, 2, 5, 3], dtype=np.int64)}
    check(node("Resize", ["x", "", "", "constn"], ["y"], mode="linear"), values, ["x"])


@pytest.mark.parametrize("heads", [1, 2])
def test_rule_of_attention(heads: int) -> None:
    values = {name: floats(2, 3, 4, seed=i) for i, name in enumerate("qkv")}
    operator = node("Attention", ["q", "k", "v"], ["y"], q_num_heads=heads, kv_num_heads=heads)
    check(operator, values, ["q", "k", "v"], opset=23)


def recurrent(operator: str, gates: int, directions: int, *, steps: int = 4) -> dict[str, Array]:
    """Inputs of a recurrent operator: 4 steps, 2 inputs of 3 numbers, 2 units."""
    rng = np.random.default_rng(gates)
    shapes = {
        "x": (steps, 2, 3),
        "w": (directions, gates * 2, 3),
        "r": (directions, gates * 2, 2),
        "b": (directions, 2 * gates * 2),
    }
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("way", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("operator", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_rule_of_recurrent_layers_agrees_with_finite_differences(operator: str, gates: int, way: str) -> None:
    values = recurrent(operator, gates, 2 if way == "bidirectional" else 1)
    options = {"hidden_size": 2, "direction": way}
    if operator == "GRU":
        options["linear_before_reset"] = 1
    check_in_single([node(operator, list(values), ["y"], **options)], values, ["x", "w", "r", "b"])


def test_rule_of_gru_that_resets_before_the_product() -> None:
    values = recurrent("GRU", 3, 1)
    check_in_single([node("GRU", list(values), ["y"], hidden_size=2)], values, ["x", "w", "r", "b"])


def test_rule_of_lstm_with_lengths_states_and_peepholes() -> None:
    values = recurrent("LSTM", 4, 1)
    values["constlength"] = np.array([4, 2], dtype=np.int32)
    values["h"] = floats(1, 2, 2, seed=5)
    values["c"] = floats(1, 2, 2, seed=6)
    values["p"] = floats(1, 6, seed=7)
    operator = node("LSTM", ["x", "w", "r", "b", "constlength", "h", "c", "p"], ["", "y", "last"], hidden_size=2)
    check_in_single([operator], values, ["x", "w", "r", "b", "h", "c", "p"])


def test_rule_of_loop_that_stops_early() -> None:
    state = helper.make_tensor_value_info("s", TensorProto.FLOAT, [2, 3])
    body = helper.make_graph(
        [
            node("Mul", ["s", "w"], ["grown"]),
            node("Tanh", ["grown"], ["next"]),
            node("ReduceSum", ["next"], ["total"], keepdims=0),
            node("Less", ["i", "constlimit"], ["go"]),
            node("Identity", ["next"], ["written"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("running", TensorProto.BOOL, []),
            state,
        ],
        [
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, [2, 3]),
            helper.make_tensor_value_info("written", TensorProto.FLOAT, [2, 3]),
        ],
    )
    nodes = [
        node("Loop", ["consttimes", "constgo", "x"], ["last", "all"], body=body),
        node("ReduceSum", ["all", "constaxis"], ["summed"], keepdims=0),
        node("Mul", ["summed", "last"], ["y"]),
    ]
    values = {
        "x": floats(2, 3),
        "w": floats(2, 3, seed=1),
        "consttimes": np.array(9, dtype=np.int64),
        "constgo": np.array(True),
        "constlimit": np.array(2, dtype=np.int64),
        "constaxis": np.array([0], dtype=np.int64),
    }
    check_in_single(nodes, values, ["x", "w"])


def test_rule_of_scan_over_another_axis_backwards() -> None:
    body = helper.make_graph(
        [node("Mul", ["s", "e"], ["m"]), node("Add", ["m", "w"], ["next"]), node("Sigmoid", ["next"], ["out"])],
        "body",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "se"],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("next", "out")],
    )
    operator = node(
        "Scan",
        ["x", "e_all"],
        ["last", "all"],
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_input_directions=[1],
        scan_output_axes=[1],
    )
    nodes = [operator, node("ReduceSum", ["all"], ["total"], keepdims=0), node("Mul", ["last", "total"], ["y"])]
    check_in_single(nodes, {"x": floats(2), "e_all": floats(2, 5, seed=1), "w": floats(2, seed=2)}, ["x", "e_all", "w"])


def test_quantisation_passes_the_gradient_straight_through() -> None:
    values = {
        "x": floats(2, 3),
        "consts": np.array(0.1, dtype=np.float32),
        "constz": np.array(0, dtype=np.int8),
    }
    nodes = [
        node("QuantizeLinear", ["x", "consts", "constz"], ["q"]),
        node("DequantizeLinear", ["q", "consts", "constz"], ["d"]),
        node("Mul", ["d", "d"], ["y"]),
    ]
    seed = np.ones((2, 3), dtype=np.float32)
    found = gradients(model_of(nodes, values), {"x": values["x"]}, ["x"], seed)["x"]
    np.testing.assert_allclose(found, 2 * np.clip(np.round(values["x"] / 0.1), -128, 127) * 0.1, atol=1e-5)


def test_sign_stops_the_gradient_unless_straight_through_is_asked_for() -> None:
    values = {"x": floats(2, 3)}
    nodes = [node("Sign", ["x"], ["s"]), node("Add", ["s", "x"], ["y"])]
    model = model_of(nodes, values)
    seed = np.ones((2, 3), dtype=np.float32)
    np.testing.assert_array_equal(gradients(model, values, ["x"], seed)["x"], seed)
    through = gradients(model, values, ["x"], seed, straight_through={"Sign"})["x"]
    np.testing.assert_array_equal(through, 2 * seed)
