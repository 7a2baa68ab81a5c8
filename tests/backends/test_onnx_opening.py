"""Models that are unusual before anything runs: nodes out of order, branches, bodies, sizes, what is out of reach."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

import arachne
from arachne.adapting.side_by_side import allowed_threads
from arachne.decisions.losses import cross_entropy
from arachne.errors import EnvironmentFaultError, ModelError, UsageError
from arachne.model.values import Array
from arachne.testing.networks import convnet, random_inputs
from arachne_onnx import OnnxBackend
from tests.backends.onnx_networks import model_of

pytestmark = pytest.mark.backend("onnx")

node = helper.make_node
RNG = np.random.default_rng(0)
W, B = RNG.normal(size=(3, 4)).astype(np.float32), RNG.normal(size=3).astype(np.float32)
X = RNG.normal(size=(6, 4)).astype(np.float32)


def info(name: str, *shape: int | str, element: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element, list(shape))


def make_model(
    nodes: list[NodeProto], weights: dict[str, Array], *inputs: onnx.ValueInfoProto, opset: int = 18
) -> ModelProto:
    """A model that computes `y` from float `x` `(n, 4)` unless told."""
    graph = helper.make_graph(
        nodes,
        "made",
        list(inputs) or [info("x", "n", 4)],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def branch(name: str, weight: Array) -> GraphProto:
    """A branch with a dense layer of its own, whose inner names are those of any other branch."""
    return helper.make_graph(
        [
            node("Gemm", ["x", f"{name}.weight", f"{name}.bias"], ["inner"], transB=1),
            node("Identity", ["inner"], ["end"]),
        ],
        name,
        [],
        [onnx.ValueInfoProto(name="end")],
        [numpy_helper.from_array(weight, f"{name}.weight"), numpy_helper.from_array(B, f"{name}.bias")],
    )


def branching(before: list[NodeProto], weights: dict[str, Array], *inputs: onnx.ValueInfoProto) -> ModelProto:
    choice = node("If", ["asked"], ["chosen"], then_branch=branch("yes", W), else_branch=branch("no", -W))
    return make_model([*before, choice, node("Relu", ["chosen"], ["y"])], weights, *inputs)


def test_nodes_may_stand_in_any_order() -> None:
    network = convnet()
    straight, turned = model_of(network), model_of(network)
    backwards = list(turned.graph.node)[::-1]
    kept = [onnx.NodeProto.FromString(one.SerializeToString()) for one in backwards]
    del turned.graph.node[:]
    turned.graph.node.extend(kept)
    first, second = OnnxBackend.load(straight), OnnxBackend.load(turned)
    x = random_inputs(network, 5, seed=1)
    np.testing.assert_array_equal(first.forward(x), second.forward(x))
    assert [layer.name for layer in second.layers] == [layer.name for layer in first.layers]
    labels = np.arange(5) % 3
    for (layer, parameter), gradient in first.weight_gradients(x, cross_entropy(labels)).items():
        np.testing.assert_array_equal(gradient, second.weight_gradients(x, cross_entropy(labels))[layer, parameter])


def test_nodes_that_need_each_other_are_refused() -> None:
    nodes = [node("Add", ["x", "b"], ["a"], name="first"), node("Relu", ["a"], ["b"]), node("Relu", ["b"], ["y"])]
    with pytest.raises(ModelError, match="need each other in a circle"):
        OnnxBackend.load(make_model(nodes, {}))


@pytest.mark.parametrize(
    ("before", "weights", "layer"),
    [
        ([], {"asked": np.array(True)}, "yes"),
        ([], {"asked": np.array(False)}, "no"),
        (
            [
                node("Shape", ["x"], ["shape"]),
                node("Gather", ["shape", "last"], ["width"]),
                node("Equal", ["width", "four"], ["asked"]),
            ],
            {"last": np.array(1), "four": np.array(4)},
            "yes",
        ),
    ],
    ids=["true", "false", "shape"],
)
def test_a_branch_that_is_always_taken_is_part_of_the_graph(
    before: list[NodeProto], weights: dict[str, Array], layer: str
) -> None:
    backend = OnnxBackend.load(branching(before, weights))
    assert [one.name for one in backend.layers] == [layer]
    stored = W if layer == "yes" else -W
    np.testing.assert_allclose(backend.forward(X), np.maximum(X @ stored.T + B, 0), atol=1e-6)
    assert set(backend.weight_gradients(X, cross_entropy(np.arange(6) % 3))) == {(layer, "weight"), (layer, "bias")}
    other = "no" if layer == "yes" else "yes"
    assert backend.unreachable == dict.fromkeys((f"{other}.weight", f"{other}.bias"), "the scores do not depend on it")


def test_a_patch_in_a_branch_is_written_to_the_branch(tmp_path: Path) -> None:
    backend = OnnxBackend.load(branching([], {"asked": np.array(False)}))
    backend.set_weights("no", "weight", 2 * W)
    backend.save(tmp_path / "patched.onnx")
    patched = OnnxBackend.load(tmp_path / "patched.onnx")
    np.testing.assert_array_equal(patched.get_weights("no")["weight"], 2 * W)
    np.testing.assert_array_equal(patched.forward(X), backend.forward(X))


def test_a_branch_that_depends_on_the_number_of_inputs_is_left_and_its_weights_are_told() -> None:
    before = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "first"], ["n"]),
        node("Greater", ["n", "four"], ["asked"]),
    ]
    with pytest.raises(ModelError, match="and it is used in a branch of an 'If' whose condition is only"):
        arachne.load(branching(before, {"first": np.array(0), "four": np.array(4)}))


def test_weights_inside_the_body_of_a_scan_of_any_length_are_told_to_be_out_of_reach() -> None:
    body = helper.make_graph(
        [
            node("MatMul", ["state", "cell.weight"], ["moved"]),
            node("Add", ["moved", "element"], ["added"]),
            node("Tanh", ["added"], ["next"]),
            node("Identity", ["next"], ["out"]),
        ],
        "step",
        [info("state", "n", 4), info("element", "n", 4)],
        [info("next", "n", 4), info("out", "n", 4)],
        [numpy_helper.from_array(RNG.normal(size=(4, 4)).astype(np.float32), "cell.weight")],
    )
    nodes = [
        node("Transpose", ["x"], ["steps"], perm=[1, 0, 2]),
        node("Gather", ["steps", "zero"], ["start"], axis=0),
        node("Scan", ["start", "steps"], ["last", "all"], body=body, num_scan_inputs=1),
        node("Gemm", ["last", "fc.weight", "fc.bias"], ["y"], transB=1),
    ]
    weights = {"fc.weight": W, "fc.bias": B, "zero": np.array(0)}
    backend = OnnxBackend.load(make_model(nodes, weights, info("x", "n", 5, 4)))
    assert [layer.name for layer in backend.layers] == ["cell", "fc"]
    backend = OnnxBackend.load(make_model(nodes, weights, info("x", "n", "steps", 4)))
    assert [layer.name for layer in backend.layers] == ["fc"]
    assert "inside the body of a 'Scan', and its number of steps" in backend.unreachable["cell.weight"]


def test_quantised_weights_positions_and_lost_layers_are_told_with_their_reasons() -> None:
    nodes = [
        node("Gemm", ["x", "early.weight"], ["e"], transB=1),
        node("Det", ["e3"], ["d"]),
        node("Reshape", ["e", "square"], ["e3"]),
        node("Unsqueeze", ["d", "one"], ["wide"]),
        node("Add", ["wide", "positions"], ["moved"]),
        node("ReduceMax", ["moved"], ["scale"], keepdims=0),
        node("DequantizeLinear", ["packed", "scale"], ["unpacked"]),
        node("MatMul", ["moved", "unpacked"], ["m"]),
        node("Gemm", ["m", "fc.weight", "fc.bias"], ["y"], transB=1),
    ]
    weights = {
        "early.weight": RNG.normal(size=(4, 4)).astype(np.float32),
        "square": np.array([-1, 2, 2]),
        "one": np.array([1]),
        "positions": RNG.normal(size=(1, 4)).astype(np.float32),
        "packed": RNG.integers(-9, 9, (4, 4)).astype(np.int8),
        "fc.weight": W,
        "fc.bias": B,
    }
    backend = OnnxBackend.load(make_model(nodes, weights))
    assert backend.unreachable == {
        "early.weight": "no gradient passes Det behind its layer",
        "positions": "it is used by 'Add', which is no layer Arachne knows",
        "packed": "it is stored as int8 without a scale of its own in the file; quantise after the repair",
    }


def test_a_model_larger_than_the_memory_is_refused_before_it_is_read(tmp_path: Path) -> None:
    model = make_model([node("Gemm", ["x", "fc.weight"], ["y"], transB=1)], {"fc.weight": W})
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    del weight.dims[:]
    weight.dims.extend([250_000_000_000, 4])
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.extend([onnx.StringStringEntryProto(key="location", value="weights.bin")])
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with open(tmp_path / "weights.bin", "wb") as file:
        file.truncate(4_000_000_000_000)  # a hole: it takes no space on the disk
    with pytest.raises(EnvironmentFaultError, match=r"takes 4000\.0 GB with its weights, more than this machine"):
        OnnxBackend.load(tmp_path / "model.onnx")


def recurrent(**options: Any) -> ModelProto:
    nodes = [
        node("Transpose", ["x"], ["steps"], perm=[0, 1, 2] if options.get("layout") else [1, 0, 2]),
        node("LSTM", ["steps", "rnn.W", "rnn.R"], ["", "last"], hidden_size=4, **options),
        node("Squeeze", ["last", "zero"], ["state"]),
        node("Gemm", ["state", "fc.weight", "fc.bias"], ["y"], transB=1),
    ]
    weights = {
        "rnn.W": RNG.normal(size=(1, 16, 4)).astype(np.float32),
        "rnn.R": RNG.normal(size=(1, 16, 4)).astype(np.float32),
        "zero": np.array([1 if options.get("layout") else 0]),
        "fc.weight": W,
        "fc.bias": B,
    }
    return make_model(nodes, weights, info("x", "n", 5, 4))


def test_a_recurrent_layer_with_settings_of_its_own_is_named_as_out_of_reach_and_the_rest_remains() -> None:
    activations = {"activations": ["HardSigmoid", "Tanh", "Tanh"], "activation_alpha": [0.3]}
    backend = OnnxBackend.load(recurrent(**activations))
    assert [layer.name for layer in backend.layers] == ["fc"]
    assert "no gradient passes LSTM" in backend.describe().notes[0]
    assert set(backend.unreachable) == {"rnn.W", "rnn.R"}


def test_a_recurrent_layer_with_inputs_first_is_refused_by_the_runtime_in_one_sentence() -> None:
    with pytest.raises(ModelError, match=r"onnxruntime refuses the model: .*layout"):
        OnnxBackend.load(recurrent(layout=1)).forward(np.zeros((2, 5, 4), np.float32))


@pytest.mark.parametrize("given", ["x", "", "0", "-1", "1025", "9" * 5000])
def test_a_number_of_threads_that_is_none_is_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARACHNE_THREADS", given)
    with pytest.raises(UsageError, match="expected a number of threads from 1 to 1024"):
        allowed_threads()
    monkeypatch.setenv("ARACHNE_THREADS", "2")
    assert allowed_threads() == 2
