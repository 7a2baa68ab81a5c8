"""Names of layers: those of the framework the model was exported from, where the file still shows them.

Exporters leave traces of three kinds: a parameter's own name (`fc1.weight`), the bias's when the weight was moved
(`onnx::MatMul_7` with `fc1.bias`), and the path in a node's name (`/layer1/layer1.0/conv1/Conv`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from onnx import NodeProto

from arachne_onnx.parameter_slice import ParameterSlice

SUFFIXES = (
    *("weight", "bias", "kernel", "gamma", "beta", "scale", "embeddings", "table", "W", "B", "R", "w", "b"),
    *("in_proj_weight", "in_proj_bias", "weight_ih", "weight_hh", "bias_ih", "bias_hh"),
    *(
        "MatMul",
        "Conv2D",
        "convolution",
        "depthwise",
        "separable_conv2d",
        "BiasAdd",
        "Add",
        "Cast",
        "GatherV2",
        "Reshape",
    ),
    "ReadVariableOp",
)
"""The last part of a parameter's name, which is not the layer's."""

PACKED = ("in_proj_weight", "in_proj_bias")
"""torch's names for tensors that hold the projections q, k and v of attention one after the other."""

SEPARATE = {"q_proj_weight": "q", "k_proj_weight": "k", "v_proj_weight": "v"}
"""torch's names for the three where they are stored apart, and the layers' names."""

QUANTISED = "_quantized"
"""The ending that onnxruntime's quantisers add to the name of a weight."""

_GENERATED = re.compile(r"^(onnx::|val_\d|_val_\d|const_|\d+$|arachne|(.*/)?Constant(_\d+)?_output_0$)|__\d+$")


def is_packed(name: str) -> bool:
    """Whether a parameter of this name holds three projections of attention."""
    return name.rpartition(".")[2] in PACKED


def layer_names(layers: Sequence[tuple[NodeProto, Sequence[ParameterSlice], str]]) -> list[str]:
    """A unique name for each layer, from its node, its parameters and a suffix."""
    taken: set[str] = set()
    names = []
    for node, slices, suffix in layers:
        stem = layer_name(node, [slice_.name for slice_ in slices]) + suffix
        name, number = stem, 1
        while name in taken:
            name, number = f"{stem}_{number}", number + 1
        taken.add(name)
        names.append(name)
    return names


def layer_name(node: NodeProto, parameters: Sequence[str]) -> str:
    """Name a layer after its first parameter whose name the exporter has not made up, or else after its node."""
    for parameter in parameters:
        name = from_parameter(parameter)
        if name:
            return name
    return from_node(node) or parameters[0]


def from_parameter(name: str) -> str | None:
    """`fc1` for `fc1.weight` and `fc1.weight_quantized`; None for a name that an exporter made up."""
    name = name.removesuffix(QUANTISED)
    if _GENERATED.match(name):
        return None
    parts = re.split(r"[./]", re.sub(r":\d+$", "", name) if "/" in name else name)
    if parts[-1] in SEPARATE:
        parts[-1] = SEPARATE[parts[-1]]
    while len(parts) > 1 and re.sub(r"(_l\d+)?(_reverse)?(_\d+)?$", "", parts[-1]) in SUFFIXES:
        parts.pop()
    if len(parts) == 1:
        stem, _, last = parts[0].rpartition("_")
        return stem if stem and last in SUFFIXES else parts[0]
    return ".".join(part for part in parts if part) or None


def from_node(node: NodeProto) -> str | None:
    """`layer1.0.conv1` for `/layer1/layer1.0/conv1/Conv`; a node's bare name as it is."""
    if not node.name:
        return None
    parts = [part for part in node.name.split("/") if part]
    if len(parts) == 1:
        return str(parts[0])
    last = parts.pop()
    number = re.search(r"_(\d+)$", last)
    kept = [
        part for part, following in zip(parts, [*parts[1:], ""], strict=True) if not following.startswith(f"{part}.")
    ]
    return ".".join(kept) + (f"_{number.group(1)}" if number and re.sub(r"_\d+$", "", last) == node.op_type else "")
