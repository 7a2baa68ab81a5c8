"""A patch out of two models, and which patches a model carries."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from arachne.errors import PatchError
from arachne.model.values import Address
from arachne.patch import Patch, difference
from arachne.patch.batchnorm_unfold import NotProvenError, unfold, unfold_bias
from arachne.patch.difference import diff
from arachne.patch.history import patch_state
from arachne.testing import ReferenceBackend, mlp
from arachne.testing.reference_file import RefnetWeights

PLACES = [Address("fc1", "bias", (2,)), Address("fc2", "weight", (0, 3)), Address("fc2", "weight", (2, 7))]


def save_model(path: Path, *patches: Patch, dtype: str = "float32", seed: int = 0) -> RefnetWeights:
    backend = ReferenceBackend(mlp([4, 8, 3], seed=seed), dtype=dtype)
    for patch in patches:
        patch.apply(backend)
    backend.save(path)
    return RefnetWeights(path)


def rename_layers(file: RefnetWeights, path: Path) -> RefnetWeights:
    with zipfile.ZipFile(file.path) as source, zipfile.ZipFile(path, "w") as target:
        for member in source.namelist():
            target.writestr(member.replace("fc", "dense_"), source.read(member).replace(b'"fc', b'"dense_'))
    return RefnetWeights(path)


@pytest.fixture
def patch() -> Patch:
    return Patch.between(ReferenceBackend(mlp([4, 8, 3])), PLACES, [-0.25, 0.5, 1.0])


@pytest.fixture
def before(tmp_path: Path) -> RefnetWeights:
    return save_model(tmp_path / "before.refnet")


@pytest.fixture
def after(patch: Patch, tmp_path: Path) -> RefnetWeights:
    return save_model(tmp_path / "after.refnet", patch)


def test_diff_gives_back_the_patch(patch: Patch, before: RefnetWeights, after: RefnetWeights) -> None:
    made = diff(before, after)
    assert made.entries == patch.entries
    assert made.base.tensors == patch.base.tensors
    assert made.base.file == "before.refnet"
    assert made.provenance["diff"]["second"]["file"] == "after.refnet"


def test_diff_of_equal_models_is_empty(before: RefnetWeights) -> None:
    assert diff(before, before).entries == ()


def test_diff_across_names_pairs_layers_by_what_they_hold(
    patch: Patch, before: RefnetWeights, after: RefnetWeights, tmp_path: Path
) -> None:
    made = diff(before, rename_layers(after, tmp_path / "other.refnet"))
    assert made.entries == patch.entries
    assert made.provenance["diff"]["layers"] == {"fc1": "dense_1", "fc2": "dense_2"}


def test_second_model_is_rounded_to_the_first_ones_dtype(tmp_path: Path) -> None:
    half = save_model(tmp_path / "half.refnet", dtype="float16")
    single = save_model(tmp_path / "single.refnet")
    assert diff(half, single).entries == ()
    assert {entry.dtype for entry in diff(single, half).entries} == {"float32"}


def test_diff_of_strangers_is_refused(before: RefnetWeights, tmp_path: Path) -> None:
    other = rename_layers(save_model(tmp_path / "seed1.refnet", seed=1), tmp_path / "other.refnet")
    with pytest.raises(PatchError, match=r"layer 'fc1' of '.*before.refnet' has no counterpart in '.*other.refnet'"):
        diff(before, other)
    assert len(diff(before, other, mapping={"fc1": "dense_1", "fc2": "dense_2"})) > 40
    with pytest.raises(PatchError, match="has no layer 'dense_9'"):
        diff(before, other, mapping={"fc1": "dense_9"})


def test_layers_that_look_the_same_are_ambiguous(tmp_path: Path) -> None:
    backend = ReferenceBackend(mlp([4, 4, 4]))
    for layer in ("fc1", "fc2"):
        backend.set_weights(layer, "weight", np.eye(4, dtype=np.float32))
        backend.set_weights(layer, "bias", np.ones(4, np.float32))
    backend.save(tmp_path / "twins.refnet")
    file = RefnetWeights(tmp_path / "twins.refnet")
    with pytest.raises(PatchError, match=r"layer 'fc1' could be 'dense_1', 'dense_2'.*as in fc1=dense_1"):
        diff(file, rename_layers(file, tmp_path / "other.refnet"))


def test_models_that_differ_all_over_give_no_patch(
    before: RefnetWeights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(difference, "MAX_ENTRIES", 20)
    with pytest.raises(PatchError, match="more than 20 weights: that is another model"):
        diff(before, save_model(tmp_path / "seed1.refnet", seed=1))


def test_log_tells_what_a_file_carries(
    patch: Patch, before: RefnetWeights, after: RefnetWeights, tmp_path: Path
) -> None:
    assert patch_state(patch, before).state == "not carried"
    assert (patch_state(patch, after).state, patch_state(patch, after).weights) == ("carried", 3)
    assert patch_state(patch, rename_layers(after, tmp_path / "names.refnet")).state == "carried"
    assert patch_state(patch, rename_layers(before, tmp_path / "names.refnet")).state == "not carried"
    assert patch_state(patch, save_model(tmp_path / "seed1.refnet", seed=1)).state == "another model"


def test_log_sees_patches_under_later_ones(patch: Patch, tmp_path: Path) -> None:
    backend = ReferenceBackend(mlp([4, 8, 3]))
    patch.apply(backend)
    more = Patch.between(backend, [Address("fc2", "weight", (1, 1))], [2.0])
    over = Patch.between(backend, PLACES[1:2], [9.0])
    assert patch_state(patch, save_model(tmp_path / "a.refnet", patch, more)).state == "changed since"
    found = patch_state(patch, save_model(tmp_path / "b.refnet", patch, over))
    assert (found.state, found.weights, found.of) == ("in part", 2, 3)


def test_log_knows_the_base_of_a_patch_whose_weights_another_one_has_changed(patch: Patch, tmp_path: Path) -> None:
    backend = ReferenceBackend(mlp([4, 8, 3]))
    rival = Patch.between(backend, PLACES, [7.0, 8.0, 9.0])
    assert patch_state(patch, save_model(tmp_path / "a.refnet", rival)).state == "overwritten"
    some = Patch.between(backend, PLACES[:1], [7.0])
    assert patch_state(patch, save_model(tmp_path / "b.refnet", some)).state == "not carried"


def test_patch_can_be_read_by_people(patch: Patch) -> None:
    held_out = {"repaired": 3, "negatives": 5, "broken": 0, "positives": 90}
    evidence = {"verdict": "repaired", "held_out": held_out}
    text = str(Patch(patch.entries, patch.base, {"target": "6:0", "seed": 0}, evidence))
    assert text.startswith("verdict   repaired\n")
    assert "\n\n3 weights in 2 tensors\n\nfc1.bias, float32 (8,), 1 of 8 weights\n  [2]" in text
    assert "fc2.weight, float32 (3, 8), 2 of 24 weights" in text
    assert "→ 0.5\n" in text
    assert "held out  repaired 3 of 5, broke 0 of 90" in text
    assert "target    6:0" in text


def test_a_long_sentence_stays_in_its_column_and_a_digest_in_one_piece(patch: Patch) -> None:
    sentence, digest = "the fault went from 42 to 1 inputs " * 6, "0123456789abcdef" * 8
    lines = str(Patch(patch.entries, patch.base, {"sha256": digest}, {"sentence": sentence})).splitlines()
    assert f"sha256   {digest}" in lines
    because = lines[:3]
    assert because[0].startswith("because  the fault went")
    assert all(line.startswith(" " * 9) and len(line) <= 80 for line in because[1:])
    assert " ".join(" ".join(because).split()[1:]) == sentence.strip()


def test_notebook_view_escapes_names(patch: Patch) -> None:
    hostile = Patch(patch.entries, patch.base, {"target": "<script>alert(1)</script>"}, {})
    page = hostile._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert page.count("<tr>") == 4


DIFF_ROWS = np.arange(1, 25, dtype=np.float32).reshape(3, 8)
FACTORS = np.array([[0.3], [-1.7], [0.011]], np.float32)
SINGLE = ("float32", "float32")


def test_factors_of_rows_are_taken_out_and_changes_found_under_them() -> None:
    changed = DIFF_ROWS.copy()
    changed[1, 2], changed[2, 7] = 5.0, -3.0
    found = unfold(DIFF_ROWS, changed * FACTORS, SINGLE)
    np.testing.assert_allclose(found.factors, FACTORS[:, 0], rtol=1e-6)
    assert np.argwhere(found.values != DIFF_ROWS).tolist() == [[1, 2], [2, 7]]
    np.testing.assert_allclose(found.values, changed, rtol=1e-6)


def test_rows_without_a_factor_are_compared_to_the_bit() -> None:
    changed = DIFF_ROWS.copy()
    changed[0, 0] = np.nextafter(np.float32(1), np.float32(2))
    found = unfold(DIFF_ROWS, changed, SINGLE)
    assert not found.is_folded
    np.testing.assert_array_equal(found.values, changed)


def test_a_row_that_differs_all_over_proves_nothing() -> None:
    strange = DIFF_ROWS * FACTORS
    strange[1] = np.random.default_rng(0).normal(size=8)
    with pytest.raises(NotProvenError) as error:
        unfold(DIFF_ROWS, strange, SINGLE)
    assert error.value.row == 1
    with pytest.raises(NotProvenError):  # any two numbers have a factor
        unfold(DIFF_ROWS[:, :1], DIFF_ROWS[:, :1] * FACTORS, SINGLE)


def test_zeros_prove_no_factor() -> None:
    sparse = np.zeros((1, 8), np.float32)
    sparse[0, 0] = 1
    with pytest.raises(NotProvenError):
        unfold(sparse, 2 * sparse, SINGLE)
    assert not unfold(sparse, sparse, SINGLE).is_folded


def test_two_biases_are_compared_with_their_sum() -> None:
    parts = {"bias_ih": np.array([1, 2, 3], np.float32), "bias_hh": np.array([0.5, 0.25, 0.125], np.float32)}
    total = {"bias_ih": np.array([1.5, 2.25, 4.0], np.float32)}
    assert unfold_bias(parts.get, total.get, 1e-6).tolist() == [1, 2, 3.875]
    assert unfold_bias(total.get, parts.get, 1e-6).tolist() == [1.5, 2.25, 3.125]
