"""The output head: find the class scores in a graph, and add nodes that give them the shape `(n, classes)`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from arachne.adapting.outputs import SMALLEST_PROBABILITY, unknown_output
from arachne.errors import ModelError
from arachne_onnx.graph import SCORES, WHOLE, Graph, attributes, reads, type_from
from arachne_onnx.joined_outputs import join_outputs

PASSING = ("Identity", "Cast", "Dropout")

SPREADING = (*PASSING, "Reshape", "Expand", "Unsqueeze")
"""Operators that may lie between a number per row and its use."""


@dataclass(frozen=True)
class OutputHead:
    """The last operation of a model.

    Attributes:
        tensor: The input of the last softmax or sigmoid, or the output itself.
        kind: `softmax`, `sigmoid`, `sigmoids` (of several outputs), `logits`, or `probabilities` made in another way.
        class_names: The names of the classes, if the model has them.
    """

    tensor: str
    kind: str
    class_names: tuple[str, ...] | None = None


def find_output_head(model: ModelProto, graph: Graph, output: str | None) -> OutputHead:
    """Find the output with the class scores, or the input of its softmax or sigmoid.

    Raises:
        UsageError: No output of that name.
        ModelError: Several could be meant, or none can.
    """
    joined = join_outputs(graph, [str(value.name) for value in model.graph.output], output)
    producers = graph.producers()
    name = joined or _choose(model, graph, producers, output)
    names = None
    node = producers.get(name)
    if node is not None and node.op_type == "ZipMap":
        names, name = _class_names(node), node.input[0]
    while (node := producers.get(name)) is not None and node.op_type in PASSING:
        name = node.input[0]
    if node is None:
        raise ModelError(f"the model's output '{name}' is an input, not class scores")
    names = names or _label_names(graph)
    if node.op_type in ("Softmax", "LogSoftmax"):
        return OutputHead(node.input[0], "softmax", names)
    if node.op_type == "Sigmoid":
        return OutputHead(node.input[0], "sigmoid", names)
    if (exponent := _behind_quotient(node, graph, producers)) is not None:
        return OutputHead(exponent, "softmax", names)
    behind = _behind_pair(node, producers)
    return OutputHead(behind, "sigmoid", names) if behind is not None else OutputHead(name, "logits", names)


def unused_inputs(graph: Graph, head: OutputHead) -> frozenset[str]:
    """Return the inputs that the scores do not depend on, such as the labels of a training graph."""
    read = {name for node in graph.select_nodes([head.tensor]) for name in reads(node)}
    return frozenset(graph.inputs) - read


def append_scores(graph: Graph, head: OutputHead) -> None:
    """Add nodes that turn the head's tensor into float32 `(n, classes)`, if necessary."""
    kind = graph.type_of(head.tensor)
    name = head.tensor
    nodes: list[NodeProto] = []

    def then(operator: str, *more: str, **options: object) -> None:
        nonlocal name
        result = f"{SCORES}{len(nodes)}"
        nodes.append(helper.make_node(operator, [name, *more], [result], **options))
        name = result

    if kind is None or kind.element != TensorProto.FLOAT:
        then("Cast", to=TensorProto.FLOAT)
    if head.kind == "sigmoid":
        graph.constants[f"{SCORES}column"] = np.array([-1, 1])
        graph.constants[f"{SCORES}zero_first"] = np.array([0, 1, 0, 0])
        then("Reshape", f"{SCORES}column")
        then("Pad", f"{SCORES}zero_first")
    elif kind is not None and kind.shape is not None and _is_row(kind.shape):
        then("Flatten", axis=1)
    if head.kind == "probabilities":
        graph.constants[f"{SCORES}smallest"] = np.array(SMALLEST_PROBABILITY, np.float32)
        then("Max", f"{SCORES}smallest")
        then("Log")
    graph.nodes = [*graph.select_nodes([head.tensor]), *nodes]
    graph.scores = name


def _is_row(shape: Sequence[int | str | None]) -> bool:
    """Tell whether outputs `(n, classes, 1, 1)` are one row of class scores for each input."""
    return len(shape) > 2 and sum(size != 1 for size in shape[1:]) <= 1


def check_output_head(head: OutputHead, shape: tuple[int, ...], rows: int, raw: tuple[int, ...]) -> OutputHead:
    """Return the output head as outputs show it: `raw` is the shape of its tensor, which several sigmoids may follow.

    Raises:
        ModelError: There is not one row of numbers for each input.
    """
    if head.kind == "sigmoid" and int(np.prod(raw)) != rows:
        head, shape = replace(head, kind="sigmoids"), raw
    if not shape or shape[0] != rows:
        raise ModelError(f"the model gives outputs of shape {raw} for {rows} inputs, not one row for each input")
    return head


def _choose(model: ModelProto, graph: Graph, producers: dict[str, NodeProto], output: str | None) -> str:
    named = [str(value.name) for value in model.graph.output]
    if output is not None:
        if output not in named:
            raise unknown_output(output, named)
        return output
    possible = [str(name) for name in named if _may_be_scores(model, graph, producers, name)]
    if len(possible) == 1:
        return possible[0]
    for wanted in ("logits", "probabilities", "output_probability", "scores", "probs"):
        if wanted in possible:
            return wanted
    if not possible:
        for name, kind in zip(named, map(graph.type_of, named), strict=True):
            if kind is not None and kind.element in WHOLE:
                raise ModelError(
                    f"the model's output '{name}' holds {WHOLE[kind.element]}: export it with inputs and outputs in "
                    "floats, as onnxruntime's quantisers do, or repair the TFLite file it came from"
                )
        raise ModelError("the model has no output of floating-point numbers that could be class scores")
    raise ModelError(f"the model has {len(possible)} outputs, name one with --output or output=: {', '.join(possible)}")


def _may_be_scores(model: ModelProto, graph: Graph, producers: dict[str, NodeProto], name: str) -> bool:
    node = producers.get(name)
    if node is not None and node.op_type == "ZipMap":
        return True
    declared = next((type_from(value) for value in model.graph.output if value.name == name), None)
    kind = graph.type_of(name) or declared
    return kind is None or (kind.is_float and kind.rank != 0)  # a single number is a loss


def _class_names(node: NodeProto) -> tuple[str, ...] | None:
    options = attributes(node)
    labels = options.get("classlabels_strings") or options.get("classlabels_int64s")
    if not labels:
        return None
    return tuple(label.decode() if isinstance(label, bytes) else str(label) for label in labels)


def _label_names(graph: Graph) -> tuple[str, ...] | None:
    """Return the class names in a scikit-learn export."""
    for node in graph.nodes:
        if node.op_type == "ArrayFeatureExtractor" and node.input[0] in graph.constants:
            return tuple(
                label.decode() if isinstance(label, bytes) else str(label)
                for label in graph.constants[node.input[0]].ravel().tolist()
            )
    return None


def _behind_pair(node: NodeProto, producers: dict[str, NodeProto]) -> str | None:
    """Return the logit of `(1 - p, p)` if p is a sigmoid, as in scikit-learn's exports of two classes."""
    if node.op_type != "Concat" or len(node.input) != 2:
        return None
    other, positive = (producers.get(name) for name in node.input)
    if positive is None or other is None or positive.op_type != "Sigmoid" or other.op_type != "Sub":
        return None
    return positive.input[0] if positive.output[0] in other.input else None


def _behind_quotient(node: NodeProto, graph: Graph, producers: dict[str, NodeProto]) -> str | None:
    """Return z of exp(z - max z) / sum exp(z - max z), which is a softmax in exports from JAX."""
    if node.op_type != "Div":
        return None
    top = producers.get(node.input[0])
    total = _spread_from(node.input[1], producers, SPREADING)
    if top is None or top.op_type != "Exp" or not _over_classes(graph, total, "ReduceSum", top.output[0]):
        return None
    shifted = producers.get(top.input[0])
    if shifted is None or shifted.op_type != "Sub":
        return str(top.input[0])
    # What is taken away from a whole row changes no softmax; a maximum is raised to minus infinity on the way.
    largest = _spread_from(shifted.input[1], producers, (*SPREADING, "Max"))
    return str(shifted.input[0]) if _over_classes(graph, largest, "ReduceMax", shifted.input[0]) else None


def _spread_from(name: str, producers: dict[str, NodeProto], through: tuple[str, ...]) -> NodeProto | None:
    """Walk back from a tensor to the first node that is not of these kinds."""
    node = producers.get(name)
    while node is not None and node.op_type in through:
        node = next((found for name in node.input if (found := producers.get(name)) is not None), None)
    return node


def _over_classes(graph: Graph, node: NodeProto | None, operator: str, of: str) -> bool:
    if node is None or node.op_type != operator or node.input[0] != of:
        return False
    kind = graph.type_of(of)
    axes = graph.constants.get(node.input[1]) if len(node.input) > 1 else attributes(node).get("axes")
    return kind is not None and kind.rank == 2 and axes is not None and [axis % 2 for axis in axes] == [1]
