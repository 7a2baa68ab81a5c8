"""`arachne convert`: PyTorch models as ONNX, compared before they are written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from arachne.cli import run
from arachne.errors import ModelError, UsageError
from arachne.testing import ReferenceBackend, mlp
from arachne_onnx import OnnxBackend
from arachne_torch import TorchBackend

pytestmark = [pytest.mark.backend("onnx"), pytest.mark.backend("torch")]
pytest.importorskip("onnxscript")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 4)).eval()


def program(folder: Path) -> Path:
    batch = torch.export.Dim("n")
    exported = torch.export.export(network(), (torch.zeros(2, 1, 6, 6),), dynamic_shapes=({0: batch},))
    torch.export.save(exported, folder / "model.pt2")
    return folder / "model.pt2"


def read_output(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_a_program_becomes_onnx_with_the_same_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = program(tmp_path), tmp_path / "model.onnx"
    assert run(["convert", str(source), "-o", str(out), "--json"]) == 0
    value = read_output(capsys)
    assert value["same_predictions"] == value["inputs"] == 64
    assert value["largest_difference"] < 1e-4
    x = np.random.default_rng(0).normal(size=(5, 1, 6, 6)).astype(np.float32)
    converted, original = OnnxBackend.load(out), TorchBackend.load(source)
    np.testing.assert_allclose(converted.forward(x), original.forward(x), atol=1e-5)
    assert [info.name for info in converted.layers] == [info.name for info in original.layers]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "model.pt2"]


def test_a_module_is_followed_with_data(tmp_path: Path) -> None:
    model = network()
    x = np.random.default_rng(0).normal(size=(9, 1, 6, 6)).astype(np.float32)
    TorchBackend.load(model).export_onnx(tmp_path / "model.onnx", inputs=x)
    converted = OnnxBackend.load(tmp_path / "model.onnx")
    np.testing.assert_allclose(converted.forward(x), model(torch.from_numpy(x)).detach().numpy(), atol=1e-5)


def test_a_module_without_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not tell what inputs it takes; give some data"):
        TorchBackend.load(network()).export_onnx(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_only_onnx_files_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["convert", str(program(tmp_path)), "-o", str(tmp_path / "model.bin")]) == 2
    assert "its name must end in .onnx" in capsys.readouterr().err


def test_onnx_itself_is_not_converted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = program(tmp_path), str(tmp_path / "model.onnx")
    assert run(["convert", str(source), "-o", out]) == 0
    assert run(["convert", out, "-o", str(tmp_path / "again.onnx")]) == 2
    assert "model.onnx' is an ONNX file already" in capsys.readouterr().err
    backend = OnnxBackend.load(out)
    assert backend.forward(backend.example_inputs(3)).shape == (3, 4)


def test_a_backend_that_declares_no_export_refuses() -> None:
    backend = ReferenceBackend(mlp([4, 3]))
    with pytest.raises(UsageError, match="backend 'reference' does not export to ONNX"):
        backend.export_onnx(Path("model.onnx"))
    with pytest.raises(ModelError, match="backend 'reference' does not tell what inputs a model takes"):
        backend.example_inputs(2)
