"""Low-rank edits in patches: text, apply, revert bit for bit, in memory and in files, also beside single weights."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arachne.errors import PatchError
from arachne.model.values import Address, Array
from arachne.patch import Patch, apply_to, for_model, revert_from
from arachne.patch.algebra import conflicts
from arachne.patch.history import patch_state
from arachne.testing import ReferenceBackend, mlp
from arachne.testing.reference_file import RefnetWeights
from arachne.weights.edit import LowRankEdit, SparseEdit
from arachne.weights.selection import Selection
from arachne.weights.storage import STORAGES


def backend_with(seed: int = 0) -> ReferenceBackend:
    return ReferenceBackend(mlp((5, 8, 3), seed=seed))


def edit_of(layer: str = "fc1", rows: int = 8, columns: int = 5, rank: int = 2) -> LowRankEdit:
    rng = np.random.default_rng(1)
    left, right = rng.normal(size=(rows, rank)), rng.normal(size=(columns, rank))
    return LowRankEdit(layer, "weight", left, right, STORAGES["float32"])


def sparse_edit(backend: ReferenceBackend) -> SparseEdit:
    selection = Selection.of(backend, [Address("fc2", "weight", (1, 2)), Address("fc2", "bias", (0,))])
    return SparseEdit(selection, selection.values + 0.5)


def contents(backend: ReferenceBackend) -> dict[str, Array]:
    return {f"{info.name}.{name}": values for info in backend.layers for name, values in
            backend.get_weights(info.name).items()}  # fmt: skip


def bits(backend: ReferenceBackend) -> dict[str, bytes]:
    return {name: values.tobytes() for name, values in contents(backend).items()}


@pytest.fixture
def patch() -> Patch:
    backend = backend_with()
    return Patch.of_edits(backend, [sparse_edit(backend), edit_of()], provenance={"target": ["6:0"]})


def test_a_patch_with_both_kinds_is_applied_and_reverted_bit_for_bit(patch: Patch) -> None:
    backend = backend_with()
    before = contents(backend)
    original = bits(backend)
    patch.apply(backend)
    after = contents(backend)
    changed = {name for name in after if (after[name] != before[name]).any()}
    assert changed == {"fc1.weight", "fc2.weight", "fc2.bias"}
    np.testing.assert_array_equal(after["fc1.weight"], edit_of().add(before["fc1.weight"]))
    assert len(patch) == 40 + 2
    with pytest.raises(PatchError, match="already carries"):
        patch.apply(backend)
    patch.revert(backend)
    assert bits(backend) == original
    with pytest.raises(PatchError, match="does not carry"):
        patch.revert(backend)
    with patch.apply_temporarily(backend):
        assert bits(backend) != original
    assert bits(backend) == original


def test_the_text_holds_all_of_it(patch: Patch, tmp_path: Path) -> None:
    patch.save(tmp_path / "patch.json")
    again = Patch.load(tmp_path / "patch.json")
    assert again.to_json() == patch.to_json()
    assert (
        again.digest == patch.digest != Patch(patch.entries, replace(patch.base, tensors=patch.base.tensors[1:])).digest
    )
    backend = backend_with()
    original = bits(backend)
    again.apply(backend)
    again.revert(backend)
    assert bits(backend) == original
    assert [type(edit) for edit in again.edits] == [LowRankEdit, SparseEdit, SparseEdit]
    assert sum(edit.changed_weights for edit in again.edits) == len(patch)


def test_its_edits_make_the_patch_again(patch: Patch) -> None:
    backend = backend_with()
    assert Patch.of_edits(backend, patch.edits, provenance=patch.provenance).to_json() == patch.to_json()


def test_people_read_rank_and_size(patch: Patch) -> None:
    text = str(patch)
    assert "\n42 weights in 3 tensors\n" in text
    assert f"fc1.weight, float32 (8, 5), 40 of 40 weights, by a matrix of rank 2 and size {edit_of().size:.3g}" in text
    assert "fc2.bias, float32 (3,), 1 of 3 weights" in text
    assert "of rank 2" in patch._repr_html_()
    assert "without a matrix of rank 2" in str(patch.inverse())


def test_a_patch_of_single_weights_has_no_such_section() -> None:
    backend = backend_with()
    edit = sparse_edit(backend)
    patch = Patch.of_edits(backend, [edit])
    assert "low_rank" not in patch.to_json()
    assert patch.to_json() == Patch.between(backend, edit.selection.addresses, edit.values).to_json()


def test_the_inverse_travels_as_text(patch: Patch) -> None:
    backend = backend_with()
    original = bits(backend)
    patch.apply(backend)
    Patch.from_json(patch.inverse().to_json()).apply(backend)
    assert bits(backend) == original
    assert patch.inverse().inverse().low_rank[0].to_json() == patch.low_rank[0].to_json()


def test_a_file_is_changed_and_restored_byte_for_byte(patch: Patch, tmp_path: Path) -> None:
    backend_with().save(tmp_path / "model.refnet")
    source = RefnetWeights(tmp_path / "model.refnet")
    assert patch_state(patch, source).state == "not carried"
    applied = apply_to(patch, source, tmp_path / "patched.refnet")
    assert applied.written.weights == 42
    patched = RefnetWeights(tmp_path / "patched.refnet")
    assert patch_state(patch, patched).state == "carried"
    revert_from(patch, patched, tmp_path / "again.refnet")
    again = RefnetWeights(tmp_path / "again.refnet")
    assert all(again.read(*key).tobytes() == source.read(*key).tobytes() for key in source.parameters())


def test_layers_of_other_names_are_found_by_content(patch: Patch) -> None:
    other = backend_with()
    renamed = Patch.of([change.move_to(f"x{change.key[0]}", change.key[1]) for change in patch.changes], patch.base)
    found = for_model(renamed, other)
    original = bits(other)
    found.apply(other)
    assert bits(other) != original
    found.revert(other)
    assert bits(other) == original


def test_another_model_is_refused(patch: Patch) -> None:
    backend = backend_with(seed=7)
    original = bits(backend)
    with pytest.raises(PatchError, match="not the tensor this patch was made for"):
        patch.apply(backend)
    assert bits(backend) == original


def test_patches_of_other_tensors_stack_and_come_apart(patch: Patch) -> None:
    backend = backend_with()
    single, whole = (Patch.of_edits(backend, [edit]) for edit in (sparse_edit(backend), edit_of()))
    both = single.compose(whole)
    assert conflicts(single.changes, whole.changes) == ()
    assert len(both) == 42
    assert both.minus(whole).entries == single.entries
    assert both.minus(single).low_rank[0].to_json() == whole.low_rank[0].to_json()
    original = bits(backend)
    both.apply(backend)
    both.revert(backend)
    assert bits(backend) == original


def test_two_edits_of_one_tensor_do_not_stack() -> None:
    backend = backend_with()
    whole = Patch.of_edits(backend, [edit_of()])
    single = Patch.between(backend, [Address("fc1", "weight", (0, 0))], [1.0])
    for first, second in ((whole, single), (single, whole), (whole, whole)):
        with pytest.raises(PatchError, match="repair the second mistake in the patched model"):
            first.compose(second)
    with pytest.raises(PatchError, match="in another way"):
        whole.minus(single)
    with pytest.raises(PatchError, match="two edits change"):
        Patch.of_edits(backend, [edit_of(), edit_of()])


def edit_patch(patch: Patch, **changed: Any) -> str:
    document = json.loads(patch.to_json())
    document["low_rank"][0].update(changed)
    return json.dumps(document)


HUGE = base64.b64encode(np.full(16, 3e38, "<f4").tobytes()).decode()


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"left": "?"}, "no base64"),
        ({"left": "AAAA"}, "damaged"),
        ({"left": base64.b64encode(np.full(16, np.nan, "<f4").tobytes()).decode()}, "finite"),
        ({"rank": 1}, r"16 × 10 weights"),
        ({"rank": 0}, "rank"),
        ({"rank": 10**12}, "damaged"),
        ({"direction": "up"}, "direction"),
        ({"layer": "fc9"}, "does not list that tensor"),
        ({"layer": "fc2"}, "8 × 5 weights"),
        ({"more": 1}, "more"),
    ],
)
def test_a_section_that_makes_no_sense_is_refused(patch: Patch, changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PatchError, match=sentence):
        Patch.from_json(edit_patch(patch, **changed))


def test_edited_vectors_and_a_damaged_residue_are_found_before_anything_changes(patch: Patch) -> None:
    backend = backend_with()
    original = bits(backend)
    with pytest.raises(PatchError, match="it promises: entries were edited"):
        Patch.from_json(edit_patch(patch, left=HUGE)).apply(backend)
    assert bits(backend) == original
    patch.apply(backend)
    carried = bits(backend)
    for residue in ("", "AQID"):
        with pytest.raises(PatchError, match="residue"):
            Patch.from_json(edit_patch(patch, residue=residue)).revert(backend)
    assert bits(backend) == carried


def test_an_edit_that_does_not_fit_its_tensor_is_refused() -> None:
    with pytest.raises(PatchError, match="cannot change"):
        Patch.of_edits(backend_with(), [edit_of(rows=5, columns=8)])
    with pytest.raises(PatchError, match="not finite"):
        Patch.of_edits(backend_with(), [replace(edit_of(), left=np.full((8, 2), 3e38))])
