"""Fairness for groups: values worked out by hand, intervals, budgets for groups, the choice, and whole repairs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arachne
from arachne.choose.budget import Budget, read_group_drop
from arachne.choose.select import select_point
from arachne.data.labelled import LabelledData
from arachne.data.part import Part
from arachne.errors import DataError, NothingWithinBudgetError, UsageError
from arachne.evidence import Gate, PartEvidence, measure_part
from arachne.evidence.group_summary import sentences
from arachne.fairness import AccuracyGap, EqualisedOdds, Grouped, Objective, WorstGroup, estimates, slopes
from arachne.model.values import Array
from arachne.report.objects import result_schema
from arachne.results.front_file import read_front
from arachne.scoring.outcome import Baseline, Outcome
from arachne.search import Candidate, Front
from arachne.search.measured import MeasuredCandidate
from arachne.settings import make_objective, objective_from
from arachne.testing import ReferenceBackend
from arachne.weights.selection import Selection

TOTALS = np.array([[100, 100], [20, 60]])
RIGHT = np.array([[90, 80], [18, 30]])


@pytest.mark.parametrize(
    ("objective", "value"), [(WorstGroup(), 48 / 80), (AccuracyGap(), 0.85 - 0.6), (EqualisedOdds(), 0.8 - 0.5)]
)
def test_objectives_are_what_they_are_called(objective: Objective, value: float) -> None:
    assert objective.value(RIGHT, TOTALS) == pytest.approx(value)
    assert objective.value(np.stack([RIGHT, TOTALS]), TOTALS) == pytest.approx([value, float(objective.RISES)])
    assert objective.cost(RIGHT, TOTALS) == pytest.approx(-value if objective.RISES else value)


def test_equalised_odds_leaves_out_groups_with_few_inputs_of_a_class() -> None:
    assert EqualisedOdds(group_size=30).value(RIGHT, TOTALS) == pytest.approx(0.3)
    assert EqualisedOdds(group_size=61).value(RIGHT, TOTALS) != EqualisedOdds(group_size=61).value(RIGHT, TOTALS)
    with pytest.raises(DataError, match=r"within a class, and there is no class .* the accuracy gap says it"):
        EqualisedOdds(group_column="sex").check(np.array([[50, 0], [0, 50]]), ("female", "male"), "seen")


def test_slopes_lead_to_a_smaller_cost_and_know_nothing_of_what_may_be_chance() -> None:
    totals = np.array([[1000, 1000], [200, 600]])
    right = np.array([[900, 800], [180, 300]])
    np.testing.assert_allclose(slopes(EqualisedOdds(), right, totals), [[0, 1 / 1000], [0, -1 / 600]], atol=1e-9)
    np.testing.assert_allclose(slopes(AccuracyGap(), right, totals), [[1 / 2000] * 2, [-1 / 800] * 2], atol=1e-9)
    np.testing.assert_allclose(slopes(WorstGroup(), right, totals), [[0.0, 0.0], [-1 / 800] * 2], atol=1e-9)
    level = slopes(EqualisedOdds(), 0.9 * totals, totals)
    assert np.abs(level).max() < 0.6 / 200
    many = np.full((2, 400), 50)
    assert not slopes(EqualisedOdds(), many / 2, many).any()


def test_an_input_without_a_value_belongs_to_no_group() -> None:
    grouped = Grouped.by(np.array(["b", "", "a", "nan", "b"]), np.array([0, 0, 1, 1, 1]), 2)
    assert grouped.names == ("a", "b")
    assert grouped.members.tolist() == [1, -1, 0, -1, 1]
    assert grouped.totals.tolist() == [[0, 1], [1, 1]]
    assert grouped.right(np.array([False, True, True, True, True])).tolist() == [[0, 1], [0, 1]]
    assert Grouped.by(np.array(["a"]), np.array([0]), 1, ("a", "z")).totals.tolist() == [[1], [0]]


def test_intervals_hold_as_often_as_they_say() -> None:
    rng, held = np.random.default_rng(0), np.zeros(3)
    group = np.repeat([0, 1], [400, 120])
    for _ in range(200):
        was = rng.random(520) < np.where(group == 0, 0.95, 0.85)
        now = np.where(was, rng.random(520) < 0.99, rng.random(520) < np.where(group == 0, 0.05, 0.4))
        after = (0.95 * 0.99 + 0.05 * 0.05) - (0.85 * 0.99 + 0.15 * 0.4)
        grouped = Grouped(("a", "b"), group, np.zeros(520, np.int64), 1)
        found = estimates(AccuracyGap(), grouped, was, now.astype(bool))
        held += [one.low <= true <= one.high for one, true in zip(found, (0.1, after, after - 0.1), strict=True)]
    assert (held >= 0.91 * 200).all()


def test_groups_that_cannot_be_compared_are_refused_by_name() -> None:
    gap = AccuracyGap(group_column="sex")
    with pytest.raises(DataError, match="column 'sex' should have at least two groups to compare, and it has only 'f'"):
        gap.check(np.array([[50]]), ("f",), "seen")
    with pytest.raises(DataError, match=r"needs 10 held-out inputs .* 'm' has 3; give more data"):
        gap.check(np.array([[50], [3]]), ("f", "m"), "held-out")


def test_an_objective_is_made_from_its_name_and_column() -> None:
    assert make_objective("gap:sex") == AccuracyGap(group_column="sex")
    assert make_objective("odds", group_size=3) == EqualisedOdds(group_size=3)
    with pytest.raises(UsageError, match="no objective named 'gapp'; did you mean 'gap'"):
        make_objective("gapp")
    with pytest.raises(UsageError, match="names no column behind the colon"):
        make_objective("gap:")


def test_a_group_of_a_budget_is_found_by_value_column_or_star() -> None:
    groups = {"sex": ("f", "m"), "site": ("f", "x")}
    limits = Budget(max_group_drop={"*": 0.02, "sex=*": 0.01, "sex=m": 0, "x": 0.03}).group_limits(groups)
    assert limits == {("sex", "f"): 0.01, ("sex", "m"): 0, ("site", "f"): 0.02, ("site", "x"): 0.03}
    with pytest.raises(UsageError, match="'f', which several columns have: write 'sex=f' or 'site=f'"):
        Budget(max_group_drop={"f": 0}).group_limits(groups)
    with pytest.raises(UsageError, match="names the group 'y', which the data does not have"):
        Budget(max_group_drop={"y": 0}).group_limits(groups)
    with pytest.raises(UsageError, match="group 'f' may lose a share"):
        Budget(max_group_drop={"f": 2.0})
    assert read_group_drop("sex=f=1%") == ("sex=f", 0.01)
    with pytest.raises(UsageError, match="expected GROUP=SHARE"):
        read_group_drop("female")


def point(fixed_a: int, broken_a: int, broken_b: int) -> MeasuredCandidate:
    """A candidate for 200 inputs of group a, of which 50 are wrong, and 1,000 of group b, all right."""
    right = np.concatenate([np.arange(200) < 150 + fixed_a, np.ones(1000, bool)])
    was = np.concatenate([np.arange(200) < 150, np.ones(1000, bool)])
    right[:broken_a], right[200 : 200 + broken_b] = False, False
    site = np.repeat(["a", "b"], [200, 1000])
    baseline = Baseline(np.arange(1200), np.zeros(1200, np.int64), was, ~was, {"site": site})
    return MeasuredCandidate(
        Candidate(Selection((), np.zeros(0)), np.zeros(0), made_by="hand"), 3, 1.0, Outcome(baseline, right)
    )


def test_the_fairest_point_within_the_budget_is_taken_not_the_most_repaired() -> None:
    points = [point(30, 3, 0), point(28, 0, 2), point(45, 0, 30)]
    gap = AccuracyGap(group_column="site")
    assert select_point(points, Budget(0.01), ("zero",)).index == 0
    choice = select_point(points, Budget(0.01), ("zero",), gap)
    assert choice.index == 1
    assert choice.rule.startswith(
        "smallest accuracy gap by site of those that break clearly less than the budget of 1.00 %"
    )
    assert "accuracy gap by site 14.2 points less, 28 of 50 repaired" in choice.why
    assert select_point(points, Budget(0.05), ("zero",), gap).index == 2


def test_no_group_may_lose_more_than_its_limit() -> None:
    points = [point(30, 0, 4), point(20, 0, 0)]
    gap = AccuracyGap(group_column="site")
    assert select_point(points, Budget(0.01, max_group_drop={"b": 0.01}), ("zero",), gap).index == 0
    assert select_point(points, Budget(0.01, max_group_drop={"b": 0}), ("zero",), gap).index == 1
    refused = select_point(points[:1], Budget(0.01, max_group_drop={"*": 0}), ("zero",), gap)
    assert refused.index is None
    assert "keeps every group within its limit and makes the accuracy gap by site better" in refused.why


def measure_groups(was: Array, now: Array, objective: Objective) -> PartEvidence:
    n = len(was)
    site = np.repeat(["a", "b"], n // 2)
    data = LabelledData(np.zeros((n, 1)), np.zeros(n, np.int64), columns={"site": site})
    part = Part(data, np.arange(n), np.stack([was, ~was], axis=1).astype(float), ())
    return measure_part(part, np.stack([now, ~now], axis=1).astype(float), objective)


def test_who_pays_is_said_in_words() -> None:
    was = np.concatenate([np.arange(200) < 120, np.arange(200) < 190])
    now = np.concatenate([np.arange(200) < 150, np.arange(200) < 180])
    part = measure_groups(was, now, AccuracyGap(group_column="site"))
    assert part.fairness is not None
    assert [one.name for one in part.fairness.payers] == ["b"]
    assert part.fairness.before.value == pytest.approx(0.35)
    assert part.fairness.change.value == pytest.approx(-0.2)
    assert part.fairness.fairer
    assert sentences(part.fairness) == (
        "Who gains: a is 15.0 points more accurate (60.0 → 75.0 %: 30 of 200 became right and 0 wrong, p < 0.001).",
        "Who pays: b is 5.0 points less accurate (95.0 → 90.0 %: 0 of 200 became right and 10 wrong, p = 0.002).",
        "5.0 points of the 20.0 points are what b lost, not what others gained.",
    )
    nobody = measure_groups(was, was, AccuracyGap(group_column="site")).fairness
    assert nobody is not None
    assert sentences(nobody)[0] == "Who gains: nobody."
    assert sentences(nobody)[1].startswith("Who pays: nobody;")
    assert not nobody.fairer


@pytest.fixture(scope="module")
def pens(digits: LabelledData) -> LabelledData:
    """Digits with a column: most eights, which the model reads as ones, and few others are written in blue."""
    blue = np.random.default_rng(0).random(len(digits)) < np.where(digits.labels == 8, 0.9, 0.1)
    return replace(digits, columns={"pen": np.where(blue, "blue", "black")})


@pytest.fixture(scope="module")
def repaired(model: ReferenceBackend, pens: LabelledData) -> arachne.RepairResult:
    return arachne.repair(model, pens, "group:blue", objective="gap", max_break=0.02)


def test_a_repair_shrinks_the_gap_and_tells_it_with_an_interval(repaired: arachne.RepairResult) -> None:
    fairness = repaired.evidence.held_out.fairness
    assert fairness is not None
    assert repaired.evidence.verdict.word == "reduced"
    assert repaired.evidence.verdict.sentence.startswith("the accuracy gap by pen went from ")
    assert fairness.after.value < 0.6 * fairness.before.value
    assert fairness.change.low < fairness.change.value < fairness.change.high < 0
    assert "accuracy gap by pen" in str(repaired)
    assert Gate.parse("objective > 50%").check(repaired.evidence).failed is False
    assert Gate.parse("objective > 0.1%").check(repaired.evidence).failed


def test_the_result_file_has_every_group_and_who_pays(repaired: arachne.RepairResult) -> None:
    told = repaired.to_json()
    pytest.importorskip("jsonschema").validate(told, result_schema())
    fairness = told["held_out"]["fairness"]
    assert {one["name"] for one in fairness["groups"]} == {"blue", "black"}
    assert fairness["sentences"][1].startswith("Who pays: ")
    assert told["provenance"]["settings"]["objective"] == {"name": "gap", "group_column": "pen", "group_size": 10}
    assert objective_from(told["provenance"]) == AccuracyGap(group_column="pen")
    assert {"seen", "out_of_fold", "choose", "held_out"} == set(told["front"][0]["objective"])
    assert "Who gains, who pays" in page_of(repaired)


def page_of(result: arachne.RepairResult) -> str:
    from arachne.report.html import render

    return render(result.page())


def test_a_saved_front_chooses_by_groups_without_model_or_data(
    repaired: arachne.RepairResult, model: ReferenceBackend, pens: LabelledData, tmp_path: Path
) -> None:
    repaired.save(tmp_path)
    front = read_front(tmp_path / "front.npz")
    gap = AccuracyGap(group_column="pen")
    again = select_point(front.points, Budget(0.02), front.class_names, gap)
    assert again.index == select_point(repaired.points, Budget(0.02), front.class_names, gap).index
    opened = arachne.open_repair(tmp_path, model, pens)
    assert opened.split.objective == gap
    careful = opened.choose(max_break=0.02, max_group_drop={"black": 0})
    (taken,) = [careful.points[careful.choice.index]] if careful.choice and careful.choice.index is not None else []
    assert taken.selection_outcome.group_drops("pen")["black"] <= 0
    worst = opened.choose(max_break=0.02, objective="worst:pen")
    assert worst.patch.provenance["settings"]["objective"]["name"] == "worst"
    measured_again = arachne.measure(model, pens, patch=repaired.patch)
    assert measured_again.held_out.fairness is not None
    assert measured_again.held_out.fairness.after == repaired.evidence.held_out.fairness.after  # type: ignore[union-attr]


def test_the_front_search_has_the_objective_as_a_fourth_goal(model: ReferenceBackend, pens: LabelledData) -> None:
    searcher = Front(population=8, generations=2)
    result = arachne.repair(model, pens, "group:blue", searcher=searcher, objective="gap", max_break=0.02)
    assert {point.candidate.made_by for point in result.points} == {"front"}
    fairness = result.evidence.held_out.fairness
    assert fairness is not None
    assert fairness.after.value < fairness.before.value


@pytest.mark.parametrize(
    ("target", "settings", "message"),
    [
        ("8:1", {"objective": "gap"}, "compares the groups of one metadata column: write 'gap:pen' or give a target"),
        ("8:1", {"objective": "gap:pens"}, "needs the metadata column 'pens'; did you mean 'pen'"),
        ("8:1", {"objective": "gapp:pen"}, "no objective named 'gapp'; did you mean 'gap'"),
        ("8:1", {"objective": "gap:row"}, "column 'row' has .* different values; an objective compares at most 50"),
        ("8:1", {"objective": "gap:site"}, "column 'site' should have at least two groups to compare"),
        ("8:1", {"objective": "gap:rare"}, "'few' has "),
        ("8:1", {"objective": "odds:label"}, "there is no class of which two groups of column 'label' have 10 seen"),
        ("8:1", {"max_group_drop": {"red": 0}}, "names the group 'red', which the data does not have"),
        ("8:1", {"objective": 3}, "expected an objective such as"),
        ("8:1", {"objective": "gap:pen", "faithful": True}, "knows no objective"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_searched(
    model: ReferenceBackend, pens: LabelledData, target: str, settings: dict[str, Any], message: str
) -> None:
    n = len(pens)
    more = {"row": np.arange(n), "site": np.full(n, "here"), "rare": np.where(np.arange(n) % 300, "many", "few")}
    data = replace(pens, columns={**pens.columns, **more, "label": pens.labels})
    with pytest.raises((UsageError, DataError), match=message):
        arachne.repair(model, data, target, **settings)


def test_a_group_budget_that_nothing_keeps_is_told(model: ReferenceBackend, pens: LabelledData) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Never(Objective):
        """Nothing is fair enough."""

        name = "never"
        WORDS = "unfairness"

        def value(self, right: Array, totals: Array) -> Array:
            return np.zeros(right.shape[:-2])

    with pytest.raises(NothingWithinBudgetError, match="makes the unfairness by pen better"):
        arachne.repair(model, pens, "group:blue", objective=Never())
