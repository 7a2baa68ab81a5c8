"""The model card with Hugging Face metadata, read by the Hub's own library, and what a head may hold."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

from arachne.cli import run
from arachne.errors import UsageError
from arachne.report.hub import hub_card
from arachne.results.result import RepairResult


@pytest.fixture
def folder(repaired: RepairResult, tmp_path: Path) -> Path:
    repaired.save(tmp_path / "fix")
    return tmp_path / "fix"


def cli(*arguments: str) -> tuple[int, str]:
    """The exit code of a command, and what it said."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        return run(["report", *arguments]), said.getvalue()


def test_the_hubs_library_reads_the_card(folder: Path, repaired: RepairResult) -> None:
    hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    out = folder.parent / ("longer than a line of a narrow terminal " * 2) / "README.md"  # and told in one piece
    out.parent.mkdir()
    entries = ["--hub", "license=mit", "--hub", "tags=signs", "--hub", "pipeline_tag=image-classification"]
    assert cli(str(folder), "--hub-card", str(out), *entries) == (0, f"wrote '{out}'\n")
    card = hub.ModelCard.load(out)
    assert card.data.license == "mit"
    assert card.data.tags == ["arachne", "model-repair", "signs"]
    kept = {one.metric_type: one.metric_value for one in card.data.eval_results}
    assert kept["accuracy"] == pytest.approx(repaired.evidence.held_out.accuracy_after)
    assert {one.task_type for one in card.data.eval_results} == {"image-classification"}
    assert card.text.strip() == (folder / "MODEL_CARD.md").read_text(encoding="utf-8").strip()


def test_the_folder_stays_as_it_was(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert cli(str(folder), "--hub-card", str(folder.parent / "README.md"))[0] == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--hub", "license=mit"], "--hub goes with --hub-card FILE"),
        (
            ["--hub-card", "R.md", "--hub", "license"],
            "metadata of a card is KEY=VALUE, such as license=mit, got 'license'",
        ),
        (["--hub-card", "R.md", "-o", "p.html"], "--hub-card writes the card and --out the page; give one of them"),
        (
            ["--hub-card", "R.md", "--hub", "license=mit", "--hub", "license=gpl"],
            "'license' is in the card's metadata already",
        ),
    ],
)
def test_mistakes_are_answered_in_one_sentence(
    folder: Path, arguments: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    assert cli(str(folder), *arguments) == (2, f"error: {sentence}\n")
    assert not (folder.parent / "R.md").exists()


def test_names_with_odd_characters_stay_text() -> None:
    yaml = pytest.importorskip("yaml")
    held_out = {"accuracy_after": 0.5, "repair_rate": None, "break_rate": 0.0}
    result = {
        "backend": "x",
        "target": 'a: "b"\n---',
        "held_out": held_out,
        "provenance": {"data": {"name": "#1: {x}"}},
    }
    text = hub_card("# Card\n", {"model": "- no", "result": result}, ["base_model=me/net"])
    head = yaml.safe_load(text.split("\n---\n")[0].removeprefix("---\n"))
    assert head["base_model"] == ["me/net"]
    assert head["model-index"][0]["name"] == "- no"
    assert head["model-index"][0]["results"][0]["dataset"]["name"] == "#1: {x}"
    assert [one["type"] for one in head["model-index"][0]["results"][0]["metrics"]] == ["accuracy", "break_rate"]
    with pytest.raises(UsageError):
        hub_card("", {"model": "x", "result": result}, ["model-index=1"])
