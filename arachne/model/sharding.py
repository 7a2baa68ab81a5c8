"""Shards: fixed slices of the inputs. Every result is assembled from the results of the shards, in their order.

Rows are concatenated, sums are added up from the first shard to the last. A result does not depend on which process
computes a shard, or on how many do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from arachne.model.values import Activation, Array, Inputs, Weights, batches, count, read

SHARD = 1024
"""Maximum number of inputs in a shard. Our backends run as many at a time, so a shard is mostly one batch."""


def shards(n: int) -> list[slice]:
    """Return the shards of `n` inputs, about equally long; a single empty one where there are none."""
    return list(batches(n, SHARD)) or [slice(0, 0)]


def interleave_groups(groups: Array) -> Array:
    """Return an order of inputs in which every shard has its share of each group `(n,)`; a group keeps its own order.

    Negatives come before positives. A step that looks at as many of both would find all its negatives in one shard,
    whose worker would do most of the work. A single shard stays as it is.
    """
    positions = np.arange(len(groups), dtype=np.float64)
    for group in np.unique(groups) if len(shards(len(groups))) > 1 else ():
        rows = np.flatnonzero(groups == group)
        positions[rows] = (np.arange(len(rows)) + 0.5) / len(rows)
    return np.argsort(positions, kind="stable")


def read_shards(inputs: Inputs, done: int = 0) -> Iterator[tuple[slice, Inputs]]:
    """Yield the rows and the inputs of one shard after the other, as plain arrays, but for the first `done` shards."""
    parts = shards(count(inputs))
    for rows in parts[done:]:
        yield rows, read(inputs) if len(parts) == 1 else read(inputs, rows)


def join_rows(parts: Sequence[Array]) -> Array:
    """Concatenate arrays along their rows; sequences of unequal length are padded with zeros."""
    if len(parts) == 1:
        return parts[0]
    longest = tuple(np.max([part.shape[1:] for part in parts], axis=0).tolist())
    if any(part.shape[1:] != longest for part in parts):
        parts = [
            np.pad(part, [(0, 0), *((0, most - size) for most, size in zip(longest, part.shape[1:], strict=True))])
            for part in parts
        ]
    return np.concatenate(parts)


def join_uses(parts: Sequence[Sequence[Activation]]) -> tuple[Activation, ...]:
    """Join the activations of a layer's uses over the shards."""
    return tuple(map(_join_use, zip(*parts, strict=True)))


def _join_use(parts: Sequence[Activation]) -> Activation:
    if len(parts) == 1:
        return parts[0]
    entering = {name: join_rows([part.entering[name] for part in parts]) for name in parts[0].entering}
    return Activation(entering, join_rows([part.leaving for part in parts]), parts[0].transposed)


def add_in_place(total: Weights, more: Weights) -> Weights:
    """Add gradients to `total`, in its memory, and return it."""
    for key, values in more.items():
        np.add(total[key], values, out=total[key])
    return total


def offset_rows(loss: Callable[[Array, slice], Array], start: int) -> Callable[[Array, slice], Array]:
    """Return a loss over all inputs as a loss over the shard that begins at row `start`."""
    if not start:
        return loss
    return lambda scores, rows: loss(scores, slice(rows.start + start, rows.stop + start))
