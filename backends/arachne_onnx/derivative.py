"""The gradient graph of a model: forward nodes, backward nodes, and the border between them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from onnx import NodeProto, TensorProto

from arachne.values import Array
from arachne_onnx.gradients import Tape
from arachne_onnx.graph import Graph, TensorType, reads
from arachne_onnx.normalise import copied

SEED = "arachne.seed"
"""The input that takes the gradient of the scores, `(n, classes)`."""


class Derivative:
    """Vector-Jacobian products of the scores with respect to chosen tensors, as a graph.

    Attributes:
        graph: Forward and backward nodes together.
        gradients: For each chosen tensor that the scores depend on, the name of its gradient.
        saved: The forward tensors that the backward nodes read.
    """

    def __init__(self, graph: Graph, wanted: Iterable[str], *, straight_through: Collection[str] = ()) -> None:
        forward = Graph(
            [copied(node) for node in graph.needed([graph.scores])],
            graph.constants,
            graph.inputs,
            graph.opsets,
            graph.types,
            graph.scores,
        )
        tape = Tape(forward, straight_through=straight_through)
        self.gradients = tape.backward({graph.scores: SEED}, wanted)
        self.backward: list[NodeProto] = tape.nodes
        self.constants: dict[str, Array] = tape.constants
        self.graph = Graph(
            [*forward.nodes, *tape.nodes],
            {**graph.constants, **tape.constants},
            {**graph.inputs, SEED: TensorType(TensorProto.FLOAT, None)},
            graph.opsets,
            graph.types,
            graph.scores,
        )
        made = {name for node in tape.nodes for name in node.output}
        read = {name for node in tape.nodes for name in reads(node)}
        self.saved = sorted(read - made - set(self.graph.constants) - {SEED})
