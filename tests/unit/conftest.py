"""A small trained network and its data, for tests of whole repairs."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from arachne.data.labelled import LabelledData
from arachne.data.split import split_by_outcome
from arachne.decisions.losses import cross_entropy
from arachne.localise import Contrast
from arachne.scoring.evaluators import FastEvaluator, FitnessInputs
from arachne.search import Problem
from arachne.testing import ReferenceBackend, mlp
from tests.backends import golden


@pytest.fixture(scope="module")
def digits() -> LabelledData:
    found = load_digits()
    return LabelledData((found.data / 16).astype(np.float32), found.target.astype(np.int64))


@pytest.fixture(scope="module")
def model(digits: LabelledData) -> ReferenceBackend:
    """A network trained by plain gradient descent on digits, most of whose eights were filed under one."""
    backend = ReferenceBackend(mlp([64, 24, 10], seed=0))
    rng = np.random.default_rng(0)
    filed = np.where((digits.labels == 8) & (rng.random(len(digits)) < 0.6), 1, digits.labels)
    for _ in range(250):
        rows = rng.choice(len(digits), 200, replace=False)
        gradients = backend.weight_gradients(np.asarray(digits.inputs)[rows], cross_entropy(filed[rows]))
        for (layer, parameter), slope in gradients.items():
            backend.set_weights(layer, parameter, backend.get_weights(layer)[parameter] - 0.5 * slope)
    return backend


@pytest.fixture(scope="module")
def problem() -> Problem:
    """A network on digits, and what it reads as eight by mistake."""
    backend = ReferenceBackend(golden.network("mlp"))
    split = split_by_outcome(backend, golden.digits(), "*:8", rng=np.random.default_rng(0))
    suspects = Contrast().localise(backend, split.seen, rng=np.random.default_rng(0)).suspects
    return Problem(backend, split, suspects, FitnessInputs.of(split.seen, split.seen.terms(10.0)), FastEvaluator)
