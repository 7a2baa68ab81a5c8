"""The gradient graph of a model: forward nodes, backward nodes, and the border between them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from onnx import NodeProto, TensorProto, helper

from arachne_onnx.gradients import Tape
from arachne_onnx.graph import Graph, TensorType, reads
from arachne_onnx.normalise import copied

SEED = "arachne.seed"
"""The gradient of the scores, `(n, classes)`: an input, or computed from the two below."""

SHARE = "arachne.share"
"""How much of the softmax of the scores goes into the seed, `(n, 1)`: 1 / n for the loss of `n` inputs, 0 for rows that
do not count."""

OFFSET = "arachne.offset"
"""What is added to it, `(n, classes)`: minus the labels, one-hot, divided by `n`."""


class Derivative:
    """Vector-Jacobian products of the scores with respect to chosen tensors, as a graph.

    The seed is an input of the graph. With `of_loss` it is computed between the forward and the backward nodes, so that
    the gradient of the cross-entropy takes one pass and not two.

    Attributes:
        graph: Forward and backward nodes together.
        gradients: For each chosen tensor that the scores depend on, the name of its gradient.
        saved: The forward tensors that the backward nodes read.
    """

    def __init__(
        self,
        graph: Graph,
        wanted: Iterable[str],
        *,
        of_loss: bool = False,
        straight_through: Collection[str] = (),
    ) -> None:
        nodes = [copied(node) for node in graph.needed([graph.scores])]
        forward = Graph(nodes, graph.constants, graph.inputs, graph.opsets, graph.types, graph.scores)
        tape = Tape(forward, straight_through=straight_through)
        self.gradients = tape.backward({graph.scores: SEED}, wanted)
        between = _loss_seed(graph.scores) if of_loss else []
        given = (SHARE, OFFSET) if of_loss else (SEED,)
        rows = TensorType(TensorProto.FLOAT, None)
        self.graph = Graph(
            [*forward.nodes, *between, *tape.nodes],
            {**graph.constants, **tape.constants},
            {**graph.inputs, **dict.fromkeys(given, rows)},
            graph.opsets,
            graph.types,
            graph.scores,
        )
        made = {name for node in tape.nodes for name in node.output}
        read = {name for node in tape.nodes for name in reads(node)}
        self.saved = sorted(read - made - set(self.graph.constants) - {SEED})


def _loss_seed(scores: str) -> list[NodeProto]:
    return [
        helper.make_node("Softmax", [scores], ["arachne.softmax"], axis=1),
        helper.make_node("Mul", ["arachne.softmax", SHARE], ["arachne.shared"]),
        helper.make_node("Add", ["arachne.shared", OFFSET], [SEED]),
    ]
