"""Whether a rule really tells errors from right inputs: exact tests, and how much more often its inputs are wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import hypergeom

from arachne.causes.cases import Cases
from arachne.values import Array


@dataclass(frozen=True)
class Slice:
    """What a rule's inputs look like among others.

    Attributes:
        wrong: Errors that belong.
        inside: Inputs that belong.
        all_wrong: Errors in all.
        inputs: Inputs in all.
        expected: Errors that its inputs would have if they were wrong as often as others of the same true class.
        p: One-sided exact hypergeometric test: how likely so many errors are among so many inputs by chance.
    """

    wrong: int
    inside: int
    all_wrong: int
    inputs: int
    expected: float
    p: float

    @property
    def share(self) -> float:
        """Share of its inputs that are wrong."""
        return self.wrong / self.inside if self.inside else 0.0

    @property
    def share_elsewhere(self) -> float:
        """Share of all other inputs that are wrong."""
        outside = self.inputs - self.inside
        return (self.all_wrong - self.wrong) / outside if outside else 0.0

    @property
    def odds_ratio(self) -> float:
        """Odds of being wrong against those of other inputs of the same true classes; half an input added to each."""
        odds = (self.wrong + 0.5) / (self.inside - self.wrong + 0.5)
        expected = (self.expected + 0.5) / (max(0.0, self.inside - self.expected) + 0.5)
        return odds / expected


def judge(belongs: Array, cases: Cases) -> Slice:
    """How the inputs that belong (bool `(n,)`) compare with the others."""
    wrong = cases.wrong
    inside, both = int(belongs.sum()), int((belongs & wrong).sum())
    all_wrong = int(wrong.sum())
    p = float(hypergeom.sf(both - 1, len(cases), all_wrong, inside)) if both else 1.0
    classes = int(cases.whole.labels.max(initial=0)) + 1
    outside = ~belongs
    totals = np.bincount(cases.labels[outside], minlength=classes)
    errors = np.bincount(cases.labels[outside & wrong], minlength=classes)
    overall = errors.sum() / max(1, totals.sum())
    # A class of which hardly anything lies outside borrows the rate of all inputs, as one more input of it.
    rates = (errors + overall) / (totals + 1)
    expected = float(rates[cases.labels[belongs]].sum())
    return Slice(both, inside, all_wrong, len(cases), expected, p)
