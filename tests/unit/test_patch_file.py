"""A patch in a model file: proven, atomic, and never over the input."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arachne.errors import EnvironmentFaultError, PatchError
from arachne.io.files import sha256_of
from arachne.model.backend import WeightFile, Weights
from arachne.model.loaded_weights import LoadedWeights
from arachne.model.values import Address
from arachne.patch import Patch
from arachne.testing import ReferenceBackend, convnet, mlp
from arachne.testing.reference_file import RefnetWeights

ADDRESSES = [Address("fc1", "bias", (2,)), Address("fc2", "weight", (0, 3)), Address("fc2", "weight", (2, 7))]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    ReferenceBackend(mlp([4, 8, 3])).save(tmp_path / "model.refnet")
    return tmp_path / "model.refnet"


@pytest.fixture
def patch(model: Path) -> Patch:
    return Patch.between(ReferenceBackend.load(model), ADDRESSES, [-0.25, 0.5, 1.0])


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_patched_file_holds_the_new_weights_and_reverts_bit_for_bit(patch: Patch, model: Path) -> None:
    original = sha256_of(model)
    patched, back = model.with_name("patched.refnet"), model.with_name("back.refnet")
    written = patch.apply_file(RefnetWeights(model), patched)
    assert (written.path, written.weights, written.tensors) == (patched, 3, 4)
    assert written.sha256 == sha256_of(patched) != original
    assert ReferenceBackend.load(patched).get_weights("fc2")["weight"][0, 3] == 0.5
    patch.revert_file(RefnetWeights(patched), back)
    assert sha256_of(back) == sha256_of(model) == original
    assert sorted(os.listdir(model.parent)) == ["back.refnet", "model.refnet", "patched.refnet"]


def test_a_backend_that_loads_and_saves_patches_files_too(patch: Patch, model: Path) -> None:
    patched, back = model.with_name("patched.refnet"), model.with_name("back.refnet")
    written = patch.apply_file(LoadedWeights(model, ReferenceBackend.load), patched)
    assert (written.weights, written.tensors) == (3, 4)
    assert ReferenceBackend.load(patched).get_weights("fc2")["weight"][0, 3] == 0.5
    patch.revert_file(LoadedWeights(patched, ReferenceBackend.load), back)
    assert sha256_of(back) == sha256_of(model)


def test_written_tells_how_many_bytes_differ(patch: Patch, model: Path) -> None:
    written = patch.apply_file(RefnetWeights(model), model.with_name("patched.refnet"))
    assert written.bytes_changed is not None
    # Twelve bytes of weights, and a checksum of four bytes in two places for each of the two touched members.
    assert 0 < written.bytes_changed <= 12 + 2 * 2 * 4


def test_output_equal_to_the_input_is_refused_also_through_links(patch: Patch, model: Path) -> None:
    before = sha256_of(model)
    (model.parent / "soft.refnet").symlink_to(model)
    os.link(model, model.parent / "hard.refnet")
    (model.parent / "folder").symlink_to(model.parent)
    outputs = [model, model.parent / "soft.refnet", model.parent / "hard.refnet", model.parent / "folder" / model.name]
    for output in outputs:
        with pytest.raises(PatchError, match="is the input itself"):
            patch.apply_file(RefnetWeights(model), output)
    assert sha256_of(model) == before


@pytest.mark.parametrize("network", [mlp([4, 8, 3], seed=1), mlp([4, 9, 3]), mlp([4, 8]), convnet()])
def test_file_of_another_model_is_refused_and_nothing_is_written(patch: Patch, network: object, tmp_path: Path) -> None:
    ReferenceBackend(network).save(tmp_path / "other.refnet")  # type: ignore[arg-type]  # pytest's parameters are untyped
    with pytest.raises(PatchError):
        patch.apply_file(RefnetWeights(tmp_path / "other.refnet"), tmp_path / "out.refnet")
    assert sorted(os.listdir(tmp_path)) == ["model.refnet", "other.refnet"]


def test_unknown_layer_is_named_with_a_close_one(patch: Patch, model: Path) -> None:
    document = patch.to_json().replace('"fc2"', '"fc2x"')
    with pytest.raises(
        PatchError, match=r"'fc2x.weight', which 'model.refnet' does not have; did you mean 'fc2.weight'"
    ):
        Patch.from_json(document).apply_file(RefnetWeights(model), model.with_name("out.refnet"))


def test_patch_edited_so_that_decimal_and_bits_agree_is_still_refused(patch: Patch, model: Path) -> None:
    document = json.loads(patch.to_json())
    document["entries"][1].update(new=2.0, new_bits="40000000")
    with pytest.raises(PatchError, match="edited, added or removed by hand"):
        Patch.from_json(json.dumps(document)).apply_file(RefnetWeights(model), model.with_name("out.refnet"))
    document = json.loads(patch.to_json())
    del document["entries"][1]
    with pytest.raises(PatchError, match="edited, added or removed by hand"):
        Patch.from_json(json.dumps(document)).apply_file(RefnetWeights(model), model.with_name("out.refnet"))


def test_file_that_carries_the_patch_is_told_from_one_that_does_not(patch: Patch, model: Path) -> None:
    patched = model.with_name("patched.refnet")
    patch.apply_file(RefnetWeights(model), patched)
    with pytest.raises(PatchError, match=r"'patched.refnet' already carries this patch"):
        patch.apply_file(RefnetWeights(patched), model.with_name("again.refnet"))
    with pytest.raises(PatchError, match=r"'model.refnet' does not carry this patch"):
        patch.revert_file(RefnetWeights(model), model.with_name("again.refnet"))


def test_file_in_which_only_other_layers_differ_is_accepted(model: Path, tmp_path: Path) -> None:
    patch = Patch.between(ReferenceBackend.load(model), ADDRESSES[1:], [0.5, 1.0])
    tuned = ReferenceBackend.load(model)
    tuned.set_weights("fc1", "bias", np.ones(8, np.float32))
    tuned.save(tmp_path / "tuned.refnet")
    patch.apply_file(RefnetWeights(tmp_path / "tuned.refnet"), tmp_path / "out.refnet")
    assert ReferenceBackend.load(tmp_path / "out.refnet").get_weights("fc2")["weight"][0, 3] == 0.5


def test_a_missing_folder_is_made(patch: Patch, model: Path, tmp_path: Path) -> None:
    patch.apply_file(RefnetWeights(model), tmp_path / "not" / "yet" / "out.refnet")
    assert [path.name for path in (tmp_path / "not" / "yet").iterdir()] == ["out.refnet"]


def test_a_folder_that_cannot_be_made_is_an_environment_fault(patch: Patch, model: Path, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFaultError, match=r"Not a directory|File exists"):
        patch.apply_file(RefnetWeights(model), model / "out.refnet")
    assert [path.name for path in tmp_path.iterdir()] == [model.name]


class DamagingWeights(RefnetWeights):
    """A format whose writer also changes a weight nobody asked for."""

    def _rewrite(self, destination: Path, weights: Weights) -> None:
        damaged = self.read("fc1", "weight")
        damaged[0, 0] = -damaged[0, 0]
        super()._rewrite(destination, {**weights, ("fc1", "weight"): damaged})


class FullDiskWeights(RefnetWeights):
    """A writer that fails halfway, as on a full disk."""

    def _rewrite(self, destination: Path, weights: Weights) -> None:
        destination.write_bytes(b"half")
        raise OSError(28, "No space left on device")


class TwoFileWeights(RefnetWeights):
    """A format that keeps part of itself in a second file of fixed name."""

    def _rewrite(self, destination: Path, weights: Weights) -> None:
        super()._rewrite(destination, weights)
        (destination.parent / "weights.bin").write_bytes(b"data")

    def rename_beside(self, copy: Path, names: Mapping[str, str]) -> None:
        for old, new in names.items():
            (copy.parent / old).rename(copy.parent / new)


@pytest.mark.parametrize(
    ("opener", "error", "message"),
    [
        (DamagingWeights, PatchError, "'fc1.weight' in the written copy is not what it must be"),
        (FullDiskWeights, EnvironmentFaultError, "No space left on device"),
    ],
)
def test_copy_that_cannot_be_proven_never_appears(
    patch: Patch, model: Path, opener: type[WeightFile], error: type[Exception], message: str
) -> None:
    source = opener(model)  # type: ignore[call-arg]  # the test classes take a path
    with pytest.raises(error, match=message):
        patch.apply_file(source, model.with_name("out.refnet"))
    assert os.listdir(model.parent) == ["model.refnet"]


def test_second_file_goes_along_and_overwrites_nothing(patch: Patch, model: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    patch.apply_file(TwoFileWeights(model), tmp_path / "out" / "model.refnet")
    assert sorted(os.listdir(tmp_path / "out")) == ["model.refnet", "weights.bin"]
    (tmp_path / "weights.bin").write_bytes(b"the original's")
    done = patch.apply_file(TwoFileWeights(model), tmp_path / "patched.refnet")
    assert done.beside == ("patched.refnet.data",)
    assert (tmp_path / "patched.refnet.data").read_bytes() == b"data"
    (tmp_path / "other.refnet.data").write_bytes(b"another's")
    with pytest.raises(PatchError, match=r"'other.refnet.data' is there already; remove it, .*other/other.refnet"):
        patch.apply_file(TwoFileWeights(model), tmp_path / "other.refnet")
    assert (tmp_path / "weights.bin").read_bytes() == b"the original's"
    assert (tmp_path / "other.refnet.data").read_bytes() == b"another's"
    assert not (tmp_path / "other.refnet").exists()


def test_second_file_that_does_not_change_is_shared(patch: Patch, model: Path, tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"data")
    before = (tmp_path / "weights.bin").stat()
    patch.apply_file(TwoFileWeights(model), tmp_path / "patched.refnet")
    assert (tmp_path / "weights.bin").stat().st_ino == before.st_ino
    assert (tmp_path / "patched.refnet").exists()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_any_patch_applied_and_reverted_gives_the_original_file(
    data: st.DataObject, dtype: str, tmp_path: Path
) -> None:
    source, patched, back = (tmp_path / f"{name}.refnet" for name in ("source", "patched", "back"))
    backend = ReferenceBackend(convnet(seed=data.draw(st.integers(0, 9))), dtype=dtype)
    backend.save(source)
    places = [
        Address(info.name, parameter, tuple(map(int, index)))
        for info in backend.layers
        for parameter, stored in info.parameters.items()
        for index in np.ndindex(stored.shape)
    ]
    chosen = data.draw(st.lists(st.sampled_from(places), min_size=1, max_size=20, unique=True))
    width = {"float16": 16, "float32": 32, "float64": 64}[dtype]
    numbers = st.floats(allow_nan=False, allow_infinity=False, width=width)  # type: ignore[arg-type]  # a literal
    values = data.draw(st.lists(numbers, min_size=len(chosen), max_size=len(chosen)))
    patch = Patch.from_json(Patch.between(ReferenceBackend.load(source), chosen, values).to_json())
    if not patch.entries:
        return
    patch.apply_file(RefnetWeights(source), patched)
    patch.revert_file(RefnetWeights(patched), back)
    assert sha256_of(back) == sha256_of(source) != sha256_of(patched)
    touched = {f"{tensor.name}.npy" for tensor in patch.base.tensors}
    before, after = members(source), members(patched)
    assert {name for name in before if before[name] != after[name]} == touched
