"""Every task of ours: its decisions, the way back of gradients, its labels, its words, and what it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from arachne.data.labelled import LabelledData
from arachne.data.read import read_data
from arachne.errors import DataError, InputError, ModelError, UsageError
from arachne.evidence.scan import Scan
from arachne.model.values import Array
from arachne.search.folds import Batch
from arachne.search.margin import margin_loss
from arachne.settings import make_task, task_from
from arachne.tasks import (
    Binary,
    Decisions,
    Detection,
    Multilabel,
    Regression,
    Segmentation,
    SingleLabel,
    Task,
    Tokens,
    default_task,
)
from arachne.tasks.detection.boxes import REST
from arachne.tasks.detection.layout import Layout
from arachne.testing import TaskConformance
from arachne.testing.tasks import Example

RNG = np.random.default_rng(0)


def floats(*shape: int) -> Array:
    return RNG.normal(size=shape)


def detector() -> tuple[Task, Array]:
    """A detector's task, and outputs of two pictures with four anchors and two classes."""
    layout = Layout(anchors_first=True, objectness=False, logits=True)
    return Detection(layout=layout, object_names=("cat", "dog")), floats(2, 4, 6)


CASES: dict[str, tuple[Task, Array, Array]] = {
    "single-label": (SingleLabel(), floats(5, 3), RNG.integers(3, size=5)),
    "binary": (Binary(), floats(5, 1), RNG.integers(2, size=5)),
    "binary-flat": (Binary(), floats(5), RNG.integers(2, size=5)),
    "multilabel": (Multilabel(), floats(5, 4), RNG.integers(-1, 2, size=(5, 4))),
    "tokens": (Tokens(), floats(3, 4, 5), np.where(RNG.random((3, 4)) < 0.3, -100, RNG.integers(5, size=(3, 4)))),
    "segmentation": (Segmentation(), floats(2, 3, 4, 4), np.where(floats(2, 4, 4) > 1, 255, 1)),
    "classes-last": (Segmentation(classes_last=True), floats(2, 4, 4, 3), np.where(floats(2, 4, 4) > 1, 255, 1)),
    "one-channel": (Segmentation(), floats(2, 1, 4, 4), RNG.integers(-1, 2, size=(2, 4, 4))),
    "regression": (Regression(tolerance=0.5), floats(6), np.where(np.arange(6) == 2, np.nan, floats(6))),
    "regressions": (Regression(tolerance=0.5), floats(6, 2), floats(6, 2)),
    "detection": (*detector(), np.array([[[1, 0, 0, 0, 0, 2], [0, 0, 0, 0, 0, REST]], [[0, 0, 0, 0, 0, 3], [0] * 6]])),
}


class TestTasks(TaskConformance):
    """The checks that every task must pass."""

    def examples(self) -> Sequence[Example]:
        return list(CASES.values())


class Wrong(Tokens):
    """Tokens, with a mistake of one kind."""

    mistake = ""

    def read(self, outputs: Array, labels: Array) -> Decisions:
        found = super().read(outputs, labels)
        if self.mistake == "order":
            return Decisions(found.scores[::-1], found.labels[::-1], found.inputs[::-1])
        return Decisions(np.nan_to_num(found.scores), found.labels, found.inputs) if self.mistake == "nan" else found

    def pull_back(self, gradient: Array, outputs: Array, labels: Array) -> Array:
        return super().pull_back(gradient, outputs, labels) * (2 if self.mistake == "gradient" else 1)


@pytest.mark.parametrize("mistake", ["order", "nan", "gradient"])
def test_the_checks_bite(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Wrong, "mistake", mistake)
    checks = TestTasks()
    monkeypatch.setattr(checks, "examples", lambda: [(Wrong(), *CASES["tokens"][1:])])
    bitten = 0
    for name in dir(TaskConformance):
        if name.startswith("test_"):
            try:
                getattr(checks, name)()
            except AssertionError:
                bitten += 1
    assert bitten


@pytest.mark.parametrize(
    ("shape", "names", "last"),
    [
        ((2, 3, 8, 8), None, False),
        ((2, 8, 8, 3), None, True),
        ((2, 8, 4, 4), tuple("abcdefgh"), False),  # more classes than pixels in a row
        ((2, 4, 4, 8), tuple("abcdefgh"), True),
        ((2, 8, 8, 1), ("no", "yes"), True),
        ((2, 5, 5, 5), None, False),
    ],
)
def test_the_axis_of_classes_is_told_by_names_and_by_size(
    shape: tuple[int, ...], names: tuple[str, ...] | None, last: bool
) -> None:
    assert Segmentation().resolve(floats(*shape), names).classes_last == last


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
    assert task_from({"stack": [{"provenance": stored}, {"provenance": stored}]}) == task
    assert task_from({"stack": [{"provenance": stored}, {"provenance": {}}]}) is None
    with pytest.raises(InputError, match="which comes with strange 1, which is not installed"):
        task_from({"settings": {"task": {"name": "strange", "package": "strange 1"}}})


@pytest.mark.parametrize("task", [Regression(tolerance=5.0), SingleLabel()], ids=["regression", "single-label"])
def test_a_search_holds_right_numbers_where_they_are_and_other_decisions_by_the_border(task: Task) -> None:
    before = np.array([[-6.0, 0.0, -4.0]])  # a margin of 4, four times the unit
    batch = Batch(np.arange(1), np.ones(1, np.int64), before, np.ones(1), np.zeros(1, bool))
    inputs = SimpleNamespace(task=task)
    problem: Any = SimpleNamespace(margin_unit=1.0, original_margins=np.array([4.0]), fitness_inputs=inputs)
    nearer_the_border = np.array([[-7.0, 0.0, -3.0]])
    gradient = margin_loss(problem, batch, 0.0)(nearer_the_border, slice(0, 1))
    assert bool(gradient.any()) == isinstance(task, Regression)


def test_regression_lists_its_mistakes_without_pairs_of_classes() -> None:
    labels, predictions = np.ones(4, np.int64), np.array([2, 2, 0, 1])
    data = LabelledData(np.zeros((4, 1), np.float32), np.zeros(4))
    found = Scan(data, predictions, 3, labels=labels, class_names=("under", "within", "over"), task=Regression())
    assert [fault.target for fault in found.faults] == ["over", "under"]
    assert found.wildcards == ()


def test_a_pixel_is_framed_in_its_picture() -> None:
    labels = np.full((2, 4, 8), 255)
    labels[1, 2, 5] = 1
    labels[1, 0, 0] = 0
    found = Segmentation().frame(floats(2, 3, 4, 8), labels, np.array([1, 0]), None)
    assert found is not None
    assert found.tolist() == [[4 / 8, 1 / 4, 7 / 8, 1.0], [0, 0, 2 / 8, 2 / 4]]
