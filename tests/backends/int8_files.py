"""Small networks that onnxruntime's own quantisers made into files of whole numbers, and the scores of these files."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from arachne.model.values import Array

FORMS: dict[str, dict[str, Any]] = {
    "qdq-per-channel": {"quant_format": "QDQ", "per_channel": True, "weight_type": "QInt8"},
    "qdq-uint8": {"quant_format": "QDQ", "weight_type": "QUInt8", "activation_type": "QUInt8"},
    "qoperator": {"quant_format": "QOperator", "per_channel": True, "weight_type": "QInt8"},
    "dynamic": {"weight_type": "QInt8"},
    "dynamic-per-channel": {"per_channel": True, "weight_type": "QUInt8"},
}


def digits() -> tuple[Array, Array]:
    """Pictures of digits and their labels, from the demo."""
    with resources.files("arachne.demo").joinpath("digits.npz").open("rb") as stream, np.load(stream) as arrays:
        return np.asarray(arrays["x"], np.float32), np.asarray(arrays["y"])


def convolutional(inputs: Array) -> Any:
    """Two convolutions, a pool and two dense layers with random weights, as a message."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    shapes = {"a.weight": (8, 1, 3, 3), "b.weight": (16, 8, 3, 3), "c.weight": (12, 64), "d.weight": (10, 12)}
    weights = {name: rng.normal(size=shape) / np.sqrt(np.prod(shape[1:])) for name, shape in shapes.items()}
    weights |= {name.replace("weight", "bias"): rng.normal(size=shape[0]) / 9 for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["x4"]),
        helper.make_node("Conv", ["x4", "a.weight", "a.bias"], ["a"], pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["ar"]),
        helper.make_node("Conv", ["ar", "b.weight", "b.bias"], ["b"], pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["b"], ["br"]),
        helper.make_node("MaxPool", ["br"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "c.weight", "c.bias"], ["c"], transB=1),
        helper.make_node("Relu", ["c"], ["cr"]),
        helper.make_node("Gemm", ["cr", "d.weight", "d.bias"], ["scores"], transB=1),
    ]
    stored = [numpy_helper.from_array(values.astype(np.float32), name) for name, values in weights.items()]
    stored.append(numpy_helper.from_array(np.array([-1, 1, 8, 8]), "shape"))
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *inputs.shape[1:]]),
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 10]),
    ]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def quantise(source: Path, destination: Path, inputs: Array, form: str) -> Path:
    """Quantise a model with onnxruntime's own quantisers."""
    import onnx
    from onnxruntime import quantization

    name = onnx.load(source).graph.input[0].name

    class Calibration(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.rows = iter(range(64))

        def get_next(self) -> dict[str, Array] | None:
            row = next(self.rows, None)
            return None if row is None else {name: inputs[row : row + 1]}

    options = dict(FORMS[form])
    for kind in {"weight_type", "activation_type"} & set(options):
        options[kind] = quantization.QuantType[options[kind]]
    if form.startswith("dynamic"):
        model = onnx.load(source)
        del model.graph.value_info[:]  # which an exporter got wrong, and this quantiser insists on
        quantization.quantize_dynamic(model, destination, **options)
        return destination
    options["quant_format"] = quantization.QuantFormat[options["quant_format"]]
    quantization.quantize_static(str(source), str(destination), Calibration(), **options)
    return destination


def own_scores(path: Path, inputs: Array) -> Array:
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    # A dynamic quantiser rounds by the whole batch, so each input is run alone.
    batches = np.split(inputs, len(inputs)) if b"DynamicQuantize" in path.read_bytes() else [inputs]
    return np.concatenate([session.run(None, {session.get_inputs()[0].name: batch})[0] for batch in batches])
