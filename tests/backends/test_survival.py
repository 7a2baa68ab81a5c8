"""Whether a repair survives export and quantisation is measured where the model ends up."""

from __future__ import annotations

import html
import json
import warnings
from pathlib import Path

import numpy as np
import pytest

import arachne
from arachne.cli import run
from arachne.errors import ModelError, UsageError
from arachne.model.values import Address
from arachne.patch import Patch

pytestmark = [pytest.mark.backend("torch"), pytest.mark.backend("onnx")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A net that reads class 1 as 0 because one weight is wrong, its export, data, and the patch that puts it right."""
    import torch
    from torch import nn

    place = tmp_path_factory.mktemp("survival")
    net = nn.Sequential(nn.Linear(3, 3)).eval()
    net.state_dict()["0.weight"].copy_(4 * torch.eye(3))
    net.state_dict()["0.bias"].zero_()
    net.state_dict()["0.weight"][1, 1] = 0.1
    inputs = np.random.default_rng(0).normal(0, 0.2, size=(300, 3)).astype(np.float32) + np.repeat(np.eye(3), 100, 0)
    np.savez(place / "d.npz", x=inputs.astype(np.float32), y=np.repeat([0, 1, 2], 100))
    example = (torch.zeros(2, 3),)
    batch = ({0: torch.export.Dim("n")},)
    torch.export.save(torch.export.export(net, example, dynamic_shapes=batch), place / "net.pt2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own
        axes = {"x": {0: "n"}}
        torch.onnx.export(net, example, place / "net.onnx", dynamo=False, input_names=["x"], dynamic_axes=axes)
    patch = Patch.between(arachne.load(net), [Address("0", "weight", (1, 1))], [4.0], provenance={"target": ["1:*"]})
    patch.save(place / "patch.json")
    arachne.apply(patch, place / "net.onnx", place / "patched.onnx")
    return place


@pytest.mark.parametrize(("other", "note"), [("net.onnx", "put in"), ("patched.onnx", "taken out")])
def test_repair_survives_export_whether_or_not_the_export_carries_it(folder: Path, other: str, note: str) -> None:
    found = arachne.measure_survival(
        folder / "net.pt2", folder / "d.npz", folder / "patch.json", against=folder / other
    )
    assert found.survives
    assert note in found.note
    assert found.still_repaired.count == found.still_repaired.total > 50
    assert found.there.held_out.repaired == found.here.held_out.repaired
    assert found.sentence.startswith("the repair survived: ")


@pytest.mark.parametrize("kind", ["int8", "fp16"])
def test_repair_survives_quantisation(folder: Path, kind: str) -> None:
    found = arachne.measure_survival(folder / "net.onnx", folder / "d.npz", folder / "patch.json", quantise=kind)
    assert found.survives
    assert found.where == kind
    assert str(found) == f"{found.sentence} (both models were quantised to {kind})"


def test_repair_that_a_conversion_undoes_did_not_survive(folder: Path) -> None:
    import torch
    from torch import nn

    broken = nn.Sequential(nn.Linear(3, 3)).eval()
    broken.state_dict()["0.weight"].copy_(torch.tensor(np.diag([1.0, 0.01, 1.0])))
    broken.state_dict()["0.bias"].zero_()
    found = arachne.measure_survival(folder / "net.pt2", folder / "d.npz", folder / "patch.json", against=broken)
    assert not found.survives
    assert "the patch does not fit the copy: " in found.note
    assert found.sentence.startswith("the repair did not survive: 0 of ")


def test_quantised_copy_carries_the_patch_in_its_own_numbers(folder: Path, tmp_path: Path) -> None:
    from onnxruntime.quantization import CalibrationDataReader, quantize_static

    class Rows(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
        def __init__(self) -> None:
            self.rows = iter(np.load(folder / "d.npz")["x"][:, None])

        def get_next(self) -> object:
            row = next(self.rows, None)
            return None if row is None else {"x": row}

    quantize_static(folder / "net.onnx", tmp_path / "whole.onnx", Rows())
    arachne.apply(folder / "patch.json", tmp_path / "whole.onnx", tmp_path / "carried.onnx")
    for name, note in (("whole.onnx", "put in"), ("carried.onnx", "taken out")):
        found = arachne.measure_survival(
            folder / "net.pt2", folder / "d.npz", folder / "patch.json", against=tmp_path / name
        )
        assert note in found.note
        assert found.survives
        assert found.there.held_out.repaired > 50


def test_command_tells_both(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {name: str(folder / name) for name in ("net.onnx", "patched.onnx", "d.npz", "patch.json")}
    common = ["evaluate", names["net.onnx"], "--data", names["d.npz"], "--patch", names["patch.json"], "--json"]
    assert run([*common, "--quantise", "int8", "--against", names["patched.onnx"]]) == 0
    said = capsys.readouterr()
    told = json.loads(said.out)["survival"]
    assert [(item["where"], item["survived"]) for item in told] == [(names["patched.onnx"], True), ("int8", True)]
    assert said.err.count("the repair survived") == 2


def test_page_and_terminal_tell_a_copy_in_the_words_of_the_repair(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["evaluate", str(folder / "net.onnx"), "--data", str(folder / "d.npz"), "--patch"]
    page = folder / "copies.html"
    assert run([*common, str(folder / "patch.json"), "--quantise", "int8", "--report", str(page), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["survival"][0]
    found = arachne.measure_survival(folder / "net.onnx", folder / "d.npz", folder / "patch.json", quantise="int8")
    verdict, there = found.there.verdict, found.there.held_out
    assert told["heading"] == verdict.heading
    assert f"there it is {verdict.heading.upper()}: {verdict.sentence}" in told["sentence"]
    head, rest = html.unescape(page.read_text()).replace("\xa0", " ").split('<section id="numbers"')
    numbers = rest.split("</section>")[0]
    assert verdict.heading.upper() in head.split('<div class="verdict')[1]
    assert f'<th scope="row">int8</th><td>{verdict.heading}</td>' in numbers
    assert f"{there.repaired} of {there.negatives}: " in numbers
    assert run([*common, str(folder / "patch.json"), "--quantise", "int8"]) == 0
    said = capsys.readouterr().out
    assert "in int8" in said
    assert said.count(f"{there.repaired} of {there.negatives}: ") >= 2


def test_what_cannot_be_measured_is_refused(folder: Path) -> None:
    arguments = (folder / "net.pt2", folder / "d.npz", folder / "patch.json")
    with pytest.raises(ModelError, match=r"cannot quantise 'net.pt2'; export it to .onnx first"):
        arachne.measure_survival(*arguments, quantise="int8")
    with pytest.raises(UsageError, match="no quantisation named 'int3'; available: int8, fp16"):
        arachne.measure_survival(folder / "net.onnx", *arguments[1:], quantise="int3")
    with pytest.raises(UsageError, match="give one of the two"):
        arachne.measure_survival(*arguments)
    with pytest.raises(UsageError, match="only a model file"):
        arachne.measure_survival(arachne.load(folder / "net.onnx"), *arguments[1:], quantise="int8")


def test_flips_of_a_repair_are_the_predictions_it_changes(folder: Path) -> None:
    inputs = np.load(folder / "d.npz")["x"]
    found = arachne.flips(folder / "net.onnx", inputs, folder / "patch.json")
    before, after = (arachne.load(folder / name).predict(inputs) for name in ("net.onnx", "patched.onnx"))
    assert found.inputs == len(inputs)
    assert sorted(found.rows.tolist()) == np.flatnonzero(before != after).tolist() != []
    doubled = arachne.flips(folder / "net.onnx", inputs / 2, folder / "patch.json", preprocess="scale=2")
    assert doubled.rows.tolist() == found.rows.tolist()
