"""Every task from the command line, on small networks in ONNX and PyTorch that get some decisions wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arachne.model.values import Array
from tests.commands import arachne

WIDTH, HIDDEN = 6, 24
LABELS = ("toxic", "threat", "insult")
CLASSES = ("O", "B-LOC", "B-ORG")
Weights = tuple[Array, Array, Array]
"""Of the hidden layer, of the last one, and the last one's bias."""


def network(inputs: Array, wanted: Array, fault: Array) -> Weights:
    """Weights of two dense layers over the last axis that give about what is wanted, with a fault in the last bias."""
    hidden = np.random.default_rng(1).normal(size=(HIDDEN, WIDTH)).astype(np.float32)
    features = np.maximum(inputs @ hidden.T, 0).reshape(-1, HIDDEN)
    out = np.linalg.lstsq(features, wanted.reshape(len(features), -1), rcond=None)[0].T
    return hidden, out.astype(np.float32), fault.astype(np.float32)


def write_onnx(path: Path, weights: Weights, shape: tuple[int, ...], end: str | None = None) -> None:
    from onnx import TensorProto, helper, numpy_helper, save

    hidden, out, bias = weights
    nodes = [
        helper.make_node("MatMul", ["x", "hidden"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "out"], ["m"]),
        helper.make_node("Add", ["m", "bias"], ["z"]),
    ]
    nodes += [] if end is None else [helper.make_node(end, ["z"], ["p"])]
    stored = {"hidden": np.ascontiguousarray(hidden.T), "out": np.ascontiguousarray(out.T), "bias": bias}
    held = [numpy_helper.from_array(array, name) for name, array in stored.items()]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *shape])
    found = helper.make_tensor_value_info("z" if end is None else "p", TensorProto.FLOAT, ["n", *shape[:-1], len(bias)])
    graph = helper.make_graph(nodes, "net", [given], [found], held)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def write_torch(
    path: Path, weights: tuple[Array, Array, Array], shape: tuple[int, ...], end: str | None = None
) -> None:
    import torch
    from torch import nn

    hidden, out, bias = map(torch.tensor, weights)
    first, last = nn.Linear(WIDTH, HIDDEN, bias=False), nn.Linear(HIDDEN, len(bias))
    with torch.no_grad():
        first.weight.copy_(hidden)
        last.weight.copy_(out)
        last.bias.copy_(bias)
    ends: dict[str | None, list[nn.Module]] = {None: [], "Sigmoid": [nn.Sigmoid()], "Softmax": [nn.Softmax(-1)]}
    model = nn.Sequential(first, nn.ReLU(), last, *ends[end])
    batch = {0: torch.export.Dim("n")}
    torch.export.save(torch.export.export(model, (torch.zeros(4, *shape),), dynamic_shapes=(batch,)), path)


WRITERS = {"onnx": (write_onnx, "model.onnx"), "torch": (write_torch, "model.pt2")}
BACKENDS = [pytest.param(name, marks=pytest.mark.backend(name)) for name in WRITERS]


def make(
    folder: Path, backend: str, end: str | None, x: Array, y: Array, wanted: Array, fault: Array, **more: Any
) -> str:
    """Write a network and its data; the file of the network."""
    write, name = WRITERS[backend]
    write(folder / name, network(x, wanted, fault), x.shape[1:], end)
    np.savez(folder / "data.npz", x=x, y=y, **more)
    return name


def several_labels(folder: Path, backend: str) -> str:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, WIDTH)).astype(np.float32)
    z = x @ rng.normal(size=(WIDTH, 3))
    y = (z + 0.3 * rng.normal(size=z.shape) > 0).astype(float)
    wanted = 2 * y - 1
    y[rng.random(y.shape) < 0.1] = np.nan
    return make(folder, backend, "Sigmoid", x, y, wanted, np.array([0, 0.4, 0]), class_names=LABELS)


@pytest.mark.parametrize("backend", BACKENDS)
def test_false_labels_are_repaired_chosen_again_applied_and_measured(tmp_path: Path, backend: str) -> None:
    model = several_labels(tmp_path, backend)
    found = arachne("scan", model, "--data", "data.npz", "--task", "multilabel", cwd=tmp_path)
    assert found.code == 0, found.err
    with np.load(tmp_path / "data.npz") as data:
        known = int((~np.isnan(data["y"])).sum())
    assert f"of {known:,} labels wrong" in found.out
    assert "--data data.npz --task multilabel --target " in found.err.splitlines()[-1]
    assert "false:threat" in found.out
    assert "causes are looked for where each input has one label" in found.err
    words = ("--data", "data.npz", "--task", "multilabel", "--target", "false:threat", "--search", "last-layer")
    done = arachne("repair", model, *words, "--max-break", "3%", "-o", "fix", "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    result = done.json
    assert result["provenance"]["settings"]["task"] == {"name": "multilabel", "thresholds": []}
    held_out = result["held_out"]
    assert held_out["counted"] == "labels"
    assert held_out["repaired"] > 0.4 * held_out["negatives"] > 4
    assert {row["name"] for row in held_out["classes"]} == {word for name in LABELS for word in (name, f"no {name}")}
    again = arachne("evaluate", model, "--data", "data.npz", "--patch", "fix/patch.json", "--json", cwd=tmp_path)
    assert again.json["held_out"]["repaired"] == held_out["repaired"]
    flips = arachne("evaluate", model, "--patch", "fix/patch.json", "--unlabelled", "data.npz", cwd=tmp_path)
    assert (flips.code, "where each input has one label" in flips.err) == (2, True), flips.err
    applied = ("apply", "fix/patch.json", model, "-o", f"fixed{Path(model).suffix}", "--data", "data.npz")
    assert "as the patch promised" in arachne(*applied, cwd=tmp_path).err
    chosen = arachne("choose", "fix", model, "--data", "data.npz", "--max-break", "5%", "-o", "more", cwd=tmp_path)
    assert chosen.code == 0, chosen.err
    stored = json.loads((tmp_path / "more" / "result.json").read_text())
    assert stored["held_out"]["repaired"] >= held_out["repaired"]
    assert "no threat" in (tmp_path / "more" / "report.html").read_text("utf-8")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("end", [None, "Sigmoid"])
def test_one_logit_is_two_classes_by_itself(tmp_path: Path, backend: str, end: str | None) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, WIDTH)).astype(np.float32)
    label = (x @ rng.normal(size=WIDTH) + 0.3 * rng.normal(size=600) > 0).astype(int)
    y = np.array(["safe", "unsafe"])[label]
    model = make(tmp_path, backend, end, x, y, 2.0 * label - 1, np.array([0.5]))
    words = ("--target", "false:unsafe", "--search", "last-layer", "--max-break", "3%", "--json")
    done = arachne("repair", model, "--data", "data.npz", *words, "-o", "fix", cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.json["held_out"]["repaired"] > 0.4 * done.json["held_out"]["negatives"] > 4
    flips = arachne("evaluate", model, "--patch", "fix/patch.json", "--unlabelled", "data.npz", "--json", cwd=tmp_path)
    assert flips.json["flipped"] > 0, flips.err
    assert done.json["provenance"]["settings"].get("task") == (None if end else {"name": "binary"})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("end", [None, "Softmax"])
def test_tokens_are_repaired(tmp_path: Path, backend: str, end: str | None) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=(200, 5))
    x = (rng.normal(size=(3, WIDTH))[y] + 0.7 * rng.normal(size=(200, 5, WIDTH))).astype(np.float32)
    wanted = 3.0 * np.eye(3)[y]
    y[rng.random(y.shape) < 0.2] = -100
    model = make(tmp_path, backend, end, x, y, wanted, np.array([0, 0.8, 0]), class_names=CLASSES)
    words = ("--task", "tokens", "--target", "*:B-LOC", "--search", "last-layer", "--max-break", "3%", "--json")
    done = arachne("repair", model, "--data", "data.npz", *words, cwd=tmp_path)
    assert done.code == 0, done.err
    held_out = done.json["held_out"]
    assert held_out["counted"] == "tokens"
    assert held_out["repaired"] > 0.3 * held_out["negatives"] > 4


@pytest.mark.parametrize("backend", BACKENDS)
def test_numbers_that_are_too_high_are_repaired(tmp_path: Path, backend: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, WIDTH)).astype(np.float32)
    hidden, _, _ = network(x, x, np.zeros(1))
    y = np.maximum(x @ hidden.T, 0) @ rng.normal(size=HIDDEN) / 5 + 0.3 * rng.normal(size=500)
    model = make(tmp_path, backend, None, x, y, y, np.array([0.8]))
    words = ("--data", "data.npz", "--task", "regression", "--tolerance", "1", "--target", "over")
    done = arachne(
        "repair", model, *words, "--search", "last-layer", "--max-break", "3%", "-o", "fix", "--json", cwd=tmp_path
    )
    assert done.code == 0, done.err
    assert done.json["held_out"]["counted"] == "numbers"
    assert done.json["held_out"]["repaired"] > 0.4 * done.json["held_out"]["negatives"] > 4
    assert done.json["provenance"]["settings"]["task"] == {"name": "regression", "tolerance": 1.0}


@pytest.mark.backend("onnx")
@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (
            (),
            3,
            "expected one label per input, got labels of shape (600, 3); name the task that reads them, multilabel",
        ),
        (("--task", "multilable"), 2, "no task named 'multilable'; did you mean 'multilabel'?"),
        (("--task", "multilabel", "--threshold", "2"), 2, "a probability above 0 and below 1, got '2'"),
        (("--task", "multilabel", "--threshold", "thread=0.3"), 2, "for 'thread', which is no label"),
        (("--task", "tokens", "--threshold", "0.3"), 2, "the task 'tokens' has no threshold; leave out --threshold"),
        (("--threshold", "0.3"), 2, "--threshold goes with a task that has it"),
        (("--task", "tokens"), 3, "expected outputs of shape (inputs, tokens, classes) from the model, got (600, 3)"),
        (("--task", "segmentation"), 3, "expected outputs of shape (inputs, classes, height, width)"),
        (("--task", "regression"), 2, "say how far a prediction may be from its label (--tolerance NUMBER)"),
    ],
)
def test_what_does_not_fit_is_said_in_one_sentence(
    tmp_path: Path, words: tuple[str, ...], code: int, sentence: str
) -> None:
    model = several_labels(tmp_path, "onnx")
    done = arachne("scan", model, "--data", "data.npz", *words, cwd=tmp_path)
    assert (done.code, sentence in done.err.splitlines()[-1]) == (code, True), done.err


@pytest.mark.backend("onnx")
def test_thresholds_may_be_in_a_file(tmp_path: Path) -> None:
    model = several_labels(tmp_path, "onnx")
    (tmp_path / "limits.txt").write_text("# chosen by hand\nthreat = 0.7\ninsult,0.4\n")
    words = ("scan", model, "--data", "data.npz", "--task", "multilabel", "--json", "--threshold")
    listed = arachne(*words, "limits.txt", cwd=tmp_path)
    typed = arachne(*words, "threat=0.7,insult=0.4", cwd=tmp_path)
    usual = arachne(*words, "0.5", cwd=tmp_path)
    assert listed.json == typed.json != usual.json
    for name in ("0.5", "threat=0.7"):  # a typed value is none of the files that lie here
        before = arachne(*words, name, cwd=tmp_path)
        (tmp_path / name).write_text("threat=0.99\n")
        assert arachne(*words, name, cwd=tmp_path).json == before.json
    (tmp_path / "limits.txt").write_text("threat = much\n")
    assert arachne(*words, "limits.txt", cwd=tmp_path).code == 3
    only_one = arachne("scan", model, "--data", "data.npz", cwd=tmp_path)
    assert only_one.code == 3


@pytest.mark.backend("onnx")
@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (
            ("--task", "multilabel", "--target", "false:thread"),
            2,
            "names 'thread', which is none; did you mean 'threat'?",
        ),
        (("--task", "multilabel", "--target", "rule:not 1"), 2, "a rule is about class scores"),
        (("--task", "tokens", "--target", "1:0"), 3, "expected outputs of shape (inputs, tokens, classes)"),
        (("--task", "regression", "--tolerance", "1", "--target", "above"), 2, "'above'"),
        (("--target", "1:0"), 3, "got labels of shape (600, 3)"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_repair_begins(
    tmp_path: Path, words: tuple[str, ...], code: int, sentence: str
) -> None:
    model = several_labels(tmp_path, "onnx")
    done = arachne("repair", model, "--data", "data.npz", *words, "-o", "fix", cwd=tmp_path)
    assert (done.code, sentence in done.err.splitlines()[-1]) == (code, True), done.err
    assert "model:" not in done.err
    assert not (tmp_path / "fix" / "result.json").exists()
