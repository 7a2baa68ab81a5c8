"""Scores predicted from what was kept of the original's pass, against those of the patched model itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from arachne.data.labelled import LabelledData
from arachne.data.part import Part
from arachne.data.split import split_by_outcome
from arachne.localise.contrast import Contrast
from arachne.localise.fisher import Fisher
from arachne.model.backend import restoring_weights
from arachne.model.values import Address, Array, Inputs
from arachne.patch import Patch
from arachne.results.measure import measure_scores
from arachne.scoring.predicted import predict_scores, verify_scores
from arachne.scoring.tail_cache import TailCache, run_and_keep
from arachne.testing import ReferenceBackend, mlp, random_inputs
from arachne.weights.selection import Selection

NETWORK = mlp([8, 12, 7, 4], seed=0)
ADDRESSES = (Address("fc1", "weight", (3, 2)), Address("fc2", "weight", (1, 3)), Address("fc3", "bias", (2,)))


class Counted(ReferenceBackend):
    """Counts the inputs that run through it."""

    ran = 0

    def _forward(self, inputs: Inputs) -> Array:
        self.ran += len(np.asarray(inputs))
        return super()._forward(inputs)


@pytest.fixture
def backend() -> Counted:
    return Counted(NETWORK)


def part_of(backend: Counted) -> Part:
    inputs = random_inputs(NETWORK, 600, seed=1)
    labels = np.random.default_rng(0).integers(4, size=600)
    data = LabelledData(inputs, labels)
    split = split_by_outcome(
        backend, data, "top:1", rng=np.random.default_rng(0), run=lambda inputs: run_and_keep(backend, inputs)
    )
    return split.seen


def predict_changed(backend: Counted, part: Part, values: Array, wrong: float = 0.0) -> tuple[Array, Array, int]:
    """Scores as confirmed, scores of the changed model, and how many inputs ran for the former."""
    split = split_by_outcome(
        backend, part.data, "top:1", rng=np.random.default_rng(1), run=lambda inputs: run_and_keep(backend, inputs)
    )
    foreseen = predict_scores(backend, split, Selection.of(backend, ADDRESSES), values)
    with restoring_weights(backend, [(address.layer, address.parameter) for address in ADDRESSES]):
        for address, value in zip(ADDRESSES, values, strict=True):
            whole = backend.get_weights(address.layer)[address.parameter].copy()
            whole[address.index] = value + wrong
            backend.set_weights(address.layer, address.parameter, whole)
        backend.ran = 0
        found = verify_scores(backend, split.seen, foreseen(split.seen))
        ran = backend.ran
        return found, backend.forward(split.seen.data.inputs), ran


def test_what_is_foreseen_is_what_the_patched_model_says(backend: Counted) -> None:
    found, full, ran = predict_changed(backend, part_of(backend), np.array([1.0, -0.5, 0.4]))
    np.testing.assert_allclose(found, full, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found.argmax(axis=1), full.argmax(axis=1))
    assert 0 < ran < len(found)


@pytest.mark.parametrize("keep", [True, False], ids=["activations kept", "none kept"])
def test_a_patch_is_measured_from_the_kept_tail_as_by_a_pass(backend: Counted, *, keep: bool) -> None:
    """Several layers of the tail change at once; only inputs whose class changes or is close run again."""
    whole = part_of(backend)
    part = whole if keep else replace(whole, cached_activations=None)
    patch = Patch.between(backend, ADDRESSES, [1.0, -0.5, 0.4])
    with patch.apply_temporarily(backend):
        full = backend.forward(part.data.inputs)
    backend.ran = 0
    measured = measure_scores(backend, part, patch)
    assert (0 < backend.ran < len(part)) if keep else backend.ran == len(part)
    np.testing.assert_allclose(measured.after, full, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(measured.after.argmax(axis=1), full.argmax(axis=1))
    np.testing.assert_array_equal(backend.forward(part.data.inputs), part.outputs)


def test_a_model_that_does_not_say_what_was_foreseen_runs_over_everything(backend: Counted) -> None:
    found, full, ran = predict_changed(backend, part_of(backend), np.array([1.0, -0.5, 0.4]), wrong=-2.0)
    np.testing.assert_array_equal(found, full)
    assert ran > len(found)


@pytest.mark.parametrize("localiser", [Contrast(count=20), Fisher(count=20)], ids=["contrast", "fisher"])
def test_localising_from_what_was_kept_finds_the_same_weights(backend: Counted, localiser: Contrast | Fisher) -> None:
    part = part_of(backend)
    assert isinstance(part.cached_activations, TailCache)
    plain = Part(part.data, part.rows, part.scores, part.targets)
    kept, passed = (localiser.scores(backend, one, rng=np.random.default_rng(0)) for one in (part, plain))
    assert kept.keys() == passed.keys()
    for place, scores in passed.items():
        np.testing.assert_allclose(kept[place], scores, rtol=1e-3, atol=1e-6)
    own, other = (localiser.localise(backend, one, rng=np.random.default_rng(0)).suspects for one in (part, plain))
    assert set(own.addresses) == set(other.addresses)


def test_rows_of_a_kept_tail_are_those_of_a_pass_over_these_rows(backend: Counted) -> None:
    part = part_of(backend)
    rows = np.array([5, 3, 100, 7])
    assert isinstance(part.cached_activations, TailCache)
    own = part.cached_activations.take(np.arange(200)).take(rows)
    passed = TailCache.of(backend, np.asarray(part.data.inputs)[rows])
    assert passed is not None
    for layer in ("fc1", "fc2", "fc3"):
        np.testing.assert_allclose(own.entering(layer), passed.entering(layer), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(own.leaving(layer), passed.leaving(layer), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(own.sources(layer, np.array([1, -1]))[:, 1], 1)
    both = own.concatenate(own)
    assert len(both) == 8
    np.testing.assert_array_equal(both.leaving("fc3")[4:], own.leaving("fc3"))
