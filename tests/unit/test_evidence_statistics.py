from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from arachne.scoring.statistics import (
    Rate,
    fewest_for_level,
    holm,
    interval,
    mcnemar,
    rule_of_three,
    sign_test,
    wilson,
)


def test_wilson_gives_the_textbook_interval() -> None:
    # Newcombe (1998), table I: 15 of 148 and 1 of 29.
    assert wilson(15, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert wilson(1, 29) == pytest.approx((0.0061, 0.1718), abs=5e-5)
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_agrees_with_scipy(case: tuple[int, int]) -> None:
    count, total = case
    other = stats.binomtest(count, total).proportion_ci(method="wilson")
    assert wilson(count, total) == pytest.approx((other.low, other.high), abs=1e-12)


def test_rule_of_three_bounds_what_was_never_seen() -> None:
    assert rule_of_three(300) == 0.01
    assert rule_of_three(2) == rule_of_three(0) == 1.0
    assert interval(0, 300) == (0.0, 0.01)
    assert interval(300, 300) == (0.99, 1.0)
    assert interval(0, 0) == (0.0, 1.0)
    assert interval(15, 148) == wilson(15, 148)


def test_sign_test_on_hand_worked_numbers() -> None:
    assert sign_test(6, 0) == pytest.approx(2 / 64)
    assert sign_test(5, 0) == pytest.approx(2 / 32)
    assert sign_test(8, 2) == pytest.approx(2 * (1 + 10 + 45) / 1024)  # 0.109375
    assert sign_test(3, 3) == 1.0
    assert sign_test(0, 0) == 1.0
    assert sign_test(2, 8) == sign_test(8, 2)


@given(st.integers(0, 400), st.integers(0, 400))
def test_sign_test_agrees_with_whole_numbers_and_with_scipy(better: int, worse: int) -> None:
    total = better + worse
    tail = sum(math.comb(total, k) for k in range(min(better, worse) + 1))
    exact = min(1.0, float(Fraction(2 * tail, 2**total)))
    assert sign_test(better, worse) == pytest.approx(exact, rel=1e-9)
    if total:
        assert sign_test(better, worse) == pytest.approx(stats.binomtest(better, total).pvalue, rel=1e-9)


def test_mcnemar_gives_the_textbook_p_value() -> None:
    # 6 and 16 discordant pairs: 2 P(X <= 6 | 22, 1/2) = 0.0525.
    assert mcnemar(6, 16) == pytest.approx(0.0525, abs=5e-5)
    assert mcnemar(100_000, 99_000) == pytest.approx(0.0251, abs=5e-4)


def test_six_inputs_are_the_fewest_that_can_show_anything() -> None:
    assert fewest_for_level() == 6
    assert fewest_for_level(0.01) == 8


def test_holm_corrects_by_rank_and_never_falls() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert holm([0.6, 0.7]) == (1.0, 1.0)
    assert holm([]) == ()


def test_rate_of_no_inputs_is_no_number() -> None:
    assert math.isnan(Rate(0, 0).value)
    assert Rate(0, 0).interval == (0.0, 1.0)
    assert Rate(3, 4).value == 0.75
