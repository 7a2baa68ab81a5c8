"""ONNX files: patched byte by byte wherever the weights are, and refused with one sentence when they are bad."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.external_data_helper import convert_model_to_external_data

import arachne
from arachne.cli import run
from arachne.errors import ModelError, UnknownLayerError, UnsafeModelError
from arachne.model.values import Address, Array
from arachne.patch import Patch
from arachne.testing.networks import convnet, mlp, random_inputs
from arachne_onnx import OnnxBackend
from arachne_onnx.surgery import locate_tensors
from tests.backends.onnx_networks import model_of

pytestmark = pytest.mark.backend("onnx")

NETWORK = mlp([4, 6, 3])


def as_raw(model: ModelProto) -> None:
    """Weights as they come."""


def as_typed(model: ModelProto) -> None:
    """Weights as lists of floats."""
    for value in model.graph.initializer:
        array = numpy_helper.to_array(value)
        value.CopyFrom(helper.make_tensor(value.name, TensorProto.FLOAT, array.shape, array.ravel().tolist()))


def as_constants(model: ModelProto) -> None:
    """Weights inside `Constant` nodes."""
    nodes = [
        helper.make_node("Constant", [], [value.name], value=numpy_helper.from_array(numpy_helper.to_array(value)))
        for value in model.graph.initializer
    ]
    others = list(model.graph.node)
    del model.graph.initializer[:]
    del model.graph.node[:]
    model.graph.node.extend([*nodes, *others])


def as_half(model: ModelProto) -> None:
    """Weights as raw half precision behind casts."""
    casts = []
    for value in model.graph.initializer:
        name = value.name
        half = numpy_helper.from_array(numpy_helper.to_array(value).astype(np.float16), f"{name}")
        casts.append(helper.make_node("Cast", [name], [f"{name}_wide"], to=TensorProto.FLOAT))
        value.CopyFrom(half)
    for node in model.graph.node:
        node.input[1:] = [f"{name}_wide" for name in node.input[1:]]
    others = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*casts, *others])


STORAGES = {"raw": as_raw, "typed": as_typed, "constants": as_constants, "half": as_half}


def write_model(path: Path, storage: str) -> Path:
    model = model_of(NETWORK)
    STORAGES[storage](model)
    path.write_bytes(model.SerializeToString())
    return path


def differing(a: Path, b: Path) -> list[int]:
    """The positions at which two files of one length differ, as `cmp -l` lists them."""
    left, right = (np.frombuffer(path.read_bytes(), np.uint8) for path in (a, b))
    assert len(left) == len(right)
    return np.flatnonzero(left != right).tolist()


@pytest.mark.parametrize("storage", sorted(STORAGES))
def test_a_patched_file_differs_only_in_the_bytes_of_the_patched_weight(storage: str, tmp_path: Path) -> None:
    source = write_model(tmp_path / "model.onnx", storage)
    before = source.read_bytes()
    backend = OnnxBackend.load(source)
    weight = backend.get_weights("fc2")["weight"]
    weight[1, 4] = 0.75
    backend.set_weights("fc2", "weight", weight)
    backend.save(tmp_path / "patched.onnx")
    width = weight.dtype.itemsize
    found = differing(source, tmp_path / "patched.onnx")
    assert 1 <= len(found) <= width
    assert max(found) - min(found) < width
    assert source.read_bytes() == before
    reloaded = OnnxBackend.load(tmp_path / "patched.onnx")
    np.testing.assert_array_equal(reloaded.get_weights("fc2")["weight"], weight)
    x = random_inputs(NETWORK, 5)
    np.testing.assert_allclose(reloaded.forward(x), backend.forward(x), atol=1e-6)


@pytest.mark.parametrize("storage", sorted(STORAGES))
def test_weights_are_rewritten_and_put_back_bit_for_bit(storage: str, tmp_path: Path) -> None:
    source = write_model(tmp_path / "model.onnx", storage)
    file = OnnxBackend.weight_file(source)
    assert list(file.parameters()) == [("fc1", "weight"), ("fc1", "bias"), ("fc2", "weight"), ("fc2", "bias")]
    old = file.read("fc1", "weight")
    file.rewrite(tmp_path / "other.onnx", {("fc1", "weight"): old * 2})
    again = OnnxBackend.weight_file(tmp_path / "other.onnx")
    np.testing.assert_array_equal(again.read("fc1", "weight"), (old * 2).astype(old.dtype))
    again.rewrite(tmp_path / "back.onnx", {("fc1", "weight"): old})
    assert (tmp_path / "back.onnx").read_bytes() == source.read_bytes()
    with pytest.raises(UnknownLayerError, match="did you mean 'fc1'"):
        file.read("fc11", "weight")


def test_external_data_is_patched_in_its_own_file(tmp_path: Path) -> None:
    source = external(tmp_path / "from")
    file = OnnxBackend.weight_file(source)
    weight = file.read("fc1", "weight")
    weight[0, 0] += 1
    (tmp_path / "to").mkdir()
    file.rewrite(tmp_path / "to" / "model.onnx", {("fc1", "weight"): weight})
    assert differing(source, tmp_path / "to" / "model.onnx") == []
    assert 1 <= len(differing(tmp_path / "from" / "weights.bin", tmp_path / "to" / "weights.bin")) <= 4
    np.testing.assert_array_equal(OnnxBackend.load(tmp_path / "to" / "model.onnx").get_weights("fc1")["weight"], weight)
    with pytest.raises(ModelError, match=r"'weights\.bin' beside it, which is in the way; write into another folder"):
        file.rewrite(tmp_path / "from" / "copy.onnx", {("fc1", "weight"): weight})


def test_a_copy_in_the_folder_of_a_model_with_external_data_has_a_data_file_of_its_own(tmp_path: Path) -> None:
    source = external(tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in ("model.onnx", "weights.bin")}
    patch = Patch.between(OnnxBackend.load(source), [Address("fc1", "weight", (0, 0))], [7.0])
    done = arachne.apply(patch, source, tmp_path / "patched.onnx")
    assert done is not None
    assert done.written.beside == ("patched.onnx.data",)
    assert done.written.bytes_changed is not None
    assert 1 <= done.written.bytes_changed <= 4
    assert OnnxBackend.load(tmp_path / "patched.onnx").get_weights("fc1")["weight"][0, 0] == 7.0
    arachne.revert(patch, tmp_path / "patched.onnx", tmp_path / "back.onnx")
    assert (tmp_path / "back.onnx.data").read_bytes() == before["weights.bin"]
    assert before == {name: (tmp_path / name).read_bytes() for name in before}
    names = {"model.onnx": "weights.bin", "patched.onnx": "patched.onnx.data", "back.onnx": "back.onnx.data"}
    others = [onnx.load(tmp_path / name, load_external_data=False) for name in names]
    for model in others:
        for value in model.graph.initializer:
            entry = next(entry for entry in value.external_data if entry.key == "location")
            assert entry.value in names.values()
            entry.value = "weights.bin"
    assert others[0] == others[1] == others[2]


def external(folder: Path, location: str = "weights.bin") -> Path:
    folder.mkdir(exist_ok=True)
    model = model_of(NETWORK)
    convert_model_to_external_data(model, location="weights.bin", size_threshold=0)
    onnx.save_model(model, folder / "model.onnx")
    if location != "weights.bin":
        model = onnx.load(folder / "model.onnx", load_external_data=False)
        for value in model.graph.initializer:
            for entry in value.external_data:
                if entry.key == "location":
                    entry.value = location
        (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder / "model.onnx"


def test_saving_over_the_models_own_file_is_refused(tmp_path: Path) -> None:
    source = write_model(tmp_path / "model.onnx", "raw")
    (tmp_path / "link.onnx").symlink_to(source)
    with pytest.raises(ModelError, match="the model's own file"):
        OnnxBackend.load(source).save(tmp_path / "link.onnx")


def test_saving_under_another_kinds_ending_is_refused(tmp_path: Path) -> None:
    backend = OnnxBackend.load(write_model(tmp_path / "model.onnx", "raw"))
    with pytest.raises(ModelError, match=r"saved as '.onnx', not as 'model.pt'"):
        backend.save(tmp_path / "model.pt")
    assert not (tmp_path / "model.pt").exists()


def test_every_stored_tensor_is_found_where_protobuf_finds_it() -> None:
    model = model_of(convnet())
    content = model.SerializeToString()
    places = locate_tensors(content)
    for value in model.graph.initializer:
        ((start, length),) = places[value.name].starts
        assert content[start : start + length] == value.raw_data
        assert places[value.name].shape == tuple(value.dims)


def bad_files(folder: Path) -> dict[str, tuple[Path, str]]:
    """Files that cannot be repaired, and what is said about each."""
    good = model_of(NETWORK).SerializeToString()
    files: dict[str, tuple[bytes, str]] = {
        "text": (b"this is no model at all, only a line of text\n" * 4, "no ONNX model"),
        "empty": (b"", "no ONNX model"),
        "truncated": (good[: len(good) * 2 // 3], "cut short"),
        "nan": (_change(good, lambda model: _weight(model, np.nan)), "not a number"),
        "infinite": (_change(good, lambda model: _weight(model, np.inf)), "not finite"),
        "unknown_operator": (_change(good, _unknown), "the operator 'Teleport'"),
        "ir_version": (_change(good, lambda model: setattr(model, "ir_version", 99)), "IR version 99, newer than"),
        "opset": (_change(good, lambda model: setattr(model.opset_import[0], "version", 99)), "opset 99, newer than"),
    }
    paths = {}
    for name, (content, says) in files.items():
        paths[name] = (folder / f"{name}.onnx", says)
        paths[name][0].write_bytes(content)
    missing = external(folder / "missing")
    (folder / "missing" / "weights.bin").unlink()
    paths["data_missing"] = (missing, "'weights.bin' is missing beside it")
    (folder / "weights.bin").write_bytes(b"0" * 4096)
    paths["data_outside"] = (external(folder / "outside", "../weights.bin"), "lies outside its folder")
    linked = external(folder / "linked")
    (folder / "linked" / "weights.bin").unlink()
    (folder / "linked" / "weights.bin").symlink_to(folder / "weights.bin")
    paths["data_linked"] = (linked, "lies outside its folder")
    short = external(folder / "short")
    (folder / "short" / "weights.bin").write_bytes(b"0" * 8)
    paths["data_short"] = (short, "outside its file")
    return paths


def _change(content: bytes, change: object) -> bytes:
    model = onnx.load_from_string(content)
    change(model)  # type: ignore[operator]  # one of the functions above
    return model.SerializeToString()  # type: ignore[no-any-return]


def _weight(model: ModelProto, number: float) -> None:
    array: Array = numpy_helper.to_array(model.graph.initializer[0]).copy()
    array[0, 0] = number
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(array, model.graph.initializer[0].name))


def _unknown(model: ModelProto) -> None:
    model.graph.node[1].op_type = "Teleport"


@pytest.mark.parametrize(
    "name",
    [
        *("text", "empty", "truncated", "nan", "infinite", "unknown_operator", "ir_version", "opset"),
        *("data_missing", "data_outside", "data_linked", "data_short"),
    ],
)
def test_bad_files_are_refused_in_one_sentence_with_exit_code_three(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, says = bad_files(tmp_path)[name]
    with pytest.raises(UnsafeModelError if name in ("data_outside", "data_linked") else ModelError, match=says):
        OnnxBackend.load(path)
    np.savez(tmp_path / "data.npz", x=np.asarray(random_inputs(NETWORK, 6)), y=np.arange(6) % 3)
    assert run(["scan", str(path), "--data", str(tmp_path / "data.npz")]) == 3
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("error: ")
    assert not line.endswith(".")
