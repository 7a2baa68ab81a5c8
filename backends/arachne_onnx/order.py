"""Nodes in order of execution, and branches that are always taken.

The standard wants nodes in order; converters that put nodes behind everything else (onnxruntime's own to half
precision) do not keep to it, and onnxruntime does not mind. Exporters write an `If` where the framework asked about a
shape; often the answer is the same for any inputs, and then the branch belongs to the graph like any other nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import GraphProto, NodeProto, helper, numpy_helper

from arachne.errors import ModelError
from arachne.model.values import Array
from arachne_onnx.bounds import evaluate_small
from arachne_onnx.graph import Graph, TensorType, copy_node, infer_types, reads, subgraphs

SIZES = (1, 2, 3, 7, 1024)
"""Sizes tried in place of unknown ones, to see whether a condition depends on them."""


def sort_nodes(graph: GraphProto) -> None:
    """Put the nodes of a graph and of its bodies in an order they can run in; an order that is right stays as it is.

    Raises:
        ModelError: Nodes that need each other.
    """
    for node in graph.node:
        for body in subgraphs(node):
            sort_nodes(body)
    nodes = list(graph.node)
    order = _order(nodes)
    if order != list(range(len(nodes))):
        sorted_nodes = [nodes[index] for index in order]
        copies = helper.make_graph(sorted_nodes, "sorted", [], [])
        del graph.node[:]
        graph.node.extend(copies.node)


def _order(nodes: Sequence[NodeProto]) -> list[int]:
    """Sort the nodes topologically, stably; return their numbers."""
    makers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    needs = [sorted({makers[name] for name in reads(node) if name in makers}) for node in nodes]
    done: set[int] = set()
    waiting: set[int] = set()
    order: list[int] = []
    for start in range(len(nodes)):
        stack = [start]
        while stack:
            index = stack[-1]
            missing = [need for need in needs[index] if need not in done]
            if index in done:
                stack.pop()
            elif missing:
                waiting.add(index)
                if not waiting.isdisjoint(missing):
                    raise ModelError(
                        f"the model's nodes need each other in a circle, one of them '{nodes[index].name}'"
                    )
                stack += missing
            else:
                done.add(stack.pop())
                waiting.discard(index)
                order.append(index)
    return order


def take_constant_branches(graph: Graph) -> None:
    """Replace every `If` whose condition is the same for any inputs by the branch it takes."""
    while True:
        taken = {
            index: answer
            for index, node in enumerate(graph.nodes)
            if (answer := _constant_condition(graph, node)) is not None
        }
        if not taken:
            return
        nodes: list[NodeProto] = []
        for index, node in enumerate(graph.nodes):
            if index not in taken:
                nodes.append(node)
                continue
            wanted = "then_branch" if taken[index] else "else_branch"
            branch = next(attribute.g for attribute in node.attribute if attribute.name == wanted)
            nodes += _inline_branch(graph, node, branch)
        graph.nodes = nodes
        infer_types(graph)


def _constant_condition(graph: Graph, node: NodeProto) -> bool | None:
    """Return the condition of an `If` if it is constant; None if it depends on the inputs, or for other nodes."""
    if node.op_type != "If" or node.domain:
        return None
    if node.input[0] in graph.constants:
        return bool(graph.constants[node.input[0]].reshape(-1)[0])
    # Only conditions made of shapes and constants are known without inputs.
    shapes = {other.output[0]: other for other in graph.nodes if other.op_type == "Shape"}
    nodes = graph.select_nodes([node.input[0]], shapes)
    read = {name for other in nodes for name in reads(other)}
    made = {name for other in nodes for name in other.output}
    kinds = {name: kind for name in read & set(shapes) if (kind := graph.type_of(shapes[name].input[0])) is not None}
    if not read <= made | set(kinds) | set(graph.constants) or any(kind.shape is None for kind in kinds.values()):
        return None
    answers = set()
    for size in SIZES:
        tried = {name: _sizes(shapes[name], kind, size) for name, kind in kinds.items()}
        answer = evaluate_small(nodes, {**graph.constants, **tried}, graph.opsets).get(node.input[0])
        answers.add(None if answer is None or not answer.size else bool(answer.reshape(-1)[0]))
    return answers.pop() if len(answers) == 1 else None


def _sizes(node: NodeProto, kind: TensorType, unknown: int) -> Array:
    sizes = [size if isinstance(size, int) else unknown for size in kind.shape or ()]
    options = {attribute.name: attribute.i for attribute in node.attribute}
    return np.array(sizes[options.get("start", 0) : options.get("end", len(sizes))], np.int64)


def _inline_branch(graph: Graph, node: NodeProto, branch: GraphProto) -> list[NodeProto]:
    """Return the nodes of a branch with new tensor names: two branches may use the same names."""
    stem = next(name for name in node.output if name)
    names = {name: f"{stem}/{name}" for inner in branch.node for name in inner.output if name}
    for value in branch.initializer:  # their names are also used outside
        names[value.name] = f"{stem}/{value.name}"
        graph.constants[names[value.name]] = numpy_helper.to_array(value)
    ends = [value.name for value in branch.output]
    computed = {name for inner in branch.node for name in inner.output}
    for inner, outer in zip(ends, node.output, strict=True):
        if outer and inner in computed:
            names[inner] = outer
            computed.discard(inner)
    nodes = [_rename_tensors(inner, names) for inner in branch.node]
    made = {name for inner in nodes for name in inner.output}
    for inner, outer in zip(ends, node.output, strict=True):
        if outer and outer not in made:  # given as it came, or twice
            nodes.append(helper.make_node("Identity", [names.get(inner, inner)], [outer]))
    return nodes


def _rename_tensors(node: NodeProto, names: dict[str, str]) -> NodeProto:
    copy = copy_node(node)
    for field in (copy.input, copy.output):
        for index, name in enumerate(field):
            field[index] = names.get(name, name)
    for body in subgraphs(copy):
        own = {value.name for value in body.input} | {name for inner in body.node for name in inner.output}
        outer = {name: new for name, new in names.items() if name not in own}
        renamed = [_rename_tensors(inner, outer) for inner in body.node]
        del body.node[:]
        body.node.extend(renamed)
        for value in body.output:
            value.name = outer.get(value.name, value.name)
    return copy
