"""Any ONNX model that gives scores is scanned and evaluated, also trees and other models without layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.svm import SVC

import arachne
from arachne.errors import ModelError
from tests.commands import arachne as command

pytestmark = pytest.mark.backend("onnx")
onnx = pytest.importorskip("onnx")
helper = onnx.helper


def tree(**changes: Any) -> Any:
    """A tree of one question: is the fourth column at most 0.8?"""
    attributes: dict[str, Any] = {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [3, 0, 0],
        "nodes_values": [0.8, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "class_treeids": [0, 0],
        "class_nodeids": [1, 2],
        "class_ids": [0, 1],
        "class_weights": [1.0, 1.0],
        "classlabels_int64s": [0, 1, 2],
        "post_transform": "NONE",
        **changes,
    }
    node = helper.make_node(
        "TreeEnsembleClassifier", ["X"], ["label", "probabilities"], domain="ai.onnx.ml", **attributes
    )
    return _model(node)


def linear() -> Any:
    attributes = {"coefficients": [1.0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0], "intercepts": [0.0, 0.0, 0.0]}
    node = helper.make_node(
        "LinearClassifier",
        ["X"],
        ["label", "probabilities"],
        domain="ai.onnx.ml",
        classlabels_ints=[0, 1, 2],
        post_transform="SOFTMAX",
        multi_class=1,
        **attributes,
    )
    return _model(node)


def _model(node: Any) -> Any:
    graph = helper.make_graph(
        [node],
        "scores",
        [helper.make_tensor_value_info("X", onnx.TensorProto.FLOAT, ["n", 4])],
        [
            helper.make_tensor_value_info("label", onnx.TensorProto.INT64, ["n"]),
            helper.make_tensor_value_info("probabilities", onnx.TensorProto.FLOAT, ["n", 3]),
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


@pytest.mark.parametrize(("make", "accuracy"), [(tree, 100 / 150), (linear, None)])
def test_models_without_layers_are_scanned_and_not_repaired(make: Any, accuracy: float | None) -> None:
    inputs, labels = load_iris(return_X_y=True)
    scan = arachne.scan(make(), (inputs.astype(np.float32), labels))
    assert scan.accuracy == pytest.approx(scan.accuracy if accuracy is None else accuracy)
    assert scan.faults
    assert scan.causes is not None
    with pytest.raises(ModelError, match=r"no layer that can be repaired: .*; scan and evaluate work"):
        arachne.load(make())


def test_the_commands_do_so_too(tmp_path: Path) -> None:
    onnx.save(tree(), tmp_path / "tree.onnx")
    inputs, labels = load_iris(return_X_y=True)
    np.savez(tmp_path / "iris.npz", x=inputs.astype(np.float32), y=labels)
    scanned = command("scan", "tree.onnx", "--data", "iris.npz", cwd=tmp_path)
    assert scanned.code == 0, scanned.err
    assert "2:1         50" in scanned.out
    assert "no layer that can be repaired" in scanned.err
    assert "arachne repair" not in scanned.err
    assert command("evaluate", "tree.onnx", "--data", "iris.npz", cwd=tmp_path).code == 0
    refused = command("repair", "tree.onnx", "--data", "iris.npz", "--target", "2:1", cwd=tmp_path)
    assert refused.code == 3
    assert refused.err.endswith("; scan and evaluate work\n")


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes_featureids": [4, 0, 0]},
        {"nodes_featureids": [-1, 0, 0]},
        {"nodes_truenodeids": [0, 0, 0]},
        {"nodes_truenodeids": [2, 0, 0]},
        {"nodes_falsenodeids": [9, 0, 0]},
        {"nodes_modes": ["LEAF", "LEAF", "LEAF"]},
        {"nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF"]},
        {"nodes_nodeids": [0, 1, 1]},
        {"nodes_values": [0.8]},
        {"class_ids": [0, 3]},
        {"class_nodeids": [1, 7]},
        {"class_weights": [1.0]},
    ],
)
def test_trees_that_contradict_themselves_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="the model's trees contradict themselves"):
        arachne.scan(tree(**changes), (np.zeros((4, 4), np.float32), np.zeros(4, np.int64)))


def machine(probability: bool = True, shape: str = "ovr") -> Any:
    """A support vector machine of scikit-learn, as its exporter writes it."""
    skl2onnx = pytest.importorskip("skl2onnx")
    inputs, labels = load_iris(return_X_y=True)
    scores = {"probability": True, "random_state": 0} if probability else {"decision_function_shape": shape}
    found = SVC(**scores).fit(inputs, labels)
    return skl2onnx.to_onnx(found, inputs[:1].astype(np.float32), options={"zipmap": False})


@pytest.mark.filterwarnings("ignore::FutureWarning")  # scikit-learn's, of probability=True
@pytest.mark.parametrize("probability", [True, False])
def test_support_vector_machines_are_scanned(probability: bool) -> None:
    inputs, labels = load_iris(return_X_y=True)
    scan = arachne.scan(machine(probability), (inputs.astype(np.float32), labels))
    assert scan.accuracy == pytest.approx(146 / 150, abs=0.01)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_scores_of_pairs_of_classes_are_refused() -> None:
    inputs, labels = load_iris(return_X_y=True)
    with pytest.raises(ModelError, match="the model scores pairs of classes, one against one; export it with"):
        arachne.scan(machine(probability=False, shape="ovo"), (inputs.astype(np.float32), labels))


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("vectors_per_class", lambda own: own.ints.__setitem__(0, own.ints[0] + 1)),
        ("vectors_per_class", lambda own: own.ints.__setitem__(slice(0, 2), [-1, own.ints[0] + own.ints[1] + 1])),
        ("vectors_per_class", lambda own: own.ints.pop()),
        ("support_vectors", lambda own: own.floats.pop()),
        ("coefficients", lambda own: own.floats.pop()),
        ("rho", lambda own: own.floats.pop()),
        ("prob_b", lambda own: own.floats.pop()),
        ("kernel_params", lambda own: own.floats.pop()),
        ("classlabels_ints", lambda own: own.ints.pop()),
        ("rho", lambda own: own.ClearField("floats")),
    ],
)
def test_machines_whose_lists_do_not_fit_are_refused(name: str, change: Any) -> None:
    model = machine()
    (node,) = [node for node in model.graph.node if node.op_type == "SVMClassifier"]
    change(next(one for one in node.attribute if one.name == name))
    with pytest.raises(ModelError, match="the lists of the model's support vectors do not fit"):
        arachne.scan(model, (np.zeros((4, 4), np.float32), np.zeros(4, np.int64)))


def test_trees_in_a_function_are_refused() -> None:
    model = tree()
    (node,) = model.graph.node
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    function = helper.make_function("own", "Hidden", list(node.input), list(node.output), [node], opsets)
    call = helper.make_node("Hidden", list(node.input), list(node.output), domain="own")
    del model.graph.node[:]
    model.graph.node.append(call)
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("own", 1))
    with pytest.raises(ModelError, match="'TreeEnsembleClassifier' in a branch or a function, where it is not checked"):
        arachne.scan(model, (np.zeros((4, 4), np.float32), np.zeros(4, np.int64)))


def test_trees_in_a_branch_are_refused() -> None:
    model = tree()
    (node,) = model.graph.node
    branch = helper.make_graph([node], "branch", [], list(model.graph.output))
    always = helper.make_node("Constant", [], ["yes"], value=onnx.numpy_helper.from_array(np.array(True), "yes"))
    call = helper.make_node("If", ["yes"], list(node.output), then_branch=branch, else_branch=branch)
    del model.graph.node[:]
    model.graph.node.extend([always, call])
    with pytest.raises(ModelError, match="'TreeEnsembleClassifier' in a branch or a function, where it is not checked"):
        arachne.scan(model, (np.zeros((4, 4), np.float32), np.zeros(4, np.int64)))
