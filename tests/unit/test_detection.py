"""Boxes, layouts, candidates and measures of a detector, on numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from arachne.decisions.decisions import Array
from arachne.errors import DataError, ModelError
from arachne.tasks import Detection
from arachne.tasks.detection.boxes import ANCHOR, ANY_CLASS, CLASS, COLUMNS, REST, corners, overlaps, pad_rows, suppress
from arachne.tasks.detection.candidates import add_candidates
from arachne.tasks.detection.layout import Layout, find_layout
from arachne.tasks.detection.measures import detect

V8 = Layout(anchors_first=False, objectness=False, logits=False, in_pixels=True)
LAYOUTS = [
    V8,
    Layout(anchors_first=False, objectness=False, logits=True),
    Layout(anchors_first=True, objectness=True, logits=False),
    Layout(anchors_first=True, objectness=True, logits=True),
    Layout(anchors_first=True, objectness=False, logits=False),
]


def box_row(kind: int, x: float, y: float, width: float, height: float) -> list[float]:
    return [kind, x, y, width, height, 0]


def outputs_of(anchors: list[tuple[float, ...]]) -> Array:
    """Outputs of one picture as YOLOv8 has them, from x, y, width, height and class probabilities of each anchor."""
    return np.array(anchors, np.float32).T[None]


def test_overlaps_are_shared_area_over_the_area_of_both() -> None:
    boxes = np.array([[0, 0, 2, 2], [1, 1, 3, 3], [5, 5, 6, 6], [4, 4, 4, 4]], float)
    shared = overlaps(boxes, boxes)
    np.testing.assert_allclose(shared[0], [1, 1 / 7, 0, 0])
    assert shared[3, 3] == 0  # a box without a size shares nothing, even with itself


def test_of_boxes_that_overlap_too_much_the_best_stays() -> None:
    boxes = np.array([[0, 0, 10, 10], [0, 0, 10, 9], [0, 0, 10, 5], [20, 20, 30, 30]], float)
    assert suppress(boxes, np.array([0.5, 0.9, 0.8, 0.7]), 0.7).tolist() == [1, 2, 3]


def test_rows_are_padded_with_no_boxes() -> None:
    rows = pad_rows([np.ones((2, COLUMNS)), np.zeros((0, COLUMNS))])
    assert rows.shape == (2, 2, COLUMNS)
    assert not rows[1].any()
    assert pad_rows([]).shape == (0, 1, COLUMNS)


@pytest.mark.parametrize(
    ("shape", "objects", "expected"),
    [
        ((2, 10, 50), 6, (False, False)),
        ((2, 50, 11), 6, (True, True)),
        ((2, 50, 10), 6, (True, False)),
        ((2, 10, 50), None, (False, False)),
        ((2, 50, 11), None, (True, True)),
        ((2, 10, 7), 6, (False, False)),  # fewer anchors than values
    ],
)
def test_a_layout_is_told_by_its_shape(
    shape: tuple[int, ...], objects: int | None, expected: tuple[bool, bool]
) -> None:
    found = find_layout(np.full(shape, 0.5, np.float32), objects)
    assert (found.anchors_first, found.objectness) == expected
    assert (found.logits, found.in_pixels) == (False, False)


def test_logits_and_pixels_are_told_by_values() -> None:
    outputs = np.full((1, 7, 20), 0.5, np.float32)
    outputs[0, 5, 3] = -2.0
    outputs[0, 0, 3] = 90.0
    found = find_layout(outputs, 3)
    assert (found.logits, found.in_pixels) == (True, True)


def test_outputs_that_are_no_detectors_are_refused() -> None:
    with pytest.raises(ModelError, match="before non-maximum suppression"):
        find_layout(np.zeros((3, 10), np.float32), None)
    with pytest.raises(DataError, match=r"4 \+ 3 or 5 \+ 3 values"):
        find_layout(np.zeros((3, 10, 50), np.float32), 3)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_go_back_through_every_layout(layout: Layout) -> None:
    rng = np.random.default_rng(0)
    n, anchors, values = 2, 5, layout.first_class + 3
    shape = (n, anchors, values) if layout.anchors_first else (n, values, anchors)
    outputs = rng.normal(size=shape) if layout.logits else rng.uniform(0.05, 0.9, size=shape)
    inputs, which = np.array([0, 0, 1]), np.array([1, 4, 2])
    weights = rng.normal(size=(3, 3))
    found = layout.pull_back(weights, outputs, inputs, which)
    expected = np.zeros_like(outputs)
    for at in np.ndindex(*outputs.shape):
        up, down = outputs.copy(), outputs.copy()
        up[at] += 1e-6
        down[at] -= 1e-6
        expected[at] = sum(
            sign * (layout.class_logits(moved, inputs, which) * weights).sum() for sign, moved in ((1, up), (-1, down))
        )
    np.testing.assert_allclose(found, expected / 2e-6, rtol=1e-5, atol=1e-6)
    assert not layout.by_anchor(found)[..., :4].any()


def test_logits_of_probabilities_that_are_zero_or_one_are_finite() -> None:
    outputs = outputs_of([(5, 5, 4, 4, 0.0, 1.0)])
    found = V8.class_logits(outputs, np.array([0]), np.array([0]))
    assert np.isfinite(found).all()
    assert found[0, 0] < -50
    assert found[0, 1] > 15
    assert not V8.pull_back(np.ones((1, 2)), outputs, np.array([0]), np.array([0])).any()


def test_the_decisions_of_a_picture() -> None:
    """One object of class 1 at (10, 10); anchors on it, near it and elsewhere."""
    outputs = outputs_of(
        [
            (10, 10, 10, 10, 0.20, 0.0),  # on the object, not its best
            (11, 10, 10, 10, 0.24, 0.1),  # the best for its class, below the threshold: missed
            (10, 11, 10, 10, 0.10, 0.9),  # on the object, an alarm for the other class
            (14, 10, 10, 10, 0.90, 0.0),  # near: neither the object nor background
            (50, 50, 10, 10, 0.80, 0.0),  # elsewhere: a false alarm
            (70, 70, 10, 10, 0.06, 0.0),  # elsewhere, above the floor: watched
            (90, 90, 10, 10, 0.04, 0.0),  # elsewhere, below the floor
        ]
    )
    labels = np.array([[box_row(1, 10, 10, 10, 10), box_row(0, 0, 0, 0, 0)]])
    found = add_candidates(V8, outputs, labels, np.array([0.25, 0.25]))[0]
    decisions = {int(row[ANCHOR]) - 1: int(row[CLASS]) for row in found if row[ANCHOR] > 0 and row[CLASS] >= 0}
    assert decisions == {1: 1, 2: 1, 4: 0, 5: 0}
    others = {int(row[ANCHOR]) - 1: int(row[CLASS]) for row in found if row[CLASS] < 0}
    assert others == {0: -1, 3: ANY_CLASS}  # may become the object; is badly placed and fires already
    assert found[-1].tolist() == [0, 0, 0, 0, 0, REST]  # the last anchor
    assert found[found[:, ANCHOR] == 0].tolist() == [box_row(1, 10, 10, 10, 10)]
    again = add_candidates(V8, outputs, found[None], np.array([0.25, 0.25]))[0]
    np.testing.assert_array_equal(again, found)


def test_found_objects_false_alarms_and_average_precision() -> None:
    """Two objects of class 1; sorted by score: a hit, a false alarm, a second box on the same object, a hit."""
    outputs = outputs_of(
        [
            (10, 10, 10, 10, 0.9),
            (50, 50, 10, 10, 0.8),
            (12, 10, 10, 10, 0.7),  # overlaps by two thirds: not suppressed, and no second object
            (10.2, 10, 10, 10, 0.6),  # suppressed
            (80, 80, 10, 10, 0.3),
        ]
    )
    labels = np.array([[box_row(1, 10, 10, 10, 10), box_row(1, 80, 80, 10, 10)]])
    (found,) = detect(V8, outputs, labels)
    assert found.objects == 2
    assert (found.count_found(0.25), found.count_false_alarms(0.25)) == (2, 2)
    assert (found.count_found(0.5), found.count_false_alarms(0.75)) == (1, 1)
    # Precision 1 up to recall 1/2, that is at 51 of 101 points; then 2/4.
    np.testing.assert_allclose(found.average_precision(), (51 * 1 + 50 * 0.5) / 101)
    limit = found.threshold_for(1)
    assert found.count_false_alarms(limit) == 1
    assert found.count_found(limit) == 1


def test_a_class_without_objects_has_no_average_precision() -> None:
    outputs = outputs_of([(10, 10, 10, 10, 0.9)])
    (found,) = detect(V8, outputs, np.zeros((1, 1, COLUMNS)))
    assert np.isnan(found.average_precision())
    assert found.count_false_alarms(0.5) == 1
    np.testing.assert_allclose(found.boxes, corners(np.array([[10, 10, 10, 10]])))


def picture_with_rest() -> tuple[Detection, Array, Array]:
    """A task, outputs of one picture whose low anchors are one decision, and its labels."""
    outputs = outputs_of(
        [
            (10, 10, 10, 10, 0.70, 0.01),  # the object
            (11, 10, 10, 10, 0.20, 0.02),  # on the object, below the threshold: may become class 1, not class 2
            (50, 50, 10, 10, 0.03, 0.01),
            (70, 70, 10, 10, 0.01, 0.03),
        ]
    )
    task = Detection(layout=V8, object_names=("cat", "dog"))
    return (
        task,
        outputs,
        task.prepare_labels(np.array([[box_row(1, 0.1, 0.1, 0.1, 0.1)]]), outputs, np.zeros((1, 3, 100, 100))),
    )


def test_an_anchor_far_below_the_threshold_that_is_raised_is_counted() -> None:
    task, outputs, labels = picture_with_rest()
    before = task.read(outputs, labels)
    assert before.labels.tolist() == [1, 0]
    assert task.correct(before.scores, before.labels).all()
    for anchor, kind, expected in ((3, 1, False), (2, 0, False), (1, 1, False), (1, 0, True)):
        raised = outputs.copy()
        raised[0, 4 + kind, anchor] = 0.6
        found = task.read(raised, labels)
        assert task.correct(found.scores, found.labels).tolist() == [True, expected]


def test_gradients_of_the_rest_go_to_its_highest_anchors() -> None:
    task, outputs, labels = picture_with_rest()
    outputs = outputs.astype(np.float64)
    weights = np.random.default_rng(0).normal(size=(2, 3))
    found = task.pull_back(weights, outputs, labels)
    expected = np.zeros_like(outputs)
    for at in np.ndindex(*outputs.shape):
        up, down = outputs.copy(), outputs.copy()
        up[at], down[at] = up[at] + 1e-6, down[at] - 1e-6
        expected[at] = sum(
            sign * (task.read(moved, labels).scores * weights).sum() for sign, moved in ((1, up), (-1, down))
        )
    np.testing.assert_allclose(found, expected / 2e-6, rtol=1e-5, atol=1e-6)
    assert found[0, 4, 2] != 0 != found[0, 5, 3]


def test_pictures_without_labels_are_kept_as_they_are_read() -> None:
    task, outputs, _ = picture_with_rest()
    labels = task.label_as_decided(outputs)
    decided = task.read(outputs, labels)
    assert decided.labels.tolist() == [1, 0, 0]
    assert task.correct(decided.scores, decided.labels).all()
    np.testing.assert_array_equal(task.prepare_labels(labels, outputs, None), labels)
