"""The gradient graph of a model: forward nodes, backward nodes, and the border between them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import numpy as np
from onnx import TensorProto, helper

from arachne.model.backend import LossGradient, compute_gradient
from arachne.model.values import Array
from arachne_onnx.graph import Graph, TensorType, copy_node, reads
from arachne_onnx.rules import Tape
from arachne_onnx.sessions import Device, Program

SEED = "arachne.seed"
"""The gradient of a loss with respect to the scores, `(n, classes)`: an input of the graph."""


class Derivative:
    """Vector-Jacobian products of the scores with respect to chosen tensors, as a graph.

    The seed depends on the scores (the loss is applied to them), so forward and backward nodes run in two sessions.
    Tensors that the backward nodes read are outputs of the first session and inputs of the second; nothing is computed
    twice.

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
        straight_through: Collection[str] = (),
    ) -> None:
        nodes = [copy_node(node) for node in graph.select_nodes([graph.scores])]
        forward = Graph(nodes, graph.constants, graph.inputs, graph.opsets, graph.types, graph.scores)
        tape = Tape(forward, straight_through=straight_through)
        self.gradients = tape.backward({graph.scores: SEED}, wanted)
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


def backward_program(
    device: Device,
    derivative: Derivative,
    values: Mapping[str, Array],
    fed: Collection[str],
    constants: Mapping[str, Array] | None = None,
) -> Program:
    """A session of the backward nodes alone.

    Args:
        device: Where it runs.
        derivative: The gradient graph.
        values: The forward tensors and weights of one run; later runs feed tensors of the same dtypes and ranks.
        fed: The names of the weights that are inputs of the session, not constants.
        constants: Other values for constants of the graph, by name.
    """
    outputs = sorted(set(derivative.gradients.values()))
    nodes = derivative.graph.select_nodes(outputs, {*derivative.saved, SEED})
    read = {name for node in nodes for name in reads(node)}
    inputs = {
        name: TensorType(helper.np_dtype_to_tensor_dtype(values[name].dtype), (None,) * values[name].ndim)
        for name in derivative.saved
    }
    inputs |= {name: kind for name in sorted(fed) if name in read and (kind := derivative.graph.type_of(name))}
    inputs[SEED] = derivative.graph.inputs[SEED]
    return Program(device, derivative.graph, inputs, outputs, nodes=nodes, constants=constants)


def loss_gradients(
    runs: Iterable[tuple[Mapping[str, Array], int, int]],
    derivative: Derivative,
    forward: Program,
    backward: Callable[[Mapping[str, Array]], Program],
    loss: LossGradient,
) -> Iterator[tuple[dict[str, Array], int]]:
    """Yield the gradients of each batch by name, and its number of rows.

    Args:
        runs: The inputs of each batch, its number of rows, and its size with padding.
        derivative: The gradient graph.
        forward: Computes the scores and the tensors that the backward nodes read.
        backward: Makes the session of the backward nodes from the values of a batch.
        loss: The loss.
    """
    done = 0
    for feeds, n, size in runs:
        values = {**feeds, **forward.run(feeds)}
        scores = np.asarray(values[derivative.graph.scores][:n], np.float32)
        seed = np.zeros((size, *scores.shape[1:]), np.float32)  # rows that only fill a batch keep their zeros
        if n:
            seed[:n] = compute_gradient(loss, scores, slice(done, done + n))
        if derivative.gradients:
            yield backward(values).run({**values, SEED: seed}), n
        done += n
