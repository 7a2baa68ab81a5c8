"""`--track`: a repair is followed in MLflow and TensorBoard, with the real packages."""

from __future__ import annotations

import contextlib
import io
import os
import socket
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from arachne.cli import run
from arachne.errors import EnvironmentFaultError, UsageError
from arachne.io.manifest import write_manifest
from arachne.report.tracks import Tracks, local_path
from arachne.search.state import Generation

MODEL, DATA = (str(resources.files("arachne.demo").joinpath(name)) for name in ("digits.onnx", "digits.npz"))
REPAIR = ["repair", MODEL, "--data", DATA, "--target", "*:7", "--search", "last-layer", "--seed", "0"]


def cli(*arguments: str) -> tuple[int, str]:
    """The exit code of a command, and what it said beside its result."""
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        return run([*REPAIR, *arguments]), said.getvalue()


@pytest.mark.backend("onnx")
def test_a_repair_is_followed_in_both_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)  # a folder that was typed is enough
    store, events = (tmp_path / "runs").as_uri(), tmp_path / "events"
    out = tmp_path / "fix"
    code, said = cli("--track", f"mlflow:{store}", "--track", f"tensorboard:{events}", "-o", str(out))
    assert code == 0, said
    assert f"tracked: events for TensorBoard in '{events}'" in said
    client = mlflow.MlflowClient(tracking_uri=store)
    (experiment,) = (one for one in client.search_experiments() if one.name == "arachne")
    (kept,) = client.search_runs([experiment.experiment_id])
    assert f"tracked: run {kept.info.run_id} of MLflow in '{store}'" in said
    assert kept.info.status == "FINISHED"
    assert kept.data.params["target"] == "*:7"
    assert kept.data.tags["verdict"] in ("removed", "reduced")
    assert {one.path for one in client.list_artifacts(kept.info.run_id)} >= {"patch.json", "report.html"}
    assert "model.onnx" not in {one.path for one in client.list_artifacts(kept.info.run_id)}
    assert list(events.iterdir())


@pytest.mark.backend("onnx")
@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("wandb:x", "no tracking named 'wandb'; available: mlflow, tensorboard"),
        ("tensorboard:", "a repair is tracked in 'mlflow:URI' or 'tensorboard:FOLDER', got 'tensorboard:'"),
        ("runs", "a repair is tracked in 'mlflow:URI' or 'tensorboard:FOLDER', got 'runs'"),
    ],
)
def test_a_place_that_means_nothing_is_refused_before_any_work(place: str, sentence: str) -> None:
    assert cli("--track", place) == (2, f"error: {sentence}\n")


@pytest.mark.parametrize(("place", "package"), [("mlflow:x", "mlflow-skinny"), ("tensorboard:x", "tensorboard")])
def test_a_missing_package_is_named(place: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("mlflow", "tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, place.partition(":")[0], None)
    with pytest.raises(EnvironmentFaultError, match=f"not installed: pip install {package}"):
        Tracks([place])


class Fails:
    """A recorder whose server has gone away."""

    def __call__(self, generation: Generation) -> None:
        raise ConnectionError("gone")

    def __enter__(self) -> Fails:
        return self

    def __exit__(self, *details: Any) -> None:
        raise ConnectionError("still gone")

    def __str__(self) -> str:
        return "a run"


def test_a_server_that_goes_away_does_not_end_a_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arachne.report.tracks.MLflowRecorder", lambda **options: Fails())
    told: list[str] = []
    with Tracks(["mlflow:x"], tell=told.append) as tracks:
        tracks(Generation(1, 2.0, 3, 4, 5, 6))
        tracks(Generation(2, 2.0, 3, 4, 5, 6))
    assert told == [
        "note: a run records no more (ConnectionError: gone)",
        "note: a recorder records no more (ConnectionError: still gone)",
    ]


def test_no_place_is_fine_and_a_bad_one_is_a_usage_error() -> None:
    with Tracks([]) as tracks:
        tracks(Generation(1, 2.0, 3, 4, 5, 6))
    with pytest.raises(UsageError):
        Tracks(["mlflow"])


def test_a_server_that_is_silent_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    monkeypatch.setattr("arachne.report.records.ANSWER_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        sentence = f"MLflow at 'http://{host}:{port}' did not answer within 0.5 seconds; check the address, or"
        with pytest.raises(EnvironmentFaultError, match=sentence):
            Tracks([f"mlflow:http://{host}:{port}"])


@pytest.mark.backend("onnx")
@pytest.mark.parametrize(
    ("place", "out", "sentence"),
    [
        ("tensorboard:data.npz", "fix", "is an input (--data)"),
        ("tensorboard:.", "fix", "holds an input (--data)"),
        ("mlflow:data.npz", "fix", "is an input (--data)"),
        ("mlflow:sqlite:///data.npz", "fix", "is an input (--data)"),
        ("mlflow:file:HERE/same", "fix", "is an input (--data)"),
        ("tensorboard:fix", "fix", "are one place, or one lies in the other"),
        ("mlflow:fix/runs", "fix", "are one place, or one lies in the other"),
        ("tensorboard:notes", "fix", "is no folder, in which a repair could be followed"),
        ("mlflow:pipe", "fix", "is no folder, in which a repair could be followed"),
        ("tensorboard:done/runs", "fix", "a folder of results, which only changes as a whole"),
    ],
)
def test_a_folder_in_which_a_repair_is_followed_is_checked_as_every_output(
    place: str, out: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data.npz").write_bytes(Path(DATA).read_bytes())
    os.link("data.npz", "same")
    Path("notes").write_text("mine")
    os.mkfifo("pipe")
    Path("done").mkdir()
    (tmp_path / "done" / "patch.json").write_text("{}")
    write_manifest(Path("done"))
    before = {path.name: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")}
    code, said = cli("--data", "data.npz", "--track", place.replace("HERE", str(tmp_path)), "-o", out)
    assert (code, sentence in said) == (2, True), said
    assert {path.name: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("tensorboard:runs", "runs"),
        ("mlflow:runs", "runs"),
        ("mlflow:file:///a/my%20runs", "/a/my runs"),
        ("mlflow:sqlite:///runs.db", "runs.db"),
        ("mlflow:sqlite:////a/runs.db", "/a/runs.db"),
        ("mlflow:", None),
        ("mlflow:http://127.0.0.1:5000", None),
        ("mlflow:databricks", None),
    ],
)
def test_where_a_place_is_on_this_machine(place: str, path: str | None) -> None:
    assert local_path(place) == (None if path is None else Path(path))
