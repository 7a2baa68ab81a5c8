from __future__ import annotations

import numpy as np
import pytest

from arachne.data.labelled import LabelledData
from arachne.data.split import Split, split_by_outcome
from arachne.evidence import Evidence, compare, measure, score
from arachne.model.values import Address
from arachne.patch import Patch
from arachne.report.part_object import part_object
from arachne.testing import ReferenceBackend, mlp


@pytest.fixture
def backend() -> ReferenceBackend:
    return ReferenceBackend(mlp([4, 8, 3]))


@pytest.fixture
def split(backend: ReferenceBackend) -> Split:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(400, 4)).astype(np.float32)
    labels = backend.predict(inputs)
    flipped = rng.random(400) < 0.2
    labels[flipped] = (labels[flipped] + 1) % 3
    return split_by_outcome(backend, LabelledData(inputs, labels), "*:*", rng=rng)


@pytest.fixture
def patch(backend: ReferenceBackend) -> Patch:
    return Patch.between(backend, [Address("fc2", "bias", (0,))], [1.5])


def numbers(evidence: Evidence) -> dict[str, object]:
    return part_object(evidence.held_out)


def test_measuring_runs_the_model_with_and_without_the_patch(
    backend: ReferenceBackend, split: Split, patch: Patch
) -> None:
    evidence = measure(backend, patch, split, budget=0.25)
    held_out = split.held_out
    before = backend.predict(held_out.data.inputs)
    patch.apply(backend)
    after = backend.predict(held_out.data.inputs)
    labels = held_out.data.labels
    assert evidence.held_out.negatives == len(held_out.negatives)
    assert evidence.held_out.broken == int(((before == labels) & (after != labels)).sum()) > 0
    assert evidence.held_out.repaired == int(((before != labels) & (after == labels)).sum()) > 0
    assert evidence.seen is not None
    assert evidence.seen.inputs == len(split.seen)
    assert evidence.choose is None
    assert evidence.budget == 0.25


def test_the_model_keeps_its_weights(backend: ReferenceBackend, split: Split, patch: Patch) -> None:
    before = backend.get_weights("fc2")["bias"]
    measure(backend, patch, split)
    np.testing.assert_array_equal(backend.get_weights("fc2")["bias"], before)


def test_a_patched_model_loaded_anew_gives_the_same_numbers(
    backend: ReferenceBackend, split: Split, patch: Patch
) -> None:
    patched = ReferenceBackend(mlp([4, 8, 3]))
    patch.apply(patched)
    again = compare(split, score(patched, split))
    assert numbers(again) == numbers(measure(backend, patch, split))
