"""A low-rank patch in a review: what each direction reads and moves, by name and as a picture."""

from __future__ import annotations

import numpy as np
import pytest

from arachne.data.labelled import LabelledData
from arachne.evidence.connections import describe_connections
from arachne.model.values import Array
from arachne.patch import Patch
from arachne.patch.low_rank import LowRankChange
from arachne.report.charts import weight_map
from arachne.report.direction_objects import direction_objects
from arachne.report.direction_rows import direction_lines, directions_of
from arachne.report.layer_maps import MOST_SHADES, layer_maps, shades_of
from arachne.testing import ReferenceBackend, mlp
from arachne.weights.edit import LowRankEdit
from arachne.weights.storage import STORAGES

SIDE = 8
"""The height and width of the pictures."""


@pytest.fixture(scope="module")
def backend() -> ReferenceBackend:
    return ReferenceBackend(mlp((SIDE * SIDE, 6, 3)))


@pytest.fixture(scope="module")
def data() -> LabelledData:
    """Smooth pictures, flat as the model takes them."""
    rows, columns = np.mgrid[:SIDE, :SIDE] / SIDE
    phases = np.random.default_rng(0).uniform(0, 3, (60, 2, 1, 1))
    pictures = 0.5 + 0.25 * np.sin(2 * rows + phases[:, 0]) + 0.25 * np.cos(2 * columns + phases[:, 1])
    return LabelledData(pictures.reshape(60, -1).astype(np.float32), np.zeros(60, np.int64))


def edit_of(reads: dict[int, float], moves: dict[int, float], layer: str = "fc1", width: int = 64) -> LowRankEdit:
    left, right = np.zeros((6 if layer == "fc1" else 3, 1)), np.zeros((width, 1))
    for side, values in ((right, reads), (left, moves)):
        for position, value in values.items():
            side[position] = value
    return LowRankEdit(layer, "weight", left, right, STORAGES["float32"])


def change_of(edit: LowRankEdit, backend: ReferenceBackend) -> LowRankChange:
    return LowRankChange.from_edit(backend.get_weights(edit.layer)["weight"], edit)


def test_a_direction_is_told_by_its_largest_ends_whatever_the_scale_of_its_vectors(backend: ReferenceBackend) -> None:
    small, large = (
        change_of(edit_of({3: 3 * scale, 10: -4 * scale}, {2: 0.5 / scale}), backend) for scale in (0.1, 10)
    )
    told = "direction 1, size 2.5: reads inputs 10 (-0.80), 3 (+0.60); moves outputs 2 (+2.5)"
    assert direction_lines(small) == direction_lines(large) == [told]
    (one,) = directions_of(small)
    np.testing.assert_allclose(np.outer(one.moves, one.detector), small.edit.left @ small.edit.right.T, rtol=1e-6)


def test_shades_are_the_lengths_of_the_change_in_the_cells_of_a_coarse_grid() -> None:
    rng = np.random.default_rng(4)
    edit = LowRankEdit("fc1", "weight", rng.normal(size=(40, 2)), rng.normal(size=(64, 2)), STORAGES["float32"])
    change = np.asarray(edit.left, np.float64) @ np.asarray(edit.right, np.float64).T
    plain = np.array(
        [
            [np.linalg.norm(cell) for cell in np.array_split(rows, MOST_SHADES[1], axis=1)]
            for rows in np.array_split(change, MOST_SHADES[0])
        ]
    )
    np.testing.assert_allclose(shades_of(edit), plain / plain.max(), rtol=1e-6)


def test_a_layer_that_changes_as_a_whole_is_drawn_in_shades(backend: ReferenceBackend) -> None:
    edit = edit_of({3: 1.0}, {2: 0.5, 4: 0.25})
    whole, other = layer_maps(backend.layers, Patch.of_edits(backend, [edit]))
    assert (whole["marks"], whole["parameter"], other["shades"]) == ([], "weight", [])
    shades = np.array(whole["shades"])
    assert np.flatnonzero(shades.any(axis=1)).tolist() == [2, 4]
    assert np.flatnonzero(shades.any(axis=0)).tolist() == [1]
    drawn = weight_map(whole)
    assert drawn.count('class="shade"') == shades.size
    assert weight_map({**whole, "shades": []}) == weight_map({key: whole[key] for key in whole if key != "shades"})


def test_the_largest_comes_first_and_the_rest_are_counted(backend: ReferenceBackend) -> None:
    left, right = np.diag(np.arange(1.0, 7)), np.eye(64, 6)
    change = change_of(LowRankEdit("fc1", "weight", left, right, STORAGES["float32"]), backend)
    lines = direction_lines(change)
    assert lines[0] == "direction 1, size 6: reads inputs 5 (+1.00); moves outputs 5 (+6)"
    assert lines[-1] == "… and 2 more directions"


def test_taking_a_patch_out_moves_outputs_the_other_way(backend: ReferenceBackend) -> None:
    patch = Patch.of_edits(backend, [edit_of({3: 1.0}, {2: 0.5})])
    assert "moves outputs 2 (+0.5)" in str(patch)
    assert "moves outputs 2 (-0.5)" in str(patch.inverse())


def test_a_kernel_is_read_by_channel_row_and_column() -> None:
    values: Array = np.zeros((4, 2, 3, 3), np.float32)
    right = np.zeros((18, 1))
    right[10] = 1
    edit = LowRankEdit("conv", "weight", np.ones((4, 1)), right, STORAGES["float32"])
    assert "reads inputs (1, 0, 1) (+1.00)" in direction_lines(LowRankChange.from_edit(values, edit))[0]


def test_all_weights_of_a_matrix_that_reads_few_pixels_are_connected_to_them(
    backend: ReferenceBackend, data: LabelledData
) -> None:
    few = Patch.of_edits(backend, [edit_of({0: 1.0, 1: 0.5}, {2: 0.5, 3: 1.0})])
    assert describe_connections(backend, few, data) == (
        "all 4 changed weights are connected to pixel (0, 0) and pixel (0, 1)"
    )
    many = Patch.of_edits(backend, [edit_of(dict.fromkeys(range(9), 1.0), {2: 0.5})])
    assert describe_connections(backend, many, data) is None
    behind = Patch.of_edits(backend, [edit_of({0: 1.0}, {2: 0.5}, "fc2", 6)])
    assert describe_connections(backend, behind, data) is None


def test_the_page_names_pixels_and_classes_and_draws_what_is_read(
    backend: ReferenceBackend, data: LabelledData
) -> None:
    patch = Patch.of_edits(backend, [edit_of({0: 1.0}, {2: 0.5}), edit_of({4: 1.0}, {2: -2.0}, "fc2", 6)])
    first, last = direction_objects(backend, patch, data, ("cat", "dog", "fox"))
    assert first["reads"] == [{"name": "pixel (0, 0)", "part": 1.0}]
    assert first["moves"] == [{"name": "2", "part": 0.5}]
    assert first["picture"]["kind"] == "image"
    assert last["reads"] == [{"name": "4", "part": 1.0}]
    assert last["moves"] == [{"name": "fox", "part": -2.0}]
    assert "picture" not in last
