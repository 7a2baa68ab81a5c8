"""Peculiarities of the ONNX adapter: how exporters store weights, batches, endings, missing rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import arachne
from arachne.adapting.side_by_side import allowed_threads
from arachne.decisions.losses import cross_entropy
from arachne.errors import DataError, EnvironmentFaultError, ModelError, UsageError
from arachne.model.values import Array
from arachne.testing import Network
from arachne.testing.networks import convnet, mlp, random_inputs, two_inputs
from arachne_onnx import OnnxBackend
from arachne_onnx.cut import OnnxCut
from arachne_onnx.sessions import both_packages
from tests.backends.onnx_networks import build_model, model_of, numbers

pytestmark = pytest.mark.backend("onnx")

node = helper.make_node


def dense(**options: Any) -> NodeProto:
    return node("Gemm", ["x", "fc.weight", "fc.bias"], ["y"], **options)


def check_dense(backend: OnnxBackend, weight: Array, layer: str = "fc") -> None:
    """The layer's canonical weight, its scores and its gradient are those of x W^T."""
    x, labels = numbers(6, 4, seed=3), np.arange(6) % 3
    np.testing.assert_array_equal(backend.get_weights(layer)["weight"], weight)
    scores = backend.forward(x)
    p = np.exp(scores - scores.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    p[np.arange(6), labels] -= 1
    np.testing.assert_allclose(
        backend.weight_gradients(x, cross_entropy(labels))[layer, "weight"], p.T @ x / 6, atol=1e-5
    )
    other = weight + numbers(*weight.shape, seed=9)
    backend.set_weights(layer, "weight", other)
    np.testing.assert_allclose(backend.forward(x) - scores, x @ (other - weight).T, atol=1e-4)


W, B = numbers(3, 4, seed=1), numbers(3, seed=2)


@pytest.mark.parametrize(
    ("nodes", "weights"),
    [
        ([dense(transB=1)], {"fc.weight": W, "fc.bias": B}),
        ([dense()], {"fc.weight": W.T.copy(), "fc.bias": B}),
        (
            [node("MatMul", ["x", "fc.weight"], ["m"]), node("Add", ["fc.bias", "m"], ["y"])],
            {"fc.weight": W.T.copy(), "fc.bias": B},
        ),
        (
            [node("Transpose", ["fc.weight"], ["t"], perm=[1, 0]), node("MatMul", ["x", "t"], ["y"])],
            {"fc.weight": W},
        ),
        (
            [node("Identity", ["fc.weight"], ["same"]), node("Gemm", ["x", "same"], ["y"], transB=1)],
            {"fc.weight": W},
        ),
        (
            [
                node("Reshape", ["fc.weight", "shape"], ["r"]),
                node("MatMul", ["x", "r"], ["y"]),
            ],
            {"fc.weight": W.T.reshape(2, 2, 3).copy(), "shape": np.array([4, 3])},
        ),
        (
            [
                node("Constant", [], ["fc.weight"], value=numpy_helper.from_array(W)),
                node("Gemm", ["x", "fc.weight"], ["y"], transB=1),
            ],
            {},
        ),
    ],
    ids=["out_in", "in_out", "matmul_add", "transposed", "identity", "reshaped", "constant"],
)
def test_a_dense_layer_is_canonical_however_it_is_stored(nodes: list[NodeProto], weights: dict[str, Array]) -> None:
    check_dense(OnnxBackend.load(build_model(nodes, weights)), W)


@pytest.mark.parametrize("opset", [7, 9, 11, 12, 13, 15, 17, 18, 20, 22, 24])
def test_opsets_from_seven_up_are_taken(opset: int) -> None:
    nodes = [
        node("Conv", ["x", "conv.weight"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", ["p"], ["f"]),
        node("Gemm", ["f", "fc.weight", "fc.bias"], ["g"], transB=1),
        node("Softmax", ["g"], ["y"], axis=1),
    ]
    weights = {"conv.weight": numbers(2, 1, 3, 3), "fc.weight": numbers(3, 8), "fc.bias": B}
    backend = OnnxBackend.load(
        build_model(nodes, weights, inputs={"x": ("n", 1, 4, 4)}, opset=opset, ir_version=3 if opset < 9 else 8)
    )
    x, labels = numbers(5, 1, 4, 4), np.arange(5) % 3
    gradients = backend.weight_gradients(x, cross_entropy(labels))
    newest = OnnxBackend.load(build_model(nodes, weights, inputs={"x": ("n", 1, 4, 4)}))
    np.testing.assert_allclose(backend.forward(x), newest.forward(x), atol=1e-6)
    for (layer, parameter), expected in newest.weight_gradients(x, cross_entropy(labels)).items():
        np.testing.assert_allclose(gradients[layer, parameter], expected, atol=1e-6)


def test_initialisers_that_are_also_inputs_are_weights() -> None:
    model = build_model([dense(transB=1)], {"fc.weight": W, "fc.bias": B}, ir_version=3, opset=9)
    for value in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(value.name, value.data_type, list(value.dims)))
    check_dense(OnnxBackend.load(model), W)


def test_a_model_given_as_an_object_is_only_read() -> None:
    model = model_of(convnet())
    before = model.SerializeToString(deterministic=True)
    backend = OnnxBackend.load(model)
    backend.weight_gradients(random_inputs(convnet(), 4), cross_entropy(np.zeros(4, int)))
    backend.set_weights("fc1", "bias", np.zeros_like(backend.get_weights("fc1")["bias"]))
    backend.forward(random_inputs(convnet(), 4))
    assert model.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("hard", [False, True], ids=["only_said", "built_in"])
def test_a_fixed_batch_is_filled_up_and_cut_off_again(batch: int, hard: bool) -> None:
    network = convnet()
    x, labels = random_inputs(network, 7), np.arange(7) % 3
    free = OnnxBackend.load(model_of(network))
    model = model_of(network, batch=batch)
    if hard:  # the batch is written into a reshape, so that no other can run
        flatten = next(one for one in model.graph.node if one.op_type == "Flatten")
        shape = numpy_helper.from_array(np.array([batch, -1]), "shape")
        model.graph.initializer.append(shape)
        flatten.CopyFrom(node("Reshape", [flatten.input[0], "shape"], list(flatten.output)))
    fixed = OnnxBackend.load(model)
    np.testing.assert_allclose(fixed.forward(x), free.forward(x), atol=1e-5)
    expected = free.weight_gradients(x, cross_entropy(labels))
    for (layer, parameter), gradient in fixed.weight_gradients(x, cross_entropy(labels)).items():
        np.testing.assert_allclose(gradient, expected[layer, parameter], atol=1e-5)
    seed = numbers(7, 3)
    np.testing.assert_allclose(
        fixed.output_gradients(x, "conv1", seed)[0], free.output_gradients(x, "conv1", seed)[0], atol=1e-5
    )
    cut, rows = fixed.cut(x, ["conv2", "fc2"]), np.array([6, 1, 1, 0, 3])
    weights = {("conv2", "weight"): fixed.get_weights("conv2")["weight"] * 2}
    np.testing.assert_allclose(
        cut.scores_with(weights, rows), free.cut(x, ["conv2"]).scores_with(weights, rows), atol=1e-5
    )


@pytest.mark.parametrize("channels", [[], [2], [0, 3]])
def test_a_candidate_that_changes_few_channels_of_a_convolution_takes_the_short_way(channels: list[int]) -> None:
    nodes = [
        node("Conv", ["x", "conv.weight", "conv.bias"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("GlobalAveragePool", ["r"], ["p"]),
        node("Flatten", ["p"], ["f"]),
        node("Gemm", ["f", "fc.weight"], ["y"], transB=1),
    ]
    weights = {"conv.weight": numbers(8, 2, 3, 3), "conv.bias": numbers(8, seed=1), "fc.weight": numbers(3, 8, seed=2)}
    backend = OnnxBackend.load(build_model(nodes, weights, inputs={"x": ("n", 2, 5, 5)}))
    x, rows = numbers(9, 2, 5, 5), np.array([8, 1, 1])
    cut = backend.cut(x, ["conv"])
    changed = backend.get_weights("conv")
    changed["weight"][channels, 0, 1, 1] += 1
    changed["bias"][channels[:1]] -= 1
    candidate = {("conv", name): values for name, values in changed.items()}
    found = cut.scores_with(candidate, rows), cut.scores_with(candidate)
    for parameter, values in changed.items():
        backend.set_weights("conv", parameter, values)
    expected = backend.forward(x)
    np.testing.assert_allclose(found[0], expected[rows], atol=1e-5)
    np.testing.assert_allclose(found[1], expected, atol=1e-5)


@pytest.mark.parametrize("network", [mlp([6, 9, 8, 4]), convnet()], ids=["mlp", "convnet"])
def test_candidates_of_dense_layers_have_the_bits_of_a_full_pass(network: Network) -> None:
    """Also where the pass takes its inputs in several batches and the cut in one: `evaluate` relies on it for speed."""
    backend = OnnxBackend.load(model_of(network))
    inputs = random_inputs(network, 1500, seed=2)
    for layer in [info.name for info in backend.layers if info.kind == "dense"]:
        before = backend.get_weights(layer)["weight"]
        after = before + numbers(*before.shape, seed=3) * (numbers(*before.shape, seed=4) > 1)
        found = backend.cut(inputs, [layer]).scores_with({(layer, "weight"): after})
        backend.set_weights(layer, "weight", after)
        np.testing.assert_array_equal(found, backend.forward(inputs))
        backend.set_weights(layer, "weight", before)


def test_the_plain_cut_behind_a_cut_has_the_weights_it_was_cut_with() -> None:
    network = convnet()
    backend, x = OnnxBackend.load(model_of(network)), random_inputs(network, 5)
    weight = backend.get_weights("fc1")["weight"]
    backend.set_weights("fc1", "weight", 2 * weight)
    scores, cut = backend.forward(x), backend.cut(x, ["fc2"])
    backend.set_weights("fc1", "weight", weight)
    assert isinstance(cut, OnnxCut)
    plain, loss = cut._plain(), cross_entropy(np.arange(5) % 3)
    np.testing.assert_allclose(plain.scores_with({}), scores, atol=1e-5)
    for place, gradient in plain.weight_gradients({}, loss).items():
        np.testing.assert_allclose(cut.weight_gradients({}, loss)[place], gradient, atol=1e-5)
    assert not np.allclose(backend.forward(x), scores, atol=1e-3)


def test_a_bias_shared_with_an_earlier_layer_is_changed_in_both_by_a_cut() -> None:
    nodes = [
        node("Gemm", ["x", "a.weight", "bias"], ["g"], transB=1),
        node("Tanh", ["g"], ["r"]),
        node("Gemm", ["r", "b.weight", "bias"], ["y"], transB=1),
    ]
    weights = {"a.weight": numbers(4, 4), "b.weight": numbers(4, 4, seed=1), "bias": numbers(4)}
    backend = OnnxBackend.load(build_model(nodes, weights))
    x = numbers(5, 4)
    found = backend.cut(x, ["b"]).scores_with({("b", "bias"): np.ones(4, np.float32)})
    backend.set_weights("b", "bias", np.ones(4, np.float32))
    np.testing.assert_allclose(found, backend.forward(x), atol=1e-5)


def test_half_precision_keeps_its_dtype_and_takes_gradients_in_single() -> None:
    network = mlp([4, 6, 3])
    half, single = OnnxBackend.load(model_of(network, dtype=np.float16)), OnnxBackend.load(model_of(network))
    x, labels = random_inputs(network, 9), np.arange(9) % 3
    assert half.info("fc1").parameters["weight"].dtype == "float16"
    assert half.get_weights("fc1")["weight"].dtype == np.float16
    assert half.forward(x).dtype == np.float32
    np.testing.assert_allclose(half.forward(x), single.forward(x), atol=1e-2)
    expected = single.weight_gradients(x, cross_entropy(labels))["fc1", "weight"]
    np.testing.assert_allclose(half.weight_gradients(x, cross_entropy(labels))["fc1", "weight"], expected, atol=2e-3)
    half.set_weights("fc1", "weight", np.full((6, 4), 1 / 3))
    assert half.get_weights("fc1")["weight"][0, 0] == np.float16(1 / 3)


def test_several_inputs_are_fed_by_name() -> None:
    network = two_inputs()
    backend = OnnxBackend.load(model_of(network))
    inputs = random_inputs(network, 5)
    assert backend.forward(inputs).shape == (5, 3)
    with pytest.raises(DataError, match="takes 2 inputs by name"):
        backend.forward(np.zeros((5, 3), np.float32))


def test_tokens_are_whole_numbers() -> None:
    nodes = [
        node("Gather", ["embedding.weight", "x"], ["e"]),
        node("ReduceMean", ["e", "axes"], ["m"], keepdims=0),
        node("Gemm", ["m", "fc.weight", "fc.bias"], ["y"], transB=1),
    ]
    weights = {"embedding.weight": numbers(9, 4), "axes": np.array([1]), "fc.weight": W, "fc.bias": B}
    backend = OnnxBackend.load(build_model(nodes, weights, inputs={"x": ("n", 5)}, element=TensorProto.INT64))
    tokens = np.random.default_rng(0).integers(0, 9, (6, 5))
    assert [(info.name, info.kind) for info in backend.layers] == [("embedding", "embedding"), ("fc", "dense")]
    for given in (tokens, tokens.astype(np.float32)):
        with pytest.raises(UsageError, match="no gradient with respect to whole numbers"):
            backend.input_gradients(given, cross_entropy(np.arange(6) % 3))
    gradient = backend.weight_gradients(tokens, cross_entropy(np.arange(6) % 3))["embedding", "weight"]
    assert not gradient[[token for token in range(9) if token not in tokens]].any()
    assert gradient.any()
    np.testing.assert_array_equal(backend.forward(tokens.astype(np.float32)), backend.forward(tokens))
    with pytest.raises(DataError, match="whole numbers"):
        backend.forward(tokens + 0.5)


def test_a_missing_rule_leaves_the_layers_behind_it() -> None:
    nodes = [
        node("Gemm", ["x", "far.weight"], ["g"], transB=1),
        node("Det", ["square"], ["d"]),
        node("Mul", ["g", "d"], ["scaled"]),
        node("Reshape", ["g", "s"], ["cube"]),
        node("Det", ["cube"], ["one"]),
        node("Add", ["scaled", "one"], ["sum"]),
        node("Gemm", ["sum", "near.weight"], ["y"], transB=1),
    ]
    weights = {
        "far.weight": numbers(4, 4),
        "near.weight": W,
        "square": numbers(2, 2),
        "s": np.array([-1, 1, 2, 2]),
    }
    backend = OnnxBackend.load(build_model(nodes, weights))
    assert [info.name for info in backend.layers] == ["near"]
    (note,) = backend.describe().notes
    assert note == "no gradient passes Det, so these layers are out of reach: far; these remain: near"
    x = numbers(3, 4)
    assert backend.weight_gradients(x, cross_entropy(np.array([0, 1, 2])))["near", "weight"].any()


def test_a_model_without_any_layer_in_reach_is_refused() -> None:
    nodes = [
        node("Gemm", ["x", "fc.weight"], ["g"], transB=1),
        node("Reshape", ["g", "s"], ["cube"]),
        node("Det", ["cube"], ["y"]),
    ]
    weights = {"fc.weight": numbers(12, 4), "s": np.array([-1, 3, 2, 2])}
    with pytest.raises(ModelError, match="no gradient passes Det, so these layers are out of reach: fc; none remains"):
        arachne.load(build_model(nodes, weights))


def test_tensors_that_layers_share_are_told() -> None:
    nodes = [
        node("Gemm", ["x", "a.weight", "bias"], ["g"], transB=1),
        node("Relu", ["g"], ["r"]),
        node("Gemm", ["r", "b.weight", "bias"], ["y"], transB=1),
    ]
    weights = {"a.weight": numbers(4, 4), "b.weight": numbers(4, 4, seed=1), "bias": numbers(4)}
    backend = OnnxBackend.load(build_model(nodes, weights))
    assert backend.describe().notes == ("a.bias and b.bias are one stored tensor: a patch to one changes all of them",)
    backend.set_weights("b", "bias", np.ones(4, np.float32))
    np.testing.assert_array_equal(backend.get_weights("a")["bias"], np.ones(4))
    x, labels = numbers(3, 4), np.array([0, 1, 2])
    both = backend.weight_gradients(x, cross_entropy(labels))
    np.testing.assert_array_equal(both["a", "bias"], both["b", "bias"])


def test_what_the_scale_of_a_norm_is_multiplied_with_is_the_normalised_input() -> None:
    nodes = [
        node("LayerNormalization", ["x", "norm.weight", "norm.bias"], ["l"], axis=-1),
        node("Gemm", ["l", "fc.weight"], ["y"], transB=1),
    ]
    weights = {"norm.weight": numbers(4), "norm.bias": numbers(4, seed=1), "fc.weight": W}
    backend = OnnxBackend.load(build_model(nodes, weights))
    x = numbers(5, 4)
    (use,) = backend.activations(x, "norm")
    normal = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(use.entering["scale"], normal, atol=1e-5)
    np.testing.assert_allclose(use.leaving, normal * weights["norm.weight"] + weights["norm.bias"], atol=1e-5)


def test_the_provider_in_use_is_told() -> None:
    assert OnnxBackend.load(model_of(mlp([4, 3])), device="cpu").describe().device == "CPUExecutionProvider"


def test_devices_that_are_not_there_are_refused() -> None:
    with pytest.raises(UsageError, match="did you mean 'cuda'"):
        OnnxBackend.load(model_of(mlp([4, 3])), device="cuba")
    with pytest.raises(EnvironmentFaultError, match=r"no device 'tensorrt'; available: cpu .*\[onnx-gpu\]"):
        OnnxBackend.load(model_of(mlp([4, 3])), device="tensorrt:1")


def test_both_runtime_packages_together_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: name)
    assert both_packages()
    backend = OnnxBackend.load(model_of(mlp([4, 3])))
    assert "overwrite each other: uninstall both, then install one" in backend.describe().notes[-1]
    with pytest.raises(EnvironmentFaultError, match="overwrite each other"):
        OnnxBackend.load(model_of(mlp([4, 3])), device="cuda")


def test_threads_are_those_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 5, 7}, raising=False)
    assert allowed_threads() == 3


@pytest.mark.parametrize("batch", [1, "n"])
def test_an_old_network_with_padding_by_name_and_weights_that_are_reshaped_is_taken(batch: int | str) -> None:
    nodes = [
        node("Conv", ["x", "conv"], ["c"], auto_pad="SAME_UPPER", kernel_shape=[5, 5]),
        node("Add", ["c", "offset"], ["a"]),
        node("Relu", ["a"], ["r"]),
        node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2], auto_pad="NOTSET", pads=[0, 0, 0, 0]),
        node("Reshape", ["p", "flat"], ["f"]),
        node("Reshape", ["fc", "matrix"], ["w"]),
        node("MatMul", ["f", "w"], ["m"]),
        node("Add", ["m", "bias"], ["y"]),
    ]
    weights = {
        "conv": numbers(4, 1, 5, 5),
        "offset": numbers(4, 1, 1, seed=1),
        "fc": numbers(4, 3, 3, 3, seed=2),
        "bias": numbers(1, 3, seed=3),
        "flat": np.array([batch if batch == 1 else -1, 36]),
        "matrix": np.array([36, 3]),
    }
    backend = OnnxBackend.load(build_model(nodes, weights, inputs={"x": (batch, 1, 6, 6)}, opset=8))
    assert [(info.name, tuple(info.parameters)) for info in backend.layers] == [
        ("conv", ("weight", "bias")),
        ("fc", ("weight", "bias")),
    ]
    x, labels = numbers(5, 1, 6, 6), np.arange(5) % 3
    (use,) = backend.activations(x, "conv")
    assert use.leaving.shape == (5, 4, 6, 6)
    geometry = backend.info("conv").geometry
    assert geometry is not None
    assert geometry.padding == ((2, 2), (2, 2))
    gradients, step = backend.weight_gradients(x, cross_entropy(labels)), np.float32(1e-2)
    for layer, parameter in (("conv", "weight"), ("conv", "bias"), ("fc", "weight"), ("fc", "bias")):
        weight = backend.get_weights(layer)[parameter]
        direction = gradients[layer, parameter] / np.linalg.norm(gradients[layer, parameter])
        losses = []
        for sign in (1, -1):
            backend.set_weights(layer, parameter, weight + sign * step * direction)
            scores = backend.forward(x).astype(np.float64)
            losses.append(np.mean(np.log(np.exp(scores).sum(1)) - scores[np.arange(5), labels]))
        backend.set_weights(layer, parameter, weight)
        slope = (losses[0] - losses[1]) / (2 * float(step))
        assert slope == pytest.approx(float(np.linalg.norm(gradients[layer, parameter])), rel=0.05)
