"""Finder of single values: pixels, columns, tokens, colours and gaps that errors have and right inputs do not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from arachne.causes.base import Finder, Proposals
from arachne.causes.cases import Cases
from arachne.causes.features import holds_tokens, layout_of
from arachne.causes.items import MIN_FILLED_PIXELS, Items, filled_colours, gains, sort_columns, strongest_item
from arachne.causes.rule import Rule
from arachne.causes.rules import Both, Colour, Missing, Range, Token, Values
from arachne.data.layout import as_pictures
from arachne.model.values import Array
from arachne.plugins.options import option

MODES_PER_COLUMN = 2
"""How many of the most frequent values of a pixel or column are tried."""

RANGE_QUANTILES = (0.1, 0.25, 0.5)
"""Shares of the errors, from below and from above, at which ranges begin."""

MAX_OTHER_INPUTS = 300
"""The most right inputs of other classes that values are compared with."""

MAX_REGION_VALUES = 64
"""The most values of a region."""

MIN_SHARED = 0.6
"""A value belongs to the region if this share of the errors with the strongest value has it too."""

MAX_SHARE_RATIO = 0.34
"""And if the share of right inputs that have it is at most this fraction of the errors' share."""

MIN_REGION_MATCH = 0.9
"""The least share of a region's values that an input must have."""


@dataclass(frozen=True, kw_only=True)
class InputFinder(Finder):
    """Proposes single values of the input, and regions of values that go with the strongest one."""

    name = "inputs"
    SEARCHES_CLASSES = True
    most_values: int = option(200_000, "Values per input that are looked at; longer inputs are left out.", least=1)

    def find(self, cases: Cases, *, rng: np.random.Generator) -> Proposals:
        """Propose the strongest value, region, range, missing value and token for each class errors are read as."""
        rules: list[Rule] = []
        tests = 0
        for name, array in cases.arrays.items():
            width = int(np.prod(array.shape[1:]))
            if array.dtype.kind not in "fiub" or width > self.most_values:
                continue
            values = cases.inputs(name)
            tokens, layout = holds_tokens(array), layout_of(array)
            colours = None if layout is None else filled_colours(as_pictures(values, layout))
            every = np.flatnonzero(~cases.wrong)
            usual = None if colours is None else colours.of(every)
            for read_as, errors, right in self.mistakes(cases):
                if tokens:
                    found, looked = _tokens(name, values[errors], values[right], self.fewest)
                else:
                    others = every[cases.predictions[every] != read_as]
                    found, looked = _values(name, values, errors, right, others, self.fewest)
                if colours is not None and usual is not None and layout is not None:
                    best, more = strongest_item(colours.of(errors), usual, self.fewest)
                    looked += more
                    found += [] if best is None else [Colour(name, layout, colours.colour(best), MIN_FILLED_PIXELS)]
                rules += found
                tests += looked
        return Proposals(tuple(dict.fromkeys(rules)), tests)


def _values(
    name: str, values: Array, wrong: Array, as_well: Array, others: Array, fewest: int
) -> tuple[list[Rule], int]:
    """Find the strongest single value with its region, range and missing value; also return how many were compared.

    Args:
        name: The input array's name.
        values: All inputs `(inputs, values)`.
        wrong: Positions of errors read as one class `(n,)`.
        as_well: Positions of right inputs read as the same class `(m,)`.
        others: Positions of right inputs read as other classes; a value they have too only says that the errors are of
            other classes.
        fewest: The fewest errors with a value.
    """
    rules: list[Rule] = []
    errors, right, few = (values[rows] for rows in (wrong, as_well, others[:: max(1, len(others) // MAX_OTHER_INPUTS)]))
    best: tuple[float, int, float] = (0.0, -1, 0.0)
    ordered = sort_columns(errors)
    for value, hits in modes(ordered):
        gain = gains(hits, len(errors), len(right) * _share_of_right(right == value, few == value), len(right))
        gain[hits < fewest] = 0
        at = int(np.argmax(gain))
        if gain[at] > best[0]:
            best = (float(gain[at]), at, float(value[at]))
    if best[0] > 0:
        _, at, value_at = best
        rules.append(Values(name, (at,), (value_at,), 1))
        for region in _region(name, errors[errors[:, at] == value_at], right, few):
            with_it, without = (rows[_matches(region, values, rows)] for rows in (wrong, others))
            rules.append(region)
            if min(len(with_it), len(without)) >= fewest:
                with_it, without = values[with_it], values[without]
                rules += [Both((region, one)) for one in _range(name, with_it, without, sort_columns(with_it))]
    rules += _range(name, errors, right, ordered)
    if errors.dtype.kind == "f" and np.isnan(errors).any():
        gain = gains(_counts(np.isnan(errors)), len(errors), _counts(np.isnan(right)), len(right))
        rules += [Missing(name, int(np.argmax(gain)))] if gain.max() > 0 else []
    return rules, errors.shape[1] * (MODES_PER_COLUMN + 4 * len(RANGE_QUANTILES) + 1)


def _share_of_right(right: Array, others: Array) -> Array:
    """Return the share of right inputs with each value, in the group where it is more frequent `(values,)`."""
    share: Array = _counts(right) / len(right)
    return np.maximum(share, _counts(others) / len(others)) if len(others) else share


def _counts(has: Array) -> Array:
    """Count the true rows of each column of `has`, bool `(n, values)`; ten times as fast as `count_nonzero`."""
    return np.asarray(has.sum(axis=0, dtype=np.int32))


def _region(name: str, members: Array, right: Array, others: Array) -> list[Values]:
    """Make one rule of the values that go with the strongest one."""
    value, hits = next(modes(sort_columns(members)))
    share, elsewhere = hits / len(members), _share_of_right(right == value, others == value)
    shared = np.flatnonzero((share >= MIN_SHARED) & (elsewhere <= MAX_SHARE_RATIO * share))
    if len(shared) < 2:
        return []
    strongest = np.argsort(elsewhere[shared] - share[shared], kind="stable")[:MAX_REGION_VALUES]
    chosen = np.sort(shared[strongest])
    least = max(2, int(np.ceil(MIN_REGION_MATCH * len(chosen))))
    return [Values(name, tuple(chosen.tolist()), tuple(map(float, value[chosen])), least)]


def _matches(region: Values, values: Array, rows: Array) -> Array:
    equal = values[rows[:, None], np.asarray(region.index)] == np.asarray(region.value)
    return np.asarray(equal.sum(axis=1) >= region.least)


def _range(name: str, errors: Array, right: Array, ordered: Array) -> list[Rule]:
    """Find the strongest range, open at one end; `ordered` are the errors' values, column by column `(values, n)`."""
    ends: list[tuple[Array, bool]] = []
    hits, others = [], []
    for share in RANGE_QUANTILES:
        position = int(share * (len(errors) - 1))
        low, high = (np.ascontiguousarray(ordered[:, at]) for at in (position, -1 - position))
        for bound, above in ((low, True), (high, False)):
            inside = (errors >= bound, right >= bound) if above else (errors <= bound, right <= bound)
            ends.append((bound, above))
            hits.append(_counts(inside[0]))
            others.append(_counts(inside[1]))
    gain = gains(np.stack(hits), len(errors), np.stack(others), len(right))
    end, at = divmod(int(np.argmax(gain)), gain.shape[1])
    if gain[end, at] <= 0:
        return []
    bound, above = ends[end]
    return [Range(name, at, float(bound[at]), None) if above else Range(name, at, None, float(bound[at]))]


def _tokens(name: str, errors: Array, right: Array, fewest: int) -> tuple[list[Rule], int]:
    """Find the token with the largest gain, and return how many were compared."""
    best, tests = strongest_item(Items.of_tokens(errors), Items.of_tokens(right), fewest)
    return [] if best is None else [Token(name, best)], tests


def modes(ordered: Array) -> Iterator[tuple[Array, Array]]:
    """Yield the most frequent values of each column, the most frequent first: `(columns,)` values and their counts.

    Args:
        ordered: The result of `sort_columns`.
    """
    positions = np.arange(ordered.shape[1], dtype=np.int32)
    begins = np.ones(ordered.shape, dtype=bool)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    length = positions - np.maximum.accumulate(np.where(begins, positions, np.int32(0)), axis=1) + 1
    columns = np.arange(len(ordered))
    for _ in range(MODES_PER_COLUMN):
        end = np.argmax(length, axis=1)
        value, hits = ordered[columns, end], length[columns, end].copy()
        yield value, hits
        length[ordered == value[:, None]] = 0
