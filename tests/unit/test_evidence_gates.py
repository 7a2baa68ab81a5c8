from __future__ import annotations

import numpy as np
import pytest

from arachne.data.labelled import LabelledData
from arachne.data.part import Part
from arachne.data.targets import Target
from arachne.errors import UsageError
from arachne.evidence import Evidence, Gate, check_gates, measure_part

NAMES = ("cat", "dog [old]", "stop", "never seen")


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    """40 of each class; 10 cats read as dogs of which 8 are repaired, 2 dogs broken, 1 of 40 stops broken."""
    labels = np.repeat([0, 1, 2], 40)
    before = labels.copy()
    before[:10] = 1
    after = labels.copy()
    after[[0, 1]] = 1
    after[[40, 41]] = 0
    after[80] = 1
    light = np.where(np.arange(120) < 60, "day", "night")
    data = LabelledData(np.zeros((120, 1)), labels, NAMES, columns={"light": light})
    part = Part(data, np.arange(120), np.eye(4)[before] * 5, (Target("cat:dog [old]", label=0, prediction=1),))
    return Evidence(held_out=measure_part(part, np.eye(4)[after] * 5))


@pytest.mark.parametrize(
    ("text", "value", "failed"),
    [
        ("break_rate > 0.5%", 3 / 110, True),
        ("break_rate > 3%", 3 / 110, False),
        ("repair_rate < 30%", 0.8, False),
        ("repair_rate<.9", 0.8, True),
        ("accuracy_drop > 0", -5 / 120, False),
        ("accuracy >= 95%", 115 / 120, True),
        ("class_drop[stop] > 2%", 1 / 40, True),
        ("class_drop[dog [old]] > 5%", 2 / 40, False),
        ("class_drop > 4.9%", 2 / 40, True),
        ("class_accuracy[cat] < 90%", 38 / 40, False),
        ("group_gap > 5%", 3 / 60, False),
        ("group_gap >= 5%", 3 / 60, True),
        ("group_gap[light] > 6%", 3 / 60, False),
        ("group_drop[night] > 1%", 1 / 60, True),
        ("broken > 2", 3, True),
        ("held_out.negatives < 6", 10, False),
        ("sign_p > 0.05", 2 * 1 / 2**8, False),
    ],
)
def test_a_gate_compares_a_number_of_the_evidence(evidence: Evidence, text: str, value: float, failed: bool) -> None:
    (result,) = check_gates([text], evidence)
    assert result.value == pytest.approx(value)
    assert result.failed is failed


def test_a_gate_is_printed_with_its_value(evidence: Evidence) -> None:
    shown = [str(result) for result in check_gates(["break_rate > 0.5%", "broken > 5", "sign_p > 0.05"], evidence)]
    assert shown == [
        "gate failed: break_rate > 0.5% (it is 2.73 %)",
        "gate passed: not broken > 5 (it is 3)",
        "gate passed: not sign_p > 0.05 (it is 0.00781)",
    ]


def test_a_gate_may_look_at_the_verdict(evidence: Evidence) -> None:
    word = evidence.verdict.word
    for text, failed in (
        (f"verdict == {word}", True),
        (f'verdict != "{word}"', False),
        ("verdict==worse overall", False),
    ):
        result = Gate.parse(text).check(evidence)
        assert (result.value, result.failed) == (word, failed)
    assert str(Gate.parse("verdict != nothing within the budget").check(evidence)).endswith(f"(it is {word})")
    for wrong, message in (
        ("verdict == repaired", "from before verdicts were graded; use 'verdict < reduced'"),
        ("verdict is removed", "verdict != removed"),
        ("verdict != good", "names no verdict"),
        ("budget == fine", "names no state of a budget"),
    ):
        with pytest.raises(UsageError, match=message):
            Gate.parse(wrong)


def test_verdicts_and_states_of_the_budget_have_an_order(evidence: Evidence) -> None:
    assert (evidence.verdict.word, evidence.verdict.limit_state) == ("reduced", "overrun")
    gates = ("verdict < reduced", "verdict < removed", "budget == overrun", "budget != kept", "budget < kept")
    assert [result.failed for result in check_gates(gates, evidence)] == [False, True, True, True, True]


def test_bounds_can_be_asked_for(evidence: Evidence) -> None:
    part = evidence.held_out
    found = check_gates(["break_rate_low > 0.5%", "reduction < 30%", "reduction_low < 30%"], evidence)
    expected = [part.breakage.interval[0], part.reduction.value, part.reduction.interval[0]]
    assert [result.value for result in found] == pytest.approx(expected)


def test_a_number_nobody_can_know_fails_the_gate(evidence: Evidence) -> None:
    (result,) = check_gates(["class_drop[never seen] > 50%"], evidence)
    assert result.failed
    assert "unknown: no inputs to count" in str(result)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("break rate > 1", "cannot read the gate 'break rate > 1', expected something like"),
        ("brake_rate > 1%", "names no number of the evidence; did you mean 'break_rate'?"),
        ("break_rate[cat] > 1%", "'break_rate' is one number"),
        ("broken > 1%", "has a %, but 'broken' is a count"),
        ("break_rate > 1e", "compares with '1e', expected a number"),
        ("hold_out.broken > 1", "names no part of the data; did you mean 'held_out'?"),
        ("break_rate = 1", "cannot read the gate"),
    ],
)
def test_a_gate_that_makes_no_sense_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Gate.parse(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("class_drop[stopp] > 1%", "names a class or group that does not exist; did you mean 'stop'?"),
        ("group_gap[lihgt] > 1%", "names no column of the data; did you mean 'light'?"),
        ("seen.broken > 1", "looks at 'seen' inputs, and there are none here"),
    ],
)
def test_a_gate_on_what_is_not_there_is_refused(evidence: Evidence, text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Gate.parse(text).check(evidence)
    assert message in str(caught.value)
