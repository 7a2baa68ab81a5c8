"""Rounds: what a search finds on top of a patch, and when that is taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import arachne
from arachne.choose.budget import Budget
from arachne.errors import UsageError
from arachne.evidence import measure
from arachne.model.backend import restoring_weights
from arachne.model.values import Address
from arachne.patch import Patch
from arachne.results.result import RepairResult
from arachne.search.margin import BiasShift, MarginSearch
from arachne.search.state import Candidate
from arachne.settings import Settings
from arachne.testing import ReferenceBackend
from tests.backends import golden

SHORT = BiasShift(steps=16, folds=2)


def repair_in_rounds(rounds: int, **more: Any) -> RepairResult:
    backend = ReferenceBackend(golden.network("mlp"))
    return arachne.repair(backend, golden.digits(), "*:8", searcher=SHORT, rounds=rounds, max_break=0.05, **more)


@pytest.fixture(scope="module")
def result() -> RepairResult:
    return repair_in_rounds(2)


def test_a_round_adds_candidates_that_say_which_round_they_are_of(result: RepairResult) -> None:
    makers = [point.candidate.made_by for point in result.points]
    assert {"bias", "bias, round 2"} == set(makers)
    later = [point for point in result.points if point.candidate.made_by == "bias, round 2"]
    assert all(point.out_of_fold is None and point.choose is not None for point in later)
    assert result.patch.provenance["settings"]["rounds"] == 2
    assert "round 2" in result.seconds


def test_what_a_later_round_found_is_measured_as_its_patch_would_be(result: RepairResult) -> None:
    for point in result.points:
        patch = Patch.between(result.backend, point.candidate.addresses, point.candidate.values)
        evidence = measure(result.backend, patch, result.split)
        assert point.held_out is not None
        assert (evidence.held_out.repaired, evidence.held_out.broken) == (
            point.held_out.repair.count,
            point.held_out.breakage.count,
        )


def test_a_round_is_taken_only_where_it_is_better_on_what_candidates_are_compared_on(result: RepairResult) -> None:
    assert result.choice is not None
    assert result.choice.index is not None
    taken = result.points[result.choice.index]
    first = repair_in_rounds(1, choose=0.3)
    assert first.choice is not None
    assert first.choice.index is not None
    before = first.points[first.choice.index]
    assert taken.selection_outcome.repair.value >= before.selection_outcome.repair.value - 0.02
    if "round" not in taken.candidate.made_by:
        assert result.patch.entries == first.patch.entries


def test_rounds_stop_where_one_brings_nothing() -> None:
    found = repair_in_rounds(9)
    rounds = [name for name in found.seconds if name.startswith("round")]
    assert 1 <= len(rounds) < 8


def test_the_model_has_its_own_weights_again_after_a_round(result: RepairResult) -> None:
    fresh = ReferenceBackend(golden.network("mlp"))
    for info in fresh.layers:
        for parameter, values in fresh.get_weights(info.name).items():
            np.testing.assert_array_equal(result.backend.get_weights(info.name)[parameter], values)


def test_a_candidate_in_whole_parameters_changes_its_own_weights_alone() -> None:
    backend = ReferenceBackend(golden.network("mlp"))
    layer = backend.layers[0].name
    weights = Candidate.at(backend, [Address(layer, "weight", (0, 1))], np.array([2.0])).whole_parameters(backend)
    ((place, values),) = weights.items()
    with restoring_weights(backend, [place]):
        before = backend.get_weights(layer)["weight"]
        assert np.flatnonzero(values != before).tolist() == [1]
    assert values[0, 1] == 2


def test_rounds_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="rounds must be 1 or more, got 0"):
        Settings(rounds=0)
    with pytest.raises(UsageError, match="leave out the confidence or the rounds"):
        Settings(rounds=2, searcher=MarginSearch(), budget=Budget(confidence=0.9))
