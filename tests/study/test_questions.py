from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the study's subjects are not trained: torch is not installed")
pytest.importorskip("matplotlib", reason="the figures are not drawn: matplotlib is not installed")

import arachne
from arachne.plugins.table import SEARCHERS
from examples.study import data, subjects
from examples.study.__main__ import main
from examples.study.cases import open_network
from examples.study.networks import fm_mlp
from examples.study.questions import ported, rq1, rq2, rq3, rq4, rq5, rq6, rq7, working
from examples.study.questions.command import QUESTIONS
from examples.study.questions.kept import DONE, RESULTS, Cell, Kept, add, read, tidy
from examples.study.questions.page import PAGE, page_of
from examples.study.questions.reading import EQUAL, at, outcome, pairs
from examples.study.questions.repairing import (
    BUDGETS,
    RUNGS,
    TRAINED,
    open_subject,
    rank_confusions,
    settings_of,
    training_of,
)
from examples.study.subjects import load_subject
from examples.study.training import Recipe
from tests.study.conftest import digits

pytestmark = pytest.mark.backend("torch")

DIGITS = "digits-mlp"
RQ5_WAYS = tuple(way for way in rq5.WAYS if way not in TRAINED or way in SEARCHERS.names())


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Every question run once on one small network; the folder of the result files."""
    folder = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        subject = subjects.Subject(DIGITS, "digits", fm_mlp, Recipe(epochs=4, rate=1e-2, batch=64, patience=12))
        patch.setitem(data.SETS, "digits", digits)
        patch.setitem(subjects.SUBJECTS, DIGITS, subject)
        patch.setenv("ARACHNE_CACHE", str(folder / "cache"))
        for cached in (data.subject_data, open_network, rank_confusions, training_of, ported._open_model):
            cached.cache_clear()
        main(["train", "--subject", DIGITS])
        for module in (rq1, rq2, rq3, rq4, rq5, rq6, rq7):
            patch.setattr(module, "SUBJECTS", (DIGITS,))
        patch.setattr(rq3, "PORTED", (DIGITS,))
        patch.setattr(rq2, "OTHERS", 100)
        patch.setattr(rq4, "QUICK", (1, 10))
        patch.setattr(rq5, "WAYS", RQ5_WAYS)
        for module in (rq6, rq7):
            patch.setattr(module, "FAULT", rank_confusions(DIGITS)[0])
        measure_questions(folder, "all", "--faults", "1")
        yield folder
    for cached in (data.subject_data, open_network, rank_confusions, training_of, ported._open_model):
        cached.cache_clear()


def measure_questions(folder: Path, *command: str) -> None:
    given = ["--results", str(folder / "results"), "--subject", DIGITS, "--jobs", "1", "--runs", "1", "--quick"]
    assert main([*command, *given]) == 0


def lines(folder: Path, question: str) -> list[Kept]:
    return read(folder / "results", question)


def test_every_question_and_every_rival_runs_end_to_end(study: Path) -> None:
    ways = {
        question: {one.cell.way for one in lines(study, question)} for question in QUESTIONS if question != "reference"
    }
    both = {"faithful", "default"}
    assert ways == {
        "rq1": {"ranks"},
        "rq2": {*both, "gl", "rs"},
        "rq3": both,
        "rq4": both,
        "rq5": set(RQ5_WAYS),
        "rq6": both,
        "rq7": both,
    }
    assert {one.outcome for question in ways for one in lines(study, question)} == {DONE}


def test_counts_of_a_run_agree_with_each_other(study: Path) -> None:
    repairs = [one for question in ("rq2", "rq3", "rq4", "rq5", "rq6", "rq7") for one in lines(study, question)]
    assert len(repairs) > 10
    for one in repairs:
        for half in ("seen", "held_out"):
            told = one.found[half]
            assert 0 <= told["repaired"] <= told["negatives"] <= told["inputs"] - told["positives"]
            assert 0 <= told["broken"] <= told["positives"] == told["right"][0]
            assert told["right"][1] == told["positives"] - told["broken"] + told["repaired"] + told["others_fixed"]
        for row in one.found.get("ladder", []):
            rung = dict(zip(RUNGS, row, strict=True))
            assert rung["repaired"] <= one.found["held_out"]["negatives"]
            assert rung["seen_broken"] / one.found["seen"]["positives"] <= rung["budget"] or one.cell.way != "default"
        if "ladder" in one.found:
            assert [row[0] for row in one.found["ladder"]] == list(BUDGETS)
            assert at(one, 0.005).repaired == outcome(one).repaired


def test_an_injected_fault_is_ranked_by_every_localiser(study: Path) -> None:
    (one,) = lines(study, "rq1")
    assert set(one.found["auc"]) == set(rq1.LOCALISERS)
    assert one.found["changed"] >= rq1.CHANGED * one.found["inputs"]
    assert one.found["auc"]["bl"] > 0.9
    assert all(0 <= rank < one.found["weights"] for rank in one.found["ranks"].values())


def test_injecting_leaves_the_network_as_it_was(study: Path) -> None:
    backend, _ = open_network(DIGITS)
    fresh = load_subject(DIGITS)
    for layer in backend.layers:
        for name in layer.parameters:
            kept, stored = backend.get_weights(layer.name)[name], fresh.get_weights(layer.name)[name]
            np.testing.assert_array_equal(kept, stored)


def test_the_default_is_read_at_the_damage_of_the_paper(study: Path) -> None:
    (pair,) = pairs(lines(study, "rq3"))
    equal = pair.default_at(EQUAL)
    allowed = [budget for budget in BUDGETS if budget <= pair.budget]
    assert (equal.repaired, equal.broken) == (
        (at(pair.default, allowed[-1]).repaired, at(pair.default, allowed[-1]).broken) if allowed else (0, 0)
    )


def test_the_same_seed_gives_the_same_numbers(study: Path, tmp_path: Path) -> None:
    measure_questions(tmp_path, "rq3", "--faults", "1")
    measure_questions(tmp_path, "rq1")
    for question in ("rq1", "rq3"):
        first, second = lines(study, question), lines(tmp_path, question)
        assert [(one.cell, one.found) for one in first] == [(one.cell, one.found) for one in second]


def test_what_has_its_line_is_not_measured_again(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in (study / "results").rglob("*.jsonl")}
    measure_questions(study, "all", "--faults", "1")
    assert "0 to make" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in (study / "results").rglob("*.jsonl")} == before


def test_two_workers_measure_the_same_as_one(study: Path, tmp_path: Path) -> None:
    scope = working.Scope(subjects=(DIGITS,), runs=3, quick=True)
    working.measure([rq1.RQ1], scope, folder=tmp_path / "two", jobs=2)
    working.measure([rq1.RQ1], scope, folder=tmp_path / "one", jobs=1)
    found = [[(one.cell, one.found) for one in read(tmp_path / name, "rq1")] for name in ("one", "two")]
    assert found[0] == found[1]
    assert len(found[0]) == 3


def test_nothing_begins_when_time_is_up(study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measure_questions(tmp_path, "rq3", "--minutes", "0")
    assert "measurements are left for the next time" in capsys.readouterr().out
    assert not lines(tmp_path, "rq3")


def test_an_unknown_name_is_refused_with_those_there_are(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option, expected in (("--subject", DIGITS), ("--way", "faithful"), ("--backend", "torch, onnx, keras")):
        assert main(["rq3", option, "nonsense", "--results", str(study / "results")]) == 1
        told = capsys.readouterr().err
        assert "'nonsense'" in told
        assert expected in told


def test_a_network_that_is_not_trained_is_left_out_and_said_so(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ARACHNE_CACHE", str(tmp_path))
    measure_questions(tmp_path, "rq3")
    assert f"{DIGITS} is not trained" in capsys.readouterr().out
    assert not lines(tmp_path, "rq3")


def test_a_command_prints_its_table_and_writes_a_page_beside_results_of_its_own(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measure_questions(study, "rq4", "--faults", "1")
    assert "| subject | alpha | runs | paper: a, b |" in capsys.readouterr().out
    assert "## RQ4" in (study / "results" / PAGE.name).read_text()
    assert (study / "results" / "pictures" / "study-rq4.svg").is_file()


def test_the_page_tells_every_question_beside_the_paper(study: Path, tmp_path: Path) -> None:
    text = page_of(study / "results", tmp_path)
    for number in range(1, 8):
        assert f"\n## RQ{number}: " in text
    assert text.count("| faithful | default, no more damage | default at 0.5 % |") >= 1
    drawn = {path.name for path in tmp_path.glob("*.svg")}
    assert drawn == {f"study-rq{number}.svg" for number in (1, 3, 4, 5, 6, 7)} | {"study-headline.svg"}
    assert all(f"(pictures/{name})" in text for name in drawn)
    for table in text.split("\n\n"):
        if table.startswith("| "):
            assert len({line.count("|") for line in table.splitlines()}) == 1


def test_figures_have_the_same_bytes_every_time(study: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        page_of(study / "results", tmp_path / name)
    for path in (tmp_path / "first").glob("*.svg"):
        assert path.read_bytes() == (tmp_path / "second" / path.name).read_bytes()


@pytest.mark.backend("onnx")
def test_onnx_repairs_the_same_fault_with_the_same_weights(study: Path) -> None:
    pytest.importorskip("onnxruntime", reason="nothing is repaired through ONNX: onnxruntime is not installed")
    measure_questions(study, "rq3", "--faults", "1", "--backend", "onnx", "--way", "faithful")
    by_way = {one.cell.way: one for one in lines(study, "rq3")}
    ours, theirs = by_way["faithful"].found, by_way["faithful@onnx"].found
    assert theirs["target"] == ours["target"]
    assert theirs["localised"] == ours["localised"]
    assert "| onnx | faithful | 1 of 1 |" in page_of(study / "results")


def test_no_person_is_in_both_halves(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, all_of_it = open_network(DIGITS)
    people = arachne.LabelledData(
        all_of_it.inputs, all_of_it.labels, columns={"person": np.arange(len(all_of_it)) // 7}
    )
    monkeypatch.setattr("examples.study.questions.repairing.open_network", lambda _: (backend, people))
    _, seen, held_out = open_subject(DIGITS, 0)
    assert set(seen.columns["person"]).isdisjoint(held_out.columns["person"])
    assert abs(len(seen) - len(held_out)) < 20


def test_the_papers_way_searches_dense_layers_and_knows_no_budget(study: Path) -> None:
    backend, _ = open_network(DIGITS)
    settings = settings_of("faithful", backend, seed=3, alpha=2.0)
    assert (settings.budget, settings.seed, settings.alpha) == (None, 3, 2.0)
    assert settings.searcher == arachne.DifferentialEvolution.faithful()


def test_lines_made_later_count_and_files_are_put_in_order(tmp_path: Path) -> None:
    for seed, number in ((1, 5), (0, 6), (1, 7)):
        add(Kept(Cell("rq3", "fm-mlp", "faithful", "1", seed), {}, {}, 1.0, DONE, {"x": number}), tmp_path)
    assert [(one.cell.seed, one.found["x"]) for one in read(tmp_path, "rq3")] == [(0, 6), (1, 7)]
    path = tmp_path / "rq3" / "fm-mlp.faithful.jsonl"
    tidy([path])
    assert [json.loads(line)["seed"] for line in path.read_text().splitlines()] == [0, 1]


@pytest.mark.skipif(not (RESULTS / "rq3").is_dir(), reason="there are no result files here")
def test_the_page_in_the_documentation_is_what_the_result_files_say() -> None:
    assert PAGE.read_text() == page_of(RESULTS)
