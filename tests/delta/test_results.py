"""`arachne delta` on results and on files of every kind that a patch is put into byte by byte."""

from __future__ import annotations

import json
import shutil
from importlib import resources
from pathlib import Path

import pytest

from arachne.cli import run
from tests.delta.conftest import PYTHON, call


@pytest.fixture(scope="module")
def repaired(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repaired")
    demo = resources.files("arachne.demo")
    for name in ("digits.onnx", "digits.npz"):
        (folder / name).write_bytes(demo.joinpath(name).read_bytes())
    words = [
        "--data",
        str(folder / "digits.npz"),
        "--target",
        "*:7",
        "--search",
        "bias",
        "--max-break",
        "50%",
        "--quiet",
    ]
    assert run(["repair", str(folder / "digits.onnx"), *words, "-o", str(folder / "fix")]) == 0
    return folder


def test_a_result_has_a_delta_that_leads_to_its_model(
    repaired: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    delta = tmp_path / "fix.delta"
    assert run(["delta", str(repaired / "fix"), "-o", str(delta), "--tools", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["bytes"] == delta.stat().st_size < 1000
    program = (PYTHON[0], "-I", str(tmp_path / "arachne_delta.py"))
    call(program, delta, repaired / "digits.onnx", tmp_path / "patched.onnx")
    assert (tmp_path / "patched.onnx").read_bytes() == (repaired / "fix" / "model.onnx").read_bytes()
    assert (tmp_path / "arachne_delta.c").read_bytes().startswith(b"/* Apply")


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["fix/patch.json"], 2, "no folder of a repair"),
        (["a", "b", "c"], 2, "got 3 paths"),
        (["."], 3, "patch"),
        (["digits.onnx", "digits.onnx"], 3, "same file"),
        (["digits.onnx", "digits.npz"], 3, "two files of one length"),
        (["digits.onnx", "missing.onnx"], 3, "missing.onnx"),
    ],
)
def test_what_has_no_delta_gets_a_sentence(
    repaired: Path,
    tmp_path: Path,
    words: list[str],
    code: int,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(repaired)
    assert run(["delta", *words, "-o", str(tmp_path / "x.delta")]) == code
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "x.delta").exists()


@pytest.mark.parametrize("name", ["patch.json", "patch.safetensors", "model.onnx"])
def test_a_linked_file_in_a_result_is_not_followed(
    repaired: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fix = tmp_path / "fix"
    shutil.copytree(repaired / "fix", fix)
    elsewhere = tmp_path / "elsewhere"
    (fix / name).rename(elsewhere) if (fix / name).exists() else elsewhere.write_bytes(b"")
    (fix / name).symlink_to(elsewhere)
    assert run(["delta", str(fix), "-o", str(tmp_path / "x.delta")]) == 3
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "is a link" in told
    assert not (tmp_path / "x.delta").exists()


@pytest.mark.parametrize("ending", ["safetensors", "pt"])
def test_state_dicts_have_one_too(ending: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    layer = torch.nn.Linear(8, 4)
    old, new, patch = tmp_path / f"old.{ending}", tmp_path / f"new.{ending}", tmp_path / "patch.json"
    for path in (old, tmp_path / f"other.{ending}"):
        state = {name: value.detach().clone() for name, value in layer.state_dict().items()}
        save_file(state, path) if ending == "safetensors" else torch.save(state, path)
        with torch.no_grad():
            layer.weight[2, 3] += 0.5
    assert run(["diff", str(old), str(tmp_path / f"other.{ending}"), "-o", str(patch), "--quiet"]) == 0
    assert run(["apply", str(patch), str(old), "-o", str(new), "--quiet"]) == 0
    assert run(["delta", str(old), str(new), "-o", str(tmp_path / "fix.delta"), "--quiet"]) == 0
    before, after = old.read_bytes(), new.read_bytes()
    call(PYTHON, tmp_path / "fix.delta", old)
    assert old.read_bytes() == after
    call(PYTHON, "--revert", tmp_path / "fix.delta", old)
    assert old.read_bytes() == before
