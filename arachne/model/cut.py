"""A model held open for many candidates: `Cut`, and the plain one that every backend has.

Public operations check what they are given, once for all backends, and call the adapter's implementation:
`_scores_with` for `scores_with`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

import numpy as np

from arachne.decisions.losses import LossGradient
from arachne.errors import UnknownLayerError, WeightShapeError, did_you_mean
from arachne.model.forks import leave_model_to_parent
from arachne.model.sharding import add_in_place, shards
from arachne.model.values import Activation, Array, Inputs, LayerInfo, Weights, check_rows, count, read, take

if TYPE_CHECKING:
    from arachne.model.backend import ModelBackend

MAX_OPEN_SHARDS = 8
"""Largest number of shards for which a cut is kept open at a time, where not all inputs are cut at once."""

Elements = Mapping[tuple[str, str], tuple[Array, ...]]
"""Selected elements of some parameters: one index array for each axis."""


def compute_gradient(loss: LossGradient, scores: Array, rows: slice) -> Array:
    """Call a loss gradient for some rows and check its shape, which is that of their outputs.

    Raises:
        WeightShapeError: It gives another shape than it was given.
    """
    gradient = np.asarray(loss(scores, rows))
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
        """Return the outputs of `layer` at its first use, `(rows, ...)`, with the weights of when the model was cut."""

    def activation(self, rows: Array) -> Activation | None:
        """Return what enters and leaves `layer` for rows `(k,)`, at its only use; None where passes have to tell."""
        return None

    @final
    def scores_from_outputs(self, outputs: Array, rows: Array | None = None) -> Array:
        """Return raw outputs `(rows, ...)` when the first use of `layer` gives `outputs` instead."""
        if not self.continues_from_outputs:
            raise NotImplementedError(f"this cut cannot continue from the outputs of layer '{self.layer}'")
        leave_model_to_parent()
        if rows is not None:
            check_rows(len(rows), outputs, "rows of outputs")
        return self._scores_from_outputs(outputs, rows)

    @final
    def scores_with(self, weights: Weights, rows: Array | None = None) -> Array:
        """Return raw outputs `(rows, ...)` with other values for whole parameters of the layers the cut was made for.

        Called once per candidate, and therefore hot. The model itself keeps its weights.

        Raises:
            UnknownLayerError: The cut was not made for such a layer, or the layer has no such parameter.
            WeightShapeError: Values of another shape than the parameter's.
        """
        self._check_weights(weights)
        return self._scores_with(weights, rows)

    @final
    def weight_gradients(self, weights: Weights, loss: LossGradient, rows: Array | None = None) -> Weights:
        """Gradients of a loss with respect to every parameter of the layers the cut was made for, as fresh arrays.

        Nothing before the cut is computed again. The plain cut of `ModelBackend` has full passes for it.

        Args:
            weights: Where the gradients are taken, as in `scores_with`.
            loss: The loss; the slices it gets count within `rows`.
            rows: Which inputs the loss sums over `(k,)`; all when None.
        """
        self._check_weights(weights)
        return self._weight_gradients(weights, loss, rows)

    def scores_by_shard(self, weights: Weights, rows: Array) -> Array:
        """Return the outputs `(k, ...)` of rows `(k,)`, computed by shards, with the same bits on any worker."""
        groups = group_by_shard(self.n, rows)
        if len(groups) == 1:
            return self.scores_with(weights, rows)
        return assemble_rows([(at, self.scores_with(weights, rows[at])) for _, at in groups])

    def gradients_by_shard(self, weights: Weights, loss: LossGradient, rows: Array, elements: Elements) -> Weights:
        """Return the weight gradients of rows `(k,)` at these elements alone, added up in the order of the shards."""
        groups = group_by_shard(self.n, rows)
        if len(groups) == 1:
            return select_elements(self.weight_gradients(weights, loss, rows), elements)
        first, *others = (
            select_elements(self.weight_gradients(weights, RowSubset(loss, at), rows[at]), elements) for _, at in groups
        )
        return sum_weights(first, others)

    @abstractmethod
    def _scores_from_outputs(self, outputs: Array, rows: Array | None) -> Array:
        """Implementation of `scores_from_outputs`; called only where `continues_from_outputs` is true."""

    @abstractmethod
    def _scores_with(self, weights: Weights, rows: Array | None) -> Array:
        """Implementation of `scores_with`; names and shapes are validated."""

    def _weight_gradients(self, weights: Weights, loss: LossGradient, rows: Array | None) -> Weights:
        """Implementation of `weight_gradients`; names and shapes are validated."""
        raise NotImplementedError(f"a '{type(self).__name__}' gives no gradients; the plain cut of the base class does")

    def _check_weights(self, weights: Weights) -> None:
        leave_model_to_parent()
        for (layer, parameter), values in weights.items():
            if layer not in self.layers:
                raise UnknownLayerError(f"the cut was not made for layer '{layer}'" + did_you_mean(layer, self.layers))
            check_values(self.layers[layer], parameter, values)


class RowSubset:
    """A loss over many rows, restricted to some of them."""

    def __init__(self, loss: LossGradient, at: Array) -> None:
        """Restrict a loss.

        Args:
            loss: The loss over all rows.
            at: The positions of the rows among all, `(k,)`.
        """
        self._loss, self._at = loss, at

    def __call__(self, scores: Array, rows: slice) -> Array:
        """Call the loss with the rows' positions among all; see `LossGradient`."""
        numbers: Any = self._at[rows]  # they index an array as the slice does
        return self._loss(scores, numbers)


def group_by_shard(n: int, rows: Array) -> list[tuple[int, Array]]:
    """Return the number of each shard of `n` inputs that some rows lie in, with the positions of its rows in `rows`."""
    starts = np.array([own.start for own in shards(n)])
    numbers = np.searchsorted(starts, rows, side="right") - 1
    order = np.argsort(numbers, kind="stable")
    asked, firsts = np.unique(numbers[order], return_index=True)
    return list(zip(asked.tolist(), np.split(order, firsts[1:]), strict=True)) if len(rows) else [(0, np.arange(0))]


def assemble_rows(parts: Sequence[tuple[Array, Array]]) -> Array:
    """Put the rows of several shards in order, from pairs of positions and values."""
    found = np.empty((sum(len(at) for at, _ in parts), *parts[0][1].shape[1:]), parts[0][1].dtype)
    for at, values in parts:
        found[at] = values
    return found


def select_elements(values: Weights, elements: Elements) -> Weights:
    """Return the selected elements of each parameter, `(elements,)`."""
    return {key: values[key][index] for key, index in elements.items()}


def sum_weights(first: Weights, others: Iterable[Weights]) -> Weights:
    """Add up several sets of gradients, in their order, into fresh arrays."""
    total: Weights = {key: np.array(values) for key, values in first.items()}
    for more in others:
        total = add_in_place(total, more)
    return total


@contextmanager
def restoring_weights(backend: ModelBackend, parameters: Iterable[tuple[str, str]]) -> Iterator[None]:
    """Put these parameters back as they were when the block ends, however it ends."""
    kept = {(layer, parameter): backend.get_weights(layer)[parameter] for layer, parameter in parameters}
    try:
        yield
    finally:
        for (layer, parameter), values in kept.items():
            backend.set_weights(layer, parameter, values)


def weights_of(backend: ModelBackend) -> Weights:
    """Copy every parameter of a model."""
    return {
        (info.name, parameter): values
        for info in backend.layers
        for parameter, values in backend.get_weights(info.name).items()
    }


@contextmanager
def temporary_weights(backend: ModelBackend, weights: Weights) -> Iterator[None]:
    """Set these weights on the model, and put the old ones back when the block ends."""
    with restoring_weights(backend, weights):
        for (layer, parameter), values in weights.items():
            backend.set_weights(layer, parameter, values)
        yield


class PlainCut(Cut):
    """A cut that caches nothing: every call is a full forward pass of the rows."""

    def __init__(self, backend: ModelBackend, inputs: Inputs, layers: Sequence[str]) -> None:
        infos = [info for info in backend.layers if info.name in layers]
        super().__init__(infos[0].name, infos, continues_from_outputs=False)
        self._backend = backend
        self._inputs = inputs
        self._weights = weights_of(backend)

    def outputs(self, rows: Array | None = None) -> Array:
        """Run one pass and return the layer's outputs."""
        with temporary_weights(self._backend, self._weights):
            return self._backend.activations(take(self._inputs, rows), self.layer)[0].leaving

    def _scores_from_outputs(self, outputs: Array, rows: Array | None) -> Array:
        raise NotImplementedError

    def _scores_with(self, weights: Weights, rows: Array | None) -> Array:
        with temporary_weights(self._backend, {**self._weights, **weights}):
            return self._backend.forward(take(self._inputs, rows))

    def _weight_gradients(self, weights: Weights, loss: LossGradient, rows: Array | None) -> Weights:
        asked = [key for key in self._weights if key[0] in self.layers]
        with temporary_weights(self._backend, {**self._weights, **weights}):
            return self._backend.weight_gradients(take(self._inputs, rows), loss, asked)


class LazyCut(Cut):
    """A cut of inputs that are lazy or take much memory: each shard is cut when needed, and the last few stay open.

    All of them hold the weights that the model had when the first was made.
    """

    def __init__(self, backend: ModelBackend, inputs: Inputs, layers: Sequence[str], open_shards: int) -> None:
        self._backend, self._inputs, self._names = backend, inputs, list(layers)
        self._most = min(MAX_OPEN_SHARDS, open_shards)
        self._weights = weights_of(backend)
        self._shards = shards(count(inputs))
        self._open: dict[int, Cut] = {}
        first = self._shard(0)
        super().__init__(first.layer, first.layers.values(), continues_from_outputs=first.continues_from_outputs)
        self.n = count(inputs)

    def outputs(self, rows: Array | None = None) -> Array:
        """Collect the outputs of each shard."""
        return assemble_rows([(at, cut.outputs(own)) for cut, at, own in self._cuts_of(rows)])

    def _scores_from_outputs(self, outputs: Array, rows: Array | None) -> Array:
        return assemble_rows([(at, cut.scores_from_outputs(outputs[at], own)) for cut, at, own in self._cuts_of(rows)])

    def _scores_with(self, weights: Weights, rows: Array | None) -> Array:
        return assemble_rows([(at, cut.scores_with(weights, own)) for cut, at, own in self._cuts_of(rows)])

    def _weight_gradients(self, weights: Weights, loss: LossGradient, rows: Array | None) -> Weights:
        found = (cut.weight_gradients(weights, RowSubset(loss, at), own) for cut, at, own in self._cuts_of(rows))
        return sum_weights(next(found), found)

    def _cuts_of(self, rows: Array | None) -> Iterator[tuple[Cut, Array, Array]]:
        """Yield the cut of each shard that rows lie in, their positions in `rows`, and their numbers in the shard."""
        wanted = np.arange(self.n) if rows is None else np.asarray(rows)
        for number, at in group_by_shard(self.n, wanted):
            yield self._shard(number), at, wanted[at] - self._shards[number].start

    def _shard(self, number: int) -> Cut:
        if number not in self._open:
            while len(self._open) >= self._most:
                del self._open[next(iter(self._open))]
            with temporary_weights(self._backend, self._weights):
                self._open[number] = self._backend.cut(read(self._inputs, self._shards[number]), self._names)
        return self._open[number]
