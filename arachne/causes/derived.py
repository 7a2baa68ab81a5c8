"""Finder of features of whole inputs: a shallow tree cuts brightness, blur, length or columns into ranges."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne.causes.base import Finder, Proposals
from arachne.causes.cases import Cases
from arachne.causes.features import feature_names, features, layout_of
from arachne.causes.items import gains, sort_columns
from arachne.causes.rule import Rule
from arachne.causes.rules import Derived, in_range
from arachne.model.values import Array
from arachne.plugins.options import option

BOUNDS_PER_FEATURE = 48
"""Bounds tried for each feature, evenly spread over the errors."""

MAX_RANGES = 6
"""The most ranges of single features that are proposed for one class, the best first."""

Condition = tuple[str, float | None, float | None]


@dataclass(frozen=True, kw_only=True)
class DerivedFinder(Finder):
    """Proposes ranges of features of whole pictures, texts or table rows, at most `depth` of them at once."""

    name = "derived"
    depth: int = option(2, "Ranges a slice is made of, at most.", least=1, most=4)
    unknown: int = option(1, "The token that stands for unknown words.", least=0)

    def find(self, cases: Cases, *, rng: np.random.Generator) -> Proposals:
        """Propose the best slice of each depth for each class errors are read as, and for all errors together."""
        rules: list[Rule] = []
        tests = 0
        for name, array in cases.arrays.items():
            names = feature_names(array)
            if not names:
                continue
            layout = layout_of(array)
            table = features(cases, names, name, layout, self.unknown)
            every = np.flatnonzero(cases.wrong), np.flatnonzero(~cases.wrong)
            groups = [(errors, every[1]) for _, errors, _ in self.mistakes(cases)]
            for errors, right in [*groups, *([every] if len(every[0]) >= self.fewest else [])]:
                tests += 2 * BOUNDS_PER_FEATURE * len(names) * self.depth
                for path in self._paths(names, table[errors], table[right]):
                    used, low, high = zip(*path, strict=True)
                    rules.append(Derived(name, layout, used, low, high, self.unknown))
        return Proposals(tuple(dict.fromkeys(rules)), tests)

    def _paths(self, names: tuple[str, ...], errors: Array, right: Array) -> list[list[Condition]]:
        """Return the best range of each feature, and one path down a tree: the best of all, then the best inside it."""
        paths: list[list[Condition]] = []
        path: list[Condition] = []
        for _ in range(self.depth):
            found = best_ranges(errors, right, self.fewest)
            if not found:
                break
            if not path:
                paths += [[(names[column], low, high)] for column, low, high in found[1:MAX_RANGES]]
            column, low, high = found[0]
            path = add_condition(path, (names[column], low, high))
            paths.append(path)
            inside = [in_range(table[:, column], low, high) for table in (errors, right)]
            errors, right = errors[inside[0]], right[inside[1]]
            if not len(right):
                break
        return paths


def add_condition(path: list[Condition], added: Condition) -> list[Condition]:
    """Add a range to a path; where the feature is in it already, both ranges become one."""
    name, low, high = added
    for position, (known, least, most) in enumerate(path):
        if known == name:
            lows, highs = ([one for one in ends if one is not None] for ends in ((low, least), (high, most)))
            both = (name, max(lows, default=None), min(highs, default=None))
            return [*path[:position], both, *path[position + 1 :]]
    return [*path, added]


def best_ranges(errors: Array, right: Array, fewest: int) -> list[tuple[int, float | None, float | None]]:
    """Return the range of each column that best separates errors from right inputs, the best column first.

    Args:
        errors: `(n, columns)`.
        right: `(m, columns)`.
        fewest: The fewest errors inside a range.
    """
    tried: list[tuple[int, Array]] = []
    hits: list[Array] = []
    others: list[Array] = []
    known = [(sort_columns(table), (~np.isnan(table)).sum(axis=0).tolist()) for table in (errors, right)]
    for column in range(errors.shape[1]):
        one, other = (ordered[column, : counts[column]] for ordered, counts in known)
        if len(one) < fewest:
            continue
        bounds = one[np.linspace(0, len(one) - 1, BOUNDS_PER_FEATURE).astype(int)]
        tried.append((column, bounds))
        for counts, values in ((hits, one), (others, other)):
            above, below = (
                len(values) - np.searchsorted(values, bounds, "left"),
                np.searchsorted(values, bounds, "right"),
            )
            counts.append(np.stack([above, below]))
    if not tried:
        return []
    gain = gains(np.stack(hits), len(errors), np.stack(others), len(right))
    gain[np.stack(hits) < fewest] = 0
    found: list[tuple[float, tuple[int, float | None, float | None]]] = []
    for (column, bounds), own in zip(tried, gain, strict=True):
        for is_low, row in ((True, own[0]), (False, own[1])):
            at = int(np.argmax(row))
            if row[at] > 0:
                bound = float(bounds[at])
                found.append((float(row[at]), (column, bound, None) if is_low else (column, None, bound)))
    return [one for _, one in sorted(found, key=lambda pair: -pair[0])]
