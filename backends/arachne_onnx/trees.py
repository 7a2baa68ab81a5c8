"""Check decision trees of `ai.onnx.ml` before onnxruntime walks them: it trusts children and features as they stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from onnx import GraphProto, NodeProto, helper

from arachne.errors import ModelError

TREES = frozenset({"TreeEnsembleClassifier"})

ELEMENTWISE = frozenset({"Cast", "Identity", "Scaler", "Normalizer", "Imputer"})
"""Operators before trees and the like that keep the number of columns."""

NODE_LISTS = ("nodes_nodeids", "nodes_featureids", "nodes_modes", "nodes_truenodeids", "nodes_falsenodeids")
CLASS_LISTS = ("class_treeids", "class_nodeids", "class_ids", "class_weights")


def check_trees(graph: GraphProto) -> None:
    """Refuse trees that lead in circles or out of the input, the trees or the classes.

    Raises:
        ModelError: There is one.
    """
    message = "the model's trees contradict themselves, or read columns that are not in its input"
    for _ in sound_nodes(graph, TREES, _is_sound, message):
        pass


def sound_nodes(
    graph: GraphProto, operators: frozenset[str], is_sound: Callable[[Mapping[str, Any], int], bool], message: str
) -> Iterator[tuple[NodeProto, Mapping[str, Any]]]:
    """Yield nodes of `ai.onnx.ml` with their attributes, after checking these and the columns of the input.

    Raises:
        ModelError: One is not sound.
    """
    for node in graph.node:
        if node.op_type in operators and node.domain == "ai.onnx.ml":
            values = {one.name: helper.get_attribute_value(one) for one in node.attribute}
            try:
                sound = is_sound(values, _columns(graph, node))
            except (TypeError, KeyError, ValueError):
                sound = False
            if not sound:
                raise ModelError(message)
            yield node, values


def _is_sound(values: Mapping[str, Any], columns: int) -> bool:
    trees = values["nodes_treeids"]
    lists = [values[name] for name in NODE_LISTS]
    leaves = [values[name] for name in CLASS_LISTS]
    optional = [
        values[name] for name in ("nodes_values", "nodes_hitrates", "nodes_missing_value_tracks_true") if name in values
    ]
    if any(len(one) != len(trees) for one in (*lists, *optional)) or "nodes_values" not in values:
        return False
    if len({len(one) for one in leaves}) != 1:
        return False
    labels = values.get("classlabels_strings") or values.get("classlabels_int64s") or ()
    if not all(0 <= number < len(labels) for number in leaves[2]):
        return False
    if not all(0 <= feature < columns for feature in lists[1]):
        return False
    rows = {(tree, number): at for at, (tree, number) in enumerate(zip(trees, lists[0], strict=True))}
    if len(rows) < len(trees):
        return False
    if not all(pair in rows for pair in zip(leaves[0], leaves[1], strict=True)):
        return False
    return _are_trees(trees, lists, rows)


def _are_trees(trees: Sequence[int], lists: Sequence[Any], rows: Mapping[tuple[int, int], int]) -> bool:
    """Whether every node but the first of each tree is the child of exactly one node that stands before it."""
    modes, below, beside = lists[2], lists[3], lists[4]
    parents = [0] * len(trees)
    for at, tree in enumerate(trees):
        if modes[at] == b"LEAF":
            continue
        for child in (below[at], beside[at]):
            row = rows.get((tree, child))
            if row is None or row <= at:
                return False
            parents[row] += 1
    first = {tree: rows[tree, number] for tree, number in reversed(list(rows))}
    roots = set(first.values())
    return all(count == (0 if at in roots else 1) for at, count in enumerate(parents))


def _columns(graph: GraphProto, node: NodeProto) -> int:
    """Return how many columns the input of a node has; -1 where that is not known."""
    makers = {name: other for other in graph.node for name in other.output}
    name = node.input[0]
    for _ in graph.node:
        maker = makers.get(name)
        if maker is None or maker.op_type not in ELEMENTWISE:
            break
        name = maker.input[0]
    for value in graph.input:
        if value.name == name:
            sizes = value.type.tensor_type.shape.dim
            return int(sizes[-1].dim_value) if len(sizes) == 2 and sizes[-1].dim_value else -1
    return -1
