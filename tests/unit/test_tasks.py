"""Every task of ours: its decisions, the way back of gradients, its labels, its words, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arachne.data.read import read_data
from arachne.errors import DataError, InputError, ModelError, UsageError
from arachne.model.values import Array
from arachne.settings import make_task, task_from
from arachne.tasks import Binary, Multilabel, Regression, Segmentation, SingleLabel, Task, Tokens, default_task

RNG = np.random.default_rng(0)


def floats(*shape: int) -> Array:
    return RNG.normal(size=shape)


CASES: dict[str, tuple[Task, Array, Array]] = {
    "single-label": (SingleLabel(), floats(5, 3), RNG.integers(3, size=5)),
    "binary": (Binary(), floats(5, 1), RNG.integers(2, size=5)),
    "binary-flat": (Binary(), floats(5), RNG.integers(2, size=5)),
    "multilabel": (Multilabel(), floats(5, 4), RNG.integers(-1, 2, size=(5, 4))),
    "tokens": (Tokens(), floats(3, 4, 5), np.where(RNG.random((3, 4)) < 0.3, -100, RNG.integers(5, size=(3, 4)))),
    "segmentation": (Segmentation(), floats(2, 3, 4, 4), np.where(floats(2, 4, 4) > 1, 255, 1)),
    "one-channel": (Segmentation(), floats(2, 1, 4, 4), RNG.integers(-1, 2, size=(2, 4, 4))),
    "regression": (Regression(tolerance=0.5), floats(6), np.where(np.arange(6) == 2, np.nan, floats(6))),
    "regressions": (Regression(tolerance=0.5), floats(6, 2), floats(6, 2)),
}


@pytest.mark.parametrize("case", CASES)
def test_gradients_go_back_as_finite_differences_say(case: str) -> None:
    task, outputs, labels = CASES[case]
    seed = RNG.normal(size=task.read(outputs, labels).scores.shape)
    found = task.pull_back(seed, outputs, labels)
    assert found.shape == outputs.shape
    for place in np.ndindex(outputs.shape):
        step = np.zeros_like(outputs)
        step[place] = 1e-5
        up, down = (float((task.read(outputs + sign * step, labels).scores * seed).sum()) for sign in (1, -1))
        np.testing.assert_allclose(found[place], (up - down) / 2e-5, atol=1e-7)


@pytest.mark.parametrize("case", CASES)
def test_decisions_come_input_after_input_and_depend_on_labels_alone(case: str) -> None:
    task, outputs, labels = CASES[case]
    whole = task.read(outputs, labels)
    assert (np.diff(whole.inputs) >= 0).all()
    alone = [task.read(outputs[i : i + 1], labels[i : i + 1]) for i in range(len(outputs))]
    np.testing.assert_array_equal(np.concatenate([one.scores for one in alone]), whole.scores)
    np.testing.assert_array_equal(np.concatenate([one.labels for one in alone]), whole.labels)
    np.testing.assert_array_equal(task.read(outputs[::-1] * 7, labels).inputs, whole.inputs)
    assert whole.labels.max() < task.n_classes(outputs) == whole.scores.shape[1]
    assert len(task.read(outputs[:0], labels[:0])) == 0
    names = task.name_classes(None, task.n_names(outputs))
    first = np.zeros(1) if whole.first is None else whole.first
    assert first.max() + whole.scores.shape[1] <= len(names)


@pytest.mark.parametrize("case", CASES)
def test_own_decisions_are_right_and_one_that_is_no_number_is_not(case: str) -> None:
    task, outputs, _ = CASES[case]
    labels = task.label_as_decided(outputs)
    decisions = task.read(outputs, labels)
    assert task.correct(decisions.scores, decisions.labels).all()
    broken = task.read(np.full_like(outputs, np.nan), labels)
    assert not task.correct(broken.scores, broken.labels).any()


def test_single_label_is_read_as_it_is() -> None:
    outputs = floats(4, 3)
    assert SingleLabel().read(outputs, np.zeros(4, int)).scores is outputs


def test_one_number_and_two_label_values_are_binary_by_themselves() -> None:
    assert default_task(floats(4, 1), np.array([0, 1, 1, 0])) == Binary()
    assert default_task(floats(4), np.array([0, 1, 1, 0])) == Binary()
    assert default_task(floats(4, 2), np.array([0, 1, 1, 0])) == SingleLabel()
    with pytest.raises(ModelError, match="one number for each input, and the labels are not 0 and 1"):
        default_task(floats(4, 1), np.array([0, 1, 2, 0]))
    with pytest.raises(ModelError, match="name the task that reads them"):
        default_task(floats(4, 1, 2), np.array([0, 1, 2, 0]))


def test_thresholds_move_what_counts_as_found() -> None:
    outputs, labels = np.array([[0.0, 1.0, -1.0]], np.float32), np.array([[1, 1, 1]])
    task = Multilabel(thresholds=("0.3", "b=0.9")).resolve(outputs, ("a", "b", "c"))
    scores = task.read(outputs, labels).scores
    np.testing.assert_array_equal(task.decide(scores), [1, 0, 0])
    np.testing.assert_allclose(scores[:, 1], outputs[0] - np.log([3 / 7, 9, 3 / 7]), atol=1e-6)
    assert task.to_json() == {"thresholds": ("0.3", "b=0.9")}
    with pytest.raises(UsageError, match="for 'd', which is no label"):
        Multilabel(thresholds=("d=0.3",)).resolve(outputs, ("a", "b", "c"))
    for wrong in ("2", "0", "a=1", "many"):
        with pytest.raises(UsageError, match="a probability above 0 and below 1"):
            Multilabel(thresholds=(wrong,))


def test_targets_in_the_words_of_a_task() -> None:
    classes = Multilabel().name_classes(("cat", "dog"), 2)
    assert classes == ("no cat", "cat", "no dog", "dog")
    assert Multilabel().find_target("false:dog", classes) == (2, 3)
    assert Multilabel().find_target("missed:cat", classes) == (1, 0)
    assert Multilabel().find_target("false:no dog", classes) is None
    assert Multilabel().target_text(2, 3, classes) == "false:dog"
    assert Multilabel().target_text(1, 0, classes) == "missed:cat"
    assert SingleLabel().find_target("false:b", ("a", "b")) == (0, 1)
    assert SingleLabel().find_target("false:b", ("a", "b", "c")) is None
    assert Regression(tolerance=1.0).find_target("over", ("under", "within", "over")) == (None, 2)
    assert Regression(tolerance=1.0).find_target("within", ("under", "within", "over")) is None


@pytest.mark.parametrize(
    ("task", "outputs", "labels", "sentence"),
    [
        (SingleLabel(), (4, 3), np.zeros((4, 3)), "expected one label for each input"),
        (Binary(), (4, 3), np.zeros(4), "expected one number for each input"),
        (Binary(), (4, 1), np.full(4, 2), "0 or 1, got labels from 2 to 2"),
        (Multilabel(), (4, 3), np.zeros((4, 2)), r"labels of shape \(4, 3\)"),
        (Multilabel(), (4, 3), np.full((4, 3), 2), "row 0 has 2 for label 0"),
        (Multilabel(), (4, 3), np.full((4, 3), -1), "no label of any input is known"),
        (Multilabel(), (4, 3, 2), np.zeros((4, 3)), r"outputs of shape \(inputs, labels\)"),
        (Tokens(), (4, 3, 2), np.zeros((4, 5), int), "a label for each token"),
        (Tokens(), (4, 3, 2), np.full((4, 3), 2), "classes 0 to 1"),
        (Tokens(), (4, 3, 2), np.full((4, 3), -100), "no token of any input has a label that counts"),
        (Segmentation(), (4, 3, 5, 5), np.zeros((4, 6, 5), int), "a label for each pixel"),
        (Segmentation(), (4, 3, 5), np.zeros((4, 5), int), r"\(inputs, classes, height, width\)"),
        (Regression(tolerance=1.0), (4, 2), np.zeros(4), "expected 2 numbers for each of 4 inputs"),
        (Regression(tolerance=1.0), (4, 2, 2), np.zeros(4), r"\(inputs,\) or \(inputs, numbers\)"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(
    task: Task, outputs: tuple[int, ...], labels: Array, sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        task.check(floats(*outputs), labels)


def test_labels_are_read_as_the_task_has_them(tmp_path: Path) -> None:
    x, y = floats(3, 2), np.array([[1, np.nan], [0, 1], [1, 0]])
    np.savez(tmp_path / "d.npz", x=x, y=y, class_names=["a", "b"])
    found = read_data(tmp_path / "d.npz", task=Multilabel())
    np.testing.assert_array_equal(found.labels, [[1, -1], [0, 1], [1, 0]])
    assert found.class_names == ("a", "b")
    with pytest.raises(DataError, match=r"one label per input, got labels of shape \(3, 2\)") as raised:
        read_data(tmp_path / "d.npz")
    assert raised.value.argument == "task"
    (tmp_path / "d.csv").write_text("u,v,label_a,y_b\n1,2,1,\n3,4,0,1\n")
    table = read_data(tmp_path / "d.csv", task=Multilabel())
    np.testing.assert_array_equal(table.labels, [[1, -1], [0, 1]])
    assert table.class_names == ("a", "b")
    assert np.asarray(table.inputs).shape == (2, 2)
    assert read_data((x, np.array([0.5, 1, 2])), task=Regression(tolerance=1.0)).labels.dtype == np.float64


def test_tokens_are_read_by_name_and_behind_a_mask() -> None:
    inputs = {"input_ids": np.ones((2, 3), np.int64), "attention_mask": np.array([[1, 1, 0], [1, 1, 1]])}
    labels = [["O", "B-LOC", "O"], ["B-LOC", "O", "O"]]
    found = read_data((inputs, labels), classes=["O", "B-LOC"], task=Tokens())
    np.testing.assert_array_equal(found.labels, [[0, 1, -100], [1, 0, 0]])
    with pytest.raises(DataError, match="the label 'B-LOK' is neither a number nor a name"):
        read_data((inputs, [["O", "B-LOK", "O"]] * 2), classes=["O", "B-LOC"], task=Tokens())


@pytest.mark.parametrize("task", [make_task("tokens"), Multilabel(thresholds=("0.4",)), Regression(tolerance=2.0)])
def test_a_task_is_made_again_from_provenance(task: Task) -> None:
    stored: dict[str, Any] = {"settings": {"task": {"name": task.name, **task.to_json()}}}
    assert task_from(stored) == task
    assert task_from({}) is None
    with pytest.raises(InputError, match="which comes with strange 1, which is not installed"):
        task_from({"settings": {"task": {"name": "strange", "package": "strange 1"}}})
