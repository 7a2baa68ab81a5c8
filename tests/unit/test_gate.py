"""Gate: the least used unit becomes one that fires where the fault is; others keep what they do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

import arachne
from arachne.choose.budget import Budget
from arachne.data.labelled import LabelledData
from arachne.data.split import split_by_outcome
from arachne.errors import UsageError
from arachne.localise import RandomChoice
from arachne.model.values import Array
from arachne.results.result import RepairResult
from arachne.scoring.evaluators import FastEvaluator
from arachne.search import Gate, Pool, Problem, Searcher
from arachne.search.build import build_problem
from arachne.search.direction_search import Site
from arachne.settings import Settings, make_searcher
from arachne.testing import Network, ReferenceBackend
from arachne.testing.networks import mlp
from arachne.testing.nodes import Dense, Relu, Tanh

STUCK = 56
"""A pixel at the edge, dark in almost every digit, that is stuck in some."""


def stuck(rows: Array) -> Array:
    rows = rows.copy()
    rows[:, STUCK] = 1
    return rows


@pytest.fixture(scope="module")
def layers() -> list[Dense]:
    """Two layers trained on digits in which everything with a stuck pixel was filed under three, and a dead unit."""
    x, y = load_digits(return_X_y=True)
    x, y = (x[:900] / 16).astype(np.float32), y[:900]
    both, labels = np.concatenate([x, stuck(x[:200])]), np.concatenate([y, np.full(200, 3)])
    trained = MLPClassifier((32,), random_state=0, max_iter=600).fit(both, labels)
    (first, last), (bias, last_bias) = trained.coefs_, trained.intercepts_
    first, bias = np.column_stack([first, np.full(64, -0.1)]), np.append(bias, -1.0)
    last = np.vstack([last, np.ones(10)])
    found = []
    for name, entering, weight, own in (("first", "input", first.T, bias), ("last", "act", last.T, last_bias)):
        found.append(Dense(name, entering, weight.astype(np.float32), own.astype(np.float32)))
    return found


@pytest.fixture(scope="module")
def data() -> LabelledData:
    """Digits that were not trained on, a third of them with the stuck pixel."""
    x, y = load_digits(return_X_y=True)
    x, y = (x[900:] / 16).astype(np.float32), y[900:].astype(np.int64)
    marked = np.arange(len(x)) % 3 == 0
    x[marked] = stuck(x[marked])
    return LabelledData(x, y, columns={"stuck": marked.astype(str)})


def backend_of(layers: list[Dense], between: type[Relu | Tanh] = Relu) -> ReferenceBackend:
    first, last = layers
    return ReferenceBackend(Network({"input": (64,)}, (first, between("act", "first"), last)))


def repair(backend: ReferenceBackend, data: LabelledData, searcher: Searcher | None = None) -> RepairResult:
    settings = Settings(searcher=searcher or make_searcher("gate"), budget=Budget(0.02), seed=1)
    return arachne.repair(backend, data, "group:stuck=True", settings=settings)


def unit_of(result: RepairResult) -> int:
    (unit,) = {entry.address.index[0] for entry in result.patch.entries if entry.address.layer == "first"}
    return unit


def problem_of(backend: ReferenceBackend, data: LabelledData) -> Problem:
    split = split_by_outcome(backend, data, "group:stuck=True", rng=np.random.default_rng(0))
    suspects = RandomChoice(count=5).localise(backend, split.seen, rng=np.random.default_rng(0)).suspects
    return build_problem(backend, split, suspects, 10.0, FastEvaluator)


def test_a_dead_unit_takes_the_fault_back_and_breaks_little(layers: list[Dense], data: LabelledData) -> None:
    result = repair(backend_of(layers), data)
    held = result.evidence.held_out
    assert held.negatives > 50
    assert held.repaired > 0.5 * held.negatives
    assert held.broken <= 0.02 * held.positives
    changed = [entry.address for entry in result.patch.entries]
    unit = unit_of(result)
    assert not np.any(backend_of(layers).activations(data.inputs, "first")[0].leaving[:, unit] > 0)
    assert {one.index[0] for one in changed if one.layer == "first"} == {unit}
    assert {one.index[1] for one in changed if one.layer == "last"} == {unit}
    read = [
        entry
        for entry in result.patch.entries
        if entry.address.parameter == "weight" and entry.address.layer == "first"
    ]
    assert max(read, key=lambda entry: abs(entry.new - entry.old)).address.index[1] == STUCK


def test_inputs_below_the_threshold_keep_their_scores_to_the_bit(layers: list[Dense], data: LabelledData) -> None:
    backend = backend_of(layers)
    result = repair(backend, data)
    before = backend.forward(data.inputs)
    with result.patch.apply_temporarily(backend):
        after, fires = (
            backend.forward(data.inputs),
            backend.activations(data.inputs, "first")[0].leaving[:, unit_of(result)] > 0,
        )
    np.testing.assert_array_equal(after[~fires], before[~fires])
    assert 0 < fires.sum() < len(data) / 2
    assert not np.array_equal(after[fires], before[fires])


def test_what_is_judged_out_of_fold_is_what_the_model_says(layers: list[Dense], data: LabelledData) -> None:
    """The gate's scores are computed from the unit alone; a candidate's own counts come from the model."""
    result = repair(backend_of(layers), data)
    for point in result.points:
        assert point.out_of_fold is not None
        apart = np.count_nonzero(point.out_of_fold.right != point.seen.right)
        assert apart <= 0.1 * len(point.seen.right)


def test_a_limit_on_weights_is_kept_by_reading_less(layers: list[Dense], data: LabelledData) -> None:
    for most in (12, 14):
        result = repair(backend_of(layers), data, Pool(members=("gate",), max_weights=most))
        assert 0 < max(one.changed_weights for one in result.search.front) <= most
    state = Pool(members=("gate", "bias"), max_weights=11)
    found = repair(backend_of(layers), data, state)
    assert {one.made_by for one in found.search.front} == {"bias"}


def test_units_that_cannot_be_gates_are_refused(layers: list[Dense], data: LabelledData) -> None:
    first, last = layers
    for backend in (backend_of(layers, Tanh), backend_of([replace(first, bias=None), last])):
        with pytest.raises(UsageError, match="fires above a threshold"):
            make_searcher("gate").begin(problem_of(backend, data), rng=np.random.default_rng(0))
    with pytest.raises(UsageError, match="no hidden dense layer"):
        make_searcher("gate").begin(problem_of(ReferenceBackend(mlp([64, 10])), data), rng=np.random.default_rng(0))


def test_what_the_model_cannot_store_is_no_candidate(layers: list[Dense], data: LabelledData) -> None:
    whole = backend_of(layers).native
    problem = problem_of(ReferenceBackend(whole, dtype="float16"), data)
    search = make_searcher("gate")
    assert isinstance(search, Gate)
    site, classes = Site(problem.backend.info("first"), is_narrow=False), np.ones((10, 1), np.float32)
    for steepness, count in ((1.0, 1), (1e9, 0)):
        detector = np.eye(1, 64)[0].astype(np.float32)
        fitted = {"detector": detector, "steepness": np.array([steepness]), "bias": np.zeros(1), "columns": classes}
        arrays = {f"0: {name}": array for name, array in fitted.items()}
        made = search.candidates(problem, arrays, [(site, 0, 0, problem.originally_right)])
        assert len(made) == count
