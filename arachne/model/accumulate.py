"""Streaming reduction of activations and gradients; nothing is stored.

The means of a localiser need every layer's activations and gradients once each. A `Trace` holds all of them; here a
backend shows them use by use while it computes them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Self

from arachne.model.passes import PassState
from arachne.model.trace import Trace
from arachne.model.values import Activation, Array

MAX_TRACE_BYTES = 256 << 20
"""Bytes of activations and gradients that one trace may hold, in a backend that only has `trace`."""

Seeds = Callable[[slice], Iterable[Array]]
"""From the rows of a batch to the seeds that gradients are taken with, each `(rows, ...)` like their outputs."""


class ActivationAccumulator(ABC):
    """Adds up what flows through layers, batch by batch: the activations of a batch first, then its gradients.

    Arrays are lent: they must not be changed, and hold something else after the call.
    """

    @abstractmethod
    def activation(self, layer: str, use: int, activation: Activation) -> None:
        """Add the activations of one use of a layer for the inputs of one batch; uses come in order."""

    @abstractmethod
    def gradient(self, layer: str, use: int, gradient: Array) -> None:
        """Add the gradient for one seed at what leaves a use `(n, ...)`; not called where no gradient reaches it."""

    def is_enough(self, layer: str, use: int) -> bool:
        """Tell whether nothing behind this use of a layer is wanted; a pass may end there, and need not."""
        return False

    def split(self) -> Self | None:
        """Return an empty accumulator for one shard, or None if this one cannot be split.

        Where inputs live on remote workers, it is pickled, filled there and sent back.
        """
        return None

    def merge(self, other: Self) -> None:
        """Add the contents of an accumulator that `split` returned. Shards are merged in their order."""
        raise NotImplementedError(f"'{type(self).__name__}' splits, but does not define merge")

    def state(self) -> PassState | None:
        """Return the contents as arrays from which another run can resume; None if they are not kept."""
        return None

    def restore(self, state: PassState) -> bool:
        """Take over what `state` returned in another run; False, with nothing changed, if it does not fit."""
        return False


def show(trace: Trace, observer: ActivationAccumulator, seeds: Iterable[Array] = ()) -> None:
    """Show everything a trace holds, and the gradients for some seeds."""
    for layer, uses in trace.activations.items():
        for number, activation in enumerate(uses):
            observer.activation(layer, number, activation)
    for seed in seeds:
        for layer, gradients in trace.output_gradients(seed).items():
            for number, gradient in enumerate(gradients):
                observer.gradient(layer, number, gradient)


def observe_traces(
    trace: Callable[[slice], Trace],
    n: int,
    observer: ActivationAccumulator,
    seeds: Seeds | None = None,
    *,
    most: int | None = None,
) -> None:
    """Show `n` inputs trace by trace. The first goes alone and shows how many others fit.

    Args:
        trace: Traces some rows of the inputs.
        n: How many inputs there are.
        observer: The accumulator they are shown to.
        seeds: Gives the seeds of a batch; no gradients when None.
        most: The bytes that one trace may hold; `MAX_TRACE_BYTES` when None.
    """
    done, size, most = 0, 1, MAX_TRACE_BYTES if most is None else most
    while done < n:
        rows = slice(done, min(n, done + size))
        traced = trace(rows)
        show(traced, observer, () if seeds is None else seeds(rows))
        done, size = rows.stop, max(1, most // max(1, bytes_held(traced))) if size == 1 else size
        del traced  # before the next one is made


def seeds_from(seeds: Seeds, start: int) -> Seeds:
    """Return the seeds of all inputs for a shard that begins at row `start`."""
    return lambda rows: seeds(slice(rows.start + start, rows.stop + start))


def bytes_held(trace: Trace) -> int:
    """Estimate the bytes a trace takes: all it keeps as arrays and in the framework's graph, and output gradients."""
    return 2 * trace.saved_bytes + sum(
        2 * sum(array.nbytes for array in use.entering.values()) + 3 * use.leaving.nbytes
        for uses in trace.activations.values()
        for use in uses
    )
