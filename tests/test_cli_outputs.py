"""No command writes over what it reads, over another output, or over anything that was there, unless it may."""

from __future__ import annotations

import json
import os
import shutil
from importlib import resources
from pathlib import Path

import pytest

from arachne.io.files import sha256_of
from tests.commands import Ran, arachne

pytestmark = pytest.mark.backend("onnx")

MODEL = ("digits.onnx", "--data", "digits.npz")
REPAIR = ("repair", *MODEL, "--target", "*:7", "--search", "bias")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, data, and a repair of it."""
    folder = tmp_path_factory.mktemp("made")
    for name in ("digits.onnx", "digits.npz"):
        (folder / name).write_bytes(resources.files("arachne.demo").joinpath(name).read_bytes())
    assert arachne(*REPAIR, "-o", "fix", "-q", cwd=folder).code == 0
    shutil.copyfile(folder / "fix" / "patch.json", folder / "p.json")
    shutil.copyfile(folder / "fix" / "model.onnx", folder / "patched.onnx")
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "work")


def everything(folder: Path) -> dict[str, str]:
    """The hash of every file below a folder."""
    return {str(p.relative_to(folder)): sha256_of(p) for p in folder.rglob("*") if p.is_file()}


def run_refused(*arguments: str, folder: Path, says: str) -> Ran:
    """Run a command that must refuse, and must leave everything as it was, also when it is told to replace things."""
    before = everything(folder)
    for force in ([], ["--force"]):
        ran = arachne(*arguments, *force, cwd=folder)
        assert (ran.code, ran.err.count("\n")) == (2, 1), ran.err
        assert says in ran.err
        assert everything(folder) == before
    return ran


ONTO_INPUTS = [
    ("evaluate", *MODEL, "--report", "digits.onnx"),
    ("evaluate", *MODEL, "--patch", "p.json", "--report", "p.json"),
    ("evaluate", *MODEL, "--patch", "p.json", "--fail-if", "break_rate > 1", "--junit", "digits.npz"),
    ("evaluate", *MODEL, "--log-file", "digits.onnx"),
    ("evaluate", *MODEL, "--patch", "p.json", "--unlabelled", "t.npy", "--report", "t.npy"),
    ("evaluate", *MODEL, "--patch", "p.json", "--against", "patched.onnx", "--report", "patched.onnx"),
    ("localise", *MODEL, "--target", "*:7", "--plot", "digits.npz"),
    ("localise", *MODEL, "--target", "rows:rows.csv", "--plot", "rows.csv"),
    ("scan", *MODEL, "--page", "digits.onnx"),
    ("scan", *MODEL, "-o", "digits.npz"),
    ("scan", *MODEL, "--classes", "names.txt", "-o", "names.txt"),
    ("diff", "digits.onnx", "patched.onnx", "-o", "patched.onnx"),
    ("diff", "digits.onnx", "patched.onnx", "-o", "digits.onnx"),
    ("stack", "p.json", "-o", "p.json"),
    ("apply", "p.json", "digits.onnx", "-o", "digits.onnx"),
    ("apply", "p.json", "digits.onnx", "-o", "hard.onnx"),
    ("apply", "p.json", "digits.onnx", "-o", "soft.onnx"),
    ("apply", "p.json", "digits.onnx", "-o", "p.json"),
    ("revert", "p.json", "patched.onnx", "-o", "patched.onnx"),
    ("convert", "digits.onnx", "-o", "digits.onnx"),
    ("report", "fix", "-o", "fix/report.json"),
    ("repair", "fix/model.onnx", "--data", "digits.npz", "--target", "*:7", "-o", "fix"),
    ("compare", "fix/model.onnx", "--data", "digits.npz", "--target", "*:7", "-o", "fix"),
    ("choose", "fix", "-o", "fix"),
    (*REPAIR, "--config", "c.toml", "--fail-if", "break_rate > 1", "--junit", "c.toml"),
]


@pytest.mark.parametrize("arguments", ONTO_INPUTS, ids=lambda arguments: f"{arguments[0]}-{arguments[-1]}")
def test_an_output_that_is_an_input_is_refused_before_any_work(folder: Path, arguments: tuple[str, ...]) -> None:
    for name in ("t.npy", "rows.csv", "names.txt", "c.toml"):
        (folder / name).write_text("")
    os.link(folder / "digits.onnx", folder / "hard.onnx")
    (folder / "soft.onnx").symlink_to("digits.onnx")
    run_refused(*arguments, folder=folder, says="input")


def test_the_values_of_a_large_patch_are_an_output_too(folder: Path) -> None:
    shutil.copyfile(folder / "digits.onnx", folder / "a.safetensors")
    run_refused(
        "diff", "a.safetensors", "patched.onnx", "-o", "a.json", folder=folder, says="'a.safetensors' (--out) is an"
    )


@pytest.mark.parametrize(
    "places",
    [
        ("-o", "new", "--junit", "new"),
        ("-o", "new", "--junit", "new/gates.xml"),
        ("-o", "new", "--log-file", "new"),
        ("--junit", "a.xml", "--log-file", "a.xml"),
        ("-o", "there/../new", "--junit", "link/new"),
    ],
)
def test_two_outputs_in_one_place_are_refused(folder: Path, places: tuple[str, ...]) -> None:
    (folder / "there").mkdir()
    (folder / "link").symlink_to(".")
    run_refused(
        *REPAIR, "--fail-if", "break_rate > 1", *places, folder=folder, says="are one place, or one lies in the"
    )


EXISTING = [
    ("evaluate", *MODEL, "--report", "there"),
    ("evaluate", *MODEL, "--patch", "p.json", "--fail-if", "break_rate > 1", "--junit", "there"),
    ("localise", *MODEL, "--target", "*:7", "--localiser", "gl", "--plot", "there.svg"),
    ("scan", *MODEL, "--page", "there"),
    ("scan", *MODEL, "--no-causes", "-o", "there"),
    ("diff", "digits.onnx", "patched.onnx", "-o", "there"),
    ("stack", "p.json", "-o", "there"),
    ("apply", "p.json", "digits.onnx", "-o", "there.onnx"),
    ("revert", "p.json", "patched.onnx", "-o", "there.onnx"),
    ("report", "fix", "-o", "there"),
]


@pytest.mark.parametrize("arguments", EXISTING, ids=lambda arguments: f"{arguments[0]}{arguments[-2]}")
def test_what_is_there_is_replaced_only_on_request(folder: Path, arguments: tuple[str, ...]) -> None:
    there = folder / arguments[-1]
    there.write_text("mine")
    ran = arachne(*arguments, cwd=folder)
    assert (ran.code, there.read_text()) == (2, "mine")
    assert "is there already; choose another name, or replace it (--force)" in ran.err
    ran = arachne(*arguments, "--force", cwd=folder)
    assert ran.code == 0, ran.err
    assert there.read_bytes() != b"mine"


def test_a_folder_of_results_is_replaced_only_on_request(folder: Path) -> None:
    before = everything(folder)
    ran = arachne(*REPAIR, "-o", "fix", cwd=folder)
    assert (ran.code, ran.err) == (
        2, "error: 'fix' holds the results of an earlier run; choose another folder, or replace them (--force)\n"
    )  # fmt: skip
    assert everything(folder) == before
    assert arachne(*REPAIR, "--seed", "3", "--max-break", "1%", "-o", "fix", "--force", cwd=folder).code == 0
    assert json.loads((folder / "fix" / "result.json").read_text())["seed"] == 3


def test_a_folder_with_files_of_others_is_not_replaced_on_request_either(folder: Path) -> None:
    (folder / "fix" / "notes.txt").write_text("mine")
    run_refused(*REPAIR, "-o", "fix", folder=folder, says="such as 'notes.txt'")


def test_nothing_is_put_into_a_folder_of_results(folder: Path) -> None:
    run_refused("scan", *MODEL, "-o", "fix/scan.json", folder=folder, says="a folder of results")


@pytest.mark.parametrize("place", ["/dev/null", "/dev/stdout"])
def test_devices_are_not_written_over(folder: Path, place: str) -> None:
    run_refused("evaluate", *MODEL, "--report", place, folder=folder, says="is no ordinary file")


def test_a_log_is_added_to_and_nothing_else_is(folder: Path) -> None:
    for _ in range(2):
        assert arachne("stack", "p.json", "-o", "both.json", "--force", "--log-file", "log", cwd=folder).code == 0
    assert len((folder / "log").read_text().splitlines()) == 2
    (folder / "diary").write_text("2026 was fine\n")
    run_refused(
        "stack", "p.json", "-o", "other.json", "--log-file", "diary", folder=folder, says="no log of an earlier run"
    )


@pytest.mark.parametrize("option", [("--report", "nowhere/a.html"), ("--log-file", "nowhere/log")])
def test_a_place_that_cannot_be_written_is_told_at_once(folder: Path, option: tuple[str, ...]) -> None:
    ran = arachne("evaluate", *MODEL, *option, cwd=folder)
    assert (ran.code, ran.out) == (4, "")
    assert ran.err.startswith("error: cannot write 'nowhere")


def test_the_demonstration_can_be_run_again(tmp_path: Path) -> None:
    assert arachne("demo", "-o", "d", "-q", cwd=tmp_path).code == 0
    assert arachne("demo", "-o", "d", "-q", cwd=tmp_path).code == 0
    (tmp_path / "d" / "fix" / "mine").write_text("a note")
    assert arachne("demo", "-o", "d", "-q", cwd=tmp_path).code == 2
    (tmp_path / "d" / "fix" / "mine").unlink()
    (tmp_path / "d" / "digits.onnx").write_text("another")
    ran = arachne("demo", "-o", "d", "-q", cwd=tmp_path)
    assert (ran.code, (tmp_path / "d" / "digits.onnx").read_text()) == (2, "another")


def test_making_the_page_again_keeps_the_manifest_true(folder: Path) -> None:
    (folder / "fix" / "report.html").write_text("mine")
    ran = arachne("report", "fix", cwd=folder)
    assert (ran.code, (folder / "fix" / "report.html").read_text()) == (2, "mine")
    assert "is not the page that a run has written there; move it away, or replace it (--force)" in ran.err
    assert arachne("report", "fix", "--force", cwd=folder).code == 0
    told = json.loads((folder / "fix" / "manifest.json").read_text())["files"]
    assert {name: entry["sha256"] for name, entry in told.items()} == {
        name: digest for name, digest in everything(folder / "fix").items() if name != "manifest.json"
    }


def test_copies_are_as_private_as_the_model(folder: Path) -> None:
    (folder / "digits.onnx").chmod(0o600)
    assert arachne("apply", "p.json", "digits.onnx", "-o", "copy.onnx", cwd=folder).code == 0
    assert arachne(*REPAIR, "-o", "new", "-q", cwd=folder).code == 0
    assert (folder / "copy.onnx").stat().st_mode & 0o777 == 0o600
    assert (folder / "new").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (folder / "new").iterdir()} == {0o600}


def test_a_file_that_appears_while_a_command_runs_is_not_written_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from arachne.report import html

    def draw(page: object) -> str:
        (folder / "a.html").write_text("mine")
        return "page"

    monkeypatch.setattr(html, "render_scan", draw)
    ran = arachne("scan", *MODEL, "--page", "a.html", cwd=folder)
    assert (ran.code, (folder / "a.html").read_text()) == (4, "mine")
    assert "a.html' was put there while it was being made, and is not written over" in ran.err
