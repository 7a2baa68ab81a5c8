"""Fresh inputs seldom contradict a verdict: on the study's runs, and where the truth is known."""

from __future__ import annotations

import pytest

from arachne.evidence.grade import NOT_SHOWN, OVERRUN, REDUCED, REMOVED, WORSE
from examples.study.faults import DECIDE, JUDGE
from examples.study.runs import RESULTS
from examples.study.verdicts import DRAWS, judge_halves, simulate


@pytest.mark.parametrize("part", [DECIDE, JUDGE])
def test_fresh_inputs_seldom_contradict_a_heading(part: str) -> None:
    halves = judge_halves(RESULTS, part)
    for word in (REMOVED, REDUCED, WORSE):
        same = [one for one in halves if one.word == word]
        assert len(same) >= 50
        assert sum(one.wrong for one in same) <= 0.05 * len(same)


def test_known_truths_seldom_get_the_wrong_word() -> None:
    found = simulate(seed=1)
    most = 0.05 * DRAWS
    assert found["nothing changes"][REMOVED] + found["nothing changes"][REDUCED] <= most
    for truth in ("a tenth gone", "a third gone", "just under half gone"):
        assert found[truth][REMOVED] == 0
    for truth in ("a third gone", "nine tenths gone"):
        assert found[truth][NOT_SHOWN] + found[truth][WORSE] <= most
    assert found["nine tenths gone, 0.5 % broken"][OVERRUN] <= most
    assert found["nine tenths gone, 1 % broken"][REMOVED] <= most
