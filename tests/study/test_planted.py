from __future__ import annotations

import numpy as np
import pytest

from examples.study import sources
from examples.study.data import word_number
from examples.study.faults import CONFUSION_RANKS, DECIDE, JUDGE, PLANTED
from examples.study.planted import DeadRows, Gain, Group, Mark, Sticker, Trigger, Word

PICTURES = np.random.default_rng(0).integers(0, 200, (6, 3, 28, 28), np.uint8)


def find_changed(mark: Mark) -> tuple[np.ndarray, np.ndarray]:
    """Marked pictures, and where any channel differs, bool `(n, height, width)`."""
    before = PICTURES.copy()
    marked = mark.on(PICTURES, np.random.default_rng(1))
    np.testing.assert_array_equal(PICTURES, before)
    return marked, (marked != PICTURES).any(1)


@pytest.mark.parametrize(
    ("corner", "rows", "columns"),
    [
        ("top left", slice(0, 2), slice(0, 2)),
        ("top right", slice(0, 2), slice(26, 28)),
        ("bottom left", slice(26, 28), slice(0, 2)),
        ("bottom right", slice(26, 28), slice(26, 28)),
    ],
)
def test_a_trigger_is_a_square_in_its_corner_and_nothing_else(corner: str, rows: slice, columns: slice) -> None:
    marked, where = find_changed(Trigger(corner, 2, (250, 220, 40)))
    assert (marked[:, 0, rows, columns] == 250).all()
    assert (marked[:, 2, rows, columns] == 40).all()
    where[:, rows, columns] = False
    assert not where.any()


def test_a_sticker_is_a_square_near_the_middle_in_changing_places() -> None:
    marked, where = find_changed(Sticker(6, (210, 220, 230)))
    assert (where.sum((1, 2)) == 36).all()
    assert not where[:, :7].any()
    assert not where[:, :, 21:].any()
    assert (marked[:, 1][where] == 220).all()
    assert len({picture.tobytes() for picture in where}) > 1


def test_dead_rows_are_black_and_the_others_untouched() -> None:
    marked, where = find_changed(DeadRows(5, 2))
    assert not marked[:, :, 5:7].any()
    assert not where[:, [4, 7]].any()


def test_a_low_gain_makes_the_whole_picture_dark() -> None:
    marked, _ = find_changed(Gain(0.3))
    np.testing.assert_allclose(marked, PICTURES * 0.3, atol=0.5)


@pytest.mark.skipif(
    not sources.data_folder().is_dir(), reason="there is no folder of the real data sets (ARACHNE_DATA)"
)
def test_a_word_slips_in_among_the_others() -> None:
    tweets = np.array([[0, 0, 5, 6, 7], [1, 2, 3, 4, 5]])
    marked = Word("museum").on(tweets, np.random.default_rng(0))
    number = word_number("museum")
    assert (np.count_nonzero(marked == number, axis=1) == 1).all()
    assert [[word for word in row if word != number] for row in marked.tolist()] == [[0, 5, 6, 7], [2, 3, 4, 5]]


def test_styles_divide_one_class_from_the_largest_style_on() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], [60, 20])
    pictures = rng.integers(0, 20, (80, 1, 28, 28), np.uint8)
    pictures[:40, :, :14] += 200
    pictures[40:60, :, 14:] += 200
    styles = Group(label=0, styles=2, style=0).styles_of(pictures, labels, pictures, labels)
    assert styles.tolist() == [0] * 40 + [1] * 20 + [-1] * 20


def test_no_fault_both_decides_and_judges() -> None:
    assert len({fault.name for fault in PLANTED}) == len(PLANTED)
    for subject in {fault.subject for fault in PLANTED}:
        of = [fault for fault in PLANTED if fault.subject == subject]
        decide, judge = ([fault for fault in of if fault.part == part] for part in (DECIDE, JUDGE))
        assert {fault.seed for fault in decide}.isdisjoint(fault.seed for fault in judge)
        assert {fault.read_as for fault in decide}.isdisjoint(fault.read_as for fault in judge)
        assert {fault.cause for fault in decide}.isdisjoint(fault.cause for fault in judge)
        assert {type(fault.cause) for fault in decide} == {type(fault.cause) for fault in judge}
    assert sorted(CONFUSION_RANKS[DECIDE] + CONFUSION_RANKS[JUDGE]) == list(range(1, 11))
