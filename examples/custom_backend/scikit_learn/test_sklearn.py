"""The contract, checked by the suite that comes with Arachne, and what only scikit-learn has."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import skops.io
from arachne_sklearn import SklearnBackend
from arachne_sklearn.conformance import SklearnConformance
from pandas import DataFrame
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import arachne
from arachne.errors import ModelError, UnsafeModelError, UsageError


class TestSklearn(SklearnConformance):
    """The whole suite."""


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    """Digits as rows of 64 numbers."""
    found = load_digits()
    return np.asarray(found.data), np.asarray(found.target)


@pytest.fixture(scope="module")
def pipeline(digits: tuple[np.ndarray, np.ndarray]):
    """A scaler and a network that is not quite as good as it could be."""
    inputs, labels = digits
    model = make_pipeline(StandardScaler(), MLPClassifier([32], alpha=0.1, max_iter=12, random_state=0))
    with pytest.warns(ConvergenceWarning):
        return model.fit(inputs[:900], labels[:900])


def test_a_pipeline_predicts_what_scikit_learn_predicts(pipeline, digits) -> None:
    inputs, _ = digits
    model = SklearnBackend.load(pipeline)
    np.testing.assert_array_equal(model.predict(inputs), pipeline.predict(inputs))
    scores = model.forward(inputs[:50])
    probabilities = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(probabilities, pipeline.predict_proba(inputs[:50]), atol=1e-5)


def test_a_repaired_pipeline_is_the_users_own_object(pipeline, digits, tmp_path: Path) -> None:
    inputs, labels = digits
    skops.io.dump(pipeline, tmp_path / "digits.skops")
    model = SklearnBackend.load(tmp_path / "digits.skops")
    result = arachne.repair(model, (inputs[900:], labels[900:]), "*:9", seed=0, max_break=0.05, confidence=None)
    before = pipeline.predict(inputs)
    np.testing.assert_array_equal(model.native.predict(inputs), before)
    result.patch.apply(model)
    repaired = inputs[(before == 9) & (labels != 9)]
    assert np.mean(model.native.predict(repaired) == 9) < 0.8


def test_a_pipeline_that_was_fitted_on_a_table_gets_its_columns_by_name() -> None:
    rng = np.random.default_rng(0)
    table = DataFrame(rng.normal(size=(300, 3)), columns=["height", "weight", "age"])
    scaled = ColumnTransformer([("scaled", StandardScaler(), ["age", "height"])])
    model = make_pipeline(scaled, MLPClassifier([8], max_iter=8, random_state=0))
    with pytest.warns(ConvergenceWarning):
        model.fit(table, table["age"] > 0)
    with warnings.catch_warnings(action="error"):
        found = SklearnBackend.load(model).predict(table.to_numpy())
    np.testing.assert_array_equal(model.classes_[found], model.predict(table))


@pytest.fixture(scope="module")
def guard() -> tuple[MLPClassifier, np.ndarray, np.ndarray]:
    """A network of two classes, which has one output, and inputs it partly gets wrong."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(900, 8))
    labels = np.where(inputs[:, 0] + inputs[:, 1] > 0, "unsafe", "safe")
    model = MLPClassifier([12], max_iter=8, learning_rate_init=0.01, random_state=0)
    with pytest.warns(ConvergenceWarning):
        model.fit(inputs[:300], labels[:300])
    return model, inputs[300:], labels[300:]


@pytest.mark.parametrize("search", ["auto", "de", "margin", "last-layer", "bias", "erase", "low-rank"])
def test_a_model_of_two_classes_is_repaired_by_every_search(guard, search: str) -> None:
    model, inputs, labels = guard
    backend = SklearnBackend.load(model)
    before = model.predict(inputs)
    np.testing.assert_array_equal(np.array(backend.class_names)[backend.predict(inputs)], before)
    budget: dict[str, Any] = {} if search == "de" else {"max_break": 0.1}
    result = arachne.repair(backend, (inputs, labels), "false:unsafe", searcher=search, seed=0, **budget)
    assert result.evidence.seen is not None
    assert result.evidence.seen.repaired > 0
    np.testing.assert_array_equal(model.predict(inputs), before)


def test_a_model_of_two_classes_is_repaired_from_the_command_line(guard, tmp_path: Path) -> None:
    model, inputs, labels = guard
    skops.io.dump(model, tmp_path / "guard.skops")
    np.savez(tmp_path / "data.npz", x=inputs, y=labels)
    words = "repair guard.skops --data data.npz --target false:unsafe --max-break 10% -o fix".split()  # noqa: SIM905
    done = subprocess.run([sys.executable, "-m", "arachne", *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    fixed = SklearnBackend.load(tmp_path / "fix" / "model.skops").native
    wrong = inputs[(labels == "safe") & (model.predict(inputs) == "unsafe")]
    assert (fixed.predict(wrong) == "safe").any()


def test_what_is_no_network_or_runs_code_is_refused(pipeline, digits, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="expected a fitted MLPClassifier, got a 'LogisticRegression'"):
        SklearnBackend.load(LogisticRegression())
    with pytest.raises(ModelError, match="fitted"):
        SklearnBackend.load(MLPClassifier())
    with pytest.raises(UsageError, match="takes no weights, device"):
        SklearnBackend.load(pipeline, device="cuda")
    odd = make_pipeline(FunctionTransformer(_double), pipeline[-1])
    skops.io.dump(odd, tmp_path / "odd.skops")
    with pytest.raises(UnsafeModelError, match="_double"):
        SklearnBackend.load(tmp_path / "odd.skops")


def _double(inputs: np.ndarray) -> np.ndarray:
    return 2 * inputs
