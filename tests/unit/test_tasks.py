"""Tasks: which decisions outputs hold, when one is right, and that nobody else takes an argmax of scores."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from arachne.errors import DataError, ModelError
from arachne.tasks import SINGLE_LABEL, best_others, closest_two, correct, decide, margins

ROOT = Path(__file__).parents[2]

SCORES = np.array([[1.0, 3.0, 0.0], [2.0, 2.0, 1.5], [0.0, np.nan, 0.25]], np.float32)
LABELS = np.array([1, 1, 1])

NOT_OF_SCORES = {
    "arachne/causes": "counts, gains of rules",
    "arachne/data/classes.py": "one-hot labels",
    "arachne/scoring/fast/decide.py": "deficits of candidates",
    "arachne/scoring/fast/input_order.py": "positions",
    "arachne/localise/pareto.py": "products of objectives",
    "arachne/report/scan_page.py": "distances",
    "arachne/search/cross_fit.py": "fitness of candidates",
    "arachne/search/de.py": "deficits of candidates",
    "arachne/search/erase.py": "deficits and fitness of candidates",
    "arachne/search/front.py": "gains of candidates",
    "arachne/search/pool.py": "deficits of candidates",
    "arachne/testing": "pooling layers, and what predictions are checked against",
}
"""Where the largest of something else is looked for, and of what."""


def argmaxes(source: str) -> Iterator[int]:
    """The lines of a source text that use `argmax` or `argmin`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Attribute, ast.Name)):
            name = node.attr if isinstance(node, ast.Attribute) else node.id
            if name in ("argmax", "argmin", "nanargmax", "nanargmin"):
                yield node.lineno


def argmax_of_scores() -> set[str]:
    """The modules that take an argmax of class scores."""
    found = set()
    for folder in ("arachne", "backends"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            path = file.relative_to(ROOT).as_posix()
            if any(argmaxes(file.read_text("utf-8"))) and not path.startswith(tuple(NOT_OF_SCORES)):
                found.add(path)
    return found


def test_only_tasks_take_an_argmax_of_scores() -> None:
    assert argmax_of_scores() == {"arachne/tasks/decisions.py"}


def test_an_argmax_is_found_however_it_is_written() -> None:
    assert list(argmaxes("np.argmax(a, axis=1)\na.argmin()\nfrom numpy import argmax\nargmax(a)")) == [1, 2, 4]


def test_the_first_of_equal_scores_wins() -> None:
    np.testing.assert_array_equal(decide(SCORES[:2]), [1, 0])


def test_a_decision_with_a_score_that_is_no_number_is_never_right() -> None:
    for label in range(3):
        assert not correct(SCORES[2:], np.array([label]))[0]
    np.testing.assert_array_equal(correct(SCORES, LABELS), [True, False, False])


def test_margins_are_taken_against_the_best_other_class() -> None:
    np.testing.assert_array_equal(best_others(SCORES[:2], LABELS[:2]), [0, 0])
    np.testing.assert_array_equal(margins(SCORES[:2], LABELS[:2]), [2.0, 0.0])
    np.testing.assert_array_equal(np.stack(closest_two(SCORES[:2])), [[1.0, 2.0], [3.0, 2.0]])


def test_single_label_reads_outputs_as_they_are() -> None:
    read = SINGLE_LABEL.read(SCORES, LABELS)
    assert read.scores is SCORES
    np.testing.assert_array_equal(read.inputs, [0, 1, 2])
    assert SINGLE_LABEL.pull_back(SCORES, SCORES, LABELS) is SCORES


@pytest.mark.parametrize(
    ("shape", "labels", "error", "words"),
    [
        ((2, 3, 4), [0, 0], ModelError, "expected class scores of shape"),
        ((2, 3), [0], DataError, "one label for each input"),
        ((2, 3), [[0], [1]], DataError, "one label for each input"),
        ((2, 3), [0, 3], DataError, "row 1 has the label 3, but the model has the classes 0 to 2"),
    ],
)
def test_single_label_refuses_what_it_cannot_read(
    shape: tuple[int, ...], labels: list[int], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        SINGLE_LABEL.check(np.zeros(shape), np.array(labels))
