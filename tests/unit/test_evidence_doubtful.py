from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from arachne.data.labelled import LabelledData
from arachne.data.part import Part
from arachne.data.targets import Target
from arachne.evidence import find_label_noise
from arachne.model.values import Array


@pytest.fixture(scope="module")
def digits() -> tuple[Part, Array]:
    """Digits with 40 wrong labels: the part, and which rows are wrong."""
    x, y = load_digits(return_X_y=True)
    x = x.astype(np.float32) / 16
    model = LogisticRegression(max_iter=200, C=0.1).fit(x[:800], y[:800])
    rng = np.random.default_rng(0)
    labels, wrong = y[800:].copy(), rng.choice(len(y) - 800, 40, replace=False)
    labels[wrong] = (labels[wrong] + rng.integers(1, 10, 40)) % 10
    scores = model.decision_function(x[800:])
    data = LabelledData(x[800:], labels)
    return Part(data, np.arange(len(labels)) + 800, scores, (Target("*:*"),)), wrong


def test_most_wrong_labels_are_found_and_few_honest_mistakes_doubted(digits: tuple[Part, Array]) -> None:
    part, wrong = digits
    doubtful = find_label_noise(part)
    found = np.isin(doubtful.positions, wrong)
    honest = len(np.setdiff1d(part.negatives, wrong))
    assert found.sum() >= 20
    assert (~found).sum() <= 0.1 * honest
    np.testing.assert_array_equal(doubtful.rows, doubtful.positions + 800)
    assert list(doubtful.agreeing) == sorted(doubtful.agreeing, reverse=True)
    rows = ", ".join(map(str, doubtful.rows[:5]))
    assert str(doubtful).startswith(f"{len(doubtful)} of the inputs to repair look mislabelled (rows {rows}, …)")


def test_without_negatives_nothing_is_doubted(digits: tuple[Part, Array]) -> None:
    part, _ = digits
    fine = Part(LabelledData(part.data.inputs, part.predictions), part.rows, part.scores, part.targets)
    assert len(find_label_noise(fine)) == 0
    assert str(find_label_noise(fine)) == ""


def test_inputs_of_several_arrays_are_not_doubted(digits: tuple[Part, Array]) -> None:
    part, _ = digits
    several = LabelledData({"a": part.data.inputs}, part.data.labels)  # type: ignore[dict-item]  # an array, as above
    assert len(find_label_noise(Part(several, part.rows, part.scores, part.targets))) == 0
