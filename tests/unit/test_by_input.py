"""Statistics by inputs: simulated with twenty correlated decisions in an input, beside those that ignore it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.special import bdtr

from arachne.choose.budget import Budget
from arachne.choose.careful import cautious_count
from arachne.choose.select import explain_missing, p_above
from arachne.model.values import Array
from arachne.scoring.by_input import (
    FLIPS,
    effective_number,
    fewest_inputs,
    find_repeated,
    flip_test,
    p_above_by_input,
    paired_p,
    rate_of,
)
from arachne.scoring.outcome import Baseline, Outcome
from arachne.scoring.statistics import Rate, interval, mcnemar, sign_test

DECISIONS = 20
ROUNDS = 1000


def broken_decisions(share: float, correlation: float, inputs: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Which decisions break, bool `(m,)`, and their inputs: each input has its own chance, by a beta distribution."""
    between = 1 / correlation - 1
    chances = rng.beta(share * between, (1 - share) * between, size=inputs)
    return (rng.random((inputs, DECISIONS)) < chances[:, None]).ravel(), np.repeat(np.arange(inputs), DECISIONS)


def all_of(array: Array) -> Array:
    return np.ones(len(array), bool)


@pytest.mark.parametrize(("share", "inputs"), [(0.005, 400), (0.02, 100), (0.02, 400), (0.3, 100)])
@pytest.mark.parametrize("correlation", [0.05, 0.3, 0.7])
def test_intervals_cover_and_naive_ones_would_not(share: float, inputs: int, correlation: float) -> None:
    rng = np.random.default_rng(0)
    covered = naive = 0
    for _ in range(ROUNDS):
        hit, owners = broken_decisions(share, correlation, inputs, rng)
        rate = rate_of(hit, all_of(hit), owners)
        low, high = rate.interval
        covered += low <= share <= high
        low, high = Rate(rate.count, rate.total).interval
        naive += low <= share <= high
    assert covered >= 0.93 * ROUNDS  # 95 % less two standard errors of the simulation
    assert naive < covered
    if correlation >= 0.3:
        assert naive < 0.7 * ROUNDS


@pytest.mark.parametrize("correlation", [0.05, 0.3, 0.95])
@pytest.mark.parametrize("inputs", [700, 1500])
def test_a_guarantee_holds_at_its_budget_and_a_naive_one_would_not(correlation: float, inputs: int) -> None:
    budget = Budget(0.005, confidence=0.9)
    rng = np.random.default_rng(1)
    passed = naive = 0
    for _ in range(ROUNDS):
        hit, owners = broken_decisions(budget.max_break, correlation, inputs, rng)
        passed += p_above_by_input(hit, all_of(hit), owners, budget.max_break) <= 0.1
        naive += bdtr(hit.sum(), len(hit), budget.max_break) <= 0.1
    assert passed <= 0.1 * ROUNDS
    if correlation >= 0.3:
        assert naive > 0.2 * ROUNDS


def test_a_guarantee_is_given_where_breaks_are_clearly_rarer() -> None:
    rng = np.random.default_rng(2)
    passed = 0
    for _ in range(100):
        hit, owners = broken_decisions(0.001, 0.1, 1000, rng)
        passed += p_above_by_input(hit, all_of(hit), owners, 0.005) <= 0.1
    assert passed >= 90


@pytest.mark.parametrize("correlation", [0.05, 0.5])
def test_a_paired_test_rejects_as_rarely_as_it_says_and_a_naive_one_would_not(correlation: float) -> None:
    rng = np.random.default_rng(3)
    rejected = naive = 0
    for _ in range(ROUNDS):
        changed, owners = broken_decisions(0.05, correlation, 60, rng)
        sides = np.repeat(rng.random(60) < 0.5, DECISIONS)  # an input's changes go one way, either as likely
        better, worse = changed & sides, changed & ~sides
        rejected += paired_p(better, worse, owners) < 0.05
        naive += mcnemar(int(better.sum()), int(worse.sum())) < 0.05
    assert rejected <= 0.065 * ROUNDS
    assert naive > 0.15 * ROUNDS


def test_one_decision_in_an_input_gives_the_numbers_of_single_label() -> None:
    owners = np.array([4, 1, 7, 2, 9])
    assert find_repeated(owners) is None
    assert find_repeated(np.array([4, 1, 1])) is not None
    hit, among = np.array([1, 0, 1, 1, 0], bool), np.array([1, 1, 1, 1, 0], bool)
    assert rate_of(hit, among, None) == Rate(3, 4)
    assert paired_p(hit, ~hit, None) == sign_test(3, 2)
    assert Rate(3, 4).interval == interval(3, 4)
    assert Rate(3, 4).design_effect == 1.0


@pytest.mark.parametrize(("better", "worse"), [*product((0, 1, 5, 9), (0, 2, 7))])
def test_flipping_signs_of_ones_is_the_exact_sign_test(better: int, worse: int) -> None:
    assert flip_test(np.array([1] * better + [-1] * worse + [0], np.int64)) == pytest.approx(sign_test(better, worse))


def test_flipping_signs_by_hand() -> None:
    # sums of ±3 ±2 ±1 that are at least 4 away from 0: 6 and 4, and their opposites
    assert flip_test(np.array([3, 2, -1], np.int64)) == pytest.approx(4 / 8)


def test_many_large_differences_are_drawn() -> None:
    sizes = np.random.default_rng(4).integers(1, 50_000, size=200)
    assert flip_test(sizes) == pytest.approx(1 / (FLIPS + 1))
    assert flip_test(sizes * np.resize([1, -1], 200)) > 0.05


def test_draws_lie_between_inputs_and_decisions() -> None:
    n = 500
    totals = np.full(n, float(DECISIONS))
    whole = np.where(np.arange(n) < 50, float(DECISIONS), 0.0)
    assert effective_number(whole, totals) == pytest.approx(n, rel=0.02)
    even = np.full(n, 10.0)  # every input breaks alike
    assert n < effective_number(even, totals) <= n * DECISIONS
    assert effective_number(np.zeros(n), totals) == pytest.approx(n, rel=0.02)
    assert rate_of(np.zeros(40, bool), np.ones(40, bool), np.repeat([0, 1], 20)).interval == (0.0, 1.0)


def outcome(broken: int, inputs: int) -> Outcome:
    rows = np.repeat(np.arange(inputs), DECISIONS)
    labels = np.zeros(len(rows), np.int64)
    right = np.ones(len(rows), bool)
    right[:broken] = False
    return Outcome(Baseline(rows, labels, np.ones(len(rows), bool), np.zeros(len(rows), bool)), right)


def test_a_budget_goes_by_inputs() -> None:
    budget = Budget(0.005, confidence=0.9)
    assert (budget.fewest_positives, fewest_inputs(0.005, 0.1)) == (460, 555)
    assert explain_missing(budget, outcome(0, 555).baseline) is None
    assert p_above(outcome(0, 555), budget) <= 0.1 < p_above(outcome(0, 554), budget)
    missing = explain_missing(budget, outcome(0, 100).baseline)
    assert missing is not None
    assert "takes 555 inputs" in missing
    assert missing.endswith("there are 100; give more data, a larger budget or less confidence")
    one = outcome(20, 400).breakage  # an input that broke as a whole
    assert one.design_effect > 10
    assert cautious_count(one, 1.0) > cautious_count(Rate(20, 8000), 1.0) + 5
