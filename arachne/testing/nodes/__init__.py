"""The nodes a reference network is made of: what each computes, and its gradient written out by hand.

A node has a name, the names of the values it takes, and two formulas. `forward` gives its value; `backward` takes the
gradient of some number with respect to that value and gives the gradient with respect to each of its inputs. Nodes that
hold weights are layers, and have a third: the gradient with respect to the weights.

The classes are also the words of a network spec: a plug-in author's factory walks over `Network.nodes` and builds its
own framework's layer for each. `linear.py`, `recurrent.py` and `norm.py` hold the layers, `plain.py` all other nodes.
"""

from __future__ import annotations

from arachne.testing.nodes.base import (
    Arrays,
    Layer,
    Node,
    Parameters,
    Reuse,
)
from arachne.testing.nodes.linear import (
    Conv,
    ConvTranspose,
    Dense,
    Embedding,
    Sliding,
)
from arachne.testing.nodes.norm import (
    BatchNorm,
    LayerNorm,
    Norm,
)
from arachne.testing.nodes.plain import (
    Add,
    AveragePool,
    Concat,
    Flatten,
    MaxPool,
    Pool,
    Relu,
    Sigmoid,
    Softmax,
    Tanh,
    TwoClasses,
)
from arachne.testing.nodes.recurrent import (
    Gru,
    Lstm,
    Recurrent,
)

__all__ = [
    "Add",
    "Arrays",
    "AveragePool",
    "BatchNorm",
    "Concat",
    "Conv",
    "ConvTranspose",
    "Dense",
    "Embedding",
    "Flatten",
    "Gru",
    "Layer",
    "LayerNorm",
    "Lstm",
    "MaxPool",
    "Node",
    "Norm",
    "Parameters",
    "Pool",
    "Recurrent",
    "Relu",
    "Reuse",
    "Sigmoid",
    "Sliding",
    "Softmax",
    "Tanh",
    "TwoClasses",
]
