"""Files that merely lie in the folder, and the environment, connect to nothing, write nowhere and run nothing."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from tests.commands import arachne
from tests.safety import valid

pytestmark = pytest.mark.backend("onnx")

MODEL = ("digits.onnx", "--data", "digits.npz")
REPAIR = ("repair", *MODEL, "--target", "*:7", "--search", "bias")
SHADOWED = ("numpy", "scipy", "click", "rich", "jinja2", "PIL", "pymoo", "onnx", "arachne_onnx", "typing", "json", "os")
HOSTILE = "from pathlib import Path\nPath(__file__).with_name('canary').touch()\nraise SystemExit(9)\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "here").mkdir()
    (tmp_path / "elsewhere").mkdir()
    for name in ("digits.onnx", "digits.npz"):
        (tmp_path / "here" / name).write_bytes(resources.files("arachne.demo").joinpath(name).read_bytes())
    return tmp_path / "here"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A port of this machine that hears who connects, and answers nobody."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def start(
    *words: str, cwd: Path, environment: dict[str, str] | None = None, python: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    command = [sys.executable, *(python or ("-m", "arachne")), *words]
    given = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
    return subprocess.run(command, cwd=cwd, env=given, capture_output=True, text=True, timeout=120, check=False)


def heard(listener: socket.socket) -> bool:
    """Whether anybody has connected."""
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.parent.rglob("*") if path.is_file()}


FOUND = {
    "a scheduler": ('cluster = "tcp://ADDRESS"', "CLUSTER", "tcp://ADDRESS", ("scan", *MODEL)),
    "an encrypted scheduler": ('cluster = "tls://ADDRESS"', "CLUSTER", "tls://ADDRESS", ("localise", *MODEL)),
    "a scheduler's file": ('cluster = "scheduler.json"', "CLUSTER", "scheduler.json", ("scan", *MODEL)),
    "a tracking server": ('track = ["mlflow:http://ADDRESS"]', "TRACK", "mlflow:http://ADDRESS", REPAIR),
    "events": ('track = ["tensorboard:../elsewhere"]', "TRACK", "tensorboard:../elsewhere", REPAIR),
    "runs": ('track = ["mlflow:../elsewhere"]', "TRACK", "mlflow:../elsewhere", REPAIR),
    "a log": ('log-file = "../elsewhere/log"', "LOG_FILE", "../elsewhere/log", ("scan", *MODEL)),
    "a log here": ('log-file = "log"', "LOG_FILE", "log", ("scan", *MODEL)),
    "results": ('out = "../elsewhere/fix"', "OUT", "../elsewhere/fix", REPAIR),
    "a page": ('page = "../elsewhere/page.html"', "PAGE", "../elsewhere/page.html", ("scan", *MODEL)),
    "workers": ("workers = 100000", "WORKERS", "100000", ("scan", *MODEL)),
}


@pytest.mark.parametrize("what", FOUND)
def test_found_settings_connect_to_nothing_and_write_nowhere(folder: Path, listener: socket.socket, what: str) -> None:
    host, port = listener.getsockname()
    text, name, value, words = FOUND[what]
    text, value = (one.replace("ADDRESS", f"{host}:{port}") for one in (text, value))
    words = (*words, "--target", "*:7") if words[0] == "localise" else words
    (folder / "scheduler.json").write_text(json.dumps({"type": "Scheduler", "address": f"tcp://{host}:{port}"}))
    (folder / "arachne.toml").write_text(f"[{words[0]}]\n{text}\n")
    before = snapshot(folder)
    ran = start(*words, cwd=folder)
    assert (ran.returncode, ran.stderr.count("\n"), snapshot(folder)) == (3, 1, before), ran.stderr
    assert ran.stderr.startswith("error: 'arachne.toml', line 2 sets --")
    (folder / "arachne.toml").write_text("")
    before = snapshot(folder)
    variable = f"ARACHNE_{words[0].upper()}_{name}"
    ran = start(*words, cwd=folder, environment={variable: value})
    assert (ran.returncode, ran.stderr.count("\n"), snapshot(folder)) == (2, 1, before), ran.stderr
    assert ran.stderr.startswith(f"error: {variable} sets --")
    assert not heard(listener)


def test_the_listener_hears_a_scheduler_that_is_typed(folder: Path, listener: socket.socket) -> None:
    """Without this, silence above would prove nothing."""
    host, port = listener.getsockname()
    command = [sys.executable, "-m", "arachne", "scan", *MODEL, "--cluster", f"tcp://{host}:{port}"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        listener.settimeout(60)
        connection, _ = listener.accept()
        connection.close()
        process.kill()
    assert process.returncode != 0


@pytest.mark.parametrize("python", [("-m", "arachne"), ("-m", "arachne.cli")], ids=" ".join)
def test_no_module_of_the_working_folder_is_imported(folder: Path, python: tuple[str, ...]) -> None:
    for name in SHADOWED:
        (folder / f"{name}.py").write_text(HOSTILE)
    ran = start("scan", *MODEL, "--no-causes", cwd=folder, python=python)
    assert ran.returncode == 0, ran.stderr
    assert not (folder / "canary").exists()


def test_a_module_that_the_user_names_is_found_in_the_working_folder(folder: Path) -> None:
    (folder / "mine.py").write_text("import helper\n\ndef same(batch):\n    return helper.same(batch)\n")
    (folder / "helper.py").write_text("def same(batch):\n    return batch\n")
    ran = start("scan", *MODEL, "--no-causes", "--preprocess", "mine:same", cwd=folder)
    assert ran.returncode == 0, ran.stderr


def test_workers_of_a_run_import_nothing_from_the_working_folder(folder: Path) -> None:
    pytest.importorskip("distributed")
    for name in (*SHADOWED, "multiprocessing", "pickle", "dask", "distributed", "tornado"):
        (folder / f"{name}.py").write_text(HOSTILE)
    ran = start("scan", *MODEL, "--no-causes", "--workers", "1", cwd=folder)
    assert ran.returncode == 0, ran.stderr
    assert not (folder / "canary").exists()


PLOT = ("localise", *MODEL, "--target", "top:1", "--localiser", "bl", "--plot", "plot.svg")


def test_settings_that_a_library_would_find_start_no_program(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    (folder / "matplotlibrc").write_text("text.usetex: True\n")
    (folder / "bin").mkdir()
    (folder / "bin" / "latex").write_text(f'#!/bin/sh\ntouch "{folder}/canary"\n')
    (folder / "bin" / "latex").chmod(0o755)
    ran = start(*PLOT, cwd=folder, environment={"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"})
    assert ran.returncode == 0, ran.stderr
    assert (folder / "plot.svg").exists()
    assert not (folder / "canary").exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Keras, as it makes the model
@pytest.mark.parametrize("workers", [(), ("--workers", "1")], ids=["alone", "with a worker"])
def test_a_pipe_that_a_library_would_read_is_not_waited_for(folder: Path, workers: tuple[str, ...]) -> None:
    pytest.importorskip("keras")
    if workers:
        pytest.importorskip("distributed")
    valid.keras_model(folder)
    valid.data(folder)
    os.mkfifo(folder / "matplotlibrc")
    ran = start("scan", "net.keras", "--data", "data.npz", "--no-causes", *workers, cwd=folder)
    assert ran.returncode == 0, ran.stderr


@pytest.fixture
def interrupted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of a repair that can go on."""
    monkeypatch.chdir(folder)
    return folder / Path(valid.checkpoint(folder)).parent.parent


def test_resuming_is_typed(folder: Path, interrupted: Path) -> None:
    (folder / "arachne.toml").write_text("resume = true\n")
    before = snapshot(folder)
    ran = start(*valid.RESUMED[:-1], cwd=folder)
    assert (ran.returncode, snapshot(folder)) == (3, before), ran.stderr
    assert ran.stderr.startswith("error: 'arachne.toml', line 1 sets --resume")
    (folder / "arachne.toml").unlink()
    ran = start(*valid.RESUMED[:-1], cwd=folder, environment={"ARACHNE_REPAIR_RESUME": "1"})
    assert (ran.returncode, "ARACHNE_REPAIR_RESUME sets --resume" in ran.stderr) == (2, True), ran.stderr
    assert not (folder / "fix").exists()
    ran = start(*valid.RESUMED, cwd=folder)
    assert (ran.returncode, "resumed after generation 1" in ran.stderr) == (0, True), ran.stderr


OPENED = {
    "a working folder others look into": ("", 0o755, "is open to other users"),
    "a working folder others write to": ("", 0o770, "is open to other users"),
    "checkpoints others write to": ("checkpoints", 0o777, "is open to other users"),
    "checkpoints of another user": ("checkpoints", None, "belongs to another user"),
}


@pytest.mark.parametrize("what", OPENED)
def test_checkpoints_in_a_folder_that_is_not_ours_alone_are_refused(folder: Path, interrupted: Path, what: str) -> None:
    name, mode, sentence = OPENED[what]
    if mode is None and os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    if mode is None:
        os.chown(interrupted / name, 12345, 12345)
    else:
        (interrupted / name).chmod(mode)
    ran = arachne(*valid.RESUMED, "-q", cwd=folder)
    assert (ran.code, ran.err.count("\n")) == (3, 1), ran.err
    assert f"{sentence}, so its checkpoints may be a stranger's" in ran.err
    assert not (folder / "fix").exists()
    assert arachne(*valid.RESUMED[:-1], "-q", "--force", cwd=folder).code == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_working_folder_of_another_user_is_never_used(folder: Path, interrupted: Path) -> None:
    os.chown(interrupted, 12345, 12345)
    for words in (valid.RESUMED, (*valid.RESUMED[:-1], "--force")):
        ran = arachne(*words, "-q", cwd=folder)
        assert (ran.code, ran.err.count("\n")) == (4, 1), ran.err
        assert not (folder / "fix").exists()


def test_checkpoints_behind_a_link_are_refused(folder: Path, interrupted: Path) -> None:
    (interrupted / "checkpoints").rename(folder.parent / "elsewhere" / "checkpoints")
    (interrupted / "checkpoints").symlink_to(folder.parent / "elsewhere" / "checkpoints")
    ran = arachne(*valid.RESUMED, "-q", cwd=folder)
    assert (ran.code, "checkpoints' is a link, so" in ran.err) == (3, True), ran.err


def test_checkpoints_of_an_archive_that_was_unpacked_are_refused(
    folder: Path, interrupted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folders are ours and of mode 0700; what is missing is the mark of our key."""
    monkeypatch.setenv("XDG_STATE_HOME", str(folder.parent / "state of the one who unpacks it"))
    assert interrupted.stat().st_mode & 0o777 == 0o700
    ran = arachne(*valid.RESUMED, "-q", cwd=folder)
    assert (ran.code, ran.err.count("\n")) == (3, 1), ran.err
    assert "does not carry the mark of your key" in ran.err
    assert "; start over (--force)" in ran.err
    assert not (folder / "fix").exists()
    assert arachne(*valid.RESUMED[:-1], "-q", "--force", cwd=folder).code == 0


def test_a_run_that_cannot_be_resumed_says_so_at_the_beginning(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.parent / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(folder.parent / "file"))
    ran = arachne(*REPAIR, "-o", "fix", cwd=folder)
    assert (ran.code, "note: this run cannot be resumed, for its checkpoints are not marked" in ran.err) == (0, True)


def test_there_are_not_more_workers_than_a_machine_can_bear(folder: Path) -> None:
    ran = start("scan", *MODEL, "--workers", "100000", cwd=folder)
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1), ran.stderr
    assert "--workers takes a number from 1 to " in ran.stderr
