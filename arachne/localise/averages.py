"""Averages of activations and gradients at layers, accumulated while the model runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Self

import numpy as np
from scipy import sparse

from arachne.localise.linear_maps import LINEAR, Entering, Flow, Linear
from arachne.model.backend import ActivationAccumulator, ModelBackend
from arachne.model.memory import release_freed_memory
from arachne.model.passes import PassState
from arachne.model.values import Activation, Array, LayerInfo

RETURN_INTERVAL_BYTES, LARGE_MODEL_WEIGHTS = 16 << 20, 1 << 24
"""Models with more than `LARGE_MODEL_WEIGHTS` weights return freed memory after this many bytes of activations."""

EMPTY = np.empty(0)


class Averages(ActivationAccumulator):
    """The mean inputs of each use of each layer, and the mean gradients at its outputs, summed over seeds.

    Args:
        backend: The model.
        layers: The layers to average over.
        magnitudes: Whether the magnitudes of gradients are averaged, rather than gradients with their signs.
        dtype: The dtype of the averages; sums over a batch are computed in float64.
    """

    def __init__(
        self, backend: ModelBackend, layers: Sequence[LayerInfo], *, magnitudes: bool, dtype: Any = np.float64
    ) -> None:
        self._layers = {
            info.name: _Layer(info, backend.get_weights(info.name) if info.kind == "norm" else {}, magnitudes, dtype)
            for info in layers
        }
        self._share, self._since = 1.0, 0
        self._large = sum(entry.size for info in layers for entry in info.parameters.values()) > LARGE_MODEL_WEIGHTS

    def weigh(self, share: float) -> Self:
        """Give every input from now on this weight, 1 / n for a mean over n inputs; return itself."""
        self._share = share
        return self

    def activation(self, layer: str, use: int, activation: Activation) -> None:
        self._layers[layer].add(use, activation, self._share)
        self._count_bytes(activation.leaving.nbytes)

    def gradient(self, layer: str, use: int, gradient: Array) -> None:
        self._layers[layer].add_gradient(use, gradient, self._share)
        self._count_bytes(gradient.nbytes)

    def split(self) -> Self:
        found = copy(self)
        found._layers = {name: own.split() for name, own in self._layers.items()}
        return found

    def merge(self, other: Self) -> None:
        for name, own in other._layers.items():
            self._layers[name].merge(own)

    def take(self, layer: str) -> list[Flow]:
        """Remove and return the averages of one layer's uses."""
        return self._layers.pop(layer).flows()

    def state(self) -> PassState:
        return {
            f"{number}/{name}": values
            for number, own in enumerate(self._layers.values())
            for name, values in own.state().items()
        }

    def restore(self, state: PassState) -> bool:
        found = {name: own.split() for name, own in self._layers.items()}
        by_layer: dict[str, dict[str, Array]] = {str(number): {} for number in range(len(found))}
        try:
            for name, values in state.items():
                number, _, own = name.partition("/")
                by_layer[number][own] = values
            for layer, own_state in zip(found.values(), by_layer.values(), strict=True):
                layer.restore(own_state)
        except (KeyError, ValueError, TypeError, IndexError):
            return False
        self._layers = found if state else self._layers
        return bool(state)

    @property
    def nbytes(self) -> int:
        """How much memory the averages take."""
        return sum(own.nbytes for own in self._layers.values())

    def _count_bytes(self, size: int) -> None:
        """Count bytes of activations; in a large model, return freed memory to the system at an interval."""
        self._since += size
        if self._large and self._since > RETURN_INTERVAL_BYTES:
            self._since = 0
            release_freed_memory()


class _Layer:
    """The averages of one layer. A use may have several pieces, such as frames that were folded into the batch."""

    def __init__(self, info: LayerInfo, weights: Mapping[str, Array], magnitudes: bool, dtype: Any) -> None:
        self._info, self._weights, self._magnitudes, self._dtype = info, weights, magnitudes, dtype
        self._linear: Linear = LINEAR[info.kind](info)
        self._channels_last: dict[int, bool] = {}
        self._entering: dict[tuple[int, int], dict[str, Entering]] = {}
        self._gradients: dict[tuple[int, int], Array] = {}
        self._leaving: dict[tuple[int, int], tuple[int, ...]] = {}
        self._transposed: dict[tuple[int, int], bool] = {}

    def split(self) -> _Layer:
        """Return empty averages of this layer."""
        return _Layer(self._info, self._weights, self._magnitudes, self._dtype)

    def merge(self, other: _Layer) -> None:
        """Add the averages of other inputs."""
        self._channels_last |= other._channels_last
        self._leaving |= other._leaving
        self._transposed |= other._transposed
        for key, entering in other._entering.items():
            own = self._entering.setdefault(key, {})
            for parameter, values in entering.items():
                own[parameter] = self._sum(own.get(parameter), values)
        for key, values in other._gradients.items():
            self._gradients[key] = self._sum(self._gradients.get(key), values)

    def add(self, use: int, activation: Activation, share: float) -> None:
        """Add the activations of a use for some inputs."""
        if use not in self._channels_last:
            self._channels_last[use] = self._linear.channels_last(activation, self._weights)
        for piece, one in enumerate(self._linear.uses(activation, self._channels_last[use])):
            own = self._entering.setdefault((use, piece), {})
            self._transposed[use, piece], self._leaving[use, piece] = one.transposed, one.leaving.shape[1:]
            for parameter in one.entering:
                own[parameter] = self._plus(own.get(parameter), self._linear.total(parameter, one), share)

    def add_gradient(self, use: int, gradient: Array, share: float) -> None:
        """Add the gradients of one seed for the inputs of the last `add`."""
        for piece, values in enumerate(self._linear.outputs(gradient, self._channels_last[use])):
            values = np.abs(values) if self._magnitudes else values
            total = values[0].astype(np.float64) if len(values) == 1 else values.sum(axis=0, dtype=np.float64)
            self._gradients[use, piece] = self._plus(self._gradients.get((use, piece)), total, share)

    def state(self) -> dict[str, Array]:
        """Return the averages as arrays, by use, piece and what they are of."""
        found = {f"uses/{use}": np.array(last) for use, last in self._channels_last.items()}
        for (use, piece), entering in self._entering.items():
            own = f"{use}/{piece}"
            found[f"{own}/transposed"] = np.array(self._transposed[use, piece])
            found[f"{own}/leaving"] = np.array(self._leaving[use, piece], np.int64)
            for parameter, values in entering.items():
                found |= {f"{own}/entering/{parameter}{end}": one for end, one in _as_arrays(values).items()}
            if (use, piece) in self._gradients:
                found[f"{own}/gradient"] = self._gradients[use, piece]
        return found

    def restore(self, state: Mapping[str, Array]) -> None:
        """Take over what `state` returned."""
        sparse_parts: dict[tuple[int, int, str], dict[str, Array]] = {}
        for name, values in state.items():
            first, second, *rest = name.split("/", 3)
            if first == "uses":
                self._channels_last[int(second)] = bool(values)
                continue
            key = int(first), int(second)
            if rest[0] == "transposed":
                self._transposed[key] = bool(values)
            elif rest[0] == "leaving":
                self._leaving[key] = tuple(values.tolist())
            elif rest[0] == "gradient":
                self._gradients[key] = values
            else:
                parameter, _, end = rest[1].partition(":")
                sparse_parts.setdefault((*key, parameter), {})[f":{end}" if end else ""] = values
        for (use, piece, parameter), parts in sparse_parts.items():
            self._entering.setdefault((use, piece), {})[parameter] = _from_arrays(parts)
        for key in self._entering:
            if key not in self._transposed or self._gradients.get(key, EMPTY).shape not in ((0,), self._leaving[key]):
                raise ValueError("it lacks something, or has gradients of another shape")

    def flows(self) -> list[Flow]:
        """Return the averages; gradients that were never added are zero."""
        found = []
        for key in sorted(self._entering):
            gradient = self._gradients.get(key)
            gradient = np.zeros(self._leaving[key], self._dtype) if gradient is None else gradient
            found.append(Flow(self._entering[key], gradient, self._transposed[key]))
        return found

    @property
    def nbytes(self) -> int:
        """How much memory the averages take."""
        return sum(_nbytes(values) for own in self._entering.values() for values in own.values()) + sum(
            values.nbytes for values in self._gradients.values()
        )

    def _plus(self, total: Entering | None, more: Entering, share: float) -> Entering:
        """Add a share of something to a total, in place if possible."""
        more *= share
        return self._sum(total, more)

    def _sum(self, total: Entering | None, more: Entering) -> Entering:
        if total is None:
            return more if sparse.issparse(more) else more.astype(self._dtype, copy=False)
        if sparse.issparse(total) or total.shape != more.shape:
            joined = add_padded(total, more)
            return joined if sparse.issparse(joined) else joined.astype(self._dtype, copy=False)
        return np.add(total, more, out=total, casting="same_kind")


def add_padded(total: Entering, more: Entering) -> Entering:
    """Add two arrays or sparse matrices of different lengths; missing steps count as zeros."""
    if total.shape == more.shape:
        return total + more
    shape = tuple(map(max, total.shape, more.shape))
    if sparse.issparse(total):
        for one in (total, more):
            one.resize(shape)
        return total + more
    joined = np.zeros(shape)
    for one in (total, more):
        joined[tuple(map(slice, one.shape))] += one
    return joined


def _as_arrays(values: Entering) -> dict[str, Array]:
    """Return an array or a sparse matrix as arrays, by the end of their names."""
    if not sparse.issparse(values):
        return {"": values}
    columns = values.tocsc()
    parts = {":data": columns.data, ":rows": columns.indices, ":starts": columns.indptr}
    return {**parts, ":shape": np.array(columns.shape, np.int64)}


def _from_arrays(parts: Mapping[str, Array]) -> Entering:
    """Return what `_as_arrays` was given."""
    if "" in parts:
        return parts[""]
    found = sparse.csc_matrix((parts[":data"], parts[":rows"], parts[":starts"]), tuple(parts[":shape"].tolist()))
    found.check_format(full_check=True)
    return found


def magnitudes(flows: Sequence[Flow]) -> list[Flow]:
    """Return flows with the magnitudes of their mean inputs, all in float64."""
    return [
        Flow(
            {name: abs(_wide(values)) for name, values in flow.entering.items()},
            _wide(flow.gradient),
            flow.transposed,
        )
        for flow in flows
    ]


def _wide(values: Entering) -> Entering:
    return values if sparse.issparse(values) else values.astype(np.float64, copy=False)


def _nbytes(values: Entering) -> int:
    return int(values.data.nbytes if sparse.issparse(values) else values.nbytes)
