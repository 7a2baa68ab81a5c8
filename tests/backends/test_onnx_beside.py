"""Files beside an ONNX model that hold its weights: read and written in the folders the user named, nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, numpy_helper

from arachne.errors import ModelError, UnsafeModelError
from arachne.io.files import sha256_of
from arachne.model.values import Address
from arachne.patch import Patch
from arachne.testing.networks import mlp
from arachne_onnx import OnnxBackend
from tests.backends.onnx_networks import model_of
from tests.commands import arachne

pytestmark = pytest.mark.backend("onnx")


def external(folder: Path, location: str, *, raw: bool = False, written_to: str | None = None) -> Path:
    """A model whose weights are, or are said to be, in the file of that name."""
    folder.mkdir(exist_ok=True, parents=True)
    model: ModelProto = model_of(mlp([4, 8, 3]))
    file = folder / (written_to or location)
    data = b""
    for value in model.graph.initializer:
        numbers = numpy_helper.to_array(value).tobytes()
        entries = {"location": location, "offset": str(len(data)), "length": str(len(numbers))}
        value.external_data.extend(onnx.StringStringEntryProto(key=key, value=text) for key, text in entries.items())
        data += numbers
        if raw:
            value.raw_data = numbers
            value.ClearField("float_data")
        else:
            value.data_location = onnx.TensorProto.EXTERNAL
            value.ClearField("raw_data")
            value.ClearField("float_data")
    if not raw:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    (folder / "net.onnx").write_bytes(model.SerializeToString())
    return folder / "net.onnx"


def everything(folder: Path) -> dict[str, str]:
    return {str(path): sha256_of(path) for path in folder.rglob("*") if path.is_file()}


def patch_of(path: Path, folder: Path) -> Path:
    """A patch of a model whose weights are the same, in one file."""
    whole = folder / "whole.onnx"
    whole.write_bytes(model_of(mlp([4, 8, 3])).SerializeToString())
    Patch.between(OnnxBackend.load(whole), [Address("fc1", "weight", (0, 0))], [7.0]).save(folder / "p.json")
    return folder / "p.json"


@pytest.mark.parametrize("location", ["../bashrc", "{}/bashrc", "patch.json", "weights.bin"])
def test_numbers_in_the_model_and_a_name_of_another_file_are_a_contradiction(tmp_path: Path, location: str) -> None:
    victim = tmp_path / "bashrc"
    victim.write_text("alias ls=ls")
    model = external(tmp_path / "from", location.format(tmp_path), raw=True)
    patch_of(model, tmp_path)
    before = everything(tmp_path)
    ran = arachne("apply", tmp_path / "p.json", model, "-o", tmp_path / "to" / "net.onnx", cwd=tmp_path)
    assert (ran.code, "names another file" in ran.err) == (3, True)
    assert everything(tmp_path) == before


@pytest.mark.parametrize(
    "location",
    ["../weights.bin", "{}/weights.bin", "deep/../../weights.bin", "link/../../weights.bin", "..\\weights.bin"],
)
def test_names_that_lead_out_of_a_folder_are_refused_also_where_a_link_would_lead_back(
    tmp_path: Path, location: str
) -> None:
    model = external(tmp_path / "from", location.format(tmp_path), written_to="weights.bin")
    (tmp_path / "from" / "deep" / "er").mkdir(parents=True)
    (tmp_path / "from" / "link").symlink_to("deep/er")  # link/../.. is the model's own folder here, and not elsewhere
    with pytest.raises(UnsafeModelError, match="lies outside its folder"):
        OnnxBackend.load(model)


def test_a_name_in_a_folder_below_is_kept_in_the_copy(tmp_path: Path) -> None:
    model = external(tmp_path / "from", "data/weights.bin")
    ran = arachne("apply", patch_of(model, tmp_path), model, "-o", "to/net.onnx", cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert OnnxBackend.load(tmp_path / "to" / "net.onnx").get_weights("fc1")["weight"][0, 0] == 7
    assert sorted(os.listdir(tmp_path / "to")) == ["data", "net.onnx"]


NAMES = (
    "patch.json",
    "result.json",
    "report.html",
    "history.csv",
    "manifest.json",
    "model.onnx",
    "REPORT.HTML",
    "front.npz/w",
)


@pytest.mark.parametrize("name", NAMES)
def test_weights_in_a_file_called_like_one_of_a_result_are_refused_before_the_search(tmp_path: Path, name: str) -> None:
    model = external(tmp_path / "from", name)
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", x=rng.normal(size=(40, 4)).astype(np.float32), y=rng.integers(0, 3, 40))
    before = everything(tmp_path)
    ran = arachne("repair", model, "--data", "data.npz", "--target", "*:0", "-o", "fix", cwd=tmp_path)
    assert (ran.code, "the name of another file of a repair" in ran.err) == (3, True), ran.err
    assert everything(tmp_path) == before


def test_a_copy_is_not_put_in_the_place_of_its_own_weights(tmp_path: Path) -> None:
    model = external(tmp_path / "from", "copy.onnx")
    with pytest.raises(ModelError, match="two of the model's files would lie in one place"):
        OnnxBackend.load(model).save(tmp_path / "copy.onnx")
    assert os.listdir(tmp_path) == ["from"]


def test_weights_of_another_model_are_not_written_over(tmp_path: Path) -> None:
    model = external(tmp_path / "from", "weights.bin")
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "weights.bin").write_bytes(b"of another model")
    with pytest.raises(ModelError, match="in the way"):
        OnnxBackend.load(model).save(tmp_path / "to" / "net.onnx")
    assert os.listdir(tmp_path / "to") == ["weights.bin"]
    assert (tmp_path / "to" / "weights.bin").read_bytes() == b"of another model"


def test_a_link_does_not_lead_weights_out_of_the_output(tmp_path: Path) -> None:
    model = external(tmp_path / "from", "data/weights.bin")
    (tmp_path / "to").mkdir()
    (tmp_path / "home").mkdir()
    (tmp_path / "to" / "data").symlink_to(tmp_path / "home")
    with pytest.raises(ModelError, match="leads out of the folder"):
        OnnxBackend.load(model).save(tmp_path / "to" / "net.onnx")
    ran = arachne("apply", patch_of(model, tmp_path), model, "-o", "to/net.onnx", cwd=tmp_path)
    assert (ran.code, os.listdir(tmp_path / "home")) == (3, [])
