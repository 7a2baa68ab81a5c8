"""Shards: the pieces of some inputs that every result is put together from, in their order.

A result for many inputs is defined by the results for their shards: rows one after the other, sums added up from the
first shard to the last. It does not depend on who computes a shard, or on how many do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from arachne.values import Activation, Array, Inputs, Weights, batches, count, read

SHARD = 1024
"""How many inputs a shard has at most. Our backends run at most as many at a time, so a shard is mostly one batch."""


def shards(n: int) -> list[slice]:
    """The shards of `n` inputs, about equally long; one without inputs where there are none."""
    return list(batches(n, SHARD)) or [slice(0, 0)]


def spread(groups: Array) -> Array:
    """The order of inputs in which every shard has its share of each group `(n,)`; a group keeps its own order.

    Negatives and positives come one after the other. A step that looks at as many of both would find all its negatives
    in one shard, and whoever has that one would do most of the work. One shard stays as it is.
    """
    places = np.arange(len(groups), dtype=np.float64)
    for group in np.unique(groups) if len(shards(len(groups))) > 1 else ():
        rows = np.flatnonzero(groups == group)
        places[rows] = (np.arange(len(rows)) + 0.5) / len(rows)
    return np.argsort(places, kind="stable")


def pieces(inputs: Inputs) -> Iterator[tuple[slice, Inputs]]:
    """Shard after shard of some inputs as plain arrays, and which rows that are."""
    parts = shards(count(inputs))
    for rows in parts:
        yield rows, read(inputs) if len(parts) == 1 else read(inputs, rows)


def joined(parts: Sequence[Array]) -> Array:
    """Pieces one after the other; where their sequences are not equally long, with zeros behind the shorter ones."""
    if len(parts) == 1:
        return parts[0]
    longest = tuple(np.max([part.shape[1:] for part in parts], axis=0).tolist())
    if any(part.shape[1:] != longest for part in parts):
        parts = [
            np.pad(part, [(0, 0), *((0, most - size) for most, size in zip(longest, part.shape[1:], strict=True))])
            for part in parts
        ]
    return np.concatenate(parts)


def joined_uses(parts: Sequence[Sequence[Activation]]) -> tuple[Activation, ...]:
    """The activations of a layer's uses for all inputs, from those for pieces of them."""
    return tuple(map(_joined_use, zip(*parts, strict=True)))


def _joined_use(parts: Sequence[Activation]) -> Activation:
    if len(parts) == 1:
        return parts[0]
    entering = {name: joined([part.entering[name] for part in parts]) for name in parts[0].entering}
    return Activation(entering, joined([part.leaving for part in parts]), parts[0].transposed)


def added(total: Weights, more: Weights) -> Weights:
    """The sum of two sets of gradients, in the memory of the first."""
    for place, values in more.items():
        np.add(total[place], values, out=total[place])
    return total


def shifted(pull: Callable[[Array, slice], Array], start: int) -> Callable[[Array, slice], Array]:
    """A loss over all inputs as a shard sees it, whose rows count from `start`."""
    if not start:
        return pull
    return lambda scores, rows: pull(scores, slice(rows.start + start, rows.stop + start))
