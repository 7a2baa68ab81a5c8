"""A low-rank patch, applied to copies of its model: other frameworks, folded, transposed, rounded, in whole numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import arachne
from arachne.errors import PatchError
from arachne.io.files import sha256_of
from arachne.model.registry import weight_file
from arachne.patch import Patch
from arachne.testing import mlp, random_inputs
from arachne.weights.edit import LowRankEdit
from tests.backends.test_patch_travel import Networks, export_torch, keras_cnn, small_cnn

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


def low_rank_patch(
    backend: Any, layers: Sequence[str] | None = None, size: float = 0.3, *, shrinks: bool = False
) -> Patch:
    """A change of rank 2 in the matrix or kernel of some layers, all when None; one that shrinks stays in any range."""
    rng, edits = np.random.default_rng(5), []
    for info in backend.layers:
        if info.weights and (layers is None or info.name in layers):
            stored = info.parameters[info.weights[0]]
            height, width = stored.shape[0], int(np.prod(stored.shape[1:]))
            left, right = (size * rng.normal(size=(n, 2)) for n in (height, width))
            if shrinks:
                whole = np.asarray(backend.get_weights(info.name)[info.weights[0]], np.float64).reshape(height, width)
                right = np.linalg.svd(whole)[2][:2].T
                left = -size * whole @ right
            edits.append(LowRankEdit(info.name, info.weights[0], left, right, stored.storage))
    return Patch.of_edits(backend, edits, provenance={"target": ["*:*"]})


def apply_and_revert(patch: Patch, model: Path) -> tuple[Any, Path]:
    """Apply a patch to a copy, and take it out to the bit; return how it was found, and the patched copy."""
    patched, back = (model.with_name(f"{name}{model.suffix}") for name in ("patched", "back"))
    done = arachne.apply(patch, model, patched)
    assert done is not None
    with pytest.raises(PatchError, match="carries this patch" if done.derived else "already"):
        arachne.apply(patch, patched, model.with_name(f"twice{model.suffix}"))
    arachne.revert(patch, patched, back)
    assert sha256_of(back) == sha256_of(model)
    assert sha256_of(patched) != sha256_of(model)
    return done, patched


@pytest.mark.backend("keras")
@pytest.mark.backend("torch")
def test_it_is_found_in_keras_where_matrices_are_transposed(tmp_path: Path) -> None:
    keras_cnn(small_cnn()).save(tmp_path / "net.keras")
    in_torch = arachne.load(small_cnn())
    patch = low_rank_patch(in_torch, ["0", "5"])
    done, patched = apply_and_revert(patch, tmp_path / "net.keras")
    assert {pair.how for pair in done.match.pairs} == {"content"}
    inputs = np.random.default_rng(0).normal(size=(16, 2, 8, 8)).astype(np.float32)
    patch.apply(in_torch)
    found = arachne.load(patched).forward(inputs.transpose(0, 2, 3, 1))
    np.testing.assert_allclose(found, in_torch.forward(inputs), atol=1e-5)


@pytest.mark.backend("onnx")
@pytest.mark.backend("torch")
def test_it_is_scaled_with_a_folded_batch_normalisation(tmp_path: Path) -> None:
    export_torch(small_cnn(), (2, 8, 8), tmp_path / "net.onnx", dynamo=False)
    in_torch = arachne.load(small_cnn())
    patch = low_rank_patch(in_torch, ["0", "5"])
    done, patched = apply_and_revert(patch, tmp_path / "net.onnx")
    assert [pair.how for pair in done.match.pairs] == ["scaled", "same"]
    inputs = np.random.default_rng(0).normal(size=(16, 2, 8, 8)).astype(np.float32)
    before = in_torch.forward(inputs)
    patch.apply(in_torch)
    np.testing.assert_allclose(arachne.load(patched).forward(inputs), in_torch.forward(inputs), atol=1e-4)
    assert not np.allclose(before, in_torch.forward(inputs), atol=1e-2)


@pytest.mark.backend("torch")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_it_is_rounded_with_a_copy_in_half_precision(dtype: str, tmp_path: Path) -> None:
    import torch

    net = small_cnn()
    patch = low_rank_patch(arachne.load(net), ["0", "5"])
    torch.save({name: one.to(getattr(torch, dtype)) for name, one in net.state_dict().items()}, tmp_path / "net.pt")
    done, patched = apply_and_revert(patch, tmp_path / "net.pt")
    assert {pair.how for pair in done.match.pairs} == {"close"}
    wanted, found = patch.low_rank[0], weight_file(patched).read("0", "weight")
    expected = wanted.edit.add(np.asarray(net.state_dict()["0.weight"]))
    np.testing.assert_allclose(found, expected, rtol=2e-2 if dtype == "bfloat16" else 2e-3, atol=2e-2)


@pytest.mark.backend("onnx")
def test_it_is_rounded_with_an_onnx_copy_in_half_precision(networks_in: Networks, tmp_path: Path) -> None:
    from onnx import numpy_helper

    network = mlp([6, 8, 3])
    own = networks_in("onnx").build(network)
    patch, model = low_rank_patch(own), own.native
    for stored in model.graph.initializer:
        values = numpy_helper.to_array(stored)
        if values.dtype == np.float32:
            stored.CopyFrom(numpy_helper.from_array(values.astype(np.float16), stored.name))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = 10
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    done, patched = apply_and_revert(patch, tmp_path / "net.onnx")
    assert {pair.how for pair in done.match.pairs} == {"close"}
    inputs = random_inputs(network, 20)
    again = networks_in("onnx").build(network)
    patch.apply(again)
    np.testing.assert_allclose(arachne.load(patched).forward(inputs), again.forward(inputs), atol=3e-2)


@pytest.mark.backend("onnx")
def test_it_becomes_whole_numbers_in_an_int8_copy(networks_in: Networks, tmp_path: Path) -> None:
    from tests.backends.int8_files import quantise

    network = mlp([40, 32, 3])
    own, inputs = networks_in("onnx").build(network), np.asarray(random_inputs(network, 200))
    patch = low_rank_patch(own, [own.layers[0].name], shrinks=True)
    (tmp_path / "float.onnx").write_bytes(own.native.SerializeToString())
    copy = quantise(tmp_path / "float.onnx", tmp_path / "int8.onnx", inputs, "qdq-per-channel")
    done, patched = apply_and_revert(patch, copy)
    assert {pair.how for pair in done.match.pairs} == {"quantised"}
    (change,) = done.match.patch.changes
    assert change.tensor.dtype == "int8"
    assert change.weights > 0
    before = weight_file(copy).read(*change.key).astype(int)
    moved = weight_file(patched).read(*change.key).astype(int) - before
    grid = weight_file(copy).grid(*change.key)
    assert grid is not None
    product = patch.low_rank[0].edit.left @ patch.low_rank[0].edit.right.T
    inside = (np.abs(before + moved) < 127).all(axis=1)  # elsewhere a weight at the end of its range may be clipped
    assert inside.sum() > 8
    apart = (moved * grid.scale - product)[inside]
    assert np.abs(apart.sum(axis=1)).max() <= float(grid.scale.max())
    assert np.abs(apart).max() <= 1.01 * float(grid.scale.max())


@pytest.mark.backend("onnx")
def test_one_that_leaves_the_range_of_an_int8_copy_is_refused(networks_in: Networks, tmp_path: Path) -> None:
    from tests.backends.int8_files import quantise

    network = mlp([40, 32, 3])
    own, inputs = networks_in("onnx").build(network), np.asarray(random_inputs(network, 200))
    (tmp_path / "float.onnx").write_bytes(own.native.SerializeToString())
    copy = quantise(tmp_path / "float.onnx", tmp_path / "int8.onnx", inputs, "qdq-per-channel")
    with pytest.raises(PatchError, match="the quantised file holds"):
        arachne.apply(low_rank_patch(own, size=2.0), copy, tmp_path / "patched.onnx")
    assert not (tmp_path / "patched.onnx").exists()


@pytest.mark.backend("onnx")
def test_another_network_is_not_taken_for_a_rounded_one(networks_in: Networks, tmp_path: Path) -> None:
    from tests.backends.int8_files import quantise

    network, other = mlp([40, 32, 3]), mlp([40, 32, 3], seed=9)
    inputs, build = np.asarray(random_inputs(network, 200)), networks_in("onnx").build
    (tmp_path / "other.onnx").write_bytes(build(other).native.SerializeToString())
    copy = quantise(tmp_path / "other.onnx", tmp_path / "int8.onnx", inputs, "qdq-per-channel")
    with pytest.raises(PatchError, match="another model or for other weights"):
        arachne.apply(low_rank_patch(build(network)), copy, tmp_path / "patched.onnx")


@pytest.mark.backend("tflite")
@pytest.mark.backend("onnx")
def test_it_is_found_in_a_tflite_file(networks_in: Networks, tmp_path: Path) -> None:
    conformance: ModuleType = networks_in("tflite")
    network = mlp([6, 8, 3])
    own = networks_in("onnx").build(network)
    patch = low_rank_patch(own)
    (tmp_path / "net.tflite").write_bytes(conformance.file_of(network))
    done, patched = apply_and_revert(patch, tmp_path / "net.tflite")
    assert {pair.how for pair in done.match.pairs} <= {"content", "same"}
    inputs = random_inputs(network, 20)
    patch.apply(own)
    np.testing.assert_allclose(arachne.load(patched).forward(inputs), own.forward(inputs), atol=1e-4)


@pytest.mark.backend("tflite")
@pytest.mark.backend("onnx")
def test_it_becomes_whole_numbers_in_an_int8_tflite_file(tmp_path: Path) -> None:
    from arachne.testing import ReferenceBackend
    from tests.backends.test_tflite import LAST, WEIGHT, int8_file

    network = mlp([5, 6, 3])
    own = ReferenceBackend(network)
    first, last = own.layers[0].name, own.layers[-1].name
    own.set_weights(first, "weight", WEIGHT)
    own.set_weights(last, "weight", LAST)
    patch = low_rank_patch(own, [last], shrinks=True)
    (tmp_path / "net.tflite").write_bytes(int8_file())
    done, patched = apply_and_revert(patch, tmp_path / "net.tflite")
    assert {pair.how for pair in done.match.pairs} == {"quantised"}
    before, after = (path.read_bytes() for path in (tmp_path / "net.tflite", patched))
    assert len(before) == len(after)
    assert 0 < sum(one != other for one, other in zip(before, after, strict=True)) <= LAST.size
