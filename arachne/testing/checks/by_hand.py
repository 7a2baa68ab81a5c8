"""Networks small enough to be worked out on paper; the numbers here are, and owe nothing to any code."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne.model.values import Array
from arachne.testing.networks import Network
from arachne.testing.nodes import (
    BatchNorm,
    Conv,
    ConvTranspose,
    Dense,
    Embedding,
    Flatten,
    Gru,
    Layer,
    LayerNorm,
    Lstm,
    Node,
    Relu,
    Reuse,
)


@dataclass(frozen=True)
class Case:
    """One layer, its inputs `(n, ...)`, and the scores `(n, classes)` that it gives.

    A backend that declares the network `like` unsupported need not hold this one either.
    """

    name: str
    like: str
    layer: Layer
    inputs: Array
    scores: Array

    @property
    def network(self) -> Network:
        """The layer, flattened where it gives more than one axis."""
        nodes: tuple[Node, ...] = (self.layer,)
        if not isinstance(self.layer, (Dense, LayerNorm)):
            nodes = (self.layer, Flatten("flatten", self.layer.name))
        return Network({"input": self.inputs.shape[1:]}, nodes)


def f32(values: object) -> Array:
    """Numbers as a float32 array."""
    return np.array(values, np.float32)


CASES = (
    # 1·1 + 2·10 + 0.5, 3·1 + 4·10 − 0.5, 5·1 + 6·10
    Case(
        "dense",
        "mlp",
        Dense("layer", "input", f32([[1, 2], [3, 4], [5, 6]]), f32([0.5, -0.5, 0])),
        f32([[1, 10]]),
        f32([[21.5, 42.5, 65]]),
    ),
    # Zeros around 1 2 3 4; windows 0 1 2 and 2 3 4: 10·1 + 100·2 and 2 + 10·3 + 100·4
    Case(
        "conv1d with stride and padding",
        "conv1d",
        Conv("layer", "input", f32([[[1, 10, 100]]]), f32([0]), stride=(2,), padding=((1, 1),)),
        f32([[[1, 2, 3, 4]]]),
        f32([[210, 432]]),
    ),
    # Every other number: 1 + 10·3 + 100·5 and 2 + 10·4 + 100·6
    Case(
        "conv1d with dilation",
        "conv1d",
        Conv("layer", "input", f32([[[1, 10, 100]]]), f32([0]), dilation=(2,)),
        f32([[[1, 2, 3, 4, 5, 6]]]),
        f32([[531, 642]]),
    ),
    # 1·1 + 2·2 + 3·4 + 4·5 at the upper left, and so on; a flipped kernel would give 23 there
    Case(
        "conv2d",
        "conv2d",
        Conv("layer", "input", f32([[[[1, 2], [3, 4]]]]), f32([1000])),
        f32([[[[1, 2, 3], [4, 5, 6], [7, 8, 9]]]]),
        f32([[1037, 1047, 1067, 1077]]),
    ),
    # One output channel for each of the two: 1 + 2·10, 3 + 4·10
    Case(
        "conv2d with several channels",
        "conv2d",
        Conv("layer", "input", f32([[[[1]], [[2]]], [[[3]], [[4]]]]), f32([0, 0])),
        f32([[[[1]], [[10]]]]),
        f32([[21, 43]]),
    ),
    # Outputs 0 and 1 see channels 0 and 1 alone, outputs 2 and 3 see channels 2 and 3
    Case(
        "conv2d with groups",
        "conv2d",
        Conv("layer", "input", f32([[1, 2], [3, 4], [5, 6], [7, 8]]).reshape(4, 2, 1, 1), f32([0, 0, 0, 0]), groups=2),
        f32([1, 10, 100, 1000]).reshape(1, 4, 1, 1),
        f32([[21, 43, 6500, 8700]]),
    ),
    # Depthwise: output channel = channel × 2 + m
    Case(
        "depthwise conv1d",
        "depthwise",
        Conv("layer", "input", f32([1, 2, 3, 4]).reshape(4, 1, 1), f32([0, 0, 0, 0]), groups=2),
        f32([1, 10]).reshape(1, 2, 1),
        f32([[1, 2, 30, 40]]),
    ),
    # The kernel spans the first axis: 1 + 10·5, 2 + 10·6, ...
    Case(
        "conv3d",
        "conv3d",
        Conv("layer", "input", f32([1, 10]).reshape(1, 1, 2, 1, 1), f32([0])),
        f32([1, 2, 3, 4, 5, 6, 7, 8]).reshape(1, 1, 2, 2, 2),
        f32([[51, 62, 73, 84]]),
    ),
    # Each number times the kernel, two apart: 1 10 100 from the first place on, 2 20 200 from the third
    Case(
        "transposed conv1d",
        "conv_transpose",
        ConvTranspose("layer", "input", f32([[[1, 10, 100]]]), f32([1000]), stride=(2,)),
        f32([[[1, 2]]]),
        f32([[1001, 1010, 1102, 1020, 1200]]),
    ),
    # Two channels in, one out: 1·1 + 2·10, 3·1 + 4·10
    Case(
        "transposed conv1d with several channels",
        "conv_transpose",
        ConvTranspose("layer", "input", f32([[[1, 3]], [[2, 4]]]), f32([0])),
        f32([[[1], [10]]]),
        f32([[21, 43]]),
    ),
    Case(
        "embedding",
        "embedding",
        Embedding("layer", "input", f32([[1, 2], [3, 4], [5, 6]])),
        np.array([[2, 0]]),
        f32([[5, 6, 1, 2]]),
    ),
    # (4 − 2) / sqrt(1 + 3) = 1 and (−1 − 1) / sqrt(13 + 3) = −1/2, then 10·1 + 100 and 20·(−1/2) + 200
    Case(
        "batch norm",
        "batch_norm",
        BatchNorm("layer", "input", f32([10, 20]), f32([100, 200]), f32([2, 1]), f32([1, 13]), 3.0),
        f32([4, -1]).reshape(1, 2, 1, 1),
        f32([[110, 190]]),
    ),
    # The mean of 1 and 3 is 2, their variance 1: ∓1 / sqrt(1 + 3), then 10·(−1/2) + 100 and 20·(1/2) + 200
    Case(
        "layer norm",
        "layer_norm",
        LayerNorm("layer", "input", f32([10, 20]), f32([100, 200]), 3.0),
        f32([[1, 3]]),
        f32([[95, 210]]),
    ),
    # The second feature, always 1, opens i and o and closes f, so each step gives tanh(tanh(first feature))
    Case(
        "lstm",
        "lstm",
        Lstm("layer.l0", "input", f32([[0, 40], [0, -40], [1, 0], [0, 40]]), f32([[0], [0], [0], [0]])),
        f32([[[1, 1], [2, 1]]]),
        f32([[np.tanh(np.tanh(1)), np.tanh(np.tanh(2))]]),
    ),
    # The same with f open: the second step adds to the cell of the first
    Case(
        "lstm that remembers",
        "lstm",
        Lstm("layer.l0", "input", f32([[0, 40], [0, 40], [1, 0], [0, 40]]), f32([[0], [0], [0], [0]])),
        f32([[[1, 1], [2, 1]]]),
        f32([[np.tanh(np.tanh(1)), np.tanh(np.tanh(1) + np.tanh(2))]]),
    ),
    # r is open and z closed, so h' = tanh(x + (h + 4) / 2 − 2) = tanh(x + h / 2)
    Case(
        "gru",
        "gru",
        Gru("layer.l0", "input", f32([[0], [0], [1]]), f32([[0], [0], [0.5]]), f32([40, -40, -2]), f32([0, 0, 2])),
        f32([[[1], [-1]]]),
        f32([[np.tanh(1), np.tanh(-1 + 0.5 * np.tanh(1))]]),
    ),
)

UNTRAINED = Network({"input": (2,)}, (Dense("layer", "input", f32([[0, 0], [0, 0]]), f32([0, 0])),))
"""Both classes get probability 1/2 whatever comes in, so each input's gradient at the scores is ∓1/2."""
UNTRAINED_INPUTS = f32([[1, 2], [3, 4]])
UNTRAINED_LABELS = np.array([0, 1])
UNTRAINED_GRADIENTS = {
    # (−1/2·[1 2] + 1/2·[3 4]) / 2 for class 0, the opposite for class 1
    "weight": f32([[0.5, 0.5], [-0.5, -0.5]]),
    "bias": f32([0, 0]),
}

HALF_OPEN = Network(
    {"input": (2,)},
    (
        Dense("hidden", "input", f32([[1, 0], [0, 1]]), f32([0, 0])),
        Relu("relu", "hidden"),
        Dense("scores", "relu", f32([[1, 2], [3, 4]]), f32([0, 0])),
    ),
)
"""A relu that lets its first unit through and stops its second."""
HALF_OPEN_INPUT = f32([[5, -5]])
HALF_OPEN_SEED = f32([[1, 10]])
HALF_OPEN_GRADIENT = f32([[31, 0]])  # 1·1 + 10·3 through the open unit

SHARED = Network(
    {"input": (1,)},
    (
        Dense("twice", "input", f32([[0.5]])),
        Reuse("again", "twice", "twice"),
        Dense("scores", "again", f32([[1], [-1]])),
    ),
)
"""Scores ±w·w·x: with w = 1/2 and x = 2, 1 leaves the first use and 1/2 the second."""
SHARED_INPUT = f32([[2]])
SHARED_SEED = f32([[1, 0]])
SHARED_GRADIENTS = (f32([[0.5]]), f32([[1]]))  # at the first use and at the second
# With p = 1 / (1 + e⁻¹) for the right class, −2 (1 − p) arrives behind the second use, where 1 entered; through it,
# half of that arrives behind the first, where 2 entered
SHARED_WEIGHT_GRADIENT = f32([[-2 * (1 - 1 / (1 + np.exp(-1))) * (1 + 1)]])
