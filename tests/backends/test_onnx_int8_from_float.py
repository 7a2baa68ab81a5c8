"""A float patch is rounded to a quantised copy with the scales of the file, or refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from arachne.model.values import Array
from tests.backends.int8_files import FORMS, convolutional, digits, quantise

pytestmark = pytest.mark.backend("onnx")


@pytest.fixture(scope="module")
def inputs() -> Array:
    return digits()[0]


@pytest.fixture
def float_models(tmp_path: Path, inputs: Array) -> tuple[Path, Path]:
    """A float model, and a copy in which three weights of a convolution and two of a dense layer have other values."""
    import onnx

    from arachne_onnx import OnnxBackend

    onnx.save(convolutional(inputs), tmp_path / "net.onnx")
    backend = OnnxBackend.load(tmp_path / "net.onnx")
    for layer, places in (("b", (3, 80, 400)), ("d", (2, 50))):
        values = backend.get_weights(layer)["weight"]
        values.flat[list(places)] *= 0.4
        backend.set_weights(layer, "weight", values)
    backend.save(tmp_path / "changed.onnx")
    return tmp_path / "net.onnx", tmp_path / "changed.onnx"


@pytest.mark.parametrize("form", FORMS)
def test_float_patch_is_rounded_to_the_quantised_copy(
    form: str, float_models: tuple[Path, Path], inputs: Array, tmp_path: Path
) -> None:
    from arachne.patch.commands import apply, diff, revert
    from arachne_onnx import OnnxBackend

    source, after = float_models
    copy = quantise(source, tmp_path / "int8.onnx", inputs, form)
    done = apply(diff(source, after), copy, tmp_path / "patched.onnx")
    assert done is not None
    assert {pair.how for pair in done.match.pairs} == {"quantised"}
    wanted, found, before = (OnnxBackend.load(path) for path in (after, tmp_path / "patched.onnx", copy))
    for layer in ("b", "d"):
        stored = next(one for one in found.layers if one.name == layer).parameters["weight"]
        expected = np.where(
            wanted.get_weights(layer)["weight"] == OnnxBackend.load(source).get_weights(layer)["weight"],
            before.get_weights(layer)["weight"],
            stored.storage.round(wanted.get_weights(layer)["weight"]),
        )
        assert np.array_equal(found.get_weights(layer)["weight"], expected)
    revert(diff(source, after), tmp_path / "patched.onnx", tmp_path / "back.onnx")
    assert (tmp_path / "back.onnx").read_bytes() == copy.read_bytes()


def test_float_patch_that_would_clip_is_refused(float_models: tuple[Path, Path], inputs: Array, tmp_path: Path) -> None:
    from arachne.errors import PatchError
    from arachne.patch.commands import apply, diff
    from arachne_onnx import OnnxBackend

    source, _ = float_models
    copy = quantise(source, tmp_path / "int8.onnx", inputs, "qdq-per-channel")
    backend = OnnxBackend.load(source)
    values = backend.get_weights("d")["weight"]
    values[1, 2] = 5 * np.abs(values).max()
    backend.set_weights("d", "weight", values)
    backend.save(tmp_path / "far.onnx")
    with pytest.raises(PatchError, match="the quantised file holds"):
        apply(diff(source, tmp_path / "far.onnx"), copy, tmp_path / "patched.onnx")
    assert not (tmp_path / "patched.onnx").exists()


def test_float_patch_of_another_model_is_not_rounded_to_a_quantised_one(
    float_models: tuple[Path, Path], inputs: Array, tmp_path: Path
) -> None:
    from arachne.errors import PatchError
    from arachne.patch.commands import apply, diff
    from arachne_onnx import OnnxBackend

    source, after = float_models
    other = OnnxBackend.load(source)
    for layer in ("b", "d"):
        values = other.get_weights(layer)["weight"]
        other.set_weights(layer, "weight", values[::-1].copy())
    other.save(tmp_path / "other.onnx")
    copy = quantise(tmp_path / "other.onnx", tmp_path / "int8.onnx", inputs, "qdq-per-channel")
    with pytest.raises(PatchError, match="another model"):
        apply(diff(source, after), copy, tmp_path / "patched.onnx")
