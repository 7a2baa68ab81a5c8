from __future__ import annotations

import math

import numpy as np
import pytest

from arachne.errors import DataError
from arachne.evidence import Confidence, Flips


def test_calibration_error_is_the_weighted_gap_between_confidence_and_accuracy() -> None:
    confidences = np.array([0.95, 0.95, 0.95, 0.95, 0.55, 0.55])
    right = np.array([True, True, True, False, True, False])
    measured = Confidence.measure(confidences, right)
    assert measured.counts.tolist() == [0, 0, 0, 0, 0, 2, 0, 0, 0, 4]
    assert measured.accuracy[9] == 0.75
    assert math.isnan(measured.accuracy[0])
    assert measured.error == pytest.approx((4 * 0.20 + 2 * 0.05) / 6)
    assert measured.mean == pytest.approx(4.9 / 6)


def test_thresholds_tell_what_is_decided_and_how_often_rightly() -> None:
    confidences = np.array([1.0, 0.9, 0.6, 0.2])
    measured = Confidence.measure(confidences, np.array([True, False, True, True]))
    by_threshold = {t.threshold: (t.decided.count, t.right.count, t.right.total) for t in measured.thresholds}
    assert by_threshold[0.5] == (3, 2, 3)
    assert by_threshold[0.9] == (2, 1, 2)
    assert by_threshold[0.99] == (1, 1, 1)


def test_no_inputs_have_no_calibration() -> None:
    measured = Confidence.measure(np.zeros(0), np.zeros(0, dtype=bool))
    assert math.isnan(measured.error)
    assert math.isnan(measured.mean)


def test_flips_count_predictions_that_change_by_kind_and_the_surest_first() -> None:
    before = np.eye(3)[[0, 0, 1, 2, 0]] * 3
    after = np.eye(3)[[1, 0, 1, 0, 1]] * np.array([[1], [3], [3], [2], [4]])
    flips = Flips.measure(before, after)
    assert (len(flips), flips.inputs, flips.rate.value) == (3, 5, 0.6)
    assert str(flips) == "3 of 5 predictions flip, 60.0 % (95 %: 23.1 % – 88.2 %)"
    assert flips.rows.tolist() == [4, 3, 0]
    assert flips.pairs == ((0, 1, 2), (2, 0, 1))
    assert flips.confidence_after[0] == pytest.approx(math.exp(4) / (math.exp(4) + 2))


def test_no_flips_have_no_kinds() -> None:
    assert Flips.measure(np.eye(3), np.eye(3)).pairs == ()


def test_flips_between_different_models_are_refused() -> None:
    with pytest.raises(DataError, match="expected two sets of scores of one shape"):
        Flips.measure(np.eye(3), np.eye(4))
