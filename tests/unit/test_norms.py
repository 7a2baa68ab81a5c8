"""Statistics of normalisations estimated again: by the formula, in order, and where it helps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from arachne.data import health, norm_moments
from arachne.data.health import examine
from arachne.data.norm_moments import NormAccumulator
from arachne.data.split import split_by_outcome
from arachne.errors import DataError, UsageError
from arachne.localise import Contrast
from arachne.model.cut import temporary_weights
from arachne.model.values import Array, count, take
from arachne.scoring.evaluators import FastEvaluator
from arachne.search import Norms, Pool, Problem
from arachne.search import pool as pool_module
from arachne.search.build import build_problem
from arachne.settings import Settings, make_searcher
from arachne.testing import Network, ReferenceBackend
from arachne.testing.nodes import BatchNorm, LayerNorm, Relu
from tests.backends.golden import data_for, network


def problem_of(whole: Network, target: str = "*:*") -> Problem:
    backend, rng = ReferenceBackend(whole), np.random.default_rng(0)
    split = split_by_outcome(backend, data_for("sick"), target, rng=rng)
    suspects = Contrast().localise(backend, split.seen, rng=rng).suspects
    return build_problem(backend, split, suspects, 10.0, FastEvaluator)


def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def moments(problem: Problem, weights: dict[tuple[str, str], Array]) -> NormAccumulator:
    watch = NormAccumulator()
    with temporary_weights(problem.backend, weights):
        problem.backend.observe(problem.split.seen.data.inputs, ["norm1", "norm2"], watch)
    return watch


def test_every_mended_layer_gives_its_scale_and_bias_as_deviation_and_mean() -> None:
    problem = problem_of(network("sick"))
    searcher = Norms(inputs=10_000)
    whole = max(searcher.search(problem, rng=rng()).front, key=lambda one: one.size)
    weights = whole.whole_parameters(problem.backend)
    with temporary_weights(problem.backend, weights):
        for layer in ("norm1", "norm2"):
            own = next(node for node in network("sick").nodes if node.name == layer)
            assert isinstance(own, BatchNorm)
            (leaving,) = (one.leaving for one in problem.backend.activations(problem.split.seen.data.inputs, layer))
            # The patch is the mean over runs that each lack a fold of the inputs.
            assert leaving.mean(axis=(0, 2, 3)) == pytest.approx(own.parameters["bias"], abs=0.02)
            assert leaving.std(axis=(0, 2, 3)) == pytest.approx(own.parameters["scale"], rel=0.02)


def test_moments_in_two_halves_are_those_of_the_whole() -> None:
    problem = problem_of(network("sick"))
    inputs, halves = problem.split.seen.data.inputs, NormAccumulator()
    for rows in (slice(0, 300), slice(300, None)):
        half = halves.split()
        problem.backend.observe(take(inputs, rows), ["norm1", "norm2"], half)
        halves.merge(half)
    for layer, one in moments(problem, {}).norms.items():
        assert halves.norms[layer].mean == pytest.approx(one.mean)
        assert halves.norms[layer].deviation == pytest.approx(one.deviation)
        assert one.stores_statistics
    assert examine(problem.backend, inputs).mendable


def test_statistics_are_told_where_estimating_them_again_makes_the_model_better() -> None:
    backend, data = ReferenceBackend(network("sick")), data_for("sick")
    assert examine(backend, data.inputs, data.labels).mendable
    as_it_reads = backend.predict(data.inputs)  # labels that it cannot be better at
    assert examine(backend, data.inputs).mendable
    assert examine(backend, data.inputs, as_it_reads).sentences == ()


def test_a_convolution_needs_few_inputs_to_estimate_its_statistics_again(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, data, counted = ReferenceBackend(network("sick")), data_for("sick"), []

    def estimate(*given: Any) -> dict[tuple[str, str], Array]:
        counted.append(count(given[2]))
        return norm_moments.estimate_again(*given)

    monkeypatch.setattr(health, "estimate_again", estimate)
    assert examine(backend, data.inputs, data.labels).mendable
    assert counted == [health.MIN_TRIAL_INPUTS]


def test_a_repair_looks_once_whether_the_model_is_sick(monkeypatch: pytest.MonkeyPatch) -> None:
    import arachne

    def refuse(*_: object) -> None:
        raise AssertionError("the engine has looked already")

    monkeypatch.setattr(pool_module, "examine", refuse)
    settings = Settings(searcher=Pool(members=("norms", "bias")), accept_near_chance=False)
    found = arachne.repair(ReferenceBackend(network("sick")), data_for("sick"), "*:*", settings=settings)
    assert found.split.health is not None
    assert found.split.health.mendable
    assert {one.made_by for one in found.search.front} == {"norms", "bias"}


def test_the_pool_runs_it_where_statistics_do_not_fit_and_nowhere_else() -> None:
    pool = Pool(members=("norms", "bias"))
    sick = pool.begin(problem_of(network("sick")), rng=rng())
    assert list(sick.members) == ["norms"]
    well = pool.begin(problem_of(network("cnn"), "top:2"), rng=rng())
    assert str(well.members["norms"].stopped).startswith("left out: no normalisation stores statistics")
    assert list(well.members) == ["norms", "bias"]


@pytest.mark.parametrize("norm", [None, LayerNorm("norm1", "first", np.ones(24, np.float32), np.zeros(24, np.float32))])
def test_a_model_without_stored_statistics_is_refused(norm: LayerNorm | None) -> None:
    whole = network("mlp")
    flat, first, _, head = whole.nodes
    nodes = whole.nodes if norm is None else (flat, first, norm, Relu("act", "norm1"), head)
    problem = problem_of(replace(whole, nodes=nodes), "*:8")
    with pytest.raises(UsageError, match="no batch normalisation with statistics"):
        Norms().begin(problem, rng=rng())


def test_a_model_near_chance_is_repaired_by_this_search_and_refused_by_others() -> None:
    import arachne

    whole = network("sick")
    for node in whole.nodes:
        if isinstance(node, BatchNorm):
            node.mean[...] += 5 * np.sqrt(node.variance)
    backend, data = ReferenceBackend(whole), data_for("sick")
    with pytest.raises(DataError) as refused:
        arachne.repair(backend, data, "*:*")
    assert "--search norms" in str(refused.value)
    found = arachne.repair(backend, data, "*:*", settings=Settings(searcher=make_searcher("norms")))
    after = found.evidence.held_out
    assert after.accuracy_before < 0.25
    assert after.accuracy_after > 0.9
