"""Gates: the least used units become ones that fire where the fault is; others keep what they do."""

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
from arachne.scoring.functions import SLOPES
from arachne.search import Gate, Gates, Pool, Problem, Searcher
from arachne.search.build import build_problem
from arachne.search.direction_search import Site
from arachne.search.gate import measure_uses
from arachne.search.gates import Head
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


def add_dead_units(layers: list[Dense], count: int) -> list[Dense]:
    """Put units behind the others that no digit makes fire."""
    first, last = layers
    assert first.bias is not None
    weight = np.vstack([first.weight, np.full((count, 64), -0.1, np.float32)])
    bias = np.append(first.bias, np.full(count, -1, np.float32))
    return [
        replace(first, weight=weight, bias=bias),
        replace(last, weight=np.hstack([last.weight, np.ones((10, count), np.float32)])),
    ]


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


def test_dead_units_are_trained_together_to_take_the_fault_back(layers: list[Dense], data: LabelledData) -> None:
    backend = backend_of(add_dead_units(layers, 3))
    dead = np.flatnonzero(~(backend.activations(data.inputs, "first")[0].leaving > 0).any(axis=0))
    result = repair(backend, data, make_searcher("gates"))
    held = result.evidence.held_out
    assert held.repaired > 0.5 * held.negatives > 25
    assert held.broken <= 0.02 * held.positives
    problem, search = problem_of(backend, data), Gates(steps=32, folds=2)
    state = search.begin(problem, rng=np.random.default_rng(0))
    for _ in range(search.folds):
        state = search.step(problem, state, rng=np.random.default_rng(0))
    judged = state.arrays["0: judged"]
    assert judged.shape == (2 * 32 // 8, len(problem.fitness_inputs))  # of one unit first, and then of all
    site = search.sites(problem)[0]
    (candidate,) = search.candidates(problem, state.arrays, [(site, 0, len(judged) - 1, judged[-1])])
    uses = measure_uses(problem, problem.backend.info("first"))
    spare = np.argsort(uses, kind="stable")[: min(search.units, int((uses <= 0.05 * problem.margin_unit).sum()))]
    assert set(dead.tolist()) <= set(spare.tolist())
    for axis, layer in enumerate(("first", "last")):
        units = {address.index[axis] for address in candidate.addresses if address.layer == layer}
        assert units == set(spare.tolist())


def test_the_gradient_of_units_is_the_slope_of_their_loss() -> None:
    rng = np.random.default_rng(0)
    columns, without, along = (rng.standard_normal(shape) for shape in ((3, 2), (5, 3), (5, 4)))
    head = Head(np.arange(2), columns, without, 0.7, (np.tanh,), SLOPES[np.tanh])
    trained, wanted, rows = rng.standard_normal((4 + 1 + 3, 2)) / 10, rng.standard_normal((5, 3)), np.arange(5)
    found = head.gradient(trained, along, rows, lambda scores, part: wanted[part])
    for at in np.ndindex(trained.shape):
        step = np.zeros_like(trained)
        step[at] = 1e-6
        ahead, behind = (head.scores(trained + sign * step, along, rows) for sign in (1, -1))
        np.testing.assert_allclose(found[at], ((ahead - behind) * wanted).sum() / 2e-6, rtol=1e-5, atol=1e-8)


def test_units_that_are_needed_are_left_alone_but_for_one(layers: list[Dense], data: LabelledData) -> None:
    first, last = layers
    assert first.bias is not None
    problem = problem_of(backend_of(layers), data)
    used = measure_uses(problem, problem.backend.info("first")) > 0.05 * problem.margin_unit
    kept = [
        replace(first, weight=first.weight[used], bias=first.bias[used]),
        replace(last, weight=last.weight[:, used]),
    ]
    result = repair(backend_of(kept), data, make_searcher("gates"))
    assert result.search.front
    for one in result.search.front:
        assert len({address.index[0] for address in one.addresses if address.layer == "first"}) <= 1


@pytest.mark.parametrize("searcher", [Gate(), Gates(units=1)], ids=["gate", "gates"])
def test_inputs_below_the_threshold_keep_their_scores_to_the_bit(
    searcher: Searcher, layers: list[Dense], data: LabelledData
) -> None:
    backend = backend_of(layers)
    result = repair(backend, data, searcher)
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
