"""A shortcut for candidates: a few changed weights of a convolution change only a few of its output channels."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import helper

from arachne.model.values import Array
from arachne_onnx.graph import Graph, TensorType, copy_node
from arachne_onnx.layers import Layer
from arachne_onnx.sessions import Device, Program

MIN_CHANNEL_RATIO = 4
"""The shortcut is taken if at least this many times as many channels exist as change."""


class FewChannels:
    """The convolution of one layer, for some of its output channels.

    Args:
        device: Where it runs.
        graph: The graph the layer's node is in.
        layer: A convolution with one group that is used once.
    """

    def __init__(self, device: Device, graph: Graph, layer: Layer) -> None:
        node = copy_node(layer.uses[0].node)
        self.input = str(node.input[0])
        self.parameters = [name for name in ("weight", "bias") if name in layer.stored]
        del node.input[1:]
        node.input.extend(self.parameters)
        kind = graph.type_of(self.input)
        element = 1 if kind is None else kind.element
        rank = len(layer.info.parameters["weight"].shape)
        inputs = {self.input: TensorType(element, (None,) * rank), "weight": TensorType(element, (None,) * rank)}
        if "bias" in self.parameters:
            inputs["bias"] = TensorType(element, (None,))
        self._dtype = helper.tensor_dtype_to_np_dtype(element)
        self._output = str(node.output[0])
        self._program = Program(device, graph, inputs, [self._output], nodes=[node], constants={})

    @staticmethod
    def serves(layer: Layer) -> bool:
        """Whether this works for a layer: a convolution of floats with one group, used once, any bias stored."""
        if any(slice_.grid is not None for slice_ in layer.stored.values()):
            return False
        geometry, node = layer.info.geometry, layer.uses[0].node
        whole = len(node.input) < 3 or "bias" in layer.stored
        return layer.info.kind == "conv" and geometry is not None and geometry.groups == 1 == layer.info.uses and whole

    def run(self, x: Array, weights: Mapping[str, Array], channels: Array) -> Array:
        """The outputs `(n, channels, ...)` of these channels with these weights."""
        chosen = {name: weights[name][channels].astype(self._dtype, copy=False) for name in self.parameters}
        return self._program.run({self.input: x, **chosen})[self._output]


def changed_channels(before: Mapping[str, Array], after: Mapping[str, Array]) -> Array:
    """The output channels in which any parameter differs."""
    rows = [np.any((after[name] != before[name]).reshape(len(before[name]), -1), axis=1) for name in after]
    return np.flatnonzero(np.any(rows, axis=0))
