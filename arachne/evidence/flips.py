"""Effect of a patch on inputs without labels: how many predictions flip, and which."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne.errors import DataError
from arachne.evidence.confidence import confidences_of
from arachne.model.values import Array
from arachne.plugins.drawing import Drawable
from arachne.scoring.statistics import Rate
from arachne.tasks import decide
from arachne.text import percent


@dataclass(frozen=True)
class Flips(Drawable):
    """Predictions that a patch changes, those the patched model is surest of first; arrays `(k,)`.

    Attributes:
        inputs: How many inputs were compared.
        rows: Row numbers of the inputs that flip `(k,)`.
        before: Predicted classes before `(k,)`.
        after: Predicted classes after `(k,)`.
        confidence_before: Probability of the class predicted before, by the model as it was, `(k,)`.
        confidence_after: Probability of the class predicted now, by the patched model, `(k,)`.
    """

    inputs: int
    rows: Array
    before: Array
    after: Array
    confidence_before: Array
    confidence_after: Array

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def rate(self) -> Rate:
        """Share of the inputs whose prediction flips."""
        return Rate(len(self), self.inputs)

    @property
    def sentence(self) -> str:
        """How many flip, with the share and its interval."""
        low, high = self.rate.interval
        share = f"{percent(self.rate.value)} (95 %: {percent(low)} – {percent(high)})"
        return f"{len(self):,} of {self.inputs:,} predictions flip, {share}"

    def __str__(self) -> str:
        """The sentence."""
        return self.sentence

    @property
    def headline(self) -> str:
        """The sentence."""
        return self.sentence

    @property
    def pairs(self) -> tuple[tuple[int, int, int], ...]:
        """Each kind of flip as `(before, after, count)`, the most frequent first."""
        both = np.stack([self.before, self.after], axis=1).astype(np.int64)
        kinds, counts = np.unique(both, axis=0, return_counts=True)
        order = np.lexsort((kinds[:, 1], kinds[:, 0], -counts))
        return tuple((int(kinds[k, 0]), int(kinds[k, 1]), int(counts[k])) for k in order)

    @classmethod
    def measure(cls, before: Array, after: Array) -> Flips:
        """Compare the scores `(n, classes)` of the model without and with the patch.

        Raises:
            DataError: Scores of unequal shape.
        """
        if before.shape != after.shape:
            raise DataError(f"expected two sets of scores of one shape, got {before.shape} and {after.shape}")
        old, new = decide(before), decide(after)
        rows = np.flatnonzero(old != new)
        confidence = confidences_of(after[rows], new[rows])
        order = np.lexsort((rows, -np.round(confidence, 6)))
        rows = rows[order]
        return cls(
            inputs=len(before),
            rows=rows,
            before=old[rows],
            after=new[rows],
            confidence_before=confidences_of(before[rows], old[rows]),
            confidence_after=confidence[order],
        )
