"""A finder: pictures with most of their ink on one side."""

from dataclasses import dataclass

import numpy as np

from arachne import Finder, option
from arachne.causes import Proposals, Rule


@dataclass(frozen=True)
class Lopsided(Rule):
    """At least this share of a picture's ink is in its left half, or in its right one."""

    side: str
    share: float
    kind = "lopsided"

    def holds(self, cases):
        left = left_share(cases)
        return (left if self.side == "left" else 1 - left) >= self.share

    @property
    def words(self):
        return f"{100 * self.share:.0f} % or more of the ink is on the {self.side}"


@dataclass(frozen=True, kw_only=True)
class LopsidedFinder(Finder):
    """Tries a few shares on both sides."""

    name = "lopsided"

    shares: int = option(8, "How many shares of ink to try on each side.", least=1)

    def find(self, cases, *, rng):
        tried = [
            Lopsided(side, round(float(share), 3))
            for side in ("left", "right")
            for share in np.linspace(0.6, 0.95, self.shares)
        ]
        good = [rule for rule in tried if (rule.holds(cases) & cases.wrong).sum() >= self.fewest]
        return Proposals(tuple(good), tests=len(tried))


def left_share(cases):
    """How much of its ink each picture has on the left, `(n,)`; a half where there is none."""
    pictures = np.asarray(next(iter(cases.arrays.values())))[cases.rows]
    pictures = pictures.reshape(len(pictures), -1, pictures.shape[-1])
    ink = pictures.sum(axis=(1, 2))
    left = pictures[:, :, : pictures.shape[-1] // 2].sum(axis=(1, 2))
    return np.where(ink > 0, left / np.where(ink > 0, ink, 1), 0.5)
