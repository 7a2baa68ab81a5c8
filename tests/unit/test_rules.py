"""Rules in place of labels, and unlabelled inputs on which the model must go on deciding as it does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import arachne
from arachne.data.keeping import attach_kept, join_kept, label_kept
from arachne.data.labelled import LabelledData
from arachne.data.read import read_data
from arachne.data.run import whole_part
from arachne.data.split import split_by_outcome
from arachne.data.unlabelled import UNKNOWN, read_unlabelled
from arachne.errors import DataError, ModelError, NothingToRepairError, UsageError
from arachne.settings import task_from
from arachne.tasks import SINGLE_LABEL, RuleTask, Tokens, rule_in
from arachne.tasks.rule import UNDER_RULE, read_rule
from arachne.testing import ReferenceBackend
from arachne.text import percent
from tests.unit.test_several_decisions import IGNORED, TOKENS, tagger, tokens

NAMES = ("cat", "dog", "bird", "2")


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("not dog", (0, 2, 3)),
        ("not cat,dog", (2, 3)),
        ("any of cat, dog", (0, 1)),
        ("any of 1", (1,)),
        ("not 2", (0, 1, 2)),  # a class that is called so
    ],
)
def test_a_rule_names_classes(text: str, allowed: tuple[int, ...]) -> None:
    assert read_rule(text, NAMES) == allowed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cat", "expected a rule such as 'rule:not 2,3,4' or 'rule:any of cat,dog', got 'rule:cat'"),
        ("not cow", "names the class 'cow', which the model does not have"),
        ("not 7", "names the class '7'"),
        ("any of cat,dog,bird,2", "allows 4 of 4 classes"),
        ("not cat,dog,bird,2", "allows 0 of 4 classes"),
        ("not ,", "allows 4 of 4 classes"),
    ],
)
def test_what_is_no_rule_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_rule(text, NAMES)


def test_a_target_that_is_a_rule_stands_alone() -> None:
    assert rule_in("6:0") is None
    assert rule_in(["6:0", "top:1"]) is None
    assert rule_in(["rule:not 2, 3"]) == RuleTask(rule="not 2, 3")
    with pytest.raises(UsageError, match="a rule stands alone, got 2 targets"):
        rule_in(["rule:not 2", "6:0"])
    assert task_from({"settings": {"task": {"name": "rule", "rule": "not 2"}}}) == RuleTask(rule="not 2")


def test_decisions_are_between_the_best_forbidden_and_the_best_allowed_class() -> None:
    outputs = np.array([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0], [0.0, 5.0, 4.0]])
    labels = np.array([UNDER_RULE, UNDER_RULE, 2])
    rule = RuleTask(rule="not 0").resolve(outputs, None)
    found = rule.read(outputs, labels)
    np.testing.assert_array_equal(found.scores, [[3, 2], [0, 5], [5, 4]])
    np.testing.assert_array_equal(rule.correct(found.scores, found.labels), [False, True, False])
    np.testing.assert_array_equal(rule.margins(found.scores, found.labels), [-1, 5, -1])
    np.testing.assert_array_equal(rule.label_as_decided(outputs), [0, 1, 1])
    with pytest.raises(DataError, match="a rule is for inputs without labels"):
        rule.check(outputs, np.array([0, 1, 3]))
    with pytest.raises(ModelError, match="a rule is about class scores"):
        rule.n_classes(outputs[:, :1])


def test_gradients_go_back_to_both_classes() -> None:
    rng = np.random.default_rng(0)
    outputs, labels = rng.normal(size=(6, 4)), np.array([UNDER_RULE, UNDER_RULE, 0, 3, UNDER_RULE, 1])
    rule = RuleTask(rule="any of 1,2").resolve(outputs, None)
    seed = rng.normal(size=(6, 2))
    found = rule.pull_back(seed, outputs, labels)
    for place in np.ndindex(outputs.shape):
        step = np.zeros_like(outputs)
        step[place] = 1e-5
        up, down = (float((rule.read(outputs + sign * step, labels).scores * seed).sum()) for sign in (1, -1))
        np.testing.assert_allclose(found[place], (up - down) / 2e-5, atol=1e-7)


@pytest.fixture(scope="module")
def states(model: ReferenceBackend, digits: LabelledData) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of an eight, most of which the model reads as a one; and all other pictures."""
    eight = digits.labels == 8
    inputs = np.asarray(digits.inputs)
    return inputs[eight], inputs[~eight]


def test_a_repair_by_a_rule_needs_no_label(
    model: ReferenceBackend, states: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    faulty, others = states
    before = model.forward(others).argmax(axis=1)
    result = arachne.repair(model, faulty, "rule:not 1", keep_as_is=others, searcher="front", max_break=0.03)
    held_out = result.evidence.held_out
    assert held_out.kept is not None
    kept = np.asarray(result.split.held_out.data.kept)
    assert held_out.kept.total == kept.sum() == pytest.approx(len(others) / 2, abs=3)
    after = result.model.forward(result.split.held_out.data.inputs).argmax(axis=1)
    was = model.forward(result.split.held_out.data.inputs).argmax(axis=1)
    assert held_out.negatives == int((was[~kept] == 1).sum()) > 20
    assert held_out.repaired == int(((was[~kept] == 1) & (after[~kept] != 1)).sum())
    assert held_out.kept.count == int((was[kept] != after[kept]).sum())
    assert held_out.repair_rate > 0.7
    assert held_out.break_rate < 0.06
    assert (before == model.forward(others).argmax(axis=1)).all()
    sentence = str(result.evidence.verdict)
    assert "inputs that broke the rule keep it now" in sentence
    assert f"{held_out.kept.count} of {held_out.kept.total} kept decisions changed" in sentence.replace(",", "")
    assert "rule kept" in str(result)
    assert "accuracy" not in str(result)
    document = result.to_json()
    assert document["held_out"]["kept"]["changed"] == held_out.kept.count
    assert document["provenance"]["keep_as_is"]["inputs"] == len(others)
    result.save(tmp_path / "fix", reopen=ReferenceBackend.load)
    page = (tmp_path / "fix" / "report.html").read_text("utf-8").replace("&nbsp;", " ").replace("\u00a0", " ")
    assert "inputs that broke the rule keep it now" in page
    assert 'id="confusion"' not in page
    low, high = held_out.accuracy.after.interval  # of the inputs under the rule, not of those that are kept
    assert f"95 %: {percent(low)} to {percent(high)}; 0 other errors fixed" in page
    again = arachne.open_repair(tmp_path / "fix", model, faulty, keep_as_is=others)
    assert again.evidence.held_out.kept == held_out.kept
    measured = arachne.measure(model, faulty, patch=result.patch, keep_as_is=others)
    assert measured.held_out.kept is not None
    assert measured.held_out.target.target == "rule:not 1"


def test_unlabelled_inputs_count_as_right_ones_beside_labelled_ones(
    model: ReferenceBackend, digits: LabelledData
) -> None:
    labelled, traffic = digits.take(range(900)), np.asarray(digits.inputs)[900:]
    result = arachne.repair(model, labelled, "8:1", keep_as_is=traffic, searcher="last", max_break=0.03)
    held_out, part = result.evidence.held_out, result.split.held_out
    kept = np.asarray(part.data.kept)
    assert held_out.kept is not None
    assert held_out.positives == len(part.labelled_part.positives) + kept.sum()
    assert held_out.inputs == len(part)
    assert held_out.accuracy.total == (~kept).sum()
    assert held_out.accuracy_before == pytest.approx(part.right[~kept].mean())
    assert not np.intersect1d(part.negatives, np.flatnonzero(kept)).size
    assert sum(one.total for one in held_out.classes) == (~kept).sum()
    assert f"{held_out.kept.count} of {held_out.kept.total} kept decisions changed" in str(result.evidence.verdict)
    np.testing.assert_array_equal(part.data.labels[kept], part.predictions[kept])


def test_decisions_of_any_task_are_kept() -> None:
    (inputs, labels), (traffic, _) = tokens(300, seed=3), tokens(200, seed=11)
    data = LabelledData(inputs, np.where(labels == IGNORED, -100, labels))
    result = arachne.repair(tagger(), data, "2:0", task=Tokens(), keep_as_is=traffic, searcher="last", max_break=0.05)
    part, held_out = result.split.held_out, result.evidence.held_out
    kept = np.asarray(part.data.kept)
    assert held_out.kept is not None
    assert held_out.kept.total == kept.sum() * TOKENS
    assert held_out.kept.draws is not None
    before, after = (scores.argmax(axis=2)[kept] for scores in (part.outputs, result.model.forward(part.data.inputs)))
    assert held_out.kept.count == int((before != after).sum())


def test_with_a_holdout_every_second_one_is_held_out(model: ReferenceBackend, digits: LabelledData) -> None:
    data, holdout, keep = digits.take(range(300)), digits.take(range(300, 500)), digits.take(range(500, 601))
    seen, judged = attach_kept(data, holdout, keep)
    assert judged is not None
    assert (len(seen), len(judged)) == (351, 250)
    np.testing.assert_array_equal(np.asarray(seen.inputs)[300:], np.asarray(keep.inputs)[::2])
    np.testing.assert_array_equal(np.asarray(judged.inputs)[200:], np.asarray(keep.inputs)[1::2])
    split = split_by_outcome(model, seen, "8:1", rng=np.random.default_rng(0), holdout=judged)
    assert split.held_out.kept_decisions is not None
    assert split.held_out.kept_decisions.sum() == 50
    assert split.held_out.right[split.held_out.kept_decisions].all()


def test_inputs_that_stand_in_the_data_are_kept_once(digits: LabelledData) -> None:
    data = digits.take(range(50))
    again = read_unlabelled(np.asarray(digits.inputs)[[3, 60, 60, 61]])
    assert len(attach_kept(data, None, again)[0]) == 52
    with pytest.raises(DataError, match="all 4 inputs to keep as they are stand in the data already"):
        attach_kept(digits, None, again)
    with pytest.raises(DataError, match=r"must have the shape \(64,\) of the data's, got \(3,\)"):
        join_kept(data, read_unlabelled(np.zeros((4, 3), np.float32)))
    with pytest.raises(DataError, match="must be one array"):
        join_kept(data, read_unlabelled({"a": np.zeros((4, 3), np.float32)}))


def test_joined_data_keeps_names_and_columns() -> None:
    data = LabelledData(np.zeros((2, 3), np.float32), np.array([0, 1]), names=("a", "b"), columns={"site": ["x", "y"]})  # type: ignore[dict-item]
    joined = join_kept(replace(data, columns={"site": np.array(["x", "y"])}), read_unlabelled(np.ones((2, 3))))
    assert joined.names == ("a", "b", "kept row 0", "kept row 1")
    assert joined.columns["site"].tolist() == ["x", "y", "", ""]
    np.testing.assert_array_equal(joined.labels, [0, 1, UNKNOWN, UNKNOWN])
    outputs = np.array([[1.0, 0], [0, 1], [2, 0], [0, 3]])
    np.testing.assert_array_equal(label_kept(joined, outputs, SINGLE_LABEL).labels, [0, 1, 0, 1])
    np.testing.assert_array_equal(joined.take([3, 0]).kept, [True, False])


def test_labels_of_data_under_a_rule_are_left_out(tmp_path: Path) -> None:
    np.savez(tmp_path / "bare.npz", x=np.zeros((3, 2), np.float32))
    np.savez(tmp_path / "full.npz", x=np.zeros((3, 2), np.float32), y=[0, 1, 0])
    rule = RuleTask(rule="not 0")
    for source in (tmp_path / "bare.npz", tmp_path / "full.npz", (np.zeros((3, 2)), [1, 1, 1])):
        assert (read_data(source, task=rule).labels == UNDER_RULE).all()
    assert read_data(np.zeros((3, 2)), task=rule, classes=["a", "b"]).class_names == ("a", "b")


def test_a_rule_that_is_kept_leaves_nothing_to_repair(
    model: ReferenceBackend, states: tuple[np.ndarray, np.ndarray]
) -> None:
    whole = whole_part(model, read_unlabelled(states[0]), "rule:any of 1,8", task=RuleTask(rule="any of 1,8"))
    keeps = states[0][whole.right]
    with pytest.raises(NothingToRepairError, match=f"all {len(keeps)} inputs keep 'rule:any of 1,8'"):
        arachne.repair(model, keeps, "rule:any of 1,8")
