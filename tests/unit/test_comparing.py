"""Searchers side by side: same held-out inputs, and a row for whoever fails."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import arachne
from arachne.bench.result import Comparison
from arachne.choose.budget import Budget
from arachne.data.labelled import LabelledData
from arachne.errors import NothingToRepairError, UsageError
from arachne.report.comparison import BUDGETS, comparison_schema, render
from arachne.search import DifferentialEvolution, Problem, Searcher, SearchState
from arachne.testing import ReferenceBackend, mlp

QUICK = DifferentialEvolution(population=12, generations=5)


@dataclass(frozen=True, kw_only=True)
class Broken(Searcher):
    """A plug-in with a bug."""

    name = "broken <b>"

    def begin(self, problem: Problem, *, rng: np.random.Generator) -> SearchState:
        raise ZeroDivisionError("of its own")

    def step(self, problem: Problem, state: SearchState, *, rng: np.random.Generator) -> SearchState:
        raise NotImplementedError

    def result(self, problem: Problem, state: SearchState) -> arachne.SearchResult:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Idle(Searcher):
    """Changes nothing."""

    name = "idle"

    def begin(self, problem: Problem, *, rng: np.random.Generator) -> SearchState:
        return SearchState({}, stopped="it never begins")

    def step(self, problem: Problem, state: SearchState, *, rng: np.random.Generator) -> SearchState:
        raise NotImplementedError

    def result(self, problem: Problem, state: SearchState) -> arachne.SearchResult:
        return problem.result(state, arachne.Candidate(problem.suspects, problem.suspects.values))


class WithoutGradients(ReferenceBackend):
    """A model of which only scores can be had."""

    SUPPORTS_GRADIENTS = False


@pytest.fixture(scope="module")
def data() -> LabelledData:
    """Digits among which 60 eights look much like ones."""
    x, y = load_digits(return_X_y=True)
    x, y = x[900:].astype(np.float32) / 16, y[900:]
    eights, ones = np.flatnonzero(y == 8)[:60], np.flatnonzero(y == 1)[:60]
    x[eights] = 0.25 * x[eights] + 0.75 * x[ones]
    return LabelledData(x, y, source="digits.npz")


@pytest.fixture(scope="module")
def backend() -> ReferenceBackend:
    x, y = load_digits(return_X_y=True)
    model = LogisticRegression(max_iter=300, C=0.05).fit(x[:900] / 16, y[:900])
    backend = ReferenceBackend(mlp([64, 10]))
    backend.set_weights("fc1", "weight", model.coef_.astype(np.float32))
    backend.set_weights("fc1", "bias", model.intercept_.astype(np.float32))
    return backend


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return []


@pytest.fixture(scope="module")
def comparison(backend: ReferenceBackend, data: LabelledData, lines: list[str]) -> Comparison:
    searchers: list[str | Searcher] = ["margin", QUICK, Idle(), Broken()]
    return arachne.compare_searchers(
        backend, data, "8:1", searchers=searchers, max_break=0.02, tell=lines.append, seed=3, localiser="gl"
    )


def test_every_searcher_has_a_row_whatever_became_of_it(comparison: Comparison) -> None:
    assert [one.searcher for one in comparison.contenders] == ["margin", "de", "idle", "broken <b>"]
    keep, de, idle, broken = comparison.contenders
    assert keep.result is not None
    assert de.result is not None
    assert keep.point is not None
    assert idle.point is None
    assert idle.verdict == "nothing within the budget"
    assert broken.failed == "ZeroDivisionError: of its own"
    assert broken.verdict == "failed"


def test_all_are_judged_on_the_same_inputs(comparison: Comparison) -> None:
    parts = [one.result.split.held_out.rows for one in comparison.contenders if one.result is not None]
    assert len(parts) == 3
    assert all(np.array_equal(rows, parts[0]) for rows in parts)


def test_the_model_is_left_as_it_was(backend: ReferenceBackend, data: LabelledData) -> None:
    before = {name: values.copy() for name, values in backend.get_weights("fc1").items()}
    arachne.compare_searchers(backend, data, "8:1", searchers=["margin", Broken()], localiser="gl")
    assert all(np.array_equal(values, before[name]) for name, values in backend.get_weights("fc1").items())


def test_a_row_is_what_a_repair_alone_gives(
    comparison: Comparison, backend: ReferenceBackend, data: LabelledData
) -> None:
    alone = arachne.repair(backend, data, "8:1", searcher="margin", localiser="gl", max_break=0.02, seed=3)
    row = comparison.to_json()["searchers"][0]
    held_out = alone.evidence.held_out
    assert (row["held_out"]["repaired"], row["held_out"]["broken"]) == (held_out.repaired, held_out.broken)
    assert row["weights"] == len(alone.patch)
    assert [at["budget"] for at in row["at"]] == list(BUDGETS)
    assert row["at"][3]["held_out"]["repaired"] == held_out.repaired  # 2 %, the budget it was compared at


def test_the_curve_is_what_is_taken_as_the_budget_grows(comparison: Comparison) -> None:
    for one in comparison.contenders[:2]:
        assert one.result is not None
        points, curve = one.result.points, one.curve()
        repaired = [points[number].selection_outcome.repair.value for number in curve]
        assert curve
        assert repaired == sorted(repaired)
        assert len(set(curve)) == len(curve)
        assert one.within(Budget(0.5)) is points[curve[-1]]
    assert comparison.contenders[3].curve() == []


def test_who_needs_gradients_that_are_not_there_has_a_row_that_says_so(
    backend: ReferenceBackend, data: LabelledData
) -> None:
    blind = WithoutGradients(mlp([64, 10]))
    for name, values in backend.get_weights("fc1").items():
        blind.set_weights("fc1", name, values)
    keep, de = arachne.compare_searchers(blind, data, "8:1", searchers=["margin", QUICK], max_break=0.05).contenders
    assert keep.failed is not None
    assert "has no gradients, so the search 'margin' cannot run" in keep.failed
    assert (de.localiser, de.failed) == ("rs", None)


def test_json_fits_its_schema(comparison: Comparison) -> None:
    jsonschema.Draft202012Validator.check_schema(comparison_schema())
    jsonschema.validate(comparison.to_json(), comparison_schema(), jsonschema.Draft202012Validator)


def test_page_and_text_show_every_row_and_hostile_names_stay_text(comparison: Comparison, tmp_path: Path) -> None:
    comparison.save(tmp_path / "cmp", command="arachne compare '<i>'")
    html = (tmp_path / "cmp" / "compare.html").read_text(encoding="utf-8")
    assert render(comparison.to_json() | {"command": "arachne compare '<i>'"}) == html
    assert "broken <b>" not in html
    assert "<i>" not in html
    for one in comparison.contenders:
        assert one.searcher.replace("<", "&lt;").replace(">", "&gt;") in html
        assert one.searcher in str(comparison)
    assert "ZeroDivisionError: of its own" in html
    assert "budget 2 %" in html
    assert "http" not in html.replace("http-equiv", "")
    assert "ZeroDivisionError: of its own" in str(comparison)
    assert "failed" in comparison._repr_html_()


def test_lines_tell_who_is_at_work_and_how_long(comparison: Comparison, lines: list[str]) -> None:
    assert [line for line in lines if line.endswith("…")] == [
        "1 of 4: margin …",
        "2 of 4: de …",
        "3 of 4: idle …",
        "4 of 4: broken <b> …",
    ]
    assert lines[-1].startswith("broken <b>: failed (ZeroDivisionError: of its own), ")
    assert lines[-1].endswith(" s")


def test_what_no_searcher_could_mend_is_an_error(backend: ReferenceBackend, data: LabelledData) -> None:
    with pytest.raises(NothingToRepairError):
        arachne.compare_searchers(backend, data, "0:9", searchers=["margin"])
    with pytest.raises(UsageError, match="no searcher named 'margn'; did you mean 'margin'"):
        arachne.compare_searchers(backend, data, "8:1", searchers=["margn"])
    with pytest.raises(UsageError, match="no localiser named 'contrst'; did you mean 'contrast'"):
        arachne.compare_searchers(backend, data, "8:1", searchers=["margin"], localiser="contrst")
    with pytest.raises(UsageError, match="at least one searcher"):
        arachne.compare_searchers(backend, data, "8:1", searchers=[])
