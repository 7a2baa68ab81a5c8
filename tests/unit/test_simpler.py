"""When is something simpler as good? On inputs counted by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from arachne.choose.budget import Budget, Choice
from arachne.choose.simplest import as_good, simplest_as_good
from arachne.data.labelled import LabelledData
from arachne.data.part import Part
from arachne.data.targets import Target
from arachne.evidence import Evidence, measure_part
from arachne.scoring.outcome import Baseline, Outcome
from arachne.search import Candidate
from arachne.search.measured import MeasuredCandidate
from arachne.weights.selection import Selection

NEGATIVES, POSITIVES = 40, 400
BASELINE = Baseline(
    rows=np.arange(NEGATIVES + POSITIVES),
    labels=np.zeros(NEGATIVES + POSITIVES, int),
    right=np.arange(NEGATIVES + POSITIVES) >= NEGATIVES,
    negative=np.arange(NEGATIVES + POSITIVES) < NEGATIVES,
)


def make_outcome(repaired: int, broken: int, *, others: bool = False) -> Outcome:
    """So many repaired and broken, the first ones, or with `others` the last ones."""
    right = BASELINE.right.copy()
    right[NEGATIVES - repaired : NEGATIVES] = others
    right[:repaired] |= not others
    if broken:
        right[slice(-broken, None) if others else slice(NEGATIVES, NEGATIVES + broken)] = False
    return Outcome(BASELINE, right)


def point(maker: str, repaired: int, broken: int) -> MeasuredCandidate:
    seen = make_outcome(repaired, broken)
    return MeasuredCandidate(
        Candidate(Selection((), np.zeros(0)), np.zeros(0), made_by=maker), 1, 1.0, seen, held_out=seen
    )


@pytest.mark.parametrize(
    ("simple", "other", "good"),
    [
        ((30, 1), (30, 1), True),
        ((29, 2), (30, 1), True),  # one input each: chance could do that
        ((26, 1), (30, 1), False),  # less than nine tenths
        ((28, 8), (28, 0), False),  # eight broken that the other keeps: p = 0.008
        ((0, 0), (0, 0), False),  # repairs nothing
        ((40, 0), (30, 1), True),
    ],
)
def test_as_good_means_nearly_as_many_repaired_and_no_more_broken(
    simple: tuple[int, int], other: tuple[int, int], good: bool
) -> None:
    assert as_good(make_outcome(*simple), make_outcome(*other)) is good


def test_only_inputs_on_which_the_two_differ_count() -> None:
    """Both break 8, but not the same ones: that speaks for neither."""
    assert as_good(make_outcome(30, 8), make_outcome(30, 8, others=True)) is True


def test_a_sentence_names_the_simplest_that_would_have_done() -> None:
    points = [point("margin", 30, 1), point("last-layer", 30, 1), point("bias", 29, 1)]
    choice = Choice(0, Budget(0.01), "by hand", "it was asked for", (0, 1, 2))
    told = simplest_as_good(points, choice, ["zero"])
    assert told == (
        "Of the patches found here, a shift of the class biases ('bias') does as well: held out, 29 of 40 repaired "
        "and 1 of 400 broken, where 'margin' has 30 of 40 repaired and 1 of 400 broken. A run of 'bias' alone, as "
        "`arachne compare` makes one, draws its folds anew and may come to other numbers."
    )


def test_a_simpler_one_that_does_more_is_not_called_equal() -> None:
    choice = Choice(0, Budget(0.01), "by hand", "it was asked for", (0, 1))
    told = simplest_as_good([point("margin", 30, 1), point("bias", 32, 1)], choice, ["zero"])
    assert told is not None
    assert "('bias') does at least as well: held out, 32 of 40 repaired" in told


def test_a_simpler_one_that_does_less_and_breaks_more_is_not_called_equal() -> None:
    choice = Choice(0, Budget(0.01), "by hand", "it was asked for", (0, 1))
    told = simplest_as_good([point("margin", 30, 1), point("bias", 29, 2)], choice, ["zero"])
    assert told is not None
    assert "('bias') does nearly as well, within chance: held out, 29 of 40 repaired" in told


def test_nothing_is_said_when_the_simple_ones_do_worse_or_made_the_patch() -> None:
    choice = Choice(0, Budget(0.01), "by hand", "it was asked for", (0, 1))
    assert simplest_as_good([point("margin", 30, 1), point("bias", 12, 1)], choice, ["zero"]) is None
    assert simplest_as_good([point("margin", 30, 1), point("bias", 30, 90)], choice, ["zero"]) is None
    assert simplest_as_good([point("bias", 30, 1), point("last-layer", 30, 1)], choice, ["zero"]) is None
    nothing = Choice(None, Budget(0.01), "by hand", "none was taken")
    assert simplest_as_good([point("margin", 30, 1), point("bias", 30, 1)], nothing, ["zero"]) is None


def test_a_last_fit_that_lost_what_it_was_chosen_for_is_told() -> None:
    part = Part(
        LabelledData(np.zeros((9, 1)), np.zeros(9, int)),
        np.arange(9),
        np.eye(2)[[1] * 9],
        (Target("0:1", label=0, prediction=1),),
    )
    counted = measure_part(part, np.eye(2)[[0] * 3 + [1] * 6])
    evidence = Evidence(counted, seen=counted, patches_compared=4)
    assert "so its numbers there flatter it" in evidence.notes[-1]
    assert "so its numbers there flatter it" in replace(evidence, repaired_in_trials=3).notes[-1]
    told = replace(evidence, repaired_in_trials=7).notes[-1]
    assert "best of 4 patches by trial fits, which repaired 7 of the 9 seen negatives" in told
    assert "the fit to all of them repairs 3." in told


def test_evidence_carries_the_sentence_among_its_notes() -> None:
    part = Part(LabelledData(np.zeros((2, 1), np.float32), np.array([0, 1])), np.arange(2), np.eye(2), (Target("0:1"),))
    evidence = Evidence(measure_part(part, np.eye(2)), simpler="A shift of the class biases would have done.")
    assert "A shift of the class biases would have done." in evidence.notes
    assert not any("class biases" in note for note in replace(evidence, simpler=None).notes)
