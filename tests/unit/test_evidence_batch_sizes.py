"""Inputs whose class depends on the size of the batch are found, whether by rounding or by the model itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import arachne
from arachne.data.labelled import LabelledData
from arachne.model.values import Array, Inputs, count
from arachne.testing import ReferenceBackend, mlp, random_inputs
from tests.commands import arachne as arachne_command


class Rounding(ReferenceBackend):
    """In small batches the first class comes out a little higher, as other machine code would have it."""

    def _forward(self, inputs: Inputs) -> Array:
        scores = super()._forward(inputs)
        if count(inputs) < 32:
            scores[:, 0] += np.float32(1e-6)
        return scores


class Mixing(ReferenceBackend):
    """Takes the mean of the batch away, as a normalisation in training mode does."""

    def _forward(self, inputs: Inputs) -> Array:
        scores = super()._forward(inputs)
        return np.asarray(scores - scores.mean(axis=0))


def data() -> LabelledData:
    inputs = random_inputs(mlp([6, 8, 3], seed=1), 200, seed=3)
    return LabelledData(inputs, np.zeros(200, np.int64), class_names=("a", "b", "c"))


def test_nothing_is_told_of_a_model_whose_classes_stay() -> None:
    found = arachne.scan(ReferenceBackend(mlp([6, 8, 3], seed=1)), data()).batch_dependent
    assert found is not None
    assert (len(found), found.to_json(), found.mixes_inputs) == (0, [], False)


def test_an_input_between_two_classes_is_found_by_its_row() -> None:
    network, labelled = mlp([6, 8, 3], seed=1), data()
    scores = ReferenceBackend(network).forward(labelled.inputs)
    best = np.argmax(scores, axis=1)
    row = int(np.flatnonzero(best != 0)[5])

    class Tied(Rounding):
        def _forward(self, inputs: Inputs) -> Array:
            found = super()._forward(inputs)
            same = (np.asarray(inputs) == np.asarray(labelled.inputs)[row]).all(axis=1)
            found[same, 0] = found[same, best[row]] - np.float32(0 if count(inputs) < 32 else 1e-6)
            return found

    found = arachne.scan(Tied(network), labelled).batch_dependent
    assert found is not None
    assert found.rows.tolist() == [row]
    assert not found.mixes_inputs
    name = "abc"[best[row]]
    assert found.to_json() == [{"row": row, "predicted": name, "batch": 1, "predicted_there": "a"}]
    assert str(found) == f"the class of 1 input depends on how many are run at once: row {row} ({name}, alone a)"


def test_a_model_that_mixes_its_batch_is_named_as_such() -> None:
    found = arachne.scan(Mixing(mlp([6, 8, 3], seed=1)), data()).batch_dependent
    assert found is not None
    assert found.mixes_inputs
    assert len(found) > 50
    assert "; the model mixes the inputs of a batch: row " in str(found)
    assert str(found).endswith("more")


@pytest.mark.backend("onnx")
def test_scan_and_evaluate_list_inputs_that_a_batch_changes(tmp_path: Path) -> None:
    """A graph that takes the mean over the batch away."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    weight = rng.normal(size=(6, 3)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["z"]),
        helper.make_node("ReduceMean", ["z"], ["m"], axes=[0], keepdims=1),
        helper.make_node("Sub", ["z", "m"], ["scores"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 6])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 3])
    graph = helper.make_graph(nodes, "mixing", [x], [scores], [numpy_helper.from_array(weight, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "m.onnx")
    inputs = rng.normal(size=(40, 6)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x=inputs, y=np.argmax(inputs @ weight, axis=1))
    for command in ("scan", "evaluate"):
        ran = arachne_command(command, "m.onnx", "--data", "d.npz", "--json", cwd=tmp_path)
        assert ran.code == 0, ran.err
        assert "note: the class of " in ran.err
        assert "depends on how many are run at once; the model mixes the inputs of a batch: row " in ran.err
        assert set(ran.json["batch_dependent"][0]) == {"row", "predicted", "batch", "predicted_there"}
