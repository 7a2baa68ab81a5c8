"""Finder of single values: pixels, columns, tokens, colours and gaps that errors share and right inputs do not have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from arachne.causes.base import Finder, Proposals
from arachne.causes.cases import Cases
from arachne.causes.features import holds_tokens, layout_of
from arachne.causes.items import FILLED, Items, filled_colours, gains, strongest_item
from arachne.causes.rule import Rule
from arachne.causes.rules import Both, Colour, Missing, Range, Token, Values
from arachne.data.layout import as_pictures
from arachne.options import option
from arachne.values import Array

MODES = 2
"""How many of the most frequent values of a pixel or column are looked at."""

QUANTILES = (0.1, 0.25, 0.5)
"""Where ranges begin: above this share of the errors from below, and the same from above."""

FEW = 300
"""Right inputs of other classes that values are compared with."""

MOST_REGION = 64
"""Values a region is told by."""

SHARED = 0.6
"""A value belongs to the region if this share of the errors with the strongest value has it too."""

RARE = 0.34
"""And if right inputs have it at most this often as those errors."""

HELD = 0.9
"""The share of a region's values an input has at least."""


@dataclass(frozen=True, kw_only=True)
class InputFinder(Finder):
    """Single values of the input, and regions of values that go with the strongest one."""

    name = "inputs"
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
            for read_as, errors, right in self.mistakes(cases):
                if tokens:
                    found, looked = _tokens(name, values[errors], values[right], self.fewest)
                else:
                    others = every[cases.predictions[every] != read_as]
                    found, looked = _values(name, values[errors], values[right], values[others], self.fewest)
                if colours is not None and layout is not None:
                    best, more = strongest_item(colours.of(errors), colours.of(every), self.fewest)
                    looked += more
                    found += [] if best is None else [Colour(name, layout, colours.colour(best), FILLED)]
                rules += found
                tests += looked
        return Proposals(tuple(dict.fromkeys(rules)), tests)


def _values(name: str, errors: Array, right: Array, others: Array, fewest: int) -> tuple[list[Rule], int]:
    """The strongest single value and its region, the strongest range and missing value, and how many were compared.

    Args:
        name: The input array's name.
        errors: Errors read as one class `(n, values)`.
        right: Right inputs read as the same class `(m, values)`.
        others: Right inputs read as other classes: what they have too only says that the errors are of other classes.
        fewest: Errors with a value, at least.
    """
    rules: list[Rule] = []
    few = others[:: max(1, len(others) // FEW)]
    best: tuple[float, int, float] = (0.0, -1, 0.0)
    for value, hits in modes(errors):
        gain = gains(hits, len(errors), len(right) * _elsewhere(right == value, few == value), len(right))
        gain[hits < fewest] = 0
        at = int(np.argmax(gain))
        if gain[at] > best[0]:
            best = (float(gain[at]), at, float(value[at]))
    if best[0] > 0:
        _, at, value_at = best
        rules.append(Values(name, (at,), (value_at,), 1))
        for region in _region(name, errors[errors[:, at] == value_at], right, few):
            with_it, without = errors[_has(region, errors)], others[_has(region, others)]
            rules.append(region)
            if min(len(with_it), len(without)) >= fewest:
                rules += [Both((region, one)) for one in _range(name, with_it, without)]
    rules += _range(name, errors, right)
    if errors.dtype.kind == "f" and np.isnan(errors).any():
        gain = gains(np.isnan(errors).sum(axis=0), len(errors), np.isnan(right).sum(axis=0), len(right))
        rules += [Missing(name, int(np.argmax(gain)))] if gain.max() > 0 else []
    return rules, errors.shape[1] * (MODES + 4 * len(QUANTILES) + 1)


def _elsewhere(right: Array, others: Array) -> Array:
    """How often right inputs have something, in the group of them that has it more often `(values,)`."""
    share: Array = np.count_nonzero(right, axis=0) / len(right)
    return np.maximum(share, np.count_nonzero(others, axis=0) / len(others)) if len(others) else share


def _region(name: str, members: Array, right: Array, others: Array) -> list[Values]:
    """The values that go with the strongest one, as one rule."""
    value, hits = next(modes(members))
    share, elsewhere = hits / len(members), _elsewhere(right == value, others == value)
    shared = np.flatnonzero((share >= SHARED) & (elsewhere <= RARE * share))
    if len(shared) < 2:
        return []
    strongest = np.argsort(elsewhere[shared] - share[shared], kind="stable")[:MOST_REGION]
    chosen = np.sort(shared[strongest])
    least = max(2, int(np.ceil(HELD * len(chosen))))
    return [Values(name, tuple(chosen.tolist()), tuple(map(float, value[chosen])), least)]


def _has(region: Values, values: Array) -> Array:
    equal = values[:, np.asarray(region.index)] == np.asarray(region.value)
    return np.asarray(equal.sum(axis=1) >= region.least)


def _range(name: str, errors: Array, right: Array) -> list[Rule]:
    """The strongest range, open at one end."""
    best: tuple[float, Rule | None] = (0.0, None)
    ordered = np.sort(errors, axis=0)
    for share in QUANTILES:
        position = int(share * (len(errors) - 1))
        for bound, above in ((ordered[position], True), (ordered[-1 - position], False)):
            inside = (errors >= bound, right >= bound) if above else (errors <= bound, right <= bound)
            hits, others = (np.count_nonzero(one, axis=0) for one in inside)
            gain = gains(hits, len(errors), others, len(right))
            at = int(np.argmax(gain))
            if gain[at] > best[0]:
                ends = (float(bound[at]), None) if above else (None, float(bound[at]))
                best = (float(gain[at]), Range(name, at, *ends))
    return [] if best[1] is None else [best[1]]


def _tokens(name: str, errors: Array, right: Array, fewest: int) -> tuple[list[Rule], int]:
    """The token with the largest gain, and how many there were."""
    best, tests = strongest_item(Items.of_tokens(errors), Items.of_tokens(right), fewest)
    return [] if best is None else [Token(name, best)], tests


def modes(values: Array) -> Iterator[tuple[Array, Array]]:
    """The most frequent values of each column, the most frequent first: `(columns,)` values and how often each is."""
    ordered = np.sort(values, axis=0)
    rows = np.arange(len(ordered))[:, None]
    begins = np.ones(ordered.shape, dtype=bool)
    begins[1:] = ordered[1:] != ordered[:-1]
    length = rows - np.maximum.accumulate(np.where(begins, rows, 0), axis=0) + 1
    columns = np.arange(ordered.shape[1])
    for _ in range(MODES):
        end = np.argmax(length, axis=0)
        value, hits = ordered[end, columns], length[end, columns].copy()
        yield value, hits
        length[ordered == value] = 0
