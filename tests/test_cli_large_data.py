"""Commands on more data than they may hold: the same result, and a sentence about it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.commands import Ran, arachne

pytestmark = pytest.mark.backend("onnx")

DEMO = Path(__file__).parent.parent / "arachne" / "demo"
REPAIR = ["--target", "*:7", "--search", "margin", "-O", "folds=2", "-O", "steps=16", "--max-break", "5%"]
PARTS = ["part-0.npz", "part-1.npz", "part-2.npz"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits with noise, 1.4 MB of them, in three files and in one folder."""
    folder, rng = tmp_path_factory.mktemp("large"), np.random.default_rng(0)
    (folder / "digits.onnx").write_bytes((DEMO / "digits.onnx").read_bytes())
    with np.load(DEMO / "digits.npz") as data:
        noisy = [(data["x"] + rng.normal(0, 0.02, data["x"].shape)).astype(np.float32) for _ in range(6)]
        x, y = np.concatenate(noisy), np.tile(data["y"], 6)
    for name, part in zip(PARTS, np.array_split(np.arange(len(x)), 3), strict=True):
        np.savez(folder / name, x=x[part], y=y[part])
    np.savez_compressed(folder / "packed.npz", x=x, y=y)
    (folder / "whole").mkdir()
    np.save(folder / "whole" / "x.npy", x)
    np.save(folder / "whole" / "y.npy", y)
    return folder


def run_repair(folder: Path, out: str, *options: str) -> tuple[str, Ran]:
    ran = arachne("repair", "digits.onnx", "--data", "whole", *REPAIR, *options, "-o", out, cwd=folder)
    assert ran.code == 0, ran.err
    return (folder / out / "patch.json").read_text("utf-8"), ran


def test_a_repair_says_that_data_is_read_by_piece_and_gives_the_same_patch(folder: Path) -> None:
    held, ran = run_repair(folder, "held")
    assert "read by piece" not in ran.err
    by_piece, ran = run_repair(folder, "pieces", "--memory", "1MB")
    assert "data: 5,394 inputs take 1.3 MiB, more than --memory 976.6 KiB, and are read by piece" in ran.err
    assert by_piece == held
    assert json.loads((folder / "pieces" / "result.json").read_text("utf-8"))["weights"] > 0


@pytest.mark.parametrize("words", [PARTS, [",".join(PARTS)], ["part-*.npz"]], ids=["words", "commas", "pattern"])
def test_several_files_are_one_data_set(folder: Path, words: list[str]) -> None:
    ran = arachne("scan", "digits.onnx", "--data", *words, "--no-causes", "--json", "--memory", "1MB", cwd=folder)
    assert ran.code == 0, ran.err
    whole = arachne("scan", "digits.onnx", "--data", "whole", "--no-causes", "--json", cwd=folder)
    assert ran.json["faults"] == whole.json["faults"]
    assert ran.json["inputs"] == 5394


def test_a_model_behind_the_files_is_none_of_them(folder: Path) -> None:
    ran = arachne("scan", "--data", PARTS[0], PARTS[1], "digits.onnx", "--no-causes", "--json", cwd=folder)
    assert ran.json["inputs"] == 3596


def test_an_output_that_is_one_of_several_inputs_is_refused(folder: Path) -> None:
    ran = arachne("repair", "digits.onnx", "--data", "part-*.npz", *REPAIR, "-o", PARTS[0], cwd=folder)
    assert ran.code == 2
    assert PARTS[0] in ran.err


def test_a_compressed_file_that_is_too_large_ends_with_what_to_do(folder: Path) -> None:
    ran = arachne("scan", "digits.onnx", "--data", "packed.npz", "--memory", "1MB", cwd=folder)
    assert ran.code == 3
    assert "np.savez or np.save" in ran.err


def test_causes_of_lazy_data_are_told_with_the_number_looked_at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arachne.causes.finding.MAX_LAZY_BYTES", 2000 * 256)
    ran = arachne("scan", "digits.onnx", "--data", "whole", "--memory", "1MB", cwd=folder)
    assert ran.code == 0, ran.err
    assert "causes were looked for among 2,000 of the inputs, drawn by chance, and counted in all" in ran.err
