"""Check support vector machines of `ai.onnx.ml` before onnxruntime walks their lists: it trusts their lengths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnx import GraphProto, NodeProto

from arachne.errors import ModelError
from arachne_onnx.trees import sound_nodes

MACHINES = frozenset({"SVMClassifier"})

KERNEL_NUMBERS = 3
"""Numbers of a kernel: gamma, coef0 and degree."""

HANDED_ON = frozenset({"Cast", "Identity", "ZipMap"})
"""Operators that leave scores as they are."""


def check_support_vectors(graph: GraphProto) -> None:
    """Refuse machines whose lists do not fit each other, the classes or the input.

    Raises:
        ModelError: There is one.
    """
    message = "the lists of the model's support vectors do not fit each other or its input"
    for node, values in sound_nodes(graph, MACHINES, _is_sound, message):
        if _scores_pairs(graph, node, values):
            raise ModelError(
                "the model scores pairs of classes, one against one; export it with decision_function_shape='ovr', "
                "which scores each class"
            )


def _is_sound(values: Mapping[str, Any], columns: int) -> bool:
    classes = len(values.get("classlabels_strings") or values.get("classlabels_ints") or ())
    of_classes = values.get("vectors_per_class", ())
    if classes < 2 or len(values.get("kernel_params", ())) not in (0, KERNEL_NUMBERS):
        return False
    if not of_classes:
        return len(values["coefficients"]) == classes * columns and len(values["rho"]) == classes
    vectors, pairs = sum(of_classes), classes * (classes - 1) // 2
    slopes, offsets = (len(values.get(name, ())) for name in ("prob_a", "prob_b"))
    return (
        len(of_classes) == classes
        and min(of_classes) >= 0
        and len(values["support_vectors"]) == vectors * columns > 0
        and len(values["coefficients"]) == vectors * (classes - 1)
        and len(values["rho"]) == pairs
        and slopes == offsets
        and slopes in (0, pairs)
    )


def _scores_pairs(graph: GraphProto, node: NodeProto, values: Mapping[str, Any]) -> bool:
    """Whether values of pairs of classes are the model's scores."""
    if values.get("prob_a") or len(values.get("vectors_per_class", ())) < 3:
        return False
    names = {node.output[1]}
    for other in graph.node:
        if other.op_type in HANDED_ON and names.intersection(other.input):
            names.update(other.output)
    return any(value.name in names for value in graph.output)
