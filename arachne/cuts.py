"""A model held open: `Trace` for gradients of one pass, `Cut` for many candidates, and the plain one of each.

Public operations check what they are given, once for all backends, and call the part an adapter writes (`_scores_with`
for `scores_with`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

import numpy as np

from arachne.errors import UnknownLayerError, WeightShapeError, did_you_mean
from arachne.shards import added, shards
from arachne.values import Activation, Array, Inputs, LayerInfo, Weights, check_rows, count, read, take

if TYPE_CHECKING:
    from arachne.backend import ModelBackend

OPEN = 8
"""How many shards of lazy inputs a model is held open for at a time."""

Pull = Callable[[Array, slice], Array]
"""A loss as gradients see it: from the scores `(rows, classes)` of some rows to d loss / d scores, of the same shape.

The loss is a sum over rows. A backend calls its pull once for each batch, with the float32 scores of that batch and the
slice of rows they belong to; every row comes once, in order, and rows that only fill a batch never come. Where rows are
taken from several shards, what comes in place of the slice are the numbers of the rows, which index an array as well.
`arachne.losses` has the usual ones.
"""


Elements = Mapping[tuple[str, str], tuple[Array, ...]]
"""Some elements of each of some parameters: one array of numbers for each axis."""


def pulled(pull: Pull, scores: Array, rows: slice) -> Array:
    """What a pull says of some rows, checked: `(rows, classes)` like their scores.

    Raises:
        WeightShapeError: It gives another shape than it was given.
    """
    gradient = np.asarray(pull(scores, rows))
    if gradient.shape != scores.shape:
        raise WeightShapeError(
            f"a loss gives one gradient for each score, expected the shape {scores.shape}, got {gradient.shape}"
        )
    return gradient


def check_values(info: LayerInfo, parameter: str, values: Array) -> None:
    """Refuse values for a parameter that the layer does not have, or that has another shape.

    Raises:
        UnknownLayerError: The layer has no such parameter.
        WeightShapeError: The shape is another.
    """
    if parameter not in info.parameters:
        choices = did_you_mean(parameter, info.parameters)
        raise UnknownLayerError(f"layer '{info.name}' has no parameter '{parameter}'{choices}")
    shape = info.parameters[parameter].shape
    if np.shape(values) != shape:
        raise WeightShapeError(
            f"layer '{info.name}' has a {parameter} of shape {shape}, got values of shape {np.shape(values)}"
        )


class Trace(ABC):
    """One forward pass of some inputs, kept open so that several gradients can be taken from it."""

    n: int
    """The number of inputs."""

    activations: Mapping[str, tuple[Activation, ...]]
    """What passed through each traced layer, one `Activation` per use."""

    @final
    def output_gradients(self, seed: Array) -> Mapping[str, tuple[Array, ...]]:
        """As `ModelBackend.output_gradients`, for every traced layer at once.

        Args:
            seed: `(n, classes)`; row by row the vector the Jacobian is multiplied with.

        Returns:
            For each layer one array per use, in the shape of what leaves it: `(n, ...)`.
        """
        check_rows(self.n, seed, "rows of the seed")
        return self._output_gradients(seed)

    @abstractmethod
    def _output_gradients(self, seed: Array) -> Mapping[str, tuple[Array, ...]]:
        """As `output_gradients`, with a row of the seed for each input."""


class Cut(ABC):
    """A model held open at one layer: everything before it is computed once, everything behind it as often as asked.

    `rows` always means row numbers of the inputs the cut was made with; None means all of them.

    Attributes:
        layer: The layer the model is held open at: the earliest of those asked for, at its first use.
        layers: The layers the cut was made for, by name.
        continues_from_outputs: Whether `scores_from_outputs` works; where it does not, `scores_with` does the same job
            more slowly.
        n: How many inputs the cut was made with.
    """

    n: int = 0

    def __init__(self, layer: str, layers: Iterable[LayerInfo], *, continues_from_outputs: bool = True) -> None:
        self.layer = layer
        self.layers = {info.name: info for info in layers}
        self.continues_from_outputs = continues_from_outputs

    @abstractmethod
    def outputs(self, rows: Array | None = None) -> Array:
        """What leaves `layer` at its first use, with the weights the model had when it was cut: `(rows, ...)`."""

    @final
    def scores_from_outputs(self, outputs: Array, rows: Array | None = None) -> Array:
        """Class scores `(rows, classes)` when the first use of `layer` gives `outputs` instead."""
        if not self.continues_from_outputs:
            raise NotImplementedError(f"this cut cannot continue from the outputs of layer '{self.layer}'")
        if rows is not None:
            check_rows(len(rows), outputs, "rows of outputs")
        return self._scores_from_outputs(outputs, rows)

    @final
    def scores_with(self, weights: Weights, rows: Array | None = None) -> Array:
        """Class scores `(rows, classes)` with other values for whole parameters of the layers the cut was made for.

        Called once per candidate, and therefore hot. The model itself keeps its weights.

        Raises:
            UnknownLayerError: The cut was not made for such a layer, or the layer has no such parameter.
            WeightShapeError: Values of another shape than the parameter's.
        """
        self._check_weights(weights)
        return self._scores_with(weights, rows)

    @final
    def weight_gradients(self, weights: Weights, pull: Pull, rows: Array | None = None) -> Weights:
        """Gradients of a loss with respect to every parameter of the layers the cut was made for, as fresh arrays.

        Nothing before the cut is computed again. The plain cut of `ModelBackend` has full passes for it.

        Args:
            weights: Where the gradients are taken, as in `scores_with`.
            pull: The loss; the slices it gets count within `rows`.
            rows: Which inputs the loss sums over `(k,)`; all when None.
        """
        self._check_weights(weights)
        return self._weight_gradients(weights, pull, rows)

    def scores_by_shard(self, weights: Weights, rows: Array) -> Array:
        """As `scores_with` of rows `(k,)`, `(k, classes)`, by shards: the same bits whoever computes a shard."""
        groups = by_shard(self.n, rows)
        if len(groups) == 1:
            return self.scores_with(weights, rows)
        return put_together([(at, self.scores_with(weights, rows[at])) for _, at in groups])

    def gradients_by_shard(self, weights: Weights, pull: Pull, rows: Array, elements: Elements) -> Weights:
        """As `weight_gradients` of rows `(k,)`, of these elements alone, added up in the order of the shards."""
        groups = by_shard(self.n, rows)
        if len(groups) == 1:
            return picked(self.weight_gradients(weights, pull, rows), elements)
        first, *others = (
            picked(self.weight_gradients(weights, OfRows(pull, at), rows[at]), elements) for _, at in groups
        )
        return added_up(first, others)

    @abstractmethod
    def _scores_from_outputs(self, outputs: Array, rows: Array | None) -> Array:
        """As `scores_from_outputs`; never called where `continues_from_outputs` is not set."""

    @abstractmethod
    def _scores_with(self, weights: Weights, rows: Array | None) -> Array:
        """As `scores_with`, with values that fit."""

    def _weight_gradients(self, weights: Weights, pull: Pull, rows: Array | None) -> Weights:
        """As `weight_gradients`, with values that fit."""
        raise NotImplementedError(f"a '{type(self).__name__}' gives no gradients; the plain cut of the base class does")

    def _check_weights(self, weights: Weights) -> None:
        for (layer, parameter), values in weights.items():
            if layer not in self.layers:
                raise UnknownLayerError(f"the cut was not made for layer '{layer}'" + did_you_mean(layer, self.layers))
            check_values(self.layers[layer], parameter, values)


class OfRows:
    """A loss over many rows as some of them see it."""

    def __init__(self, pull: Pull, at: Array) -> None:
        """Keep which rows they are.

        Args:
            pull: The loss over all rows.
            at: The positions of the rows among all, `(k,)`.
        """
        self._pull, self._at = pull, at

    def __call__(self, scores: Array, rows: slice) -> Array:
        """As a `Pull`."""
        numbers: Any = self._at[rows]  # they index an array as the slice does
        return self._pull(scores, numbers)


def by_shard(n: int, rows: Array) -> list[tuple[int, Array]]:
    """The numbers of the shards of `n` inputs that some rows lie in, each with the positions of its rows among them."""
    starts = np.array([own.start for own in shards(n)])
    numbers = np.searchsorted(starts, rows, side="right") - 1
    order = np.argsort(numbers, kind="stable")
    asked, firsts = np.unique(numbers[order], return_index=True)
    return list(zip(asked.tolist(), np.split(order, firsts[1:]), strict=True)) if len(rows) else [(0, np.arange(0))]


def put_together(parts: Sequence[tuple[Array, Array]]) -> Array:
    """Rows in their own order, from pairs of their positions and what was found for them."""
    found = np.empty((sum(len(at) for at, _ in parts), *parts[0][1].shape[1:]), parts[0][1].dtype)
    for at, values in parts:
        found[at] = values
    return found


def picked(values: Weights, elements: Elements) -> Weights:
    """The chosen elements of each parameter, `(elements,)`."""
    return {place: values[place][index] for place, index in elements.items()}


def added_up(first: Weights, others: Iterable[Weights]) -> Weights:
    """The sum of several sets of gradients, in their order."""
    total: Weights = {place: np.array(values) for place, values in first.items()}
    for more in others:
        total = added(total, more)
    return total


@contextmanager
def restored(backend: ModelBackend, parameters: Iterable[tuple[str, str]]) -> Iterator[None]:
    """Put these parameters back as they were when the block ends, however it ends."""
    kept = {(layer, parameter): backend.get_weights(layer)[parameter] for layer, parameter in parameters}
    try:
        yield
    finally:
        for (layer, parameter), values in kept.items():
            backend.set_weights(layer, parameter, values)


def weights_of(backend: ModelBackend) -> Weights:
    """A copy of every parameter of a model."""
    return {
        (info.name, parameter): values
        for info in backend.layers
        for parameter, values in backend.get_weights(info.name).items()
    }


@contextmanager
def standing(backend: ModelBackend, weights: Weights) -> Iterator[None]:
    """The model with these weights, for the duration."""
    with restored(backend, weights):
        for (layer, parameter), values in weights.items():
            backend.set_weights(layer, parameter, values)
        yield


class PlainTrace(Trace):
    """Every layer asks for its own pass, with the weights the model had when it was traced."""

    def __init__(self, backend: ModelBackend, inputs: Inputs, layers: Sequence[str]) -> None:
        self.n = count(inputs)
        self._backend = backend
        self._inputs = inputs
        self._weights = weights_of(backend)
        self.activations = {layer: backend.activations(inputs, layer) for layer in layers}

    def _output_gradients(self, seed: Array) -> Mapping[str, tuple[Array, ...]]:
        with standing(self._backend, self._weights):
            return {layer: self._backend.output_gradients(self._inputs, layer, seed) for layer in self.activations}


class PlainCut(Cut):
    """Nothing is kept: every question is a full forward pass of the rows."""

    def __init__(self, backend: ModelBackend, inputs: Inputs, layers: Sequence[str]) -> None:
        infos = [info for info in backend.layers if info.name in layers]
        super().__init__(infos[0].name, infos, continues_from_outputs=False)
        self._backend = backend
        self._inputs = inputs
        self._weights = weights_of(backend)

    def outputs(self, rows: Array | None = None) -> Array:
        """One pass up to the layer."""
        with standing(self._backend, self._weights):
            return self._backend.activations(self._rows(rows), self.layer)[0].leaving

    def _scores_from_outputs(self, outputs: Array, rows: Array | None) -> Array:
        raise NotImplementedError

    def _scores_with(self, weights: Weights, rows: Array | None) -> Array:
        with standing(self._backend, {**self._weights, **weights}):
            return self._backend.forward(self._rows(rows))

    def _weight_gradients(self, weights: Weights, pull: Pull, rows: Array | None) -> Weights:
        asked = [place for place in self._weights if place[0] in self.layers]
        with standing(self._backend, {**self._weights, **weights}):
            return self._backend.weight_gradients(self._rows(rows), pull, asked)

    def _rows(self, rows: Array | None) -> Inputs:
        return self._inputs if rows is None else take(self._inputs, rows)


class LazyCut(Cut):
    """Cuts of the shards of lazy inputs, made when a shard is asked about; the last few stay open.

    All of them hold the weights that the model had when the first was made.
    """

    def __init__(self, backend: ModelBackend, inputs: Inputs, layers: Sequence[str]) -> None:
        self._backend, self._inputs, self._names = backend, inputs, list(layers)
        self._weights = weights_of(backend)
        self._shards = shards(count(inputs))
        self._open: dict[int, Cut] = {}
        first = self._shard(0)
        super().__init__(first.layer, first.layers.values(), continues_from_outputs=first.continues_from_outputs)
        self.n = count(inputs)

    def outputs(self, rows: Array | None = None) -> Array:
        """Shard by shard."""
        return put_together([(at, cut.outputs(own)) for cut, at, own in self._asked(rows)])

    def scores_by_shard(self, weights: Weights, rows: Array) -> Array:
        return self.scores_with(weights, rows)

    def gradients_by_shard(self, weights: Weights, pull: Pull, rows: Array, elements: Elements) -> Weights:
        return picked(self.weight_gradients(weights, pull, rows), elements)

    def _scores_from_outputs(self, outputs: Array, rows: Array | None) -> Array:
        return put_together([(at, cut.scores_from_outputs(outputs[at], own)) for cut, at, own in self._asked(rows)])

    def _scores_with(self, weights: Weights, rows: Array | None) -> Array:
        return put_together([(at, cut.scores_with(weights, own)) for cut, at, own in self._asked(rows)])

    def _weight_gradients(self, weights: Weights, pull: Pull, rows: Array | None) -> Weights:
        found = (cut.weight_gradients(weights, OfRows(pull, at), own) for cut, at, own in self._asked(rows))
        return added_up(next(found), found)

    def _asked(self, rows: Array | None) -> Iterator[tuple[Cut, Array, Array]]:
        """The cut of each shard that some rows lie in, the positions of its rows among them, and its own numbers."""
        wanted = np.arange(self.n) if rows is None else np.asarray(rows)
        for number, at in by_shard(self.n, wanted):
            yield self._shard(number), at, wanted[at] - self._shards[number].start

    def _shard(self, number: int) -> Cut:
        if number not in self._open:
            while len(self._open) >= OPEN:
                del self._open[next(iter(self._open))]
            with standing(self._backend, self._weights):
                self._open[number] = self._backend.cut(read(self._inputs, self._shards[number]), self._names)
        return self._open[number]
