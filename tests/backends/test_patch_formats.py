"""Any patch, in files of any format and dtype: its own bytes change, and taking it out gives the file again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arachne.io.files import sha256_of
from arachne.model.registry import get, weight_file
from arachne.model.values import Address
from arachne.patch import Patch, PatchBase, WeightChange, differing_bytes
from arachne.patch.change import TensorChange
from arachne.patch.low_rank import LowRankChange
from arachne.weights.edit import LowRankEdit
from arachne.weights.storage import STORAGES

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")

EXAMPLES = int(os.environ.get("ARACHNE_EXAMPLES", "4"))
"""Random patches for each format and dtype; 50 make a thousand."""

WIDTHS = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


def torch_net(dtype: str) -> Any:
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))
    return net.eval().to(getattr(torch, dtype))


def save_state_dict(path: Path, dtype: str) -> None:
    import torch
    from safetensors.torch import save_file

    state = torch_net(dtype).state_dict()
    if path.suffix == ".safetensors":
        save_file(state, path)
    else:
        torch.save(state, path)


def save_program(path: Path, dtype: str) -> None:
    import torch

    example = torch.zeros(2, 1, 8, 8, dtype=getattr(torch, dtype))
    torch.export.save(torch.export.export(torch_net(dtype), (example,)), path)


def save_keras(path: Path, dtype: str) -> None:
    import keras

    import arachne_keras  # noqa: F401  # before Keras: it settles what Keras runs on

    keras.utils.set_random_seed(0)
    layers = [keras.layers.Conv2D(4, 3, dtype=dtype), keras.layers.Flatten(), keras.layers.Dense(10, dtype=dtype)]
    keras.Sequential([keras.Input((8, 8, 1), dtype=dtype), *layers]).save(path)


def save_onnx(path: Path, dtype: str, *, external: bool = False) -> None:
    import onnx
    from onnx import TensorProto, helper

    kind = getattr(TensorProto, dtype.upper().replace("FLOAT32", "FLOAT").replace("FLOAT64", "DOUBLE"))
    rng = np.random.default_rng(0)
    stored = helper.tensor_dtype_to_np_dtype(kind)
    shapes = {"conv.weight": (4, 1, 3, 3), "conv.bias": (4,), "fc.weight": (10, 144), "fc.bias": (10,)}
    tensors = [
        onnx.numpy_helper.from_array(rng.normal(size=shape).astype(stored), name) for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "conv.weight", "conv.bias"], ["a"], name="conv"),
        helper.make_node("Flatten", ["a"], ["b"]),
        helper.make_node("Gemm", ["b", "fc.weight", "fc.bias"], ["y"], name="fc", transB=1),
    ]
    ends = [
        helper.make_tensor_value_info(name, kind, shape) for name, shape in (("x", ["n", 1, 8, 8]), ("y", ["n", 10]))
    ]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    data = {"save_as_external_data": True, "location": path.name + ".data", "size_threshold": 0} if external else {}
    onnx.save_model(model, path, **data)


def save_onnx_with_data(path: Path, dtype: str) -> None:
    save_onnx(path, dtype, external=True)


FORMATS = {
    "safetensors": ("torch", "net.safetensors", save_state_dict, 0),
    "pt": ("torch", "net.pt", save_state_dict, 8),
    "pt2": ("torch", "net.pt2", save_program, 8),
    "keras": ("keras", "net.keras", save_keras, 8),
    "onnx": ("onnx", "net.onnx", save_onnx, 0),
    "onnx with data": ("onnx", "net.onnx", save_onnx_with_data, 0),
}
"""Backend, file, how it is made, and the bytes of checksums that follow a touched tensor in an archive."""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """A small net in a file of any format and dtype, made once."""
    folder = tmp_path_factory.mktemp("nets")

    def make(name: str, dtype: str) -> Path:
        _, file, save, _ = FORMATS[name]
        path = folder / f"{name}-{dtype}" / file
        if not path.exists():
            path.parent.mkdir()
            save(path, dtype)
        return path

    return make


def drawn_patch(data: st.DataObject, model: Path) -> Patch:
    """Any patch of a file: any weights, any finite values of its dtype."""
    file = weight_file(model)
    made = []
    for layer, parameter in data.draw(st.lists(st.sampled_from(sorted(file.parameters())), min_size=1, unique=True)):
        values, dtype = file.read(layer, parameter), file.dtype(layer, parameter)
        places = data.draw(st.lists(st.integers(0, values.size - 1), min_size=1, max_size=8, unique=True))
        entries = []
        for place in places:
            index = tuple(map(int, np.unravel_index(place, values.shape)))
            new = data.draw(st.floats(-6e4, 6e4, width=16) | st.sampled_from([0.0, -0.0, 6e-8, 1e-3]))
            entries.append(WeightChange.of(Address(layer, parameter, index), dtype, float(values[index]), new))
        changed = [entry for entry in entries if entry.old_bits != entry.new_bits]
        made += [TensorChange.of(values, changed)] if changed else []
    return Patch.from_json(Patch.of(made, PatchBase()).to_json())


def contents(folder: Path) -> dict[str, str]:
    return {path.name: sha256_of(path) for path in folder.iterdir()}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.backend(backend)) for name, (backend, *_) in FORMATS.items()]
)
@pytest.mark.parametrize("dtype", WIDTHS)
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_any_patch_changes_its_bytes_only_and_reverts_to_the_file(
    data: st.DataObject, saved: Callable[[str, str], Path], name: str, dtype: str, tmp_path_factory: Any
) -> None:
    model = saved(name, dtype)
    patched, back = (tmp_path_factory.mktemp(folder) / model.name for folder in ("patched", "back"))
    patch = drawn_patch(data, model)
    assert {tensor.dtype for tensor in patch.base.tensors} <= {dtype}
    patch.apply_file(weight_file(model), patched, reopen=weight_file)
    patch.revert_file(weight_file(patched), back, reopen=weight_file)
    assert contents(back.parent) == contents(model.parent)
    counts = [differing_bytes(path, patched.parent / path.name) for path in model.parent.iterdir()]
    differing = sum(-1 if count is None else count for count in counts)
    assert None not in counts
    assert differing <= len(patch) * WIDTHS[dtype] + len(patch.base.tensors) * FORMATS[name][3]
    assert (differing > 0) == (len(patch) > 0)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.backend(backend)) for name, (backend, *_) in FORMATS.items()]
)
@pytest.mark.parametrize("dtype", WIDTHS)
def test_low_rank_edits_of_kernels_and_matrices_revert_to_the_file(
    saved: Callable[[str, str], Path], name: str, dtype: str, tmp_path: Path
) -> None:
    model = saved(name, dtype)
    file, rng, made = weight_file(model), np.random.default_rng(0), []
    for layer, parameter in file.parameters():
        values = file.read(layer, parameter)
        if values.ndim > 1:
            left, right = rng.normal(size=(len(values), 2)) * 0.1, rng.normal(size=(values[0].size, 2))
            made.append(LowRankChange.from_edit(values, LowRankEdit(layer, parameter, left, right, STORAGES[dtype])))
    patch = Patch.from_json(Patch.of(made, PatchBase()).to_json())
    assert len(patch.low_rank) == 2
    patched, back = tmp_path / "patched" / model.name, tmp_path / "back" / model.name
    patch.apply_file(file, patched, reopen=weight_file)
    for change in made:
        np.testing.assert_array_equal(weight_file(patched).read(*change.key), change.edit.add(file.read(*change.key)))
    patch.revert_file(weight_file(patched), back, reopen=weight_file)
    assert contents(back.parent) == contents(model.parent)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.backend(backend)) for name, (backend, *_) in FORMATS.items()]
)
def test_a_file_opened_without_its_adapter_answers_as_one_opened_through_it(
    saved: Callable[[str, str], Path], name: str
) -> None:
    model = saved(name, "float32")
    light, whole = weight_file(model), get(FORMATS[name][0]).weight_file(model)
    assert type(light) is type(whole)
    assert light.parameters() == whole.parameters()
    for place in light.parameters():
        assert light.dtype(*place) == whole.dtype(*place)
        np.testing.assert_array_equal(light.read(*place), whole.read(*place))
