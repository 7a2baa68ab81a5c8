"""Finder of single values: pixels, columns, tokens and missing values that errors share and right inputs do not have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from arachne.causes.base import Finder, Proposals
from arachne.causes.cases import Cases
from arachne.causes.features import holds_tokens
from arachne.causes.rules import Missing, Range, Rule, Token, Values
from arachne.options import option
from arachne.values import Array

MODES = 2
"""How many of the most frequent values of a pixel or column are looked at."""

QUANTILES = (0.1, 0.25, 0.5)
"""Where ranges begin: above this share of the errors from below, and the same from above."""

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
            tokens = holds_tokens(array)
            for _, errors, right in self.mistakes(cases):
                if tokens:
                    found, looked = _tokens(name, values[errors], values[right], self.fewest)
                else:
                    found, looked = _values(name, values[errors], values[right], self.fewest)
                rules += found
                tests += looked
        return Proposals(tuple(dict.fromkeys(rules)), tests)


def _values(name: str, errors: Array, right: Array, fewest: int) -> tuple[list[Rule], int]:
    """The strongest single value and its region, the strongest range and missing value, and how many were compared."""
    width = errors.shape[1]
    rules: list[Rule] = []
    best: tuple[float, int, float] = (0.0, -1, 0.0)
    for value, hits in modes(errors):
        gain = gains(hits, len(errors), (right == value).sum(axis=0), len(right))
        gain[hits < fewest] = 0
        at = int(np.argmax(gain))
        if gain[at] > best[0]:
            best = (float(gain[at]), at, float(value[at]))
    if best[0] > 0:
        _, at, value_at = best
        rules.append(Values(name, (at,), (value_at,), 1))
        rules += _region(name, errors[errors[:, at] == value_at], right)
    rules += _range(name, errors, right)
    if errors.dtype.kind == "f" and np.isnan(errors).any():
        gain = gains(np.isnan(errors).sum(axis=0), len(errors), np.isnan(right).sum(axis=0), len(right))
        rules += [Missing(name, int(np.argmax(gain)))] if gain.max() > 0 else []
    return rules, width * (MODES + 2 * len(QUANTILES) + 1)


def _region(name: str, members: Array, right: Array) -> list[Rule]:
    """The values that go with the strongest one, as one rule."""
    value, hits = next(modes(members))
    share, elsewhere = hits / len(members), (right == value).mean(axis=0)
    shared = np.flatnonzero((share >= SHARED) & (elsewhere <= RARE * share))
    if len(shared) < 2:
        return []
    strongest = np.argsort(elsewhere[shared] - share[shared], kind="stable")[:MOST_REGION]
    chosen = np.sort(shared[strongest])
    least = max(2, int(np.ceil(HELD * len(chosen))))
    return [Values(name, tuple(chosen.tolist()), tuple(map(float, value[chosen])), least)]


def _range(name: str, errors: Array, right: Array) -> list[Rule]:
    """The strongest range, open at one end."""
    best: tuple[float, Rule | None] = (0.0, None)
    ordered = np.sort(errors, axis=0)
    for share in QUANTILES:
        position = int(share * (len(errors) - 1))
        for bound, above in ((ordered[position], True), (ordered[-1 - position], False)):
            inside = (errors >= bound, right >= bound) if above else (errors <= bound, right <= bound)
            gain = gains(inside[0].sum(axis=0), len(errors), inside[1].sum(axis=0), len(right))
            at = int(np.argmax(gain))
            if gain[at] > best[0]:
                ends = (float(bound[at]), None) if above else (None, float(bound[at]))
                best = (float(gain[at]), Range(name, at, *ends))
    return [] if best[1] is None else [best[1]]


def _tokens(name: str, errors: Array, right: Array, fewest: int) -> tuple[list[Rule], int]:
    """The token with the largest gain, and how many there were."""
    known, hits = _in_rows(errors)
    known_right, hits_right = _in_rows(right)
    if not len(known):
        return [], 0
    position = np.searchsorted(known_right, known).clip(max=max(0, len(known_right) - 1))
    same = known_right[position] == known if len(known_right) else np.zeros(len(known), dtype=bool)
    gain = gains(hits, len(errors), np.where(same, hits_right[position] if len(known_right) else 0, 0), len(right))
    gain[hits < fewest] = 0
    rules: list[Rule] = [Token(name, int(known[np.argmax(gain)]))] if gain.max() > 0 else []
    return rules, len(known)


def _in_rows(tokens: Array) -> tuple[Array, Array]:
    """Every token but 0, which only fills, and in how many rows it is."""
    rows = np.repeat(np.arange(len(tokens)), tokens.shape[1])
    pairs = np.unique(np.stack([rows, tokens.ravel()]), axis=1)
    known, hits = np.unique(pairs[1], return_counts=True)
    return known[known != 0], hits[known != 0]


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


def gains(hits: Array, n: int, others: Array, n_others: int) -> Array:
    """How much better shares of errors explain themselves than with the right inputs' shares (log likelihood ratio).

    0 where the errors do not have it more often.
    """
    share = np.clip(hits / n, 1e-9, 1 - 1e-9)
    other = np.clip((others + 0.5) / (n_others + 1), 1e-9, 1 - 1e-9)
    gain: Array = n * (share * np.log(share / other) + (1 - share) * np.log((1 - share) / (1 - other)))
    return np.where(share > other, gain, 0.0)
