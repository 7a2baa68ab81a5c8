"""Network specs: lists of nodes; and functions that make small ones of the usual shapes with seeded weights."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from arachne.errors import ModelError
from arachne.model.values import Array
from arachne.testing.nodes import (
    Add,
    AveragePool,
    Concat,
    Conv,
    Dense,
    Embedding,
    Flatten,
    Layer,
    MaxPool,
    Node,
    Relu,
    Reuse,
    Sigmoid,
    Softmax,
    Tanh,
    TwoClasses,
)

ACTIVATIONS: Mapping[str, type[Node]] = {"relu": Relu, "tanh": Tanh, "sigmoid": Sigmoid}

FOLLOWER_NAMES: Mapping[type[Node], str] = {
    Relu: "relu",
    Tanh: "tanh",
    Sigmoid: "sigmoid",
    MaxPool: "max_pool",
    AveragePool: "average_pool",
    Flatten: "flatten",
}
"""The names of nodes without weights in `LayerInfo.followed_by`."""


class UnsupportedNetworkError(ModelError):
    """Raised by `make_backend` for a network the backend cannot hold; its message, the reason, shows in the skip."""


@dataclass(frozen=True, eq=False)
class Network:
    """A network as a list of nodes in order of execution; the last one gives the class scores.

    A last node that is a softmax, or a sigmoid of one output, gives probabilities; the scores are what enters it.

    Attributes:
        inputs: The shape of one input by name, without the axis of inputs. A network with one input takes a plain
            array, one with several takes a mapping by these names.
        nodes: Its steps; each takes inputs and earlier nodes by name.
    """

    inputs: Mapping[str, tuple[int, ...]]
    nodes: tuple[Node, ...]

    def __post_init__(self) -> None:
        """Refuse a spec whose nodes cannot run in the order given."""
        known = set(self.inputs)
        for node in self.nodes:
            missing = [source for source in node.sources if source not in known]
            if missing:
                raise ModelError(f"node '{node.name}' takes '{missing[0]}', which nothing before it computes")
            if node.name in known:
                raise ModelError(f"two values of the network are called '{node.name}'")
            if isinstance(node, Reuse) and not (node.layer in known and node.layer in self.layers):
                raise ModelError(f"node '{node.name}' reuses '{node.layer}', which is no layer before it")
            known.add(node.name)
        if not self.nodes:
            raise ModelError("a network needs at least one node")

    def with_scores(self) -> Network:
        """Return the network up to its scores, without a final softmax; a single sigmoid output becomes two classes."""
        last = self.nodes[-1]
        if isinstance(last, Softmax):
            return Network(self.inputs, self.nodes[:-1])
        before = {node.name: node for node in self.nodes}.get(last.sources[0])
        if isinstance(last, Sigmoid) and isinstance(before, Dense) and len(before.weight) == 1:
            return Network(self.inputs, (*self.nodes[:-1], TwoClasses(last.name, last.inputs)))
        return self

    @property
    def layers(self) -> dict[str, Layer]:
        """The nodes with weights, by name, in order of execution."""
        return {node.name: node for node in self.nodes if isinstance(node, Layer)}

    def layer_of(self, node: Node) -> Layer | None:
        """The layer a node uses: itself, the one it reuses, or none."""
        if isinstance(node, Reuse):
            return self.layers[node.layer]
        return node if isinstance(node, Layer) else None

    def uses(self, layer: str) -> tuple[Node, ...]:
        """The nodes that use a layer, in order of execution."""
        used = [(node, self.layer_of(node)) for node in self.nodes]
        return tuple(node for node, owner in used if owner is not None and owner.name == layer)

    def rows_read(self, name: str) -> int | None:
        """How many rows the table has that an input looks up by number; None for an input of plain numbers."""
        readers = [self.layer_of(node) for node in self.nodes if name in node.sources]
        tables = [len(reader.weight) for reader in readers if isinstance(reader, Embedding)]
        return min(tables) if tables else None

    def followers(self, layer: Layer) -> tuple[str, ...] | None:
        """Return the names of the nodes between a layer and the next one, if that is a single path; None otherwise."""
        path: list[str] = []
        name = layer.name
        if not layer.LEAVES_ITS_VALUE or len(self.uses(layer.name)) > 1:
            return None
        while True:
            takers = [node for node in self.nodes if name in node.sources]
            if len(takers) > 1 or any(len(node.sources) > 1 for node in takers):
                return None
            if not takers or self.layer_of(takers[0]) is not None:
                return tuple(path)
            if type(takers[0]) not in FOLLOWER_NAMES:
                return None
            path.append(FOLLOWER_NAMES[type(takers[0])])
            name = takers[0].name


def mlp(sizes: Sequence[int], *, seed: int = 0, activation: str = "relu") -> Network:
    """Dense layers `fc1`, `fc2`, ... with a non-linearity between: `mlp([4, 8, 3])` has 4 inputs and 3 classes."""
    rng = np.random.default_rng(seed)
    nodes: list[Node] = []
    value = "input"
    for i, (n_in, n_out) in enumerate(itertools.pairwise(sizes), start=1):
        nodes.append(dense(f"fc{i}", value, n_in, n_out, rng))
        value = f"fc{i}"
        if i < len(sizes) - 1:
            nodes.append(ACTIVATIONS[activation](f"{activation}{i}", value))
            value = nodes[-1].name
    return Network({"input": (sizes[0],)}, tuple(nodes))


def convnet(*, channels: int = 1, side: int = 8, classes: int = 3, seed: int = 0, activation: str = "relu") -> Network:
    """`conv1` (4 channels, 3×3, padded), pooling by 2, `conv2` (6 channels, 3×3), flattened, `fc1`, `fc2`."""
    rng = np.random.default_rng(seed)
    act = ACTIVATIONS[activation]
    left = side // 2 - 2
    nodes = (
        conv("conv1", "input", channels, 4, (3, 3), rng, padding=((1, 1), (1, 1))),
        act("act1", "conv1"),
        MaxPool("pool1", "act1", (2, 2)),
        conv("conv2", "pool1", 4, 6, (3, 3), rng),
        act("act2", "conv2"),
        Flatten("flatten", "act2"),
        dense("fc1", "flatten", 6 * left * left, 10, rng),
        act("act3", "fc1"),
        dense("fc2", "act3", 10, classes, rng),
    )
    return Network({"input": (channels, side, side)}, nodes)


def residual(*, width: int = 5, classes: int = 3, seed: int = 0, activation: str = "relu") -> Network:
    """`stem`, a block `inner1`, `inner2` whose result is added to what entered it, and `head`."""
    rng = np.random.default_rng(seed)
    act = ACTIVATIONS[activation]
    nodes = (
        dense("stem", "input", 4, width, rng),
        act("act1", "stem"),
        dense("inner1", "act1", width, width, rng),
        act("act2", "inner1"),
        dense("inner2", "act2", width, width, rng),
        Add("sum", ("act1", "inner2")),
        act("act3", "sum"),
        dense("head", "act3", width, classes, rng),
    )
    return Network({"input": (4,)}, nodes)


def branches(*, width: int = 4, classes: int = 3, seed: int = 0, activation: str = "relu") -> Network:
    """`stem`, then `left` and `right` side by side, put together and read by `head`."""
    rng = np.random.default_rng(seed)
    act = ACTIVATIONS[activation]
    nodes = (
        dense("stem", "input", 4, width, rng),
        act("act1", "stem"),
        dense("left", "act1", width, width, rng),
        act("act2", "left"),
        dense("right", "act1", width, width, rng),
        act("act3", "right"),
        Concat("both", ("act2", "act3")),
        dense("head", "both", 2 * width, classes, rng),
    )
    return Network({"input": (4,)}, nodes)


def shared_layer(*, width: int = 4, classes: int = 3, seed: int = 0, activation: str = "tanh") -> Network:
    """`twice`, a layer that the network uses two times, and `head`."""
    rng = np.random.default_rng(seed)
    act = ACTIVATIONS[activation]
    nodes = (
        dense("twice", "input", width, width, rng),
        act("act1", "twice"),
        Reuse("again", "act1", "twice"),
        act("act2", "again"),
        dense("head", "act2", width, classes, rng),
    )
    return Network({"input": (width,)}, nodes)


def two_inputs(*, classes: int = 3, seed: int = 0, activation: str = "relu") -> Network:
    """Inputs `image` `(1, 4, 4)` and `facts` `(3,)`, each with a layer of its own, added and read by `head`."""
    rng = np.random.default_rng(seed)
    act = ACTIVATIONS[activation]
    nodes = (
        conv("see", "image", 1, 2, (3, 3), rng),
        Flatten("flatten", "see"),
        dense("know", "facts", 3, 8, rng),
        Add("sum", ("flatten", "know")),
        act("act1", "sum"),
        dense("head", "act1", 8, classes, rng),
    )
    return Network({"image": (1, 4, 4), "facts": (3,)}, nodes)


def random_inputs(network: Network, n: int, *, seed: int = 0) -> Array | dict[str, Array]:
    """`n` inputs: an array, or a mapping where the network has several inputs.

    They are standard normal, float32; where an embedding reads them, row numbers of its table, int64.
    """
    rng = np.random.default_rng(seed)
    drawn: dict[str, Array] = {}
    for name, shape in network.inputs.items():
        rows = network.rows_read(name)
        drawn[name] = rng.integers(0, rows, (n, *shape)) if rows else rng.normal(size=(n, *shape)).astype(np.float32)
    return drawn if len(drawn) > 1 else next(iter(drawn.values()))


def dense(name: str, source: str, n_in: int, n_out: int, rng: np.random.Generator) -> Dense:
    """A dense layer with normal weights of deviation 1 / sqrt(in) and small normal biases."""
    weight = rng.normal(size=(n_out, n_in)) / np.sqrt(n_in)
    return Dense(name, source, weight.astype(np.float32), 0.1 * rng.normal(size=n_out).astype(np.float32))


def conv(
    name: str,
    source: str,
    n_in: int,
    n_out: int,
    kernel: tuple[int, ...],
    rng: np.random.Generator,
    *,
    stride: tuple[int, ...] = (),
    padding: tuple[tuple[int, int], ...] = (),
    dilation: tuple[int, ...] = (),
    groups: int = 1,
) -> Conv:
    """A convolution with normal weights of deviation 1 / sqrt(in / groups × kernel) and small normal biases."""
    shape = (n_out, n_in // groups, *kernel)
    weight = (rng.normal(size=shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
    bias = 0.1 * rng.normal(size=n_out).astype(np.float32)
    return Conv(name, source, weight, bias, stride, padding, dilation, groups)
