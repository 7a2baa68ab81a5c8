"""Finder of metadata: values of columns, and pairs of them, whose inputs are wrong far more often than others."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from arachne.causes.base import Finder, Proposals
from arachne.causes.cases import Cases
from arachne.causes.rules import Columns
from arachne.model.values import Array
from arachne.plugins.options import option


@dataclass(frozen=True, kw_only=True)
class MetadataFinder(Finder):
    """Proposes values of metadata columns and pairs of them."""

    name = "metadata"
    SEARCHES_CLASSES = True
    most_values: int = option(200, "A column with more different values than this is left out.", least=2)
    paired: int = option(100, "Columns whose pairs are looked at: the first of the data, at most.", least=0)
    proposed: int = option(20, "Values and pairs that are proposed, at most.", least=1)

    def find(self, cases: Cases, *, rng: np.random.Generator) -> Proposals:
        """Propose the values and pairs with the largest share of errors."""
        coded: dict[str, tuple[Array, Array]] = {}
        for name in cases.whole.columns:
            values, codes = np.unique(cases.column(name), return_inverse=True)
            if 2 <= len(values) <= self.most_values:
                coded[name] = values, codes
        found: list[tuple[float, int, Columns]] = []
        tests = 0
        for names in [*((name,) for name in coded), *combinations(list(coded)[: self.paired], 2)]:
            codes = coded[names[0]][1]
            if len(names) == 2:
                codes = codes * len(coded[names[1]][0]) + coded[names[1]][1]
            total = np.bincount(codes)
            wrong = np.bincount(codes, weights=cases.wrong, minlength=len(total))
            tests += int((total > 0).sum())
            for code in np.flatnonzero(wrong >= self.fewest).tolist():
                numbers = divmod(code, len(coded[names[1]][0])) if len(names) == 2 else (code,)
                wanted = tuple(str(coded[name][0][number]) for name, number in zip(names, numbers, strict=True))
                found.append((-wrong[code] / total[code], len(names), Columns(names, wanted)))
        ranked = sorted(found, key=lambda one: one[:2])[: self.proposed]
        return Proposals(tuple(rule for _, _, rule in ranked), tests)
