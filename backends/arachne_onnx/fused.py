"""Write operators that onnxruntime has fused (`FusedConv`, `FusedGemm`, `FusedMatMul`) as those they were made of.

onnxruntime fuses them again when it opens the graph, so the scores are those of the file.
"""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, helper

from arachne_onnx.graph import Graph, attributes, infer_types

DOMAIN = "com.microsoft"

ACTIVATIONS = {"Relu": 0, "Tanh": 0, "Sigmoid": 0, "LeakyRelu": 1, "HardSigmoid": 2, "Clip": 2}
"""The activations that are fused to the end of an operator, with the number of their parameters."""

PARAMETERS = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta")}
PLAIN = {"FusedConv": "Conv", "FusedGemm": "Gemm", "FusedMatMul": "MatMul", "TransposeMatMul": "MatMul"}


def write_out_fused(graph: Graph) -> None:
    """Replace the fused operators of a graph by plain ones; one without an exact equivalent stays as it is."""
    if not any(node.domain == DOMAIN and node.op_type in PLAIN for node in graph.nodes):
        return
    nodes: list[NodeProto] = []
    for node in graph.nodes:
        fused = node.domain == DOMAIN and node.op_type in PLAIN
        nodes += (_write_out(graph, node) if fused else None) or [node]
    graph.nodes = nodes
    infer_types(graph)


def _write_out(graph: Graph, node: NodeProto) -> list[NodeProto] | None:
    options = attributes(node)
    if PLAIN[node.op_type] == "MatMul":
        return _product(graph, node)
    kind, given = options.pop("activation", ""), [float(value) for value in options.pop("activation_params", [])]
    for number, name in enumerate(("activation_alpha", "activation_beta", "activation_gamma")):  # as FusedGemm says it
        value = options.pop(name, None)
        if value is not None and number == len(given):
            given.append(float(value))
    if kind and (kind not in ACTIVATIONS or len(given) < ACTIVATIONS[kind]):
        return None
    output, inputs, last = node.output[0], list(node.input), node.output[0]
    added = inputs[3] if node.op_type == "FusedConv" and len(inputs) > 3 and inputs[3] else ""
    if kind or added:
        last = f"{output}/arachne/fused"
    written = [helper.make_node(PLAIN[node.op_type], inputs[:3], [last], name=node.name, **options)]
    if added:
        following = f"{output}/arachne/sum" if kind else output
        written.append(helper.make_node("Add", [last, added], [following]))
        last = following
    if kind == "Clip":
        limits = [f"{output}/arachne/{end}" for end in ("low", "high")]
        graph.constants |= {name: np.array(value, np.float32) for name, value in zip(limits, given, strict=False)}
        written.append(helper.make_node("Clip", [last, *limits], [output]))
    elif kind:
        named = dict(zip(PARAMETERS.get(kind, ()), given, strict=False))
        written.append(helper.make_node(kind, [last], [output], **named))
    return written


def _product(graph: Graph, node: NodeProto) -> list[NodeProto] | None:
    options, written, names = attributes(node), list[NodeProto](), list[str]()
    if options.get("transBatchA") or options.get("transBatchB"):
        return None
    for name, option in zip(node.input, ("transA", "transB"), strict=True):
        if options.get(option):
            kind = graph.type_of(name)
            if kind is None or kind.rank is None or kind.rank < 2:
                return None
            axes = list(range(kind.rank))
            turned = f"{node.output[0]}/arachne/{option}"
            written.append(helper.make_node("Transpose", [name], [turned], perm=[*axes[:-2], axes[-1], axes[-2]]))
            name = turned
        names.append(name)
    alpha, output = float(options.get("alpha", 1.0)), node.output[0]
    product = output if alpha == 1.0 else f"{output}/arachne/product"
    written.append(helper.make_node("MatMul", names, [product], name=node.name))
    if alpha != 1.0:
        graph.constants[f"{output}/arachne/alpha"] = np.array(alpha, np.float32)
        written.append(helper.make_node("Mul", [product, f"{output}/arachne/alpha"], [output]))
    return written
