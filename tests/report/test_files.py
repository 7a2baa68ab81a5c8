from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from arachne.errors import InputError
from arachne.evidence import check_gates
from arachne.report.card import model_card
from arachne.report.card import text as markdown
from arachne.report.folder import read_page, write_extras, write_page
from arachne.report.html import render
from arachne.report.junit import junit_xml
from arachne.report.notebook import result_html
from arachne.report.records import MLflowRecorder, TensorBoardRecorder, history_csv, together
from arachne.results.result import RepairResult
from arachne.search.state import Generation
from arachne.text import percent


@pytest.fixture
def folder(repaired: RepairResult, tmp_path: Path) -> Path:
    notes: list[str] = []
    page = repaired.page("arachne repair …")
    described = repaired.backend.describe()
    write_extras(
        tmp_path, page["result"], repaired.patch, repaired.search, described, command="arachne", tell=notes.append
    )
    write_page(tmp_path, page, named=tmp_path, tell=notes.append)
    assert notes == []
    return tmp_path


def test_a_folder_holds_what_people_read(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == {"report.html", "report.json", "MODEL_CARD.md", "history.csv"}


def test_the_page_is_made_again_from_the_folder(folder: Path) -> None:
    assert render(read_page(folder)) == (folder / "report.html").read_text(encoding="utf-8")


def test_a_folder_without_a_page_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no report\.json; expected a folder"):
        read_page(tmp_path)
    (tmp_path / "report.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="is not JSON"):
        read_page(tmp_path)
    (tmp_path / "report.json").write_text("[]", encoding="utf-8")
    with pytest.raises(InputError, match="holds no report"):
        read_page(tmp_path)


def test_history_has_a_line_per_generation(repaired: RepairResult) -> None:
    rows = list(csv.DictReader(io.StringIO(history_csv(repaired.search.history))))
    assert [int(row["generation"]) for row in rows] == [at.number for at in repaired.search.history]
    assert float(rows[-1]["fitness"]) == repaired.search.history[-1].fitness
    assert int(rows[-1]["repaired"]) == repaired.search.history[-1].repaired
    assert history_csv(()) == ""


def test_the_card_tells_base_evidence_weights_limits_and_the_way_back(repaired: RepairResult) -> None:
    card = model_card(repaired.to_json(), repaired.patch, repaired.backend.describe(), command="arachne repair")
    headings = [line[3:] for line in card.splitlines() if line.startswith("## ")]
    assert headings == [
        "Base model",
        "Evidence",
        "Classes that changed most, held out",
        "Changed weights",
        "Limits",
        "Again, and back",
    ]
    held_out = repaired.evidence.held_out
    assert f"{held_out.repaired} of {held_out.negatives}: {percent(held_out.repair_rate)}" in card
    assert str(repaired.patch.entries[0].address) in card
    assert "arachne revert patch.json" in card


def test_names_stay_text_in_markdown() -> None:
    assert markdown("<b>*x*</b> | [y](z)\n#") == r"\<b\>\*x\*\</b\> \| \[y\](z)" + "\N{REPLACEMENT CHARACTER}" + r"\#"


def test_gates_become_a_junit_file(repaired: RepairResult) -> None:
    gates = check_gates(["break_rate > 100%", "repair_rate < 100.5%", "class_drop[zero] > 99%"], repaired.evidence)
    root = ElementTree.fromstring(junit_xml(gates, repaired.evidence.verdict, seconds=12.3456))
    suite = root.find("testsuite")
    assert suite is not None
    assert suite.get("time") == "12.346"
    assert (suite.get("tests"), suite.get("failures")) == ("3", "1")
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    assert [name for name, case in cases.items() if case.find("failure") is not None] == ["repair_rate < 100.5%"]
    value = cases["repair_rate < 100.5%"].find("system-out")
    assert value is not None
    assert float(value.text or "") == pytest.approx(repaired.evidence.held_out.repair_rate, abs=1e-5)


def test_a_notebook_shows_the_same_numbers_in_little_room(repaired: RepairResult) -> None:
    html = repaired._repr_html_()
    held_out = repaired.evidence.held_out
    assert f"{held_out.repaired:,} of {held_out.negatives:,}: {percent(held_out.repair_rate)}" in html
    assert html.count("<img ") >= 6
    assert len(html) < 200_000
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert "<img" not in result_html(repaired.evidence)


def test_several_callbacks_are_called_in_order() -> None:
    heard: list[str] = []
    generation = Generation(1, 2.0, 3, 4, 5, 6)
    together(lambda at: heard.append(f"a{at.number}"), None, lambda at: heard.append(f"b{at.number}"))(generation)
    assert heard == ["a1", "b1"]


def test_mlflow_keeps_every_generation_and_the_evidence(
    repaired: RepairResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    store = tmp_path.joinpath("runs").as_uri()
    with MLflowRecorder(tracking_uri=store, parameters={"seed": 3}) as recorder:
        for generation in repaired.search.history:
            recorder(generation)
        recorder.finish(repaired.evidence)
    client = mlflow.MlflowClient(tracking_uri=store)
    run = client.get_run(recorder.run_id)
    assert (run.info.status, run.data.params["seed"]) == ("FINISHED", "3")
    assert run.data.tags["verdict"] == repaired.evidence.verdict.word
    assert run.data.metrics["break_rate"] == repaired.evidence.held_out.break_rate
    kept = client.get_metric_history(recorder.run_id, "fitness")
    assert [(metric.step, metric.value) for metric in kept] == [
        (at.number, at.fitness) for at in repaired.search.history
    ]


def test_tensorboard_reads_what_was_recorded(repaired: RepairResult, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    with TensorBoardRecorder(tmp_path / "events") as recorder:
        for generation in repaired.search.history:
            recorder(generation)
        recorder.finish(repaired.evidence)
    (path,) = (tmp_path / "events").iterdir()
    values = {
        (value.tag, event.step): value.simple_value
        for event in LegacyEventFileLoader(str(path)).Load()
        for value in event.summary.value
    }
    last = repaired.search.history[-1]
    assert values["search/repaired", last.number] == last.repaired
    assert values["held_out/accuracy_after", 0] == pytest.approx(repaired.evidence.held_out.accuracy_after)


def test_a_saved_repair_can_be_read_by_people_and_programs(repaired: RepairResult, tmp_path: Path) -> None:
    repaired.save(tmp_path / "fix", command="arachne repair x")
    names = {path.name for path in (tmp_path / "fix").iterdir()}
    assert {"patch.json", "result.json", "report.html", "MODEL_CARD.md", "history.csv"} <= names
    result = json.loads((tmp_path / "fix" / "result.json").read_text(encoding="utf-8"))
    page = read_page(tmp_path / "fix")["result"]
    for part in ("seen", "held_out"):
        assert page[part].items() <= result[part].items()
    assert page["verdict"] == result["verdict"]


def test_python_writes_the_page_too(repaired: RepairResult, tmp_path: Path) -> None:
    repaired.report(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
