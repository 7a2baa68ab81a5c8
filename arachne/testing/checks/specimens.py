"""The networks the conformance suite is run on: one for each thing that can be wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from arachne.model.values import Array
from arachne.testing.networks import Network, branches, conv, convnet, dense, mlp, residual, shared_layer, two_inputs
from arachne.testing.nodes import (
    AveragePool,
    BatchNorm,
    ConvTranspose,
    Dense,
    Embedding,
    Flatten,
    Gru,
    LayerNorm,
    Lstm,
    MaxPool,
    Recurrent,
    Relu,
    Sigmoid,
    Softmax,
    Tanh,
)


def conv1d() -> Network:
    """A convolution over one axis, stride 2, then the largest of two neighbours."""
    rng = np.random.default_rng(1)
    nodes = (
        conv("filter", "input", 2, 4, (3,), rng, stride=(2,), padding=((1, 1),)),
        Tanh("act", "filter"),
        MaxPool("pool", "act", (2,)),
        Flatten("flatten", "pool"),
        dense("classify", "flatten", 8, 3, rng),
    )
    return Network({"input": (2, 9)}, nodes)


def conv2d() -> Network:
    """Two convolutions with all of stride, padding, dilation and groups, different along the two axes."""
    rng = np.random.default_rng(2)
    nodes = (
        conv("wide", "input", 4, 6, (3, 2), rng, stride=(2, 1), padding=((1, 1), (2, 2)), dilation=(1, 2), groups=2),
        Tanh("act1", "wide"),
        conv("narrow", "act1", 6, 4, (2, 3), rng, stride=(1, 2), dilation=(2, 1)),
        Sigmoid("act2", "narrow"),
        Flatten("flatten", "act2"),
        dense("classify", "flatten", 4 * 3 * 4, 3, rng),
    )
    return Network({"input": (4, 9, 8)}, nodes)


def conv3d() -> Network:
    """A convolution over three axes of different lengths, then means of windows that overlap."""
    rng = np.random.default_rng(3)
    nodes = (
        conv("volume", "input", 2, 4, (3, 2, 2), rng, padding=((1, 1), (0, 0), (1, 1)), groups=2),
        Tanh("act", "volume"),
        AveragePool("pool", "act", (2, 2, 2), (1, 2, 2)),
        Flatten("flatten", "pool"),
        dense("classify", "flatten", 4 * 3 * 2 * 2, 3, rng),
    )
    return Network({"input": (2, 4, 5, 4)}, nodes)


def depthwise() -> Network:
    """One group for each channel and two outputs for each: output channel = channel × 2 + m."""
    rng = np.random.default_rng(4)
    nodes = (
        conv("each", "input", 3, 6, (3, 3), rng, groups=3),
        Tanh("act", "each"),
        conv("mix", "act", 6, 4, (1, 1), rng),
        AveragePool("pool", "mix", (2, 2)),
        Flatten("flatten", "pool"),
        dense("classify", "flatten", 16, 3, rng),
    )
    return Network({"input": (3, 6, 6)}, nodes)


def steps() -> Network:
    """A dense layer over the last of several axes: `(n, steps, in)`."""
    rng = np.random.default_rng(5)
    nodes = (
        dense("each_step", "input", 4, 3, rng),
        Tanh("act", "each_step"),
        Flatten("flatten", "act"),
        dense("classify", "flatten", 15, 3, rng),
    )
    return Network({"input": (5, 4)}, nodes)


def no_bias() -> Network:
    """Layers that store a weight and nothing else."""
    rng = np.random.default_rng(6)
    nodes = (
        Dense("first", "input", rng.normal(size=(6, 4)).astype(np.float32)),
        Tanh("act", "first"),
        Dense("second", "act", rng.normal(size=(3, 6)).astype(np.float32)),
    )
    return Network({"input": (4,)}, nodes)


def conv_transpose() -> Network:
    """A transposed convolution over one axis that makes 9 positions of 4."""
    rng = np.random.default_rng(21)
    nodes = (
        ConvTranspose("spread", "input", normal(rng, 2, 3, 3), 0.1 * normal(rng, 3), stride=(2,)),
        Tanh("act", "spread"),
        Flatten("flatten", "act"),
        dense("classify", "flatten", 3 * 9, 3, rng),
    )
    return Network({"input": (2, 4)}, nodes)


def conv_transpose2d() -> Network:
    """A transposed convolution with all of stride, padding, dilation and groups, different along the two axes."""
    rng = np.random.default_rng(22)
    weight, bias = normal(rng, 4, 3, 3, 2), 0.1 * normal(rng, 6)
    nodes = (
        ConvTranspose("spread", "input", weight, bias, (2, 1), ((1, 1), (0, 0)), (1, 2), groups=2),
        Tanh("act", "spread"),
        Flatten("flatten", "act"),
        dense("classify", "flatten", 6 * 5 * 5, 3, rng),
    )
    return Network({"input": (4, 3, 3)}, nodes)


def embedding() -> Network:
    """Rows of a table, looked up by number and put side by side."""
    rng = np.random.default_rng(23)
    nodes = (
        Embedding("words", "input", normal(rng, 7, 4)),
        Tanh("act", "words"),
        Flatten("flatten", "act"),
        dense("classify", "flatten", 5 * 4, 3, rng),
    )
    return Network({"input": (5,)}, nodes)


def batch_norm() -> Network:
    """A convolution whose channels are normalised with fixed statistics."""
    rng = np.random.default_rng(24)
    mean, variance = 0.5 * normal(rng, 4), rng.uniform(0.5, 2, 4).astype(np.float32)
    nodes = (
        conv("filter", "input", 2, 4, (3, 3), rng),
        BatchNorm("norm", "filter", 1 + 0.3 * normal(rng, 4), 0.3 * normal(rng, 4), mean, variance),
        Tanh("act", "norm"),
        Flatten("flatten", "act"),
        dense("classify", "flatten", 4 * 9, 3, rng),
    )
    return Network({"input": (2, 5, 5)}, nodes)


def layer_norm() -> Network:
    """A dense layer over steps, and its outputs normalised separately at every step."""
    rng = np.random.default_rng(25)
    nodes = (
        dense("each_step", "input", 3, 4, rng),
        LayerNorm("norm", "each_step", 1 + 0.3 * normal(rng, 4), 0.3 * normal(rng, 4)),
        Tanh("act", "norm"),
        Flatten("flatten", "act"),
        dense("classify", "flatten", 5 * 4, 3, rng),
    )
    return Network({"input": (5, 3)}, nodes)


def recurrent(kind: type[Recurrent], *, biases: int) -> Network:
    """A recurrent layer over three steps, with two biases (`bias_ih` and `bias_hh`), the first alone, or none.

    It is called `read.l0` because PyTorch would call the first layer of a module `read` so.
    """
    rng = np.random.default_rng(26)
    rows = kind.GATES * 4
    weights = [normal(rng, rows, 3), normal(rng, rows, 4), *(0.3 * normal(rng, rows) for _ in range(biases))]
    nodes = (
        kind("read.l0", "input", *weights),
        Flatten("flatten", "read.l0"),
        dense("classify", "flatten", 3 * 4, 3, rng),
    )
    return Network({"input": (3, 3)}, nodes)


def normal(rng: np.random.Generator, *shape: int) -> Array:
    """Normal numbers of deviation 1 / sqrt(length of the last axis) for matrices, 1 for vectors; float32."""
    scale = 1 / np.sqrt(shape[-1]) if len(shape) > 1 else 1.0
    return (scale * rng.normal(size=shape)).astype(np.float32)


def softmax() -> Network:
    """A network that ends in a softmax."""
    plain = mlp([4, 6, 3], seed=7)
    return Network(plain.inputs, (*plain.nodes, Softmax("probabilities", "fc2")))


def one_sigmoid() -> Network:
    """A network of two classes that ends in one sigmoid output."""
    rng = np.random.default_rng(8)
    nodes = (
        dense("fc1", "input", 4, 6, rng),
        Relu("relu1", "fc1"),
        dense("fc2", "relu1", 6, 1, rng),
        Sigmoid("probability", "fc2"),
    )
    return Network({"input": (4,)}, nodes)


SPECIMENS: Mapping[str, Callable[[], Network]] = {
    "mlp": lambda: mlp([4, 8, 6, 3]),
    "mlp_tanh": lambda: mlp([4, 6, 3], activation="tanh"),
    "convnet": convnet,
    "conv1d": conv1d,
    "conv2d": conv2d,
    "conv3d": conv3d,
    "depthwise": depthwise,
    "steps": steps,
    "no_bias": no_bias,
    "residual": lambda: residual(activation="tanh"),
    "branches": lambda: branches(activation="tanh"),
    "shared": shared_layer,
    "two_inputs": lambda: two_inputs(activation="tanh"),
    "conv_transpose": conv_transpose,
    "conv_transpose2d": conv_transpose2d,
    "embedding": embedding,
    "batch_norm": batch_norm,
    "layer_norm": layer_norm,
    "lstm": lambda: recurrent(Lstm, biases=0),
    "lstm_one_bias": lambda: recurrent(Lstm, biases=1),
    "lstm_two_biases": lambda: recurrent(Lstm, biases=2),
    "gru": lambda: recurrent(Gru, biases=2),
    "one_output": lambda: mlp([4, 6, 1], activation="tanh"),
}
"""By the name under which a suite can declare one unsupported."""

SMOOTH = tuple(name for name, make in SPECIMENS.items() if not any(isinstance(node, Relu) for node in make().nodes))
"""Those without a relu: at its kink a finite difference says nothing."""

PROBABILITIES: Mapping[str, Callable[[], Network]] = {"softmax": softmax, "one_sigmoid": one_sigmoid}
"""Networks that give probabilities, whose scores a backend looks for behind the last node."""
