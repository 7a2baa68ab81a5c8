"""The user alone lets code run; a model is the file that was opened, and the one that was expected."""

from __future__ import annotations

import json
import shutil
from importlib import resources
from pathlib import Path

import onnx
import pytest

import arachne as package
from arachne.errors import ModelError, UsageError
from arachne.io.files import sha256_of
from arachne.model.registry import weight_file
from arachne.patch import apply_to
from tests.commands import arachne

pytestmark = pytest.mark.backend("onnx")

MODEL = ("digits.onnx", "--data", "digits.npz")
REPAIR = ("repair", *MODEL, "--target", "*:7", "--search", "bias", "-q")
CANARY = "from pathlib import Path\nPath('canary').touch()\n\ndef make(batch=None):\n    return batch\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("digits.onnx", "digits.npz"):
        (tmp_path / name).write_bytes(resources.files("arachne.demo").joinpath(name).read_bytes())
    (tmp_path / "stranger.py").write_text(CANARY)
    (tmp_path / "mine").write_text("mine")
    return tmp_path


SETTINGS = {
    "trust-code": ("trust-code = true", ("scan", *MODEL)),
    "factory": ('model = "stranger:make"', ("scan", "--weights", "digits.onnx", "--data", "digits.npz")),
    "preprocess": ('preprocess = "stranger:make"', ("scan", *MODEL)),
    "steps": ('preprocess = "scale=1/255 stranger:make"', ("evaluate", *MODEL)),
    "section": ('[scan]\npreprocess = "stranger:make"', ("scan", *MODEL)),
    "force": ("force = true", ("scan", *MODEL, "-o", "mine")),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_file_in_the_working_folder_lets_no_code_run_and_nothing_be_replaced(folder: Path, setting: str) -> None:
    text, arguments = SETTINGS[setting]
    (folder / "arachne.toml").write_text(text)
    ran = arachne(*arguments, cwd=folder)
    assert (ran.code, ran.err.count("\n")) == (3, 1), ran.err
    assert ran.err.startswith(f"error: 'arachne.toml', line {len(text.splitlines())} sets --")
    assert ran.err.endswith("or name the file (--config arachne.toml)\n")
    assert not (folder / "canary").exists()
    assert (folder / "mine").read_text() == "mine"


def test_a_file_that_the_user_names_may_let_code_run(folder: Path) -> None:
    (folder / "arachne.toml").write_text('preprocess = "stranger:make"')
    assert arachne("evaluate", *MODEL, "--config", "arachne.toml", cwd=folder).code == 0
    assert (folder / "canary").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [("TRUST_CODE", "1"), ("PREPROCESS", "stranger:make"), ("MODEL", "stranger:make"), ("FORCE", "1")],
)
def test_the_environment_lets_no_code_run(folder: Path, name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"ARACHNE_EVALUATE_{name}", value)
    ran = arachne("evaluate", *MODEL, cwd=folder)
    assert (ran.code, f"ARACHNE_EVALUATE_{name}" in ran.err) == (2, True)
    assert not (folder / "canary").exists()


def test_that_code_was_trusted_is_written_down(folder: Path) -> None:
    assert arachne(*REPAIR, "-o", "plain", cwd=folder).code == 0
    assert arachne(*REPAIR, "--trust-code", "-o", "trusting", cwd=folder).code == 0
    told = [json.loads((folder / name / "result.json").read_text())["provenance"] for name in ("plain", "trusting")]
    assert [one.get("trusted_code") for one in told] == [None, True]
    assert "trusted_code" in (folder / "trusting" / "report.html").read_text()


def test_only_the_expected_files_are_read(folder: Path) -> None:
    right = {name: sha256_of(folder / name) for name in ("digits.onnx", "digits.npz")}
    wrong = "0" * 64
    expected = ("--expect-sha256", right["digits.onnx"].upper(), "--expect-sha256", f"digits.npz={right['digits.npz']}")
    assert arachne("scan", *MODEL, "--no-causes", *expected, cwd=folder).code == 0
    for text in (wrong, f"digits.npz={wrong}"):
        ran = arachne("scan", *MODEL, "--expect-sha256", text, cwd=folder)
        assert (ran.code, f"expected {wrong}" in ran.err) == (3, True)
    for text, says in (
        ("abc", "is no sha256"),
        (f"arachne.toml={wrong}", "does not exist"),
        (f"mine={wrong}", "no input"),
    ):
        ran = arachne("scan", *MODEL, "--expect-sha256", text, cwd=folder)
        assert (ran.code in (2, 3), says in ran.err) == (True, True), ran.err


def test_patches_are_expected_too(folder: Path) -> None:
    assert arachne(*REPAIR, "-o", "fix", cwd=folder).code == 0
    patch, model = "fix/patch.json", "digits.onnx"
    right = sha256_of(folder / patch)
    expected = ("--expect-sha256", sha256_of(folder / model), "--expect-sha256", f"{patch}={right}")
    assert arachne("apply", patch, model, "-o", "a.onnx", *expected, cwd=folder).code == 0
    assert arachne("show", patch, "--expect-sha256", right, cwd=folder).code == 0
    assert arachne("show", patch, "--expect-sha256", "0" * 64, cwd=folder).code == 3


def test_in_python_another_file_than_the_expected_one_is_not_opened(folder: Path) -> None:
    model = folder / "digits.onnx"
    assert package.load(model, expect_sha256=sha256_of(model)).file_identity is not None
    with pytest.raises(ModelError, match="not the expected file"):
        package.load(model, expect_sha256="0" * 64)
    with pytest.raises(UsageError, match="no sha256"):
        package.load(model, expect_sha256="x")


def test_weights_beside_a_model_are_expected_too(folder: Path) -> None:
    """A neighbour who cannot change the model could otherwise change every weight of it."""
    model = onnx.load(folder / "digits.onnx")
    onnx.save_model(model, folder / "net.onnx", save_as_external_data=True, location="net.data", size_threshold=0)
    first, data = (sha256_of(folder / name) for name in ("net.onnx", "net.data"))
    assert arachne(*REPAIR, "-o", "fix", cwd=folder).code == 0
    for command in (("evaluate", "net.onnx", "--data", "digits.npz"), ("log", "net.onnx", "--patches", "fix")):
        for expected in ((first,), (f"net.data={data}",), (first, f"net.data={first}")):
            words = [word for one in expected for word in ("--expect-sha256", one)]
            ran = arachne(*command, *words, cwd=folder)
            assert (ran.code, "expect" in ran.err) == (3, True), ran.err
        both = ("--expect-sha256", first, "--expect-sha256", f"net.data={data}")
        assert arachne(*command, *both, cwd=folder).code == 0
    assert arachne("log", "net.onnx", "--patches", "fix", "--expect-sha256", f"digits.npz={data}", cwd=folder).code == 2
    with pytest.raises(ModelError, match=r"net\.data"):
        package.load(folder / "net.onnx", expect_sha256=first)
    assert package.load(folder / "net.onnx", expect_sha256={"net.onnx": first, "net.data": data})


@pytest.mark.parametrize("how", ["replaced", "written over", "removed"])
def test_a_model_that_is_replaced_during_a_repair_is_noticed(folder: Path, how: str) -> None:
    """Otherwise another base would be saved with this patch, and the hash would be that of another file."""
    model = folder / "digits.onnx"
    backend = package.load(model)
    original = sha256_of(model)
    result = package.repair(backend, folder / "digits.npz", "*:7", searcher="bias")
    content = bytearray(model.read_bytes())
    content[-1] ^= 1
    if how == "replaced":
        (folder / "new").write_bytes(content)
        (folder / "new").replace(model)
    elif how == "written over":
        model.write_bytes(content)
    else:
        model.unlink()
    assert result.patch.base.sha256 == original
    for save in (lambda: result.save(folder / "fix"), lambda: result.model.save(folder / "patched.onnx")):
        with pytest.raises(ModelError, match="not the file any more"):
            save()
    assert not (folder / "fix").exists()
    assert not (folder / "patched.onnx").exists()


def test_a_model_that_is_replaced_while_it_is_patched_is_noticed(folder: Path) -> None:
    assert arachne(*REPAIR, "-o", "fix", cwd=folder).code == 0
    shutil.copyfile(folder / "digits.onnx", folder / "other.onnx")
    file = weight_file(folder / "other.onnx")
    content = bytearray((folder / "other.onnx").read_bytes())
    content[-1] ^= 1
    (folder / "other.onnx").write_bytes(content)
    with pytest.raises(ModelError, match="not the file any more"):
        apply_to(package.Patch.load(folder / "fix" / "patch.json"), file, folder / "patched.onnx")
    assert not (folder / "patched.onnx").exists()
