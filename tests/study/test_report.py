from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the study's subjects are not trained: torch is not installed")
pytest.importorskip("matplotlib", reason="the figure is not drawn: matplotlib is not installed")

from arachne.scoring.statistics import Rate
from examples.study import without_cause
from examples.study.__main__ import main
from examples.study.budgets import AUTO, BUDGETS, DE, MEMBERS
from examples.study.report import PAGE, PRESENT, page_text
from examples.study.runs import RESULTS, Row, Run, read_run, read_runs, run_path
from examples.study.summary import gain_over, shared_runs, summarise

pytestmark = pytest.mark.backend("torch")


def rows(searcher: str, repaired: int, broken: int) -> list[Row]:
    """Equal counts at every budget: of 20 negatives and 1,000 positives."""
    return [Row(searcher, budget, searcher, repaired, 20, broken, 1000, 7, 9, (0.5, 0.004), 19) for budget in BUDGETS]


def make_run(fault: str, kind: str, repaired: int, broken: int = 4, *, searcher: str = AUTO, seed: int = 0) -> Run:
    """A run in which the pool repairs two negatives more than its members."""
    own = rows(searcher, repaired, broken)
    members = [row for name in MEMBERS for row in rows(name, repaired - 2, broken)] if searcher == AUTO else []
    versions = {"arachne": "0.1.0", "python": "3.11"}
    head = (fault, "digits-mlp", kind, "judge", "group:planted=yes", seed, searcher)
    return Run(*head, {"recipe": 1}, versions, 2.5, "done", (*own, *members))


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """A folder with a run of a planted fault and one of a confusion."""
    folder = tmp_path / "results" / "budgets"
    for run in (make_run("digits-trigger-b", "trigger", 18), make_run("digits-mlp-confusion-02", "confusion", 6, 11)):
        run.save(run_path(folder, run.fault, run.seed, run.searcher))
    return folder


def line(page: str, start: str) -> list[str]:
    """The cells of the first row of any table that starts like this."""
    found = next(line for line in page.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in found.strip("|").split("|")]


def test_a_run_reads_back_as_it_was_written(two: Path) -> None:
    run = read_run(run_path(two, "digits-trigger-b", 0, AUTO))
    assert [row.repair.value for row in run.rows if row.searcher == AUTO] == [0.9] * len(BUDGETS)
    again = two / "again.json"
    run.save(again)
    assert again.read_bytes() == run_path(two, "digits-trigger-b", 0, AUTO).read_bytes()


def test_the_page_says_what_came_out_and_what_did_not(two: Path, tmp_path: Path) -> None:
    assert main(["report", "--results", str(two.parent), "--docs", str(tmp_path / "docs")]) == 0
    text = (tmp_path / "docs" / "repairs-at-equal-damage.md").read_text()
    assert line(text, "Systematic faults: mean repaired at 0.5 %")[1:] == ["≥ 0.72", "0.90", "yes"]
    assert line(text, "Confusions: mean repaired at 0.5 %")[1:] == ["≥ 0.36", "0.30", "**no**"]
    assert line(text, "All: runs that keep 0.5 %")[2:] == ["0.50 (1 of 2)", "**no**"]
    assert line(text, "All: runs that keep 2 %")[2:] == ["1.00 (2 of 2)", "yes"]
    assert line(text, "`auto`")[2] == "0.90 @ 0.40 %"
    assert line(text, "`auto`")[-2:] == ["1.00", "7"]
    assert "Beside the paper's search" not in text
    assert "- Confusions at 0.5 %: 0.95 was within reach of the candidates, so at most 0.65 is lost in" in text
    assert "- Systematic faults" not in text


def test_the_figure_has_a_line_for_each_searcher_and_the_same_bytes_every_time(two: Path, tmp_path: Path) -> None:
    drawn = []
    for number in range(2):
        main(["report", "--results", str(two.parent), "--docs", str(tmp_path / f"{number}")])
        drawn.append((tmp_path / f"{number}" / "pictures" / "repairs-at-equal-damage.svg").read_bytes())
    assert drawn[0] == drawn[1]
    assert b"<svg" in drawn[0]


def test_a_fault_counts_once_however_many_seeds_it_has() -> None:
    runs = [make_run("a", "trigger", 20, seed=seed) for seed in range(3)] + [make_run("b", "gain", 10)]
    found = summarise(runs, AUTO, 0.005)
    assert found is not None
    assert found.repair.value == 0.75
    assert found.faults == 2
    assert (found.kept.count, found.kept.total) == (4, 4)
    assert summarise(runs, DE, 0.005) is None


def test_a_gain_is_counted_fault_by_fault() -> None:
    gain = gain_over([make_run("a", "trigger", 20), make_run("b", "gain", 10)], AUTO, MEMBERS[0], 0.005)
    assert (gain.low, gain.high) == pytest.approx((0.1, 0.1))


def test_searchers_are_compared_on_what_all_of_them_finished() -> None:
    runs = [make_run("a", "trigger", 20), make_run("b", "gain", 10), make_run("a", "trigger", 4, searcher=DE)]
    assert {run.fault for run in shared_runs(runs, (AUTO, DE))} == {"a"}
    assert line(page_text(runs), "`de`")[2] == "0.20 @ 0.40 %"


def test_what_is_right_without_the_cause_stands_beside_what_is_repaired() -> None:
    runs = [make_run("a", "trigger", 12), make_run("b", "gain", 16), make_run("c", "group", 20)]
    text = page_text(runs, reach={"a": Rate(14, 20), "b": Rate(18, 20), "not run": Rate(1, 20)})
    assert "the networks read 0.80 of those that were wrong rightly (mean over the 2 with a mark)" in text
    assert "the default repairs 0.70 at 0.1 %, 0.70 at 0.5 %" in text
    assert line(text, "trigger")[-2] == "0.70"
    assert line(text, "group")[-2] == ""
    assert "Once the mark" not in page_text(runs)


@pytest.mark.skipif(not RESULTS.is_dir(), reason="there are no result files here")
def test_the_page_in_the_documentation_is_what_the_result_files_say() -> None:
    reach = without_cause.read(RESULTS.parent)
    assert PAGE.read_text() == page_text(list(read_runs(RESULTS)), list(read_runs(RESULTS.parent / PRESENT)), reach)
