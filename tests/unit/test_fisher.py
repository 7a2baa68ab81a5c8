"""The Fisher ratio on numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from arachne.data.labelled import LabelledData
from arachne.data.part import Part
from arachne.data.run import whole_part
from arachne.errors import NothingToRepairError
from arachne.localise import Fisher
from arachne.localise.fisher import GROUPS
from arachne.testing import Network, ReferenceBackend, mlp, random_inputs
from arachne.testing.networks import dense


def by_hand() -> tuple[ReferenceBackend, Part]:
    """Scores are the inputs themselves, weights 1 0 / 0 1: σ = 0.5. One negative (1, 2) of class 0, two positives."""
    backend = ReferenceBackend(Network({"input": (2,)}, (dense("fc", "input", 2, 2, np.random.default_rng(0)),)))
    backend.set_weights("fc", "weight", np.eye(2, dtype=np.float32))
    backend.set_weights("fc", "bias", np.zeros(2, np.float32))
    inputs = np.array([[1, 2], [3, 0], [1, 5]], np.float32)
    return backend, whole_part(backend, LabelledData(inputs, np.array([0, 0, 1])), "0:1")


def test_the_score_is_the_formula_worked_out_by_hand() -> None:
    backend, part = by_hand()
    # dm/dw of the negative: 1 2 / -1 -2. Mean squares of the positives, the same for both classes: (9 + 1) / 2 = 5 and
    # (0 + 25) / 2 = 12.5; times σ² = 0.25: 1.25 and 3.125, whose mean is 2.1875.
    scores = Fisher(damping=2).scores(backend, part, rng=np.random.default_rng(0))["fc", "weight"]
    expected = [0.5 / np.sqrt(1.25 + 4.375), 1.0 / np.sqrt(3.125 + 4.375)]
    np.testing.assert_allclose(scores, [expected, expected])


def test_without_damping_only_the_ratio_counts() -> None:
    backend, part = by_hand()
    scores = Fisher(damping=0).scores(backend, part, rng=np.random.default_rng(0))["fc", "weight"]
    np.testing.assert_allclose(scores[0], [1 / np.sqrt(5), 2 / np.sqrt(12.5)])


def test_random_signs_come_near_the_mean_of_squares() -> None:
    network = mlp([6, 9, 4], seed=1)
    backend = ReferenceBackend(network)
    inputs = random_inputs(network, 400, seed=3)
    predictions = backend.predict(inputs)
    labels = np.where((predictions == 1) & (np.arange(400) % 3 == 0), 0, predictions)
    part = whole_part(backend, LabelledData(inputs, labels), "0:1")
    assert len(part.positives) > GROUPS
    found = np.mean(
        [Fisher().scores(backend, part, rng=np.random.default_rng(seed))["fc1", "weight"] for seed in range(20)], axis=0
    )
    few = [Part(part.data.take(rows), part.rows[rows], part.scores[rows], part.targets) for rows in _eighths(part)]
    exact = np.mean([Fisher().scores(backend, one, rng=np.random.default_rng(0))["fc1", "weight"] for one in few], 0)
    assert np.corrcoef(found.ravel(), exact.ravel())[0, 1] > 0.98


def _eighths(part: Part) -> list[np.ndarray]:
    """All negatives with so few of the positives that their squares are exact."""
    return [np.concatenate([part.negatives, rows]) for rows in np.array_split(part.positives, 1 + len(part) // GROUPS)]


def test_the_suspects_have_the_largest_scores_of_all_layers_together() -> None:
    backend, part = by_hand()
    found = Fisher(count=2, damping=2).localise(backend, part, rng=np.random.default_rng(0))
    assert [str(address) for address in found.suspects.addresses] == ["fc.weight[0, 1]", "fc.weight[1, 1]"]
    assert found.n_candidates == 4


def test_a_fault_nobody_shows_cannot_be_localised() -> None:
    backend, part = by_hand()
    rows = part.positives
    right = Part(part.data.take(rows), part.rows[rows], part.scores[rows], part.targets)
    with pytest.raises(NothingToRepairError, match="no negative inputs"):
        Fisher().scores(backend, right, rng=np.random.default_rng(0))
