"""Choosing one point of a front: the careful rule, the guarantee, hard constraints, and what a budget may say."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from arachne.choose.budget import Budget, read_class_drop, read_share
from arachne.choose.careful import Points, select_carefully
from arachne.choose.luck import Luck, Resamples, draw_counts
from arachne.choose.select import explain_too_few, p_above, select_point
from arachne.errors import UsageError
from arachne.model.values import Array
from arachne.report.front import FrontTable
from arachne.scoring.outcome import Baseline, Outcome
from arachne.search import Candidate
from arachne.search.low_rank import LowRank
from arachne.search.measured import MeasuredCandidate, count_found
from arachne.text import percent
from arachne.weights.edit import LowRankEdit
from arachne.weights.selection import Selection
from arachne.weights.storage import STORAGES

NAMES = ("go", "slow", "stop")


def baseline(positives: int, negatives: int) -> Baseline:
    n = positives + negatives
    right = np.arange(n) < positives
    return Baseline(np.arange(n), np.arange(n) % 3, right, ~right)


def make_outcome(repaired: int, broken: int, positives: int = 1000, negatives: int = 50) -> Outcome:
    right = np.ones(positives + negatives, bool)
    right[:broken] = False
    right[positives + repaired :] = False
    return Outcome(baseline(positives, negatives), right)


def only_broken(repaired: int, broken: list[int]) -> Outcome:
    """Make an outcome whose inputs are of the classes 0, 1, 2 in turn, those to repair of class 0."""
    made = make_outcome(repaired, 0)
    labels, right = made.baseline.labels.copy(), made.right.copy()
    labels[~made.baseline.right], right[broken] = 0, False
    return Outcome(replace(made.baseline, labels=labels), right)


def point(seen: Outcome, *, size: float = 1.0, never_broken: int = 0, **others: Any) -> MeasuredCandidate:
    return MeasuredCandidate(
        Candidate(Selection((), np.zeros(0)), np.zeros(0), made_by="hand"),
        3,
        size,
        seen,
        never_broken=never_broken,
        **others,
    )


def choose_point(points: Sequence[MeasuredCandidate], **budget: Any) -> int | None:
    return select_point(points, Budget(**budget), NAMES).index


@pytest.mark.parametrize(("repaired", "wanted"), [(30, 0), (31, 0), (38, 1)])
def test_a_matrix_has_to_be_ahead_of_single_weights_by_more_than_chance(repaired: int, wanted: int) -> None:
    weights = point(make_outcome(30, 3), out_of_fold=make_outcome(30, 3))
    matrix = point(make_outcome(repaired, 1), out_of_fold=make_outcome(repaired, 1))
    edit = LowRankEdit("fc", "weight", np.ones((3, 1)), np.ones((4, 1)), STORAGES["float32"])
    matrix = replace(matrix, candidate=replace(matrix.candidate, edit=edit))
    assert choose_point([weights, matrix]) == wanted  # of 50, 0.6 has a deviation of 3.5


def test_a_matrix_that_repairs_all_is_not_ahead_of_single_weights_that_do() -> None:
    weights = point(make_outcome(50, 0), out_of_fold=make_outcome(50, 0), size=9.0)
    matrix = point(make_outcome(50, 0), out_of_fold=make_outcome(50, 0), minimised_from=9)
    edit = LowRankEdit("fc", "weight", np.ones((3, 1)), np.ones((4, 1)), STORAGES["float32"])
    assert choose_point([replace(matrix, candidate=replace(matrix.candidate, edit=edit)), weights]) == 1


def test_most_repaired_within_the_budget_is_taken() -> None:
    points = [point(make_outcome(*counts)) for counts in ((10, 0), (30, 2), (40, 4), (45, 9))]
    assert choose_point(points) == 1  # 2.5 + 0.5 √2.5 is 3.3 and 4.5 + 0.5 √4.5 is 5.6, and 0.5 % of 1,000 is 5
    assert choose_point(points, max_break=0.013) == 3
    assert select_point(points, Budget(), NAMES).within == (0, 1)


def test_of_equal_repairs_the_one_that_breaks_less_and_then_the_smaller_change_is_taken() -> None:
    points = [
        point(make_outcome(30, 3)),
        point(make_outcome(30, 2), size=2.0),
        point(make_outcome(30, 2), size=1.0),
        point(make_outcome(28, 0)),
    ]
    assert choose_point(points) == 2


def test_a_minimised_point_is_taken_before_the_larger_one_but_not_within_a_smaller_budget() -> None:
    small = point(make_outcome(30, 2), size=2.0, minimised_from=9, minimised_for=0.005)
    points = [small, point(make_outcome(30, 2), size=1.0), point(make_outcome(20, 0))]
    assert choose_point(points) == 0
    assert choose_point(points, max_break=0.01) == 0
    assert choose_point(points, max_break=0.004) == 1
    assert count_found(points) == 2


def test_a_point_that_repairs_about_as_much_and_breaks_less_is_taken() -> None:
    points = [point(make_outcome(30, 3)), point(make_outcome(29, 0)), point(make_outcome(28, 0))]
    assert choose_point(points) == 1  # 1 of 50 negatives is 2 %


def test_out_of_fold_counts_decide_before_the_inputs_kept_for_choosing_and_those_before_seen_ones() -> None:
    seen, worse, worst = make_outcome(40, 0), make_outcome(20, 3), make_outcome(10, 8)
    assert choose_point([point(seen, out_of_fold=worse, choose=worst)]) == 0
    assert choose_point([point(seen, out_of_fold=worst, choose=worse)]) is None
    assert choose_point([point(seen, choose=worst)]) is None
    assert choose_point([point(seen, choose=worse)]) == 0


def test_a_candidate_that_breaks_too_much_of_what_it_was_fitted_to_is_out_however_it_was_judged() -> None:
    for judged in ("choose", "out_of_fold"):
        counts: dict[str, Any] = {judged: make_outcome(40, 0)}
        bold = point(make_outcome(40, 9), **counts)
        counts = {judged: make_outcome(20, 1)}
        safe = point(make_outcome(20, 1), **counts)
        assert choose_point([bold]) is None
        assert choose_point([bold, safe]) == 1
        assert choose_point([bold], max_break=0.013) == 0


def test_held_out_inputs_play_no_part_in_the_choice() -> None:
    points = [point(make_outcome(10, 0)), point(make_outcome(30, 3))]
    flattered = [
        point(make_outcome(10, 0), held_out=make_outcome(50, 0)),
        point(make_outcome(30, 3), held_out=make_outcome(0, 900)),
    ]
    assert choose_point(points) == choose_point(flattered) == 1
    assert choose_point(flattered, max_break=0.001) == 0


def test_nothing_within_the_budget_describes_the_best_beyond_it() -> None:
    choice = select_point(
        [point(make_outcome(20, 30)), point(make_outcome(9, 7)), point(make_outcome(0, 0))], Budget(), NAMES
    )
    assert (choice.index, choice.beyond, choice.within) == (None, 1, ())
    assert "none of 3 candidates breaks clearly less than 0.50 %" in choice.why
    assert "by hand, has 9 of 50 repaired and 7 of 1,000 broken (0.70 %)" in choice.why


def test_a_budget_of_less_than_one_input_asks_for_more_data() -> None:
    few = make_outcome(1, 1, positives=8, negatives=2)
    siblings = make_outcome(1, 0, positives=8, negatives=2)
    itself = point(make_outcome(0, 0, positives=8, negatives=2), out_of_fold=siblings)
    chosen = select_point([itself, point(few, out_of_fold=few)], Budget(0.005), NAMES)
    assert chosen.index is None
    assert "has 1 of 2 repaired and 1 of 8 broken (12.5 %)" in chosen.why
    assert chosen.why.endswith("0.50 % of 8 right inputs is less than one: give more data")


def test_the_reason_of_a_mean_of_runs_says_what_it_is_expected_to_break() -> None:
    runs = make_outcome(40, 20)
    one = point(make_outcome(45, 10), out_of_fold=runs)
    mean = replace(one, candidate=replace(one.candidate, made_by="low-rank"))
    share = LowRank.KEPT_BY_THE_MEAN
    assert share < 1
    why = select_point([mean], Budget(0.05), NAMES).why
    assert why.endswith(f"; allowing for runs that break more than their patch, 80.0 % and {percent(share * 0.02)}")
    assert "allowing" not in select_point([one], Budget(0.05), NAMES).why


def test_among_close_points_the_one_that_is_expected_to_break_least_is_taken() -> None:
    shares, nothing = np.array([1.0, 0.6]), np.zeros(2)
    rule = Points(shares, np.arange(2), nothing, total=1000, negatives=50)
    assert rule.pick(np.array([0.4, 0.4]), np.array([20.0, 30.0]), 0.05) == 1  # 0.6 of 30
    assert rule.pick(np.array([0.4, 0.4]), np.array([20.0, 40.0]), 0.05) == 0


def test_a_long_front_is_listed_without_points_that_others_beat() -> None:
    points = [point(make_outcome(n, n)) for n in range(1, 12)] + [point(make_outcome(1, n)) for n in range(12, 30)]
    choice = select_point(points, Budget(0.05), NAMES)
    shown = Console(file=io.StringIO(), width=120)
    shown.print(FrontTable(points, choice))
    assert isinstance(shown.file, io.StringIO)
    assert shown.file.getvalue().count(" hand ") == 11
    assert "and 18 more that break no less and repair no more than one of these" in shown.file.getvalue()


def test_the_point_that_is_taken_stands_for_those_that_do_the_same() -> None:
    points = [point(make_outcome(n, n)) for n in [5] * 3 + list(range(6, 30))]
    choice = replace(select_point(points, Budget(0.05), NAMES), index=2)
    shown = Console(file=io.StringIO(), width=120)
    shown.print(FrontTable(points, choice))
    assert isinstance(shown.file, io.StringIO)
    assert shown.file.getvalue().count(" hand ") == 25


def test_candidates_that_repair_nothing_are_never_taken() -> None:
    choice = select_point([point(make_outcome(0, 0))], Budget(), NAMES)
    assert choice.index is None
    assert choice.why == "none of 1 candidate repairs anything"


def test_a_candidate_that_breaks_a_never_break_input_is_never_taken() -> None:
    points = [point(make_outcome(10, 0)), point(make_outcome(40, 0), never_broken=1)]
    assert choose_point(points) == 0
    choice = select_point(points[1:], Budget(), NAMES)
    assert choice.index is None
    assert "1 never-break input wrong" in choice.why


def test_a_class_that_may_lose_nothing_loses_nothing() -> None:
    one = point(only_broken(30, [0, 1, 2]))  # one of each class
    two = point(only_broken(20, [0, 1]))  # none of the class 'stop'
    assert choose_point([one, two]) == 0
    assert choose_point([one, two], max_class_drop={"stop": 0}) == 1
    assert choose_point([one, two], max_class_drop={"2": 0}) == 1
    assert choose_point([one, two], max_class_drop={"*": 0.5, "stop": 0}) == 1
    assert choose_point([one, two], max_class_drop={"*": 0.5}) == 0


def test_a_class_the_model_does_not_have_is_named_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"the class 'stob', which the model does not have; did you mean 'stop'\?"):
        choose_point([point(make_outcome(30, 3))], max_class_drop={"stob": 0})


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ({"max_break": 1.5}, "a share from 0 to below 1"),
        ({"max_break": -0.1}, "a share from 0 to below 1"),
        ({"confidence": 90}, "0.9 for 90 %, got 90"),
        ({"confidence": 0.2}, "from 0.5 to below 1"),
        ({"max_break": 0, "confidence": 0.9}, "no number of inputs can guarantee"),
        ({"max_class_drop": {"stop": 3}}, "class 'stop' may lose a share"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(budget: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        Budget(**budget)


@pytest.mark.parametrize(
    ("text", "share"), [("0.5%", 0.005), ("0.005", 0.005), ("1 %", 0.01), ("0", 0.0), (".2%", 0.002)]
)
def test_shares_are_read_as_people_write_them(text: str, share: float) -> None:
    assert read_share(text) == share


@pytest.mark.parametrize(
    ("text", "words"),
    [("150%", "below 100 %"), ("90", "did you mean 90%?"), ("half", "such as 0.5% or 0.005"), ("-1%", "such as")],
)
def test_what_is_no_share_is_refused_in_one_sentence(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        read_share(text)


def test_a_class_with_an_equals_sign_in_its_name_can_be_limited() -> None:
    assert read_class_drop("x=y=1%") == ("x=y", 0.01)
    with pytest.raises(UsageError, match="CLASS=SHARE"):
        read_class_drop("stop")


def test_the_p_value_is_the_binomial_tail() -> None:
    budget = Budget(0.01, 0.9)
    assert p_above(make_outcome(1, 0, positives=3), budget) == pytest.approx(0.99**3)
    assert p_above(make_outcome(1, 1, positives=3), budget) == pytest.approx(0.99**3 + 3 * 0.01 * 0.99**2)
    assert p_above(None, budget) == 1


def test_a_guarantee_stops_at_the_first_point_that_fails_even_if_a_bolder_one_would_pass() -> None:
    counts = [((10, 0), (10, 0)), ((20, 1), (20, 1)), ((30, 2), (30, 9)), ((40, 3), (40, 0))]
    points = [point(make_outcome(*seen), choose=make_outcome(*kept)) for seen, kept in counts]
    assert select_point(points, Budget(0.005, 0.9), NAMES).within == (0, 1)
    assert choose_point(points, confidence=0.9) == 1


def test_the_order_of_the_tests_rests_on_what_the_search_saw_alone() -> None:
    luck = point(make_outcome(40, 9), choose=make_outcome(40, 0))
    safe = point(make_outcome(10, 0), choose=make_outcome(10, 9))
    assert choose_point([luck, safe], confidence=0.9) is None  # the safest fails, so the lucky one is never tested


def test_too_few_inputs_for_a_guarantee_are_counted() -> None:
    budget = Budget(0.005, 0.9)
    assert budget.fewest_positives == 460
    enough, short = make_outcome(5, 0, positives=460), make_outcome(5, 0, positives=459)
    assert choose_point([point(enough, choose=enough)], confidence=0.9) == 0
    choice = select_point([point(short, choose=short)], budget, NAMES)
    assert choice.index is None
    assert choice.why == explain_too_few(budget, 459)
    assert "takes 460 inputs" in choice.why


RATES = np.array([0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.007, 0.008, 0.01, 0.015])
"""How much of all inputs each of the simulated points truly breaks; bolder ones repair more."""


def simulate_front(rng: np.random.Generator, positives: int = 1500) -> list[MeasuredCandidate]:
    """A front whose points truly break `RATES`, each seen on one sample and kept for choosing on another."""

    def draw_counts() -> list[Outcome]:
        fragile = rng.random(positives)
        return [_with_broken(fragile < rate, 5 + 4 * number) for number, rate in enumerate(RATES)]

    pairs = zip(draw_counts(), draw_counts(), strict=True)
    return [point(seen, size=float(n), choose=kept) for n, (seen, kept) in enumerate(pairs)]


def _with_broken(broken: Array, repaired: int) -> Outcome:
    negatives = 60
    right = np.concatenate([~broken, np.arange(negatives) < repaired])
    return Outcome(baseline(len(broken), negatives), right)


def test_the_guarantee_holds_over_hundreds_of_splits_and_the_naive_rule_does_not() -> None:
    budget = Budget(0.005, 0.9)
    violated = naive = found = 0
    for seed in range(400):
        points = simulate_front(np.random.default_rng(seed))
        index = select_point(points, budget, NAMES).index
        found += index is not None
        violated += index is not None and RATES[index] > budget.max_break
        counts = [one.choose.breakage for one in points if one.choose is not None]
        naive += RATES[max(n for n, rate in enumerate(counts) if rate.value <= budget.max_break)] > budget.max_break
    assert found > 300
    assert violated <= 40
    assert naive > 120


def noisy(rng: np.random.Generator, positives: int = 1000, negatives: int = 50) -> MeasuredCandidate:
    """A point that repairs each negative with a chance of 0.4 and breaks each positive with one of 0.004."""
    right = np.concatenate([rng.random(positives) > 0.004, rng.random(negatives) < 0.4])
    outcome = Outcome(baseline(positives, negatives), right)
    return point(outcome, out_of_fold=outcome)


def test_half_an_input_more_than_were_counted_has_to_be_within_the_budget() -> None:
    alike = [point(make_outcome(30, 1), out_of_fold=make_outcome(30, 1)) for _ in range(2)]
    chosen = {most: select_carefully(alike, range(2), Budget(most / 1000), None) for most in np.arange(1.5, 4, 0.1)}
    taken = [most for most, (index, _, _) in chosen.items() if index is not None]
    expected = 1.5 + chosen[taken[0]][2].broken
    assert taken[0] - 0.1 < expected + 0.5 * math.sqrt(expected) <= taken[0]


def test_the_luck_of_the_pick_is_measured() -> None:
    rng = np.random.default_rng(0)
    alike = [noisy(rng) for _ in range(60)]
    chosen, within, luck = select_carefully(alike, range(60), Budget(0.01), None)
    assert chosen is not None
    assert chosen in within
    promised = alike[chosen].search_outcome.repair.value
    assert promised >= 0.5  # the luckiest of sixty that are all alike
    assert 0.03 < luck.repair < promised - 0.3
    why = select_point(alike, Budget(0.01), NAMES).why
    assert "; allowing for the luck of the pick, " in why


def test_a_single_point_is_no_luck_and_its_margin_is_that_of_a_count() -> None:
    one = point(make_outcome(30, 3), out_of_fold=make_outcome(30, 3))
    assert select_carefully([one], [0], Budget(), None)[2] == Luck()
    assert "luck" not in select_point([one], Budget(), NAMES).why


def test_a_point_that_breaks_nothing_keeps_every_budget() -> None:
    points = [
        point(make_outcome(30, 0), out_of_fold=make_outcome(30, 0)),
        point(make_outcome(40, 1), out_of_fold=make_outcome(40, 1)),
    ]
    assert choose_point(points, max_break=0.0) == 0
    assert choose_point(points, max_break=0.0005) == 0


def test_draws_of_an_input_do_not_depend_on_other_inputs() -> None:
    some, few = draw_counts(np.arange(4000)), draw_counts(np.array([7, 3999]))
    np.testing.assert_array_equal(few, some[[7, 3999]])
    assert some.mean() == pytest.approx(1, abs=0.01)
    assert some.var() == pytest.approx(1, abs=0.02)


def test_points_judged_on_different_inputs_are_not_drawn() -> None:
    assert Resamples.of([make_outcome(3, 1), make_outcome(3, 1, positives=900)]) is None
    drawn = Resamples.of([make_outcome(3, 1), make_outcome(5, 2)])
    assert drawn is not None
    assert drawn.repair[:, 0].tolist() == [3 / 50, 5 / 50]
    assert drawn.broken[:, 0].tolist() == [1, 2]
