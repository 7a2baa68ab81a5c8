"""Maps of what a model looks at: exact where the model is linear, drawn on the page, left out where there are none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from arachne.data.labelled import LabelledData
from arachne.data.part import Part
from arachne.errors import UsageError
from arachne.evidence import PartEvidence, measure_part
from arachne.model.backend import LossGradient
from arachne.model.values import Inputs
from arachne.patch import Patch
from arachne.report.html import render
from arachne.report.saliency import _coarse, _View, saliency_objects
from arachne.results.result import RepairResult
from arachne.testing import ReferenceBackend, mlp


def test_of_a_linear_model_a_map_is_what_each_pixel_adds_to_the_difference(
    backend: ReferenceBackend, data: LabelledData
) -> None:
    view = _View.of(data.inputs)
    assert view is not None
    rows, labels, wrong = np.array([3, 5]), np.array([8, 8]), np.array([1, 2])
    maps = view.maps(backend, rows, labels, wrong)
    weights = backend.get_weights("fc1")["weight"].astype(np.float64)
    expected = (np.asarray(data.inputs)[rows] - view.mean) * (weights[wrong] - weights[labels])
    np.testing.assert_allclose(maps.reshape(2, 64), expected, rtol=1e-5, atol=1e-6)


def test_the_page_shows_fixed_and_broken_inputs_with_both_maps(
    repaired: RepairResult, page_of: Callable[[RepairResult], dict[str, Any]]
) -> None:
    page = page_of(repaired)
    shown = page["saliency"]
    held_out = repaired.evidence.held_out
    assert [one["became"] for one in shown].count("fixed") == min(8, held_out.repaired)
    assert [one["became"] for one in shown].count("broken") == min(4, held_out.broken)
    assert all(one[name]["kind"] == "image" for one in shown for name in ("input", "before", "after"))
    assert all(one["before"]["src"] != one["after"]["src"] for one in shown)
    assert "What the model looks at" in render(page)
    without = {key: value for key, value in page.items() if key != "saliency"}  # a page of an earlier version
    assert "What the model looks at" not in render(without)


def part_and_evidence(inputs: np.ndarray, backend: ReferenceBackend) -> tuple[Part, PartEvidence]:
    labels = np.zeros(len(inputs), np.int64)
    part = Part(LabelledData(inputs, labels), np.arange(len(inputs)), np.eye(10)[np.ones(len(inputs), int)], ())
    return part, measure_part(part, np.eye(10)[labels])


def test_inputs_that_are_no_pictures_or_whole_numbers_and_an_empty_patch_have_no_maps(repaired: RepairResult) -> None:
    backend = ReferenceBackend(mlp([7, 10]))
    part, evidence = part_and_evidence(np.random.default_rng(0).random((20, 7), np.float32), backend)
    assert saliency_objects(backend, repaired.patch, part, evidence) == []
    part, evidence = part_and_evidence(np.tile(np.arange(64), (20, 1)), backend)
    assert saliency_objects(backend, repaired.patch, part, evidence) == []
    empty = Patch.between(repaired.backend, (), ())
    assert saliency_objects(repaired.backend, empty, repaired.split.held_out, repaired.evidence.held_out) == []


class NoGradients(ReferenceBackend):
    """Cannot differentiate by inputs."""

    def _input_gradients(self, inputs: Inputs, loss: LossGradient) -> Inputs:
        raise UsageError("backend 'reference' gives no gradients with respect to the inputs")


def test_a_backend_without_gradients_by_inputs_gives_a_page_without_maps(
    repaired: RepairResult, backend: ReferenceBackend
) -> None:
    other = NoGradients(mlp([64, 10]))
    for parameter, values in backend.get_weights("fc1").items():
        other.set_weights("fc1", parameter, values)
    assert replace(repaired, backend=other).page()["saliency"] == []


@pytest.mark.parametrize(("shape", "side"), [((5, 7), 2), ((4, 4), 4), ((3, 3), 1)])
def test_large_maps_are_means_over_squares_in_the_shape_they_had(shape: tuple[int, int], side: int) -> None:
    values = np.arange(shape[0] * shape[1], dtype=float).reshape(shape)
    found = _coarse(values, side)
    assert found.shape == shape
    assert found[0, 0] == values[:side, :side].mean()
