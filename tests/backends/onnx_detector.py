"""A tiny detector in the shape of a YOLOv8 export: levels made larger again and joined, sizes of pictures left free."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from arachne.model.values import Array

OBJECTS = 3
LEVELS = 5
"""How many times pictures are halved; their sides are multiples of 32."""


def make_detector(seed: int = 0) -> onnx.ModelProto:
    """Outputs `(n, 4 + OBJECTS, anchors)`: boxes in pixels, and classes behind a sigmoid."""
    rng = np.random.default_rng(seed)
    constants: dict[str, Array] = {}

    def constant(name: str, values: Array) -> str:
        constants[name] = values
        return name

    def conv(name: str, source: str, channels_in: int, channels_out: int, size: int, stride: int) -> onnx.NodeProto:
        weight = rng.normal(0, 0.5, (channels_out, channels_in, size, size)).astype(np.float32)
        names = [
            source,
            constant(f"{name}.weight", weight),
            constant(f"{name}.bias", np.zeros(channels_out, np.float32)),
        ]
        return helper.make_node(
            "Conv", names, [name], name=name, strides=[stride] * 2, pads=[size // 2] * 4, kernel_shape=[size] * 2
        )

    nodes, last, channels = [], "images", 3
    for level in range(LEVELS):
        nodes += [conv(f"down{level}", last, channels, 6, 3, 2)]
        nodes += [helper.make_node("Relu", [f"down{level}"], [f"level{level}"])]
        last, channels = f"level{level}", 6
    constant("scales", np.array([1, 1, 2, 2], np.float32))
    for level in (LEVELS - 2, LEVELS - 3):
        larger, joined = f"larger{level}", f"joined{level}"
        nodes += [helper.make_node("Resize", [last, "", "scales"], [larger], mode="nearest", nearest_mode="floor")]
        nodes += [helper.make_node("Concat", [larger, f"level{level}"], [joined], axis=1)]
        last, channels = joined, channels + 6
    nodes += [conv("box", last, channels, 4, 1, 1), conv("class", last, channels, OBJECTS, 1, 1)]
    constant("box_shape", np.array([0, 4, -1]))
    constant("class_shape", np.array([0, OBJECTS, -1]))
    constant("eight", np.array(8, np.float32))
    nodes += [
        helper.make_node("Reshape", ["box", "box_shape"], ["boxes0"]),
        helper.make_node("Abs", ["boxes0"], ["boxes1"]),
        helper.make_node("Add", ["boxes1", "eight"], ["boxes"]),
        helper.make_node("Reshape", ["class", "class_shape"], ["logits"]),
        helper.make_node("Sigmoid", ["logits"], ["probabilities"]),
        helper.make_node("Concat", ["boxes", "probabilities"], ["output0"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, "height", "width"])],
        [helper.make_tensor_value_info("output0", TensorProto.FLOAT, ["batch", 4 + OBJECTS, "anchors"])],
        [numpy_helper.from_array(values, name) for name, values in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
