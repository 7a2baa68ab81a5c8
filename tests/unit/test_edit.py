"""Edits: what they do to weights, and that a low-rank one is taken back bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arachne.model.values import Address
from arachne.testing import ReferenceBackend, mlp
from arachne.weights import edit as edits
from arachne.weights.edit import LowRankEdit, SparseEdit
from arachne.weights.selection import Selection
from arachne.weights.storage import STORAGES, IntegerGrid, Storage

GRID = IntegerGrid(np.full((6, 1), 0.01), 5)


def low_rank(rows: int, columns: int, rank: int, storage: Storage, scale: float = 0.1) -> LowRankEdit:
    rng = np.random.default_rng(rank)
    left, right = rng.normal(size=(rows, rank)) * scale, rng.normal(size=(columns, rank))
    return LowRankEdit("fc1", "weight", left, right, storage)


def test_a_sparse_edit_sets_its_weights_and_nothing_else() -> None:
    backend = ReferenceBackend(mlp((5, 8, 3)))
    places = [Address("fc1", "weight", (2, 3)), Address("fc2", "bias", (1,)), Address("fc1", "weight", (0, 0))]
    selection = Selection.of(backend, places)
    edit = SparseEdit(selection, selection.values + np.array([3.0, 0.0, 4.0]))
    before = selection.whole_parameters(backend)
    after = edit.apply(before)
    assert edit.parameters == (("fc1", "weight"), ("fc2", "bias"))
    assert (edit.changed_weights, edit.size) == (2, 5.0)
    assert sum(np.count_nonzero(after[key] != before[key]) for key in after) == 2
    sparse = edit.to_sparse(backend)
    assert len(sparse.selection) == 2
    assert {key: values.tolist() for key, values in sparse.apply(before).items()} == {
        key: values.tolist() for key, values in after.items()
    }


def test_a_low_rank_edit_adds_its_products_and_rounds() -> None:
    backend = ReferenceBackend(mlp((5, 8, 3)))
    edit = low_rank(8, 5, 2, STORAGES["float32"])
    before = backend.get_weights("fc1")["weight"]
    after = edit.apply({("fc1", "weight"): before})["fc1", "weight"]
    product = edit.left.astype(np.float64) @ edit.right.astype(np.float64).T
    np.testing.assert_allclose(after, before + product, rtol=1e-6)
    assert after.dtype == np.float32
    assert edit.size == pytest.approx(np.linalg.norm(product))
    assert (edit.rank, edit.changed_weights) == (2, 40)
    sparse = edit.to_sparse(backend)
    assert sparse.changed_weights == len(sparse.selection) == np.count_nonzero(after != before)
    np.testing.assert_array_equal(sparse.apply({("fc1", "weight"): before})["fc1", "weight"], after)


@pytest.mark.parametrize("storage", [*STORAGES.values(), GRID], ids=lambda storage: storage.name)
@pytest.mark.parametrize("scale", [1e-6, 0.1, 100.0])
def test_a_low_rank_edit_is_taken_back_bit_for_bit(storage: Storage, scale: float) -> None:
    edit = low_rank(6, 40, 3, storage, scale)
    rng = np.random.default_rng(0)
    before = storage.round(rng.normal(size=(6, 4, 10)) * 10.0 ** rng.integers(-6, 3, (6, 4, 10)).clip(-3, 0)
                           if storage is not GRID else rng.normal(size=(6, 40)))  # fmt: skip
    before.reshape(-1)[:2] = [0.0, 0.0] if storage is GRID else [0.0, -0.0]
    fitted = edit.with_residue(before)
    after = fitted.add(before)
    assert storage.bits_of(fitted.remove(after)) == storage.bits_of(before)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_a_residue_holds_any_whole_numbers(numbers: list[int]) -> None:
    packed = edits._compress(np.array(numbers, np.int64))
    assert edits._decompress(packed, len(numbers)).tolist() == numbers


@pytest.mark.parametrize("storage", [STORAGES["float32"], IntegerGrid(np.linspace(0.01, 0.1, 50)[:, None])])
def test_blocks_of_rows_change_nothing(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    edit = low_rank(50, 30, 4, storage)
    before = storage.round(np.random.default_rng(1).normal(size=(50, 30)))
    whole = edit.with_residue(before)
    after = whole.add(before)
    monkeypatch.setattr(edits, "BLOCK", 64)
    assert edit.add(before).tobytes() == after.tobytes()
    assert edit.with_residue(before).residue == whole.residue
    assert storage.bits_of(whole.remove(after)) == storage.bits_of(before)


@pytest.mark.parametrize("residue", [b"", b"\x03abc", b"\x01abc", b"\x01" + edits._compress(np.arange(7))[1:]])
def test_a_residue_that_does_not_fit_is_refused(residue: bytes) -> None:
    edit = LowRankEdit("a", "weight", np.ones((2, 1)), np.ones((3, 1)), STORAGES["float32"], residue)
    with pytest.raises(ValueError, match="residue"):
        edit.remove(np.zeros((2, 3), np.float32))


def test_a_residue_never_takes_more_memory_than_its_weights() -> None:
    bomb = edits._compress(np.zeros(1 << 22, np.int64))
    with pytest.raises(ValueError, match="this many weights"):
        edits._decompress(bomb, 6)


@pytest.mark.parametrize(
    ("left", "right"),
    [(np.ones((2, 1)), np.ones((3, 2))), (np.ones(2), np.ones((3, 1))), (np.full((2, 1), np.nan), np.ones((3, 1)))],
)
def test_vectors_that_make_no_matrix_are_refused(left: np.ndarray, right: np.ndarray) -> None:
    with pytest.raises(ValueError, match="low-rank edit"):
        LowRankEdit("a", "weight", left, right, STORAGES["float32"])


def test_a_parameter_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"2 × 3 cannot change \(3, 2\)"):
        low_rank(2, 3, 1, STORAGES["float32"]).add(np.zeros((3, 2), np.float32))
    with pytest.raises(ValueError, match="never fitted"):
        low_rank(2, 3, 1, STORAGES["float32"]).remove(np.zeros((2, 3), np.float32))


def test_whole_numbers_take_on_what_those_before_them_cannot() -> None:
    grid = IntegerGrid(np.array([[0.5], [0.25]]), 0)
    values = np.zeros((2, 8), np.float32)
    edit = LowRankEdit("fc", "weight", np.array([[0.1], [0.1]]), np.ones((8, 1)), grid)
    changed = edit.add(values)
    np.testing.assert_allclose(changed.sum(axis=1), 0.8, atol=0.25)  # rounded one by one, nothing would be left
    assert set(np.unique(changed)) <= {0.0, 0.25, 0.5}
    fitted = edit.with_residue(values)
    np.testing.assert_array_equal(fitted.remove(changed), values)


@pytest.mark.parametrize("scale", [0.02, np.linspace(0.01, 0.05, 6)[:, None]], ids=["tensor", "channel"])
def test_an_edit_of_whole_numbers_is_the_same_in_the_file(scale: Any) -> None:
    rng = np.random.default_rng(3)
    grid = IntegerGrid(scale, 2)
    stored = rng.integers(-128, 128, (6, 40)).astype(np.int8)
    edit = LowRankEdit("fc", "weight", rng.normal(size=(6, 2)), rng.normal(size=(40, 2)), grid)
    whole = edit.in_whole_numbers()
    assert whole is not None
    in_file = whole.add(stored)
    np.testing.assert_array_equal(grid.to_stored(edit.add(grid.to_float(stored))), in_file)
    assert (np.abs(in_file) >= 127).any()  # some are clipped, and come back nevertheless
    np.testing.assert_array_equal(whole.with_residue(stored).remove(in_file), stored)
    rows = IntegerGrid(np.full((6, 40), 0.02) + np.arange(40) / 1000)
    assert LowRankEdit("fc", "weight", edit.left, edit.right, rows).in_whole_numbers() is None
