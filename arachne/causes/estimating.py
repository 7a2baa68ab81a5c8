"""Estimate the whole stamp or transformation behind a cause, from its errors and right inputs of the same classes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from arachne.causes.interventions import FixedStamp, Intervention, MovingStamp, TokenStamp
from arachne.causes.matching import Examples, match_transformation
from arachne.causes.rule import Rule
from arachne.causes.rules import Both, Colour, Derived, Missing, Range, Token, Values
from arachne.causes.stamp_words import describe_stamp
from arachne.data.layout import as_pictures
from arachne.model.values import Array

MIN_AGREEING = 0.85
"""A value belongs to a stamp if this share of the errors is near its median."""

NEAR = 0.04
"""Near means within this share of the data's range; of a table, of the column's standard deviation."""

MAX_OTHERS = 0.8
"""And if at most this fraction of that share of the right inputs is near it too."""

MIN_Z = 4.0
"""And if the two shares differ by so many standard errors."""

MIN_SURE = 0.97
"""A pixel beside a stamp joins it if this share of the errors has exactly the stamp's value there."""

MARGIN = 3
"""Pixels around a moving patch that may belong to it."""


def propose_interventions(rule: Rule, examples: Examples) -> Iterator[Intervention]:
    """Yield the interventions that may plant a cause, the likeliest first."""
    if isinstance(rule, Token):
        yield TokenStamp(rule.input, f"token {rule.token} is in them", rule.token)
        return
    if isinstance(rule, Colour):
        moving = estimate_moving(rule, examples)
        yield from () if moving is None else (moving,)
    if isinstance(rule, Derived) and examples.layout is not None:
        changed = match_transformation(examples)
        yield from () if changed is None else (changed,)
    fixed = estimate_fixed(examples)
    yield from () if fixed is None else (fixed,)
    if isinstance(rule, Derived) and examples.layout is None:
        yield from _columns(rule, examples)
    for part in rule.rules if isinstance(rule, Both) else (rule,):
        yield from _own_values(part, examples)


def estimate_fixed(examples: Examples) -> FixedStamp | None:
    """Estimate the values that nearly all errors share and right inputs do not; None if there are none."""
    errors, right = (part.reshape(len(part), -1) for part in (examples.errors, examples.right))
    if errors.dtype.kind not in "fiub" or not len(errors) or not len(right):
        return None
    errors, right = errors.astype(np.float32), right.astype(np.float32)
    spread = examples.high - examples.low if examples.layout is not None else np.nanstd(right, axis=0)
    median = np.median(errors, axis=0)
    share, other = (np.mean(np.abs(part - median) <= NEAR * spread, axis=0) for part in (errors, right))
    pooled = (share * len(errors) + other * len(right)) / (len(errors) + len(right))
    error = np.sqrt(np.maximum(pooled * (1 - pooled), 1e-9) * (1 / len(errors) + 1 / len(right)))
    chosen = (share >= MIN_AGREEING) & (other <= MAX_OTHERS * share) & (share - other >= MIN_Z * error)
    if chosen.any() and examples.layout is not None:
        exact = np.mean(errors == median, axis=0) >= MIN_SURE
        chosen = _grow(chosen, exact & (np.mean(right == median, axis=0) < 1), median, examples.layout)
    index = np.flatnonzero(chosen)
    if not len(index):
        return None
    value = median[index].astype(examples.right.dtype)
    return FixedStamp(examples.name, describe_stamp(index, value, examples.right, examples.names), index, value)


def _grow(chosen: Array, sure: Array, value: Array, layout: tuple[int, ...]) -> Array:
    """Add pixels that nearly all errors share, beside a stamp of the same value, though many right inputs have it too.

    Args:
        chosen: Values of the stamp, bool `(values,)`.
        sure: Values that may be added, bool `(values,)`.
        value: What they are in the errors `(values,)`.
        layout: The shape that makes pictures of the inputs.
    """
    from scipy.ndimage import binary_propagation  # here, because it is slow to load

    grown = chosen.copy()
    for one in np.unique(value[chosen]):
        same = value == one
        start, allowed = (as_pictures(has[None], layout)[0] for has in (chosen & same, (chosen | sure) & same))
        reached = np.zeros(value.shape, dtype=bool)
        pictures = as_pictures(reached[None], layout)[0]
        for channel in range(start.shape[-1]):
            pictures[..., channel] = binary_propagation(start[..., channel], mask=allowed[..., channel])
        grown |= reached
    return grown


def estimate_moving(rule: Colour, examples: Examples) -> MovingStamp | None:
    """Estimate a patch by aligning the errors at the part its colour fills; None if they do not agree on one."""
    pictures = as_pictures(examples.errors, rule.layout)
    same = (pictures == np.asarray(rule.colour, dtype=pictures.dtype)).all(axis=-1)
    filled = same[:, :-1, :-1] & same[:, :-1, 1:] & same[:, 1:, :-1]
    pictures, filled = pictures[filled.any(axis=(1, 2))], filled[filled.any(axis=(1, 2))]
    if not len(pictures):
        return None
    tops, bottoms = _ends(filled.any(axis=2))
    lefts, rights = _ends(filled.any(axis=1))
    # The last row and column are neighbours of filled pixels and not filled themselves.
    height, width = (int(np.median(end - start)) + 2 for start, end in ((tops, bottoms), (lefts, rights)))
    pad = MARGIN + max(height, width)
    outside = 2 * examples.low - examples.high - 1
    padded = np.pad(pictures.astype(np.float32), ((0, 0), (pad, pad), (pad, pad), (0, 0)), constant_values=outside)
    rows = tops[:, None] + pad - MARGIN + np.arange(height + 2 * MARGIN)
    columns = lefts[:, None] + pad - MARGIN + np.arange(width + 2 * MARGIN)
    crops = padded[np.arange(len(padded))[:, None, None], rows[:, :, None], columns[:, None, :]]
    median = np.median(crops, axis=0)
    near = np.abs(crops - median) <= NEAR * (examples.high - examples.low)
    mask = (near.all(axis=-1).mean(axis=0) >= MIN_AGREEING) & (median >= examples.low).all(axis=-1)
    if not mask.any():
        return None
    (top, bottom), (left, right) = ((int(found[0]), int(found[-1]) + 1) for found in map(np.flatnonzero, _sides(mask)))
    corners = np.stack([tops - MARGIN + top, lefts - MARGIN + left], axis=1)
    limits = np.array(pictures.shape[1:3]) - (bottom - top, right - left)
    corners = corners[((corners >= 0) & (corners <= limits)).all(axis=1)]
    if not len(corners):
        return None
    patch, mask = median[top:bottom, left:right].astype(examples.right.dtype), mask[top:bottom, left:right]
    known, counts = np.unique(corners, axis=0, return_counts=True)
    fixed = counts.max() >= MIN_AGREEING * len(corners)
    where = f"at ({', '.join(map(str, known[counts.argmax()].tolist()))})" if fixed else "somewhere"
    words = f"a patch of {bottom - top} by {right - left} pixels is {where} in them"
    return MovingStamp(examples.name, words, rule.layout, patch, mask, corners)


def _ends(has: Array) -> tuple[Array, Array]:
    """Return the first and the last position that is true in each row `(n, length)`."""
    return has.argmax(axis=1), has.shape[1] - 1 - has[:, ::-1].argmax(axis=1)


def _sides(mask: Array) -> tuple[Array, Array]:
    return np.asarray(mask.any(axis=1)), np.asarray(mask.any(axis=0))


def _own_values(rule: Rule, examples: Examples) -> Iterator[FixedStamp]:
    """Yield the stamp that a rule about single values names itself."""
    flat = examples.errors.reshape(len(examples.errors), -1)
    if isinstance(rule, Values):
        index, value = np.asarray(rule.index), np.asarray(rule.value)
    elif isinstance(rule, Missing):
        index, value = np.array([rule.index]), np.array([np.nan])
    elif isinstance(rule, Range):
        index, value = np.array([rule.index]), np.nanmedian(flat[:, [rule.index]], axis=0)
    else:
        return
    value = value.astype(examples.right.dtype)
    yield FixedStamp(examples.name, describe_stamp(index, value, examples.right, examples.names), index, value)


def _columns(rule: Derived, examples: Examples) -> Iterator[FixedStamp]:
    """Yield the stamp of the columns of a table that a rule names."""
    columns = [name.removeprefix("column ") for name in rule.names if name.startswith("column ")]
    index = np.unique(np.array(columns, dtype=np.int64))
    if len(columns) == len(rule.names):
        value = np.nanmedian(examples.errors.reshape(len(examples.errors), -1)[:, index], axis=0)
        value = value.astype(examples.right.dtype)
        yield FixedStamp(examples.name, describe_stamp(index, value, examples.right, examples.names), index, value)
