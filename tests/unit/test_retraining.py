"""Rivals that retrain a model: what they need, what they hand back, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arachne
from arachne.adapting.plain_fit import plain_fit
from arachne.bench.compare import usual_searchers
from arachne.data.labelled import LabelledData
from arachne.data.part import Part
from arachne.data.split import split_by_outcome
from arachne.errors import DataError, UsageError
from arachne.localise import Everything
from arachne.model.cut import weights_of
from arachne.model.fitting import Plan
from arachne.model.values import LayerInfo
from arachne.rivals import Apricot, DeepFault, Mode
from arachne.rivals.features import feature_layer, joined_features
from arachne.rivals.mode import heat_maps
from arachne.rivals.retraining import Retraining
from arachne.scoring.evaluators import PlainEvaluator
from arachne.search import Problem
from arachne.search.build import build_problem
from arachne.testing import ReferenceBackend
from arachne.testing.checks.specimens import PROBABILITIES
from arachne.testing.networks import random_inputs

QUICK = Apricot(reduced=3, reduced_epochs=2, epochs=2, subset=0.5, train_rate=5e-3, train_batch=16)
RIVALS: list[Retraining] = [
    QUICK,
    Mode(helpful=200, train_rate=5e-3, train_batch=16, epochs=2),
    DeepFault(synthesised=200, train_rate=5e-3, train_batch=16, epochs=2),
]


class WithoutFit(ReferenceBackend):
    """A backend that cannot train."""

    NAME = "untrained"
    SUPPORTS_FIT = False


@pytest.fixture(scope="module")
def parts(digits: LabelledData) -> tuple[LabelledData, LabelledData]:
    """Data the model was trained on, and data it is repaired with."""
    rows = np.random.default_rng(1).permutation(len(digits))
    return digits.take(rows[:800]), digits.take(rows[800:])


Parts = tuple[LabelledData, LabelledData]


@pytest.mark.parametrize("rival", RIVALS, ids=lambda one: str(one.name))
def test_a_rival_repairs_something_and_leaves_the_model(
    model: ReferenceBackend, parts: Parts, rival: Retraining
) -> None:
    training, data = parts
    before = weights_of(model)
    found = arachne.repair(model, data, "8:1", searcher=rival, training=training)
    assert found.search.better
    assert found.evidence.seen is not None
    assert found.evidence.seen.repaired > 0
    assert len(found.patch) > 100
    assert found.patch.provenance["training"] == {
        "name": training.source,
        "sha256": training.sha256(),
        "inputs": len(training),
    }
    for place, values in weights_of(model).items():
        np.testing.assert_array_equal(values, before[place])


@pytest.mark.parametrize("rival", RIVALS, ids=lambda one: str(one.name))
def test_the_same_seed_gives_the_same_patch(model: ReferenceBackend, parts: Parts, rival: Retraining) -> None:
    training, data = parts
    once, again, other = (
        arachne.repair(model, data, "8:1", searcher=rival, training=training, seed=seed).patch.to_json()
        for seed in (0, 0, 1)
    )
    assert once == again
    assert once != other


@pytest.mark.parametrize("rival", RIVALS, ids=lambda one: str(one.name))
def test_a_patch_of_all_weights_is_written_and_read(
    model: ReferenceBackend, parts: Parts, rival: Retraining, tmp_path: Path
) -> None:
    training, data = parts
    found = arachne.repair(model, data, "8:1", searcher=rival, training=training)
    found.patch.save(tmp_path / "patch.json")
    read = arachne.Patch.load(tmp_path / "patch.json")
    assert read.digest == found.patch.digest
    with read.apply_temporarily(model):
        right = model.predict(found.split.held_out.data.inputs) == found.split.held_out.data.labels
    assert int(right[found.split.held_out.negatives].sum()) == found.evidence.held_out.repaired


def test_within_a_budget_smaller_changes_of_the_same_kind_are_candidates_too(
    model: ReferenceBackend, parts: Parts
) -> None:
    training, data = parts
    found = arachne.repair(model, data, "8:1", searcher=QUICK, training=training, max_break=0.05)
    assert len(found.points) == 4
    assert found.evidence.budget == 0.05


def test_training_ends_where_nothing_is_gained(model: ReferenceBackend, parts: Parts) -> None:
    training, data = parts
    still = replace(QUICK, train_rate=1e-12, adjustment=0.0, no_gain=40)
    found = arachne.repair(model, data, "8:1", searcher=still, training=training)
    assert found.search.stopped.startswith("no gain for")
    assert not found.search.better


def test_training_that_diverges_ends_and_changes_nothing(model: ReferenceBackend, parts: Parts) -> None:
    training, data = parts
    wild = replace(QUICK, train_rate=1e30, optimiser="sgd", reduced=2, adjustment=0.0)
    with np.errstate(all="ignore"):
        found = arachne.repair(model, data, "8:1", searcher=wild, training=training)
    assert "diverged" in found.search.stopped
    assert len(found.patch) == 0


def test_weights_move_towards_reduced_models_that_are_right_and_away_from_those_that_are_wrong(
    model: ReferenceBackend, parts: Parts
) -> None:
    training, data = parts
    seen: dict[str, np.ndarray] = {}

    class Looking(Apricot):
        def adjust(self, problem, arrays, current):  # type: ignore[no-untyped-def]
            seen["before"] = current
            seen["reduced"] = arrays["reduced"]
            arrays = {**arrays, "reduced_right": np.array([[True], [False]]).repeat(len(self._negatives(problem)), 1)}
            seen["after"] = super().adjust(problem, arrays, current)
            return seen["after"]

    arachne.repair(model, data, "8:1", searcher=Looking(reduced=2, epochs=1, adjustment=0.5), training=training)
    right, wrong = seen["reduced"].astype(np.float64)
    expected = seen["before"] + 0.5 * (right - wrong)
    np.testing.assert_allclose(seen["after"], expected, atol=1e-6)


def test_what_is_missing_is_said_before_anything_runs(model: ReferenceBackend, parts: Parts) -> None:
    training, data = parts
    with pytest.raises(UsageError, match="needs the data that it was trained on") as missing:
        arachne.repair(model, data, "8:1", searcher="apricot")
    assert missing.value.argument == "training"
    with pytest.raises(UsageError, match="does not use training data"):
        arachne.repair(model, data, "8:1", searcher="margin", training=training)
    untrained = WithoutFit(model.native)
    with pytest.raises(UsageError, match="backend 'untrained' has no training loop"):
        arachne.repair(untrained, data, "8:1", searcher="apricot", training=training)
    with pytest.raises(UsageError, match="has no training loop"):
        untrained.fit(training.inputs, training.labels, Plan())
    with pytest.raises(UsageError, match="all 1,810 weights of the model, and at most 1,000 may be trained"):
        arachne.repair(model, data, "8:1", searcher=Apricot(trainable_weights=1000), training=training)
    with pytest.raises(UsageError, match="trains every weight of the model, and the localiser left out"):
        arachne.repair(model, data, "8:1", searcher="apricot", localiser="bl", training=training)


def test_training_data_that_does_not_fit_is_refused(model: ReferenceBackend, parts: Parts) -> None:
    training, data = parts

    def repair(given: LabelledData, **more: Any) -> arachne.RepairResult:
        return arachne.repair(model, data, "8:1", searcher=QUICK, training=given, **more)

    with pytest.raises(DataError, match="row 0 of the training data has the label 12"):
        repair(replace(training, labels=training.labels * 0 + 12))
    with pytest.raises(DataError, match="the training data does not fit the model"):
        repair(replace(training, inputs=np.asarray(training.inputs)[:, :5]))
    with pytest.raises(DataError, match="no inputs"):
        repair(training.take([]))
    with pytest.raises(DataError, match="also among those the repair is judged by"):
        repair(data)
    dropped = repair(data, drop_overlap=True)
    assert dropped.patch.provenance["training"]["inputs"] == len(dropped.split.seen)
    names = tuple("abcdefghij")
    with pytest.raises(DataError, match="other classes than the data"):
        arachne.repair(
            model,
            replace(data, class_names=names),
            "i:b",
            searcher=QUICK,
            training=replace(training, class_names=names[::-1]),
        )


def test_plans_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="optimiser must be adam or sgd, got 'lion'"):
        Plan(optimiser="lion")
    with pytest.raises(UsageError, match="above 0"):
        Plan(epochs=0)


def test_plain_training_tells_its_steps_and_can_be_ended(model: ReferenceBackend, parts: Parts) -> None:
    training, _ = parts
    told: list[float] = []
    plain_fit(model, training.inputs, training.labels, Plan(batch=100), on_step=lambda step: told.append(step.loss))
    assert len(told) == 8
    plain_fit(model, training.inputs, training.labels, Plan(batch=100), on_step=lambda step: step.number == 3)
    assert told[-1] > 0


def test_searchers_that_retrain_are_compared_where_training_data_is_given(
    model: ReferenceBackend, parts: Parts
) -> None:
    training, data = parts
    assert "apricot" not in usual_searchers(False)
    assert "apricot" in usual_searchers(True)
    untrained = WithoutFit(model.native)
    for (layer, parameter), values in weights_of(model).items():
        untrained.set_weights(layer, parameter, values)
    found = arachne.compare_searchers(untrained, data, "8:1", searchers=["bias", QUICK], training=training)
    assert [one.failed is None for one in found.contenders] == [True, False]
    assert "has no training loop" in str(found.contenders[1].failed)


def problem_of(model: ReferenceBackend, parts: Parts) -> Problem:
    """The problem that a search over all weights is given."""
    training, data = parts
    split = split_by_outcome(model, data, "8:1", rng=np.random.default_rng(0))
    suspects = Everything().localise(model, split.seen, rng=np.random.default_rng(0)).suspects
    return build_problem(model, split, suspects, 10.0, PlainEvaluator, training)


@pytest.mark.parametrize("formula", ["tarantula", "ochiai", "dstar"])
def test_synthesised_inputs_raise_the_suspicious_features_within_their_limits(
    model: ReferenceBackend, parts: Parts, formula: str
) -> None:
    problem = problem_of(model, parts)
    search = DeepFault(suspicion=formula, suspicious=5, synthesised=50, distance=0.25, domain=(0.0, 0.8))
    chosen = search._suspicious(problem)
    start = {"": np.minimum(np.asarray(problem.split.seen.data.inputs)[:50], np.float32(0.8))}
    found = search.raise_features(problem, start, chosen)[""]
    before, after = (joined_features(model, inputs)[:, chosen].sum(axis=1) for inputs in (start[""], found))
    assert (after >= before - 1e-5).mean() > 0.95
    assert after.mean() > before.mean() + 0.1
    assert np.abs(found - start[""]).max() <= 0.2 + 1e-6
    assert found.min() >= 0
    assert found.max() <= np.float32(0.8)
    assert found.dtype == np.float32


@pytest.mark.parametrize("ending", ["softmax", "one_sigmoid"])
def test_features_rise_whatever_a_model_ends_in(ending: str) -> None:
    network = PROBABILITIES[ending]()
    backend = ReferenceBackend(network)
    inputs = np.asarray(random_inputs(network, 60, seed=3))
    predicted = backend.predict(inputs)
    wrong = np.arange(60) % 5 == 0
    data = LabelledData(inputs, np.where(wrong, (predicted + 1) % backend.forward(inputs).shape[1], predicted))
    split = split_by_outcome(backend, data, "*:*", rng=np.random.default_rng(0))
    suspects = Everything().localise(backend, split.seen, rng=np.random.default_rng(0)).suspects
    problem = build_problem(backend, split, suspects, 10.0, PlainEvaluator)
    chosen = np.arange(joined_features(backend, inputs).shape[1])[:2]
    found = DeepFault(input_step=0.005).raise_features(problem, {"": inputs}, chosen)[""]
    before, after = (joined_features(backend, one)[:, chosen].sum(axis=1) for one in (inputs, found))
    assert after.mean() > before.mean() + 0.01


def test_the_most_suspicious_features_are_active_on_negatives_alone(model: ReferenceBackend, parts: Parts) -> None:
    problem = problem_of(model, parts)
    chosen = DeepFault(suspicious=1)._suspicious(problem)
    seen = problem.split.seen
    active = [
        (joined_features(model, np.asarray(seen.data.inputs)[rows]) > 0).mean(axis=0)
        for rows in (seen.negatives, seen.positives)
    ]
    suspicion = active[0] / np.maximum(active[0] + active[1], 1e-12)
    assert suspicion[chosen[0]] == suspicion.max()


def test_synthesis_takes_no_tokens(model: ReferenceBackend, parts: Parts) -> None:
    problem = problem_of(model, parts)
    part = problem.split.seen
    tokens = replace(part, data=replace(part.data, inputs=np.ones((len(part), 64), np.int64)))
    with pytest.raises(UsageError, match="whole numbers, such as tokens"):
        DeepFault().begin(replace(problem, split=replace(problem.split, seen=tokens)), rng=np.random.default_rng(0))
    with pytest.raises(UsageError, match="domain must be a smaller and a larger number, got 1 and 0"):
        DeepFault(domain=(1.0, 0.0))


def test_synthesis_needs_no_training_data_and_no_framework_that_trains(model: ReferenceBackend, parts: Parts) -> None:
    _, data = parts
    untrained = WithoutFit(model.native)
    for (layer, parameter), values in weights_of(model).items():
        untrained.set_weights(layer, parameter, values)
    ours, theirs = (arachne.repair(one, data, "8:1", searcher=RIVALS[2]).patch.digest for one in (model, untrained))
    assert ours == theirs


def test_an_under_fitted_class_learns_from_its_differential_and_an_over_fitted_one_from_what_is_unlike_it(
    model: ReferenceBackend, parts: Parts
) -> None:
    problem = problem_of(model, parts)
    rows = np.flatnonzero(parts[0].labels == 8)
    weight = model.get_weights(model.layers[-1].name)["weight"]
    right, differential = heat_maps(problem, problem.split.seen, 8, weight)
    own = joined_features(model, np.asarray(parts[0].inputs)[rows]) * weight[8]
    own /= np.linalg.norm(own, axis=1, keepdims=True)
    under = Mode(overfit_gap=1.0)._rank(problem, 8, rows)
    np.testing.assert_array_equal(under, np.argsort(-(own @ differential), kind="stable"))
    overfitted = replace(problem, split=replace(problem.split, seen=all_wrong(problem.split.seen)))
    assert heat_maps(overfitted, overfitted.split.seen, 8, weight)[0].shape == right.shape
    over = Mode(overfit_gap=0.0)._rank(overfitted, 8, rows)
    right = heat_maps(overfitted, overfitted.split.seen, 8, weight)[0]
    np.testing.assert_array_equal(over, np.argsort(own @ right, kind="stable"))


def all_wrong(part: Part) -> Part:
    """The part as if the model took every eight for a one."""
    scores = part.scores.copy()
    scores[part.data.labels == 8, 1] = scores.max() + 1
    return replace(part, outputs=scores)


def test_reduced_models_may_start_from_random_weights(model: ReferenceBackend, parts: Parts) -> None:
    problem = problem_of(model, parts)
    own = Apricot(fresh=True)._random(problem, rng=np.random.default_rng(0))
    for place in problem.suspects.slices:
        assert np.all(own[place.numbers] != problem.suspects.values[place.numbers])
        if place.parameter == "bias":
            assert not own[place.numbers].any()


class EndsInAConvolution(ReferenceBackend):
    """A model whose last layer is none that features enter."""

    @property
    def layers(self) -> Sequence[LayerInfo]:
        *others, last = super().layers
        return (*others, replace(last, kind="conv"))


def test_features_are_those_of_a_dense_layer_at_the_end(model: ReferenceBackend) -> None:
    with pytest.raises(UsageError, match="and the model ends in 'fc2', a layer of the kind 'conv'"):
        feature_layer(EndsInAConvolution(model.native))


def test_another_round_trains_on_the_same_inputs(model: ReferenceBackend, parts: Parts) -> None:
    training, data = parts
    found = arachne.repair(model, data, "8:1", searcher=RIVALS[1], training=training, max_break=0.2, rounds=2)
    assert any(point.candidate.made_by == "mode, round 2" for point in found.points)
