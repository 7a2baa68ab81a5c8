"""`--max-drop`: a limit on the accuracy of all inputs but the negatives, for the choice and for a guarantee."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from arachne.choose.budget import NO_BREAK_LIMIT, Budget
from arachne.choose.select import explain_missing, p_above, select_point
from arachne.errors import UsageError
from arachne.scoring.by_input import fewest_for_drop, p_drop_above
from arachne.scoring.outcome import Baseline, Outcome
from arachne.scoring.statistics import Drop
from arachne.search import Candidate
from arachne.search.measured import MeasuredCandidate
from arachne.search.train_on import TuneAnchored
from arachne.weights.selection import Selection


def outcome(
    repaired: int, broken: int, fixed: int, right: int = 1000, negatives: int = 50, others: int = 100
) -> Outcome:
    """Return an outcome on inputs that are right, negatives and other errors, in this order."""
    n = right + negatives + others
    was_right, place = np.arange(n) < right, np.arange(n)
    negative = (place >= right) & (place < right + negatives)
    now = was_right.copy()
    now[:broken] = False
    now[right : right + repaired] = True
    now[right + negatives : right + negatives + fixed] = True
    return Outcome(Baseline(place, place % 3, was_right, negative), now)


def choose(*outcomes: Outcome, budget: Budget) -> int | None:
    nothing = Candidate(Selection((), np.zeros(0)), np.zeros(0), made_by="hand")
    points = [MeasuredCandidate(nothing, 1, 1.0, one, choose=one) for one in outcomes]
    return select_point(points, budget, ("a", "b", "c")).index


def test_repaired_negatives_do_not_pay_for_broken_inputs() -> None:
    drop = outcome(50, 40, 33).drop
    assert drop == Drop(40, 33, 1100)
    assert drop.value == pytest.approx(7 / 1100)
    assert outcome(50, 0, 0).drop.value == 0


def test_a_budget_of_accuracy_alone_leaves_breaks_free() -> None:
    budget = Budget(max_drop=0.005)
    assert budget.max_break == NO_BREAK_LIMIT
    assert str(budget) == "accuracy on other inputs at most 0.50 % lower"
    assert Budget.from_json(budget.to_json()) == budget
    assert replace(budget, confidence=0.9).max_drop == 0.005
    both = Budget(0.02, max_drop=0.005)
    assert both.limits_breaks
    assert str(both) == "at most 2.00 % broken; accuracy on other inputs at most 0.50 % lower"
    assert "max_drop" not in Budget().to_json()


@pytest.mark.parametrize("wrong", [1.5, -0.1])
def test_other_shares_are_refused(wrong: float) -> None:
    with pytest.raises(UsageError, match="a share from 0"):
        Budget(max_drop=wrong)
    with pytest.raises(UsageError, match="accuracy does not fall at all"):
        Budget(max_drop=0.0, confidence=0.9)


def test_churn_is_allowed_where_accuracy_stays() -> None:
    careful, churning, costly = outcome(10, 2, 0), outcome(40, 40, 42), outcome(45, 60, 40)
    assert choose(careful, churning, costly, budget=Budget()) == 0
    assert choose(careful, churning, costly, budget=Budget(max_drop=0.01)) == 1  # -2 + 0.7 √82 is 4.3 of 1,100
    assert choose(careful, churning, costly, budget=Budget(0.005, max_drop=0.01)) == 0
    assert choose(outcome(5, 0, 0), costly, budget=Budget(max_drop=0.0)) == 0
    assert choose(costly, budget=Budget(max_drop=0.01)) is None


@pytest.mark.parametrize(("searcher", "wanted"), [("hand", None), (TuneAnchored.name, 0)])
def test_a_patch_of_the_mean_is_expected_to_break_less_than_its_runs(searcher: str, wanted: int | None) -> None:
    counted = outcome(40, 40, 42)  # -2 + 0.7 √82 is above 0, 0.6 · 40 - 42 + 0.7 √82 is not
    candidate = Candidate(Selection((), np.zeros(0)), np.zeros(0), made_by=searcher)
    point = MeasuredCandidate(candidate, 1, 1.0, outcome(40, 20, 42), out_of_fold=counted)
    assert select_point([point], Budget(max_drop=0.0), ("a", "b", "c")).index == wanted


def test_the_reason_names_the_limit() -> None:
    nothing = Candidate(Selection((), np.zeros(0)), np.zeros(0), made_by="hand")
    points = [MeasuredCandidate(nothing, 1, 1.0, outcome(45, 60, 40))]
    choice = select_point(points, Budget(max_drop=0.01), ("a", "b", "c"))
    assert "lowers the accuracy on other inputs by clearly less than 1.00 %" in choice.why
    assert "breaks clearly" not in choice.why


def test_a_guarantee_tests_the_drop() -> None:
    budget = Budget(max_drop=0.01, confidence=0.9)
    assert p_above(outcome(9, 0, 0, right=400), budget) <= 0.1 < p_above(outcome(9, 3, 0, right=400), budget)
    assert p_above(outcome(9, 3, 12, right=400), budget) <= 0.1  # what was fixed pays for it
    fewest = fewest_for_drop(0.01, 0.1)
    assert explain_missing(budget, outcome(0, 0, 0, right=fewest).baseline) is None
    missing = explain_missing(budget, outcome(0, 0, 0, right=fewest - 1).baseline)
    assert missing is not None
    assert "accuracy on other inputs at most 1.00 % lower with 90 % confidence" in missing
    assert choose(outcome(9, 0, 0), outcome(30, 20, 0), budget=budget) == 0


@pytest.mark.parametrize(("breaks", "fixes"), [(0.01, 0.0), (0.05, 0.04), (0.2, 0.19)])
def test_the_test_of_a_drop_keeps_its_level(breaks: float, fixes: float) -> None:
    """A patch that lowers accuracy by exactly the limit passes in one of ten tries at most."""
    rng, n, passed = np.random.default_rng(0), 600, 0
    every = np.ones(n, bool)
    for _ in range(400):
        draw = rng.random(n)
        broken, fixed = draw < breaks, (draw >= breaks) & (draw < breaks + fixes)
        before = ~fixed
        passed += p_drop_above(before, before & ~broken | fixed, every, None, 0.01) <= 0.1
    assert passed / 400 <= 0.1 + 0.03
