from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from arachne.choose.budget import BREAK_BUDGET, NO_BREAK_LIMIT
from arachne.data.labelled import LabelledData
from arachne.data.part import Part
from arachne.data.targets import Target
from arachne.errors import DataError
from arachne.evidence import Accuracy, Evidence, PartEvidence, confidence, judge, measure_part
from arachne.evidence.confidence import confidences_of
from arachne.model.values import Array
from arachne.text import percent

SIX_TO_ZERO = Target("6:0", label=2, prediction=0)
ZERO_TO_ONE = Target("0:1", label=0, prediction=1)


def scores_of(predictions: list[int], classes: int = 3, margin: float = 2.0) -> Array:
    scores = np.zeros((len(predictions), classes), dtype=np.float32)
    scores[np.arange(len(predictions)), predictions] = margin
    return scores


def part_of(labels: list[int], predictions: list[int] | Array, targets: tuple[Target, ...] = (SIX_TO_ZERO,)) -> Part:
    data = LabelledData(
        np.zeros((len(labels), 1)),
        np.array(labels),
        ("shirt", "boot", "bag"),
        columns={"light": np.array(["day", "night"] * len(labels))[: len(labels)]},
    )
    scores = predictions if isinstance(predictions, np.ndarray) else scores_of(predictions)
    return Part(data, np.arange(len(labels)) + 100, scores, targets)


LABELS = [2, 2, 2, 2, 2, 0, 0, 1, 1, 2]
BEFORE = [0, 0, 0, 0, 1, 0, 0, 1, 0, 2]
AFTER_ = [2, 2, 1, 0, 2, 0, 1, 1, 1, 0]


@pytest.fixture
def part_evidence() -> PartEvidence:
    return measure_part(part_of(LABELS, BEFORE), scores_of(AFTER_, margin=3.0))


def test_counts_are_those_worked_out_by_hand(part_evidence: PartEvidence) -> None:
    assert (part_evidence.inputs, part_evidence.negatives, part_evidence.positives) == (10, 4, 4)
    assert (part_evidence.repaired, part_evidence.broken, part_evidence.others_fixed) == (2, 2, 2)
    assert (part_evidence.repair_rate, part_evidence.break_rate) == (0.5, 0.5)
    assert (part_evidence.accuracy_before, part_evidence.accuracy_after) == (0.4, 0.6)


def test_target_errors_count_the_fault_where_it_is_new_too(part_evidence: PartEvidence) -> None:
    target = part_evidence.target
    assert (target.errors_before, target.errors_after) == (4, 2)
    assert (target.gone, target.new, target.repaired) == (3, 1, 2)
    assert part_evidence.sign_p == pytest.approx(2 * (1 + 4) / 16)
    assert part_evidence.mcnemar_p == pytest.approx(2 * (1 + 6 + 15) / 64)


def test_accuracy_is_told_for_every_class_and_group(part_evidence: PartEvidence) -> None:
    assert [(c.name, c.total, c.right_before, c.right_after) for c in part_evidence.classes] == [
        ("shirt", 2, 2, 1),
        ("boot", 2, 1, 2),
        ("bag", 6, 1, 3),
    ]
    assert [(g.name, g.total, g.right_before, g.right_after) for g in part_evidence.groups["light"]] == [
        ("day", 5, 1, 3),
        ("night", 5, 3, 3),
    ]
    assert part_evidence.classes[0].change == -0.5


def test_a_column_of_many_values_is_no_grouping() -> None:
    part = part_of([0] * 60, [0] * 60)
    part = replace(part, data=replace(part.data, columns={"id": np.arange(60)}))
    assert measure_part(part, part.scores).groups == {}


def test_confusions_count_true_class_by_row_and_prediction_by_column(part_evidence: PartEvidence) -> None:
    np.testing.assert_array_equal(part_evidence.confusion_before, [[2, 0, 0], [1, 1, 0], [4, 1, 1]])
    np.testing.assert_array_equal(part_evidence.confusion_after, [[1, 1, 0], [0, 2, 0], [2, 1, 3]])


def test_inputs_fixed_and_broken_are_listed_with_confidences_of(part_evidence: PartEvidence) -> None:
    fixed, damaged = part_evidence.fixed, part_evidence.damaged
    np.testing.assert_array_equal(fixed.rows, [100, 101, 104, 108])
    np.testing.assert_array_equal(fixed.on_target, [True, True, False, False])
    np.testing.assert_array_equal(damaged.rows, [106, 109])
    np.testing.assert_array_equal(damaged.before, [0, 2])
    np.testing.assert_array_equal(damaged.after, [1, 0])
    assert fixed.confidence_before == pytest.approx(math.exp(2) / (math.exp(2) + 2))
    assert damaged.confidence_after == pytest.approx(math.exp(3) / (math.exp(3) + 2))


def test_changed_inputs_come_with_the_surest_first() -> None:
    before, after = scores_of([0, 0, 0]), scores_of([2, 2, 2])
    after *= np.array([[1.0], [3.0], [2.0]], dtype=np.float32)
    fixed = measure_part(part_of([2, 2, 2], before), after).fixed
    np.testing.assert_array_equal(fixed.rows, [101, 102, 100])
    assert list(fixed.confidence_after) == sorted(fixed.confidence_after, reverse=True)


def test_confidences_are_the_same_from_logits_and_log_probabilities() -> None:
    logits = np.array([[800.0, 799.0, -3.0], [0.0, 1.0, 2.0]])
    log_p = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    classes = np.array([1, 2])
    assert confidences_of(logits, classes) == pytest.approx(confidences_of(log_p, classes))
    assert confidences_of(logits, classes)[0] == pytest.approx(1 / (1 + math.e))


def test_confidences_of_some_rows_at_a_time_are_those_of_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    scores, classes = rng.normal(0, 5, (50, 12)).astype(np.float32), rng.integers(0, 12, 50)
    at_once = confidences_of(scores, classes)
    for size in (1, 100):
        monkeypatch.setattr(confidence, "BLOCK_SCORES", size)
        np.testing.assert_array_equal(confidences_of(scores, classes), at_once)


def test_several_targets_are_told_apart() -> None:
    part = part_of(LABELS, BEFORE, (SIX_TO_ZERO, ZERO_TO_ONE))
    measured = measure_part(part, scores_of(AFTER_))
    assert [(t.target, t.errors_before, t.errors_after) for t in measured.targets] == [("6:0", 4, 2), ("0:1", 0, 1)]
    assert (measured.target.target, measured.target.errors_before, measured.target.errors_after) == ("6:0, 0:1", 4, 3)
    notes = Evidence(measured).notes
    assert any("2 faults were tested at once" in note and "Holm" in note for note in notes)


def test_without_a_target_every_error_is_a_negative() -> None:
    measured = measure_part(part_of(LABELS, BEFORE, ()), scores_of(AFTER_))
    assert (measured.negatives, measured.repaired, measured.others_fixed) == (6, 4, 0)
    assert measured.targets == ()


def test_an_empty_part_has_rates_that_are_no_numbers() -> None:
    measured = measure_part(part_of([], []), np.zeros((0, 3)))
    assert math.isnan(measured.repair_rate)
    assert math.isnan(measured.accuracy_after)
    assert measured.breakage.interval == (0.0, 1.0)


def test_scores_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DataError, match=r"expected scores of shape \(10, 3\), as before the repair, got \(9, 3\)"):
        measure_part(part_of(LABELS, BEFORE), scores_of(AFTER_[:9]))
    after = scores_of(AFTER_)
    after[3] = np.nan
    with pytest.raises(DataError, match="after the repair are not numbers for 1 of 10"):
        measure_part(part_of(LABELS, BEFORE), after)


def outcome(
    *, negatives: int, repaired: int, moved: int = 0, new: int = 0, positives: int = 1000, broken: int = 0
) -> PartEvidence:
    """Held-out numbers as asked for: `new` of the positives are read as the fault, and count as broken."""
    labels = [2] * negatives + [2] * positives
    before = [0] * negatives + [2] * positives
    after = [2] * repaired + [1] * moved + [0] * (negatives - repaired - moved)
    after += [0] * new + [1] * (broken - new) + [2] * (positives - broken)
    return measure_part(part_of(labels, before), scores_of(after))


def test_under_six_negatives_there_are_too_few_to_say() -> None:
    verdict = judge(outcome(negatives=5, repaired=5))
    assert verdict.word == "too few"
    assert "only 5 held-out inputs show the fault" in verdict.sentence
    assert "at least 6 are needed" in verdict.sentence
    assert judge(outcome(negatives=0, repaired=0)).word == "too few"


def test_six_of_six_is_removed() -> None:
    verdict = judge(outcome(negatives=6, repaired=6))
    assert (verdict.word, verdict.heading) == ("removed", "removed (100 %)")
    assert "6 of 6 held-out inputs that showed the fault are right now and no other input shows it" in verdict.sentence
    assert "50.0 % to 100 % of it is gone with 95 % confidence (p = 0.031)" in verdict.sentence


@pytest.mark.parametrize(
    ("negatives", "repaired", "new", "heading"),
    [
        (250, 6, 0, "reduced by a little (2.40 %)"),
        (56, 19, 0, "reduced by a third (33.9 %)"),
        (56, 24, 5, "reduced by a third (33.9 %)"),  # what shows the fault only now is taken off
        (100, 50, 0, "reduced by half (50.0 %)"),
        (100, 89, 0, "reduced by nine tenths (89.0 %)"),
        (100, 90, 0, "removed (90.0 %)"),
        (100, 95, 6, "reduced by nine tenths (89.0 %), budget overrun by chance"),
    ],
)
def test_a_heading_says_how_much_is_gone(negatives: int, repaired: int, new: int, heading: str) -> None:
    found = outcome(negatives=negatives, repaired=repaired, new=new, broken=new)
    assert judge(found).heading == heading


def test_the_price_stands_beside_every_verdict() -> None:
    verdict = judge(outcome(negatives=100, repaired=18, broken=24, positives=10_000))
    assert verdict.word == "reduced"
    assert verdict.balance == (
        "fixed 18, broken 24; accuracy 99.01 % → 98.95 % (lower); budget of 0.50 % broken: kept, 0.24 % held out"
    )
    for repaired in (0, 3):
        assert judge(outcome(negatives=10, repaired=repaired)).balance.startswith(f"fixed {repaired}, broken 0; ")


def test_limits_on_classes_are_told_one_by_one() -> None:
    held_out = outcome(negatives=20, repaired=20, broken=9)
    evidence = Evidence(held_out, class_limits={"bag": 0.001, "boot": 0.01})
    assert [(one.name, one.state) for one in evidence.limits] == [
        (None, "overrun by chance"),
        ("bag", "kept"),  # it gained more than it lost
        ("boot", "kept"),
    ]
    assert evidence.limits[2].sentence == "boot at most 1.00 % less accurate: not looked at, there are no such inputs"
    lost = replace(held_out, classes=(*held_out.classes[:2], Accuracy("bag", 1020, 1000, 950)))
    assert Evidence(lost, class_limits={"bag": 0.001}).verdict.limit_state == "overrun"


def test_a_limit_on_accuracy_is_told_beside_the_budget_or_alone() -> None:
    held_out = outcome(negatives=20, repaired=20, broken=9)
    both = Evidence(held_out, max_drop=0.005)
    assert [(one.kind, one.state) for one in both.limits] == [
        ("breaks", "overrun by chance"),
        ("drop", "overrun by chance"),
    ]
    alone = Evidence(replace(held_out, inputs=1100, others_fixed=8), budget=NO_BREAK_LIMIT, max_drop=0.005)
    (only,) = alone.limits
    assert only.sentence == "accuracy on other inputs at most 0.50 % lower: kept, 0.09 % held out"
    assert "budget" not in alone.verdict.balance
    lost = Evidence(replace(held_out, broken=90), budget=NO_BREAK_LIMIT, max_drop=0.005)
    assert lost.verdict.limit_state == "overrun"


def test_what_was_not_looked_at_is_said() -> None:
    notes = Evidence(outcome(negatives=20, repaired=20, positives=175)).notes
    assert "2 of 3 classes have no inputs in this held-out data and are not measured: shirt, boot." in notes
    assert "A budget of 0.50 % of 175 right held-out inputs is none: a single broken one is 0.57 %." in notes
    both = Evidence(outcome(negatives=20, repaired=20), seen=outcome(negatives=20, repaired=20)).notes
    assert "2 of 3 classes have no inputs in the data and are not guarded: shirt, boot." in both
    few = Evidence(outcome(negatives=8, repaired=8, positives=10)).notes
    assert any("2 of 2 groups of column 'light' have fewer than 20 held-out inputs" in note for note in few)


def test_calibration_that_got_worse_is_said() -> None:
    labels, before = [2] * 100, [0] * 20 + [2] * 80
    surer = scores_of([2] * 100, margin=0.1)
    told = Evidence(measure_part(part_of(labels, before), surer)).notes
    assert any(note.startswith("Calibration got worse, error ") for note in told)
    same = Evidence(measure_part(part_of(labels, before), scores_of(before))).notes
    assert not any(note.startswith("Calibration") for note in same)


def test_one_of_several_targets_left_behind_is_not_removed() -> None:
    labels, before = [2] * 100 + [0] * 8 + [2] * 200, [0] * 100 + [1] * 8 + [2] * 200
    after = [2] * 100 + [0, 0] + [1] * 6 + [2] * 200
    part = part_of(labels, before, (SIX_TO_ZERO, ZERO_TO_ONE))
    verdict = judge(measure_part(part, scores_of(after)))
    assert verdict.heading == "reduced by nine tenths (94.4 %)"
    assert verdict.sentence.endswith("of 0:1 alone 2 of 8 are right now")


@pytest.mark.parametrize(
    ("few", "heading", "end"),
    [
        ([1], "reduced to almost none (99.0 %)", "of 0:1 alone 0 of 1 are right now"),
        ([0], "removed (100 %)", "with 95 % confidence (p < 0.001)"),
        ([], "removed (100 %)", "no held-out input showed 0:1, of which nothing is known"),
    ],
)
def test_a_target_with_hardly_an_input_counts_too(few: list[int], heading: str, end: str) -> None:
    labels, before = [2] * 100 + [0] * len(few) + [2] * 200, [0] * 100 + [1] * len(few) + [2] * 200
    part = part_of(labels, before, (SIX_TO_ZERO, ZERO_TO_ONE))
    verdict = judge(measure_part(part, scores_of([2] * 100 + few + [2] * 200)))
    assert verdict.heading == heading
    assert verdict.sentence.endswith(end)


@pytest.mark.parametrize(
    ("negatives", "repaired", "words"),
    [
        (0, 0, "no held-out input shows the fault; at least 6"),
        (1, 0, "only 1 held-out input shows the fault and it is not right now; at least 6"),
        (1, 1, "only 1 held-out input shows the fault and it is right now; at least 6"),
        (3, 0, "only 3 held-out inputs show the fault and none of them is right now; at least 6"),
        (3, 1, "only 3 held-out inputs show the fault and 1 of them is right now; at least 6"),
        (5, 3, "only 5 held-out inputs show the fault and 3 of them are right now; at least 6"),
        (9, 1, "1 of 9 held-out inputs that showed the fault is right now and no other input shows it, which"),
    ],
)
def test_the_sentence_agrees_with_its_numbers(negatives: int, repaired: int, words: str) -> None:
    assert words in judge(outcome(negatives=negatives, repaired=repaired)).sentence


def test_five_of_six_is_not_told_from_chance() -> None:
    verdict = judge(outcome(negatives=6, repaired=5))
    assert verdict.word == "not shown"
    assert "which chance alone could do (p = 0.062)" in verdict.sentence


def test_a_budget_is_overrun_when_the_lower_bound_of_the_break_rate_is_above_it() -> None:
    # Wilson's lower bounds: 9 of 1,000 gives 0.47 %, 10 of 1,000 gives 0.54 %.
    assert judge(outcome(negatives=20, repaired=12, broken=5)).limit_state == "kept"
    assert judge(outcome(negatives=20, repaired=12, broken=9)).limit_state == "overrun by chance"
    damaged = judge(outcome(negatives=20, repaired=20, broken=10))
    assert (damaged.word, damaged.heading) == ("reduced", "reduced to none (100 %), budget overrun")
    assert "overrun, 1.00 % held out, at least 0.54 % with 95 % confidence" in damaged.balance
    assert judge(outcome(negatives=20, repaired=20, broken=10), budget=0.02).word == "removed"


def test_a_model_that_got_worse_is_called_so_before_anything_else() -> None:
    verdict = judge(outcome(negatives=40, repaired=30, broken=80))
    assert verdict.word == "worse overall"
    assert verdict.sentence.startswith("accuracy fell from 96.2 % to 91.3 % (p < 0.001): 80 of 1,000 inputs")
    assert "30 of 40 held-out inputs that showed the fault are right now" in verdict.sentence
    assert judge(outcome(negatives=3, repaired=0, broken=10)).word == "worse overall"
    assert judge(outcome(negatives=20, repaired=12, broken=13)).limit_state == "overrun"  # worse could be chance


def test_a_fault_that_only_moves_to_other_inputs_is_not_repaired() -> None:
    verdict = judge(outcome(negatives=20, repaired=12, new=12, broken=12))
    assert verdict.word == "not shown"
    assert "12 others show it only now" in verdict.sentence


def test_a_fault_that_turns_into_another_fault_is_not_repaired() -> None:
    verdict = judge(outcome(negatives=20, repaired=0, moved=15))
    assert verdict.word == "not shown"
    assert "none of the 20" in verdict.sentence
    note = Evidence(outcome(negatives=20, repaired=10, moved=5)).notes[0]
    assert note.startswith("5 of the 20 held-out negatives no longer show the fault but are wrong in another way")


def test_doing_nothing_is_not_a_repair() -> None:
    verdict = judge(outcome(negatives=8, repaired=0))
    assert verdict.word == "not shown"
    assert verdict.sentence == "all 8 held-out inputs that showed the fault still show it"


def test_the_verdict_comes_from_held_out_inputs_alone() -> None:
    seen, held_out = outcome(negatives=20, repaired=20), outcome(negatives=20, repaired=0)
    evidence = Evidence(held_out=held_out, seen=seen)
    assert evidence.budget == BREAK_BUDGET == 0.005
    assert evidence.verdict.word == "not shown"


def test_printed_evidence_is_the_verdict_and_the_notes(part_evidence: PartEvidence) -> None:
    evidence = Evidence(part_evidence, patches_compared=3)
    assert str(evidence).splitlines() == [str(evidence.verdict), *evidence.notes]
    assert evidence.notes


def test_comparing_several_patches_is_said() -> None:
    evidence = Evidence(held_out=outcome(negatives=20, repaired=20), patches_compared=7)
    assert any("the best of 7 patches" in note for note in evidence.notes)


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.7407, "74.1 %"), (0.0349, "3.49 %"), (0.0, "0 %"), (1.0, "100 %"), (0.0007, "0.07 %"), (math.nan, "-")],
)
def test_shares_read_as_people_write_them(share: float, text: str) -> None:
    assert percent(share) == text
