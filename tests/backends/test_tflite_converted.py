"""TFLite files as TensorFlow's converter writes them: scores of LiteRT, exports by tf2onnx, recurrent layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arachne
from arachne.data.labelled import LabelledData
from arachne.errors import ModelError
from arachne.model.values import Array

pytest.importorskip("ai_edge_litert")
pytest.importorskip("tensorflow")

from tests.backends.test_low_rank_travel import low_rank_patch
from tests.backends.test_tflite import by_litert

pytestmark = [
    pytest.mark.backend("tflite"),
    pytest.mark.backend("keras"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Statistics for quantized inputs:UserWarning"),
]

SHAPES = {"mlp": (28, 28), "cnn": (28, 28, 1)}


def network(kind: str) -> Any:
    """A perceptron, or a small convnet with a batch normalisation, for pictures of 28 × 28."""
    import keras
    from keras import layers as kl

    keras.utils.set_random_seed(0)
    begin = [keras.Input(SHAPES[kind])]
    if kind == "cnn":
        begin += [kl.Conv2D(6, 5, use_bias=False), kl.BatchNormalization(), kl.ReLU(), kl.MaxPooling2D(3)]
    net = keras.Sequential([*begin, kl.Flatten(), kl.Dense(24, activation="relu"), kl.Dense(10)])
    if kind == "cnn":
        rng = np.random.default_rng(1)
        net.layers[1].set_weights([rng.uniform(0.5, 2, 6), rng.normal(size=6), rng.normal(size=6), np.full(6, 1.5)])
    return net


def convert(net: Any, inputs: Array | None = None, *, between: bool = False) -> bytes:
    """Convert with TensorFlow's own converter, in whole numbers where inputs are given: from end to end, or between."""
    import tensorflow as tf

    converter = tf.lite.TFLiteConverter.from_keras_model(net)
    if inputs is not None:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ([row[None]] for row in inputs)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.float32 if between else tf.int8
    content: bytes = converter.convert()
    return content


@pytest.fixture(scope="module", params=SHAPES)
def converted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Array]:
    """A folder with `net.keras`, `float.tflite` and `int8.tflite`, and inputs."""
    folder, net = tmp_path_factory.mktemp(request.param), network(request.param)
    inputs = np.random.default_rng(0).normal(size=(300, *SHAPES[request.param])).astype(np.float32)
    net.save(folder / "net.keras")
    (folder / "float.tflite").write_bytes(convert(net))
    (folder / "int8.tflite").write_bytes(convert(net, inputs[:100]))
    return folder, inputs


@pytest.mark.parametrize("name", ["float.tflite", "int8.tflite"])
def test_accuracy_of_a_scan_is_exactly_that_of_litert(converted: tuple[Path, Array], name: str) -> None:
    folder, inputs = converted
    decided = by_litert((folder / name).read_bytes(), inputs).argmax(axis=1)
    labels = np.where(np.arange(len(inputs)) % 3 == 0, (decided + 1) % 10, decided)
    found = arachne.scan(folder / name, LabelledData(inputs, labels))
    assert round(found.accuracy * len(inputs)) == int(np.sum(decided == labels)) == 200


def test_low_rank_patch_of_keras_applies_to_both_files(converted: tuple[Path, Array]) -> None:
    folder, inputs = converted
    own = arachne.load(folder / "net.keras")
    patch = low_rank_patch(own, [info.name for info in own.layers if info.kind in ("dense", "conv")], shrinks=True)
    before = own.forward(inputs)
    patch.apply(own)
    after = own.forward(inputs)
    for name, tolerance in (("float.tflite", 1e-4), ("int8.tflite", 0.3)):
        arachne.apply(patch, folder / name, folder / f"patched.{name}")
        found = arachne.load(folder / f"patched.{name}").forward(inputs)
        np.testing.assert_allclose(found, after, atol=tolerance * np.abs(after).max())
        assert np.abs(found - after).mean() < 0.5 * np.abs(found - before).mean()
        arachne.revert(patch, folder / f"patched.{name}", folder / f"back.{name}")
        assert (folder / f"back.{name}").read_bytes() == (folder / name).read_bytes()


@pytest.mark.backend("onnx")
def test_export_by_tf2onnx_is_read_in_whole_numbers(converted: tuple[Path, Array]) -> None:
    import keras
    import onnxruntime
    import tf2onnx

    folder, inputs = converted
    net, whole = keras.models.load_model(folder / "net.keras"), folder / "between.tflite"
    whole.write_bytes(convert(net, inputs[:100], between=True))
    tf2onnx.convert.from_tflite(str(whole), opset=17, output_path=str(whole.with_suffix(".onnx")))
    there, here = (arachne.load(whole.with_suffix(end)) for end in (".onnx", ".tflite"))
    dtypes = [[info.parameters[info.weights[0]].dtype for info in one.layers] for one in (there, here)]
    assert dtypes[0] == dtypes[1]
    assert set(dtypes[0]) == {"int8"}
    first, second = (np.asarray(one.get_weights(one.layers[-1].name)["weight"]) for one in (there, here))
    np.testing.assert_array_equal(first, second)
    session = onnxruntime.InferenceSession(whole.with_suffix(".onnx"))
    own = np.concatenate([session.run(None, {session.get_inputs()[0].name: row[None]})[0] for row in inputs[:50]])
    np.testing.assert_array_equal(there.forward(inputs[:50]), own)
    there.set_weights(there.layers[-1].name, "weight", -first)
    there.save(folder / "changed.onnx")
    patch = arachne.diff(whole.with_suffix(".onnx"), folder / "changed.onnx")
    assert {change.tensor.dtype for change in patch.changes} == {"int8"}
    arachne.revert(patch, folder / "changed.onnx", folder / "back.onnx")
    assert (folder / "back.onnx").read_bytes() == whole.with_suffix(".onnx").read_bytes()
    tf2onnx.convert.from_tflite(str(folder / "int8.tflite"), opset=17, output_path=str(folder / "int8.onnx"))
    there, here = arachne.load(folder / "int8.onnx"), arachne.load(folder / "int8.tflite")
    ours, theirs = there.forward(inputs[:50]), here.forward(inputs[:50])  # int8 at both ends, read as values
    assert np.mean(ours == theirs) > 0.9
    assert np.abs(ours - theirs).max() <= 2.01 * np.diff(np.unique(theirs)).min()


def test_recurrent_layer_is_read_unrolled_and_refused_with_advice_as_a_loop(tmp_path: Path) -> None:
    import keras
    from keras import layers as kl

    inputs = np.random.default_rng(0).normal(size=(20, 6, 5)).astype(np.float32)
    for unroll in (True, False):
        net = keras.Sequential([keras.Input(batch_shape=(1, 6, 5)), kl.LSTM(4, unroll=unroll), kl.Dense(3)])
        path = tmp_path / f"{unroll}.tflite"
        path.write_bytes(convert(net))
        if unroll:
            found = arachne.load(path).forward(inputs)
            np.testing.assert_array_equal(found.argmax(axis=1), by_litert(path.read_bytes(), inputs).argmax(axis=1))
        else:
            with pytest.raises(ModelError, match="unroll=True"):
                arachne.load(path)
