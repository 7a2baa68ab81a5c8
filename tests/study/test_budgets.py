from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the study's subjects are not trained: torch is not installed")

import arachne
from examples.study import budgets, cases
from examples.study.__main__ import main
from examples.study.budgets import AUTO, BUDGETS, DE, MEMBERS
from examples.study.faults import BY_NAME
from examples.study.poisoning import evaluation, halves, load_planted
from examples.study.runs import read_run, read_runs

pytestmark = pytest.mark.backend("torch")

TRIGGER = "digits-trigger-a.0.auto.json"

LEFT_OUT = ("norms", "margin@wide", "margin@conv", "margin@embeddings", "tune@anchored", "tune@training")
"""Members that find nothing to do in a small network for digits, or that others leave too little to do."""


@pytest.fixture
def trained(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for results; the poisoned network is trained."""
    monkeypatch.setattr(budgets, "DE_SUBJECTS", ("digits-mlp",))
    main(["train", "--fault", "digits-trigger-a"])
    return tmp_path / "results"


def measure_budgets(folder: Path, *more: str) -> None:
    assert main(["budgets", "--results", str(folder), "--seeds", "1", *more]) == 0


def test_every_run_leaves_a_file_with_all_searchers_at_all_budgets(trained: Path) -> None:
    measure_budgets(trained)
    runs = {run.searcher: run for run in read_runs(trained)}
    assert set(runs) == {AUTO, DE}
    found = [(row.searcher, row.budget) for row in runs[AUTO].rows]
    assert found == [(who, budget) for who in (AUTO, *MEMBERS) if who not in LEFT_OUT for budget in BUDGETS]
    assert [row.searcher for row in runs[DE].rows] == [DE] * len(BUDGETS)
    for row in (*runs[AUTO].rows, *runs[DE].rows):
        assert 0 <= row.repaired <= row.negatives
        assert row.made_by is not None or (row.repaired, row.broken, row.weights) == (0, 0, 0)
        assert row.searcher == AUTO or row.made_by in (row.searcher, None)
        assert not row.keeps_budget or row.repaired <= row.possible


def test_a_row_counts_what_the_same_choice_does_to_held_out_inputs(trained: Path) -> None:
    measure_budgets(trained, "--searcher", AUTO)
    fault = BY_NAME["digits-trigger-a"]
    seen, held_out = halves(evaluation(fault), 0)
    backend = load_planted(fault)
    result = arachne.repair(backend, seen, fault.target, holdout=held_out, drop_overlap=True, max_break=0.005, seed=0)
    rows = {row.budget: row for row in read_run(trained / TRIGGER).rows if row.searcher == AUTO}
    for budget, chosen in ((0.005, result), (0.02, result.choose(max_break=0.02))):
        told = chosen.evidence.held_out
        assert (rows[budget].repaired, rows[budget].broken) == (told.repaired, told.broken)
        assert rows[budget].weights == len(chosen.patch)


def test_the_same_seed_gives_the_same_numbers(trained: Path) -> None:
    measure_budgets(trained / "first")
    measure_budgets(trained / "second")
    first, second = list(read_runs(trained / "first")), list(read_runs(trained / "second"))
    assert [(run.fault, run.seed, run.searcher, run.rows) for run in first] == [
        (run.fault, run.seed, run.searcher, run.rows) for run in second
    ]


def test_a_run_that_has_its_file_is_not_made_again(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measure_budgets(trained, "--searcher", AUTO)
    before = (trained / TRIGGER).stat().st_mtime_ns
    capsys.readouterr()
    measure_budgets(trained, "--searcher", AUTO)
    assert "1 of 1 runs have their file, 0 to make" in capsys.readouterr().out
    assert (trained / TRIGGER).stat().st_mtime_ns == before


def test_a_run_of_another_recipe_is_made_again(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure_budgets(trained, "--searcher", AUTO)
    monkeypatch.setitem(budgets.RECIPES, AUTO, budgets.RECIPES[AUTO] + 1)
    measure_budgets(trained, "--searcher", AUTO)
    assert read_run(trained / TRIGGER).made_with["recipe"] == budgets.RECIPES[AUTO]


def test_no_run_begins_when_time_is_up(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measure_budgets(trained, "--minutes", "0")
    assert "2 runs are left for the next time" in capsys.readouterr().out
    assert not list(trained.glob("*"))


def test_a_search_that_takes_too_long_is_given_up_and_said_so(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "DE_SECONDS", 0.0)
    measure_budgets(trained, "--searcher", DE)
    (run,) = read_runs(trained)
    assert run.outcome == "given up after 0 s"
    assert run.rows == ()


def test_a_set_of_faults_can_be_left_out(trained: Path) -> None:
    measure_budgets(trained, "--part", "judge")
    assert not list(trained.glob("*"))


def test_confusions_are_named_by_rank_and_carry_their_target(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "CONFUSED_SUBJECTS", ("digits-mlp",))
    main(["train", "--subject", "digits-mlp"])
    found = list(cases.cases(["judge"]))
    assert [case.name for case in found][:2] == ["digits-mlp-confusion-02", "digits-mlp-confusion-04"]
    assert all(case.kind == "confusion" and ":" in case.target for case in found)
    assert all(case.open()[0] is found[0].open()[0] for case in found)


def test_a_result_file_is_small_and_plain(trained: Path) -> None:
    measure_budgets(trained, "--searcher", AUTO)
    text = (trained / TRIGGER).read_text()
    assert len(text) < 9000
    assert json.loads(text)["versions"]["python"].startswith("3.")
