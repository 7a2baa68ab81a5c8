"""What flows through layers, shown to somebody who adds it up: nothing is kept of it.

The means of a localiser need every layer's activations and gradients once each. A `Trace` holds all of them; here they
are shown use by use while a backend computes them, and are gone afterwards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Self

from arachne.cuts import Trace
from arachne.values import Activation, Array

HELD = 256 << 20
"""Bytes of activations, and of the gradients that go with them, that a trace may hold where there is no other way."""

Seeds = Callable[[slice], Iterable[Array]]
"""From the rows of a batch to the seeds that gradients are taken with, each `(rows, classes)`."""


class Observer(ABC):
    """Is shown what flows through layers, batch by batch: the activations of a batch first, then its gradients.

    Arrays are lent: they must not be changed, and hold something else after the call.
    """

    @abstractmethod
    def activation(self, layer: str, use: int, activation: Activation) -> None:
        """What passes through one use of a layer for the inputs of one batch; uses come in order."""

    @abstractmethod
    def gradient(self, layer: str, use: int, gradient: Array) -> None:
        """The gradient for one seed at what leaves a use `(n, ...)`; not called where no gradient reaches it."""

    def apart(self) -> Self | None:
        """An observer of the same kind that has seen nothing, for one shard of many inputs; None if there is no such.

        It goes to other processes where inputs are with these, and comes back.
        """
        return None

    def join(self, other: Self) -> None:
        """Add what an observer of `apart` has seen. Shards are joined in their order."""
        raise NotImplementedError(f"'{type(self).__name__}' has observers apart, and joins none")


def show(trace: Trace, observer: Observer, seeds: Iterable[Array] = ()) -> None:
    """Show all that a trace holds, and the gradients for some seeds."""
    for layer, uses in trace.activations.items():
        for number, activation in enumerate(uses):
            observer.activation(layer, number, activation)
    for seed in seeds:
        for layer, gradients in trace.output_gradients(seed).items():
            for number, gradient in enumerate(gradients):
                observer.gradient(layer, number, gradient)


def observe_traces(trace: Callable[[slice], Trace], n: int, observer: Observer, seeds: Seeds | None = None) -> None:
    """Show `n` inputs trace by trace. The first input goes alone and shows how many of the others fit `HELD`.

    Args:
        trace: Traces some rows of the inputs.
        n: How many inputs there are.
        observer: Whom they are shown to.
        seeds: Gives the seeds of a batch; no gradients when None.
    """
    done, size = 0, 1
    while done < n:
        rows = slice(done, min(n, done + size))
        traced = trace(rows)
        show(traced, observer, () if seeds is None else seeds(rows))
        done, size = rows.stop, max(1, HELD // max(1, bytes_held(traced))) if size == 1 else size
        del traced  # before the next one is made


def seeds_from(seeds: Seeds, start: int) -> Seeds:
    """The seeds of all inputs as a shard sees them, whose rows count from `start`."""
    return lambda rows: seeds(slice(rows.start + start, rows.stop + start))


def bytes_held(trace: Trace) -> int:
    """What a trace of one input holds: activations as arrays and in the framework's graph, gradients of what leaves."""
    return sum(
        2 * sum(array.nbytes for array in use.entering.values()) + 3 * use.leaving.nbytes
        for uses in trace.activations.values()
        for use in uses
    )
