"""Patches with thousands of weights keep their values beside the text."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from arachne.errors import PatchError
from arachne.model.values import Address
from arachne.patch import Patch
from arachne.patch.patch import LARGE
from arachne.testing import ReferenceBackend, mlp


def large_patch(dtype: str = "float32") -> tuple[ReferenceBackend, Patch]:
    backend = ReferenceBackend(mlp([60, 50, 3]), dtype=dtype)
    places = [Address("fc1", "weight", (i, j)) for i in range(50) for j in range(60)]
    places.append(Address("fc2", "bias", (1,)))
    values = np.random.default_rng(0).normal(size=len(places))
    return backend, Patch.between(backend, places, values, provenance={"seed": 0})


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_large_patch_survives_saving(dtype: str, tmp_path: Path) -> None:
    backend, patch = large_patch(dtype)
    patch.save(tmp_path / "fix.json")
    assert len(patch) > LARGE
    assert sorted(os.listdir(tmp_path)) == ["fix.json", "fix.safetensors"]
    assert len((tmp_path / "fix.json").read_text().splitlines()) < 30
    again = Patch.load(tmp_path / "fix.json")
    assert again == patch
    again.apply(backend)
    again.revert(backend)


def test_values_can_be_read_by_the_safetensors_package(tmp_path: Path) -> None:
    _, patch = large_patch()
    patch.save(tmp_path / "fix.json")
    arrays = load_file(tmp_path / "fix.safetensors")
    assert arrays["fc1.weight.index"].shape == (len(patch) - 1, 2)
    assert arrays["fc1.weight.new"].dtype == np.float32
    assert arrays["fc1.weight.new"].tolist() == [entry.new for entry in patch.entries[:-1]]
    assert arrays["fc2.bias.old"].tolist() == [patch.entries[-1].old]


def test_text_names_the_file_and_its_hash(tmp_path: Path) -> None:
    _, patch = large_patch()
    patch.save(tmp_path / "fix.json")
    document = json.loads((tmp_path / "fix.json").read_text())
    digest = hashlib.sha256((tmp_path / "fix.safetensors").read_bytes()).hexdigest()
    assert document["values"] == {"file": "fix.safetensors", "sha256": digest, "weights": len(patch)}
    assert document["entries"] == []


def test_values_that_are_missing_or_changed_are_refused(tmp_path: Path) -> None:
    _, patch = large_patch()
    patch.save(tmp_path / "fix.json")
    beside = tmp_path / "fix.safetensors"
    content = bytearray(beside.read_bytes())
    content[-1] ^= 1
    beside.write_bytes(content)
    with pytest.raises(PatchError, match="its hash is another"):
        Patch.load(tmp_path / "fix.json")
    beside.unlink()
    with pytest.raises(PatchError, match=r"fix.safetensors' does not exist"):
        Patch.load(tmp_path / "fix.json")
    with pytest.raises(PatchError, match="load it from its folder"):
        Patch.from_json((tmp_path / "fix.json").read_text())


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:100],
        lambda content: content + b"\0",
        lambda content: (2**60).to_bytes(8, "little") + content[8:],
        lambda content: content.replace(b'"I64"', b'"I32"'),
        lambda content: content.replace(b"fc2.bias.old", b"fc2.bias.odd"),
        lambda content: content.replace(b'"data_offsets":[0,', b'"data_offsets":[8,'),
        lambda content: content[:8] + b"[" * 5000 + content[5008:],
    ],
    ids=["empty", "cut off", "too long", "huge header", "other dtype", "other name", "wrong offset", "deep"],
)
def test_damaged_values_are_refused_even_with_the_right_hash(damage: object, tmp_path: Path) -> None:
    _, patch = large_patch()
    patch.save(tmp_path / "fix.json")
    beside = tmp_path / "fix.safetensors"
    old = beside.read_bytes()
    new: bytes = damage(old)  # type: ignore[operator]  # pytest's parameters are untyped
    beside.write_bytes(new)
    text = (tmp_path / "fix.json").read_text()
    text = text.replace(hashlib.sha256(old).hexdigest(), hashlib.sha256(new).hexdigest())
    (tmp_path / "fix.json").write_text(text)
    with pytest.raises(PatchError):
        Patch.load(tmp_path / "fix.json")


@pytest.mark.parametrize("name", ["../fix.safetensors", "/etc/fix.safetensors", "a\\\\fix.safetensors", "fix.bin"])
def test_values_outside_the_folder_are_refused(name: str, tmp_path: Path) -> None:
    _, patch = large_patch()
    patch.save(tmp_path / "fix.json")
    text = (tmp_path / "fix.json").read_text().replace("fix.safetensors", name)
    (tmp_path / "fix.json").write_text(text)
    with pytest.raises(PatchError, match=r"patch\.values\.file"):
        Patch.load(tmp_path / "fix.json")
