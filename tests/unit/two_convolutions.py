"""Random networks of two convolutions, for the evaluator's route from one into the other."""

from __future__ import annotations

import numpy as np

from arachne.model.values import Array
from arachne.testing import Network
from arachne.testing.networks import ACTIVATIONS, conv, dense
from arachne.testing.nodes import AveragePool, Flatten, MaxPool, Node

SIDES = (11, 9)


def two_convolutions(seed: int, *, axes: int = 2, overlapping: bool = False, third: bool = False) -> Network:
    """`conv1`, a function, maybe pooling, `conv2` of a random geometry, and what makes scores of it.

    Args:
        seed: Everything follows from it.
        axes: How many spatial axes there are.
        overlapping: Whether the pooling's windows overlap.
        third: Whether a third convolution follows.
    """
    rng = np.random.default_rng(seed)
    nodes: list[Node] = []
    n_in = int(rng.integers(1, 3))
    shape: Array = np.array(SIDES[:axes])

    def add(node: Node) -> None:
        nodes.append(node)

    def convolve(name: str, inside: int, outside: int, groups: int) -> None:
        nonlocal shape
        after: Array = np.zeros(axes, np.int64)
        while (after < 1).any():
            kernel = rng.integers(1, 4, size=axes)
            stride, dilation, pads = (rng.integers(low, 3, size=axes) for low in (1, 1, 0))
            dilation = dilation if (stride == 1).all() else np.ones_like(dilation)  # not every framework has both
            after = (shape + 2 * pads - dilation * (kernel - 1) - 1) // stride + 1
        shape = after
        source = nodes[-1].name if nodes else "input"
        add(
            conv(
                name,
                source,
                inside,
                outside,
                tuple(map(int, kernel)),
                rng,
                stride=tuple(map(int, stride)),
                padding=tuple((int(pad), int(pad)) for pad in pads),
                dilation=tuple(map(int, dilation)),
                groups=groups,
            )
        )
        act = str(rng.choice(["relu", "tanh", "sigmoid"]))
        add(ACTIVATIONS[act](f"{act}_{name}", name))

    def pool(name: str) -> None:
        nonlocal shape
        kind = MaxPool if rng.integers(2) else AveragePool
        size = 3 if overlapping else 2
        if (shape >= size).all():
            add(kind(name, nodes[-1].name, (size,) * axes, (2,) * axes if overlapping else ()))
            shape = (shape - size) // 2 + 1

    convolve("conv1", n_in, 4, 1)
    if overlapping or rng.integers(3):
        pool("pool1")
    groups = int(rng.choice([1, 1, 2, 4]))
    convolve("conv2", 4, 4 if groups == 4 else 6, groups)
    if rng.integers(2):
        pool("pool2")
    if third:
        convolve("conv3", 4 if groups == 4 else 6, 3, 1)
    add(Flatten("flatten", nodes[-1].name))
    channels = 3 if third else 4 if groups == 4 else 6
    add(dense("fc1", "flatten", channels * int(np.prod(shape)), 8, rng))
    add(ACTIVATIONS["relu"]("act", "fc1"))
    add(dense("fc2", "act", 8, 3, rng))
    return Network({"input": (n_in, *SIDES[:axes])}, tuple(nodes))
