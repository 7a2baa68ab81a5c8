"""A patch finds its tensors in files whose layers have other names, rounded values or folded factors."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from arachne.errors import PatchError
from arachne.io.files import sha256_of
from arachne.model.values import Address, Array
from arachne.patch import Patch
from arachne.patch.matching import Match, match
from arachne.testing import ReferenceBackend, convnet, mlp
from arachne.testing.reference_file import RefnetWeights

NAMES = {"conv1": "block/Conv_0", "conv2": "block/Conv_1", "fc1": "dense", "fc2": "logits"}
PLACES = [
    Address("conv1", "weight", (1, 0, 1, 1)),
    Address("conv1", "weight", (3, 0, 2, 0)),
    Address("fc2", "weight", (0, 3)),
]
VALUES = [0.5, -0.25, 1.0]


@pytest.fixture
def patch() -> Patch:
    return Patch.between(ReferenceBackend(convnet()), PLACES, VALUES, evidence={"verdict": "repaired"})


def export_model(
    path: Path,
    *,
    names: Mapping[str, str] = NAMES,
    weights: Mapping[tuple[str, str], Array] | None = None,
    dtype: str = "float32",
) -> RefnetWeights:
    """Write the network as another framework might."""
    backend = ReferenceBackend(convnet(), dtype=dtype)
    for (layer, parameter), values in (weights or {}).items():
        backend.set_weights(layer, parameter, values)
    backend.save(path.with_suffix(".tmp"))
    with zipfile.ZipFile(path.with_suffix(".tmp")) as source, zipfile.ZipFile(path, "w") as target:
        for member in source.namelist():
            content = source.read(member)
            for name, other in names.items():
                member = member.replace(f"{name}.", f"{other}.")
                if member == "network.json":
                    content = content.replace(f'"{name}"'.encode(), f'"{other}"'.encode())
            target.writestr(member, content)
    path.with_suffix(".tmp").unlink()
    return RefnetWeights(path)


def fold_scales(factors: Array) -> dict[tuple[str, str], Array]:
    """Scale the first convolution as folding a batch normalisation does."""
    kernel = ReferenceBackend(convnet()).get_weights("conv1")["weight"]
    return {("conv1", "weight"): (kernel * factors[:, None, None, None]).astype(np.float32)}


def apply_match(found: Match, file: RefnetWeights, path: Path) -> RefnetWeights:
    found.patch.apply_file(file, path)
    return RefnetWeights(path)


def test_file_with_the_same_names_takes_the_patch_as_it_is(patch: Patch, tmp_path: Path) -> None:
    found = match(patch, export_model(tmp_path / "m.refnet", names={}))
    assert found.patch is patch
    assert not found.derived


def test_other_names_are_found_by_content_in_both_directions(patch: Patch, tmp_path: Path) -> None:
    file = export_model(tmp_path / "m.refnet")
    found = match(patch, file, exact=True)
    assert [(pair.name, pair.how) for pair in found.pairs] == [
        ("block/Conv_0.weight", "content"),
        ("logits.weight", "content"),
    ]
    assert not found.derived
    patched = apply_match(found, file, tmp_path / "p.refnet")
    assert patched.read("logits", "weight")[0, 3] == 1.0
    again = match(patch, patched, exact=True)
    assert all(pair.done for pair in again.pairs)
    again.patch.revert_file(patched, tmp_path / "b.refnet")
    assert sha256_of(tmp_path / "b.refnet") == sha256_of(file.path)


def test_folded_factor_scales_the_new_values(patch: Patch, tmp_path: Path) -> None:
    factors = np.array([0.3, -1.7, 2.5, 0.011])
    file = export_model(tmp_path / "m.refnet", weights=fold_scales(factors))
    found = match(patch, file)
    assert [pair.how for pair in found.pairs] == ["scaled", "content"]
    assert found.pairs[0].factors == pytest.approx({1: -1.7, 3: 0.011}, rel=1e-6)
    assert found.derived
    kernel = apply_match(found, file, tmp_path / "p.refnet").read("block/Conv_0", "weight")
    assert kernel[1, 0, 1, 1] == pytest.approx(-1.7 * 0.5, rel=1e-6)
    assert kernel[3, 0, 2, 0] == pytest.approx(0.011 * -0.25, rel=1e-6)


def test_derived_patch_reverts_to_the_bit_and_says_where_it_comes_from(patch: Patch, tmp_path: Path) -> None:
    file = export_model(tmp_path / "m.refnet", weights=fold_scales(np.array([0.3, -1.7, 2.5, 0.011])))
    found = match(patch, file)
    patched = apply_match(found, file, tmp_path / "p.refnet")
    Patch.from_json(found.patch.to_json()).revert_file(patched, tmp_path / "b.refnet")
    assert sha256_of(tmp_path / "b.refnet") == sha256_of(file.path)
    origin = found.patch.provenance["derived_from"]
    assert origin["digest"] == patch.digest
    assert origin["tensors"][0]["how"] == "scaled"
    with pytest.raises(PatchError, match="only the derived patch"):
        match(patch, patched)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_file_in_another_dtype_gets_its_own_bits(patch: Patch, dtype: str, tmp_path: Path) -> None:
    file = export_model(tmp_path / "m.refnet", dtype=dtype)
    found = match(patch, file)
    assert {pair.how for pair in found.pairs} == {"close"}
    assert {entry.dtype for entry in found.patch.entries} == {dtype}
    assert apply_match(found, file, tmp_path / "p.refnet").read("logits", "weight")[0, 3] == 1.0
    assert {pair.how for pair in match(patch, file, exact=True).pairs} == {"close"}  # another dtype is a rounded copy


def test_exact_matching_refuses_a_factor(patch: Patch, tmp_path: Path) -> None:
    file = export_model(tmp_path / "m.refnet", weights=fold_scales(np.array([0.3, -1.7, 2.5, 0.011])))
    with pytest.raises(
        PatchError, match=r"no tensor in 'm.refnet' has the values of 'conv1.weight'.*block/Conv_0.weight"
    ):
        match(patch, file, exact=True)


def test_row_that_is_not_a_multiple_is_refused(patch: Patch, tmp_path: Path) -> None:
    weights = fold_scales(np.array([0.3, -1.7, 2.5, 0.011]))
    weights["conv1", "weight"][1, 0, 0, 0] *= 1.001
    with pytest.raises(PatchError, match="of the same shape"):
        match(patch, export_model(tmp_path / "m.refnet", weights=weights))


def test_changed_weight_under_its_own_name_is_named(patch: Patch, tmp_path: Path) -> None:
    weights = ReferenceBackend(convnet()).get_weights("fc2")["weight"]
    weights[0, 3] += 1
    file = export_model(tmp_path / "m.refnet", names={}, weights={("fc2", "weight"): weights})
    with pytest.raises(PatchError, match=r"expects fc2.weight\[0, 3\] to be"):
        match(patch, file, exact=True)


def test_missing_shape_is_an_error(patch: Patch, tmp_path: Path) -> None:
    ReferenceBackend(mlp([4, 8, 3])).save(tmp_path / "m.refnet")
    with pytest.raises(PatchError, match=r"'conv1.weight' of shape \(4, 1, 3, 3\), and 'm.refnet' has no such tensor"):
        match(patch, RefnetWeights(tmp_path / "m.refnet"))


def twins(path: Path) -> tuple[Patch, RefnetWeights]:
    """Two layers with zero biases of one shape, of which the patch changes one."""
    backend = ReferenceBackend(mlp([4, 4, 4, 3]))
    for layer in ("fc1", "fc2"):
        backend.set_weights(layer, "bias", np.zeros(4, np.float32))
    patch = Patch.between(backend, [Address("fc2", "bias", (1,))], [0.5])
    backend.save(path.with_suffix(".tmp"))
    with zipfile.ZipFile(path.with_suffix(".tmp")) as source, zipfile.ZipFile(path, "w") as target:
        for member in source.namelist():
            target.writestr(member.replace("fc", "dense_"), source.read(member).replace(b'"fc', b'"dense_'))
    return patch, RefnetWeights(path)


def test_ambiguity_lists_the_candidates_and_a_mapping_decides(tmp_path: Path) -> None:
    patch, file = twins(tmp_path / "m.refnet")
    with pytest.raises(
        PatchError, match=r"'fc2.bias' of the patch could be 'dense_1.bias', 'dense_2.bias'.*as in fc2="
    ):
        match(patch, file)
    assert match(patch, file, mapping={"fc2": "dense_2"}).pairs[0].name == "dense_2.bias"


def test_weight_of_a_layer_decides_for_its_bias(tmp_path: Path) -> None:
    _, file = twins(tmp_path / "m.refnet")
    backend = ReferenceBackend(mlp([4, 4, 4, 3]))
    backend.set_weights("fc2", "bias", np.zeros(4, np.float32))
    places = [Address("fc2", "weight", (0, 0)), Address("fc2", "bias", (1,))]
    patch = Patch.between(backend, places, [0.25, 0.5])
    assert [pair.name for pair in match(patch, file).pairs] == ["dense_2.weight", "dense_2.bias"]


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"fc9": "dense"}, "the patch changes no layer 'fc9'; did you mean 'fc2'"),
        ({"fc2": "dens"}, "'m.refnet' has no layer 'dens'; did you mean 'dense'"),
        ({"fc2": "dense"}, "'fc2.weight'"),
    ],
)
def test_mapping_that_leads_nowhere_is_refused(
    patch: Patch, mapping: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(PatchError, match=message):
        match(patch, export_model(tmp_path / "m.refnet"), mapping=mapping)
