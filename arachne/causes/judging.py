"""Whether a rule really tells errors from right inputs: exact tests, and how much more often its inputs are wrong."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from arachne.causes.cases import Cases
from arachne.causes.rule import Rule
from arachne.values import Array

NEARLY_ALL = 0.8
"""The share of a slice's errors read as one class from which on the fault is taken to be reading it as that class."""


@dataclass(frozen=True)
class Slice:
    """What a rule's inputs look like among others.

    Attributes:
        wrong: Errors that belong.
        inside: Inputs that belong.
        all_wrong: Errors in all.
        inputs: Inputs in all.
        expected: Errors that its inputs would have if they were wrong as often as others of the same true class.
        read_as: The class that nearly all of its errors are read as; None if there is none. Inputs of that class cannot
            show the fault and count nowhere above.
    """

    wrong: int
    inside: int
    all_wrong: int
    inputs: int
    expected: float
    read_as: int | None

    @cached_property
    def p(self) -> float:
        """One-sided exact hypergeometric test: how likely so many errors are among so many inputs by chance."""
        from scipy.stats import hypergeom  # here, because it is slow to load and a repair does without it

        return float(hypergeom.sf(self.wrong - 1, self.inputs, self.all_wrong, self.inside)) if self.wrong else 1.0

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


def mostly_read_as(belongs: Array, cases: Cases) -> int | None:
    """The class that nearly all errors among the inputs that belong (bool `(n,)`) are read as, if there is one."""
    predictions = cases.predictions[belongs & cases.wrong]
    if not len(predictions):
        return None
    counts = np.bincount(predictions)
    return int(counts.argmax()) if counts.max() >= NEARLY_ALL * len(predictions) else None


def judge(rule: Rule, belongs: Array, cases: Cases, read_as: int | None) -> Slice:
    """How the inputs that belong (bool `(n,)`) compare with the others.

    Args:
        rule: What they belong by. One about the model's activations is compared with inputs read as the same class,
            any other with inputs of the same true classes.
        belongs: Which belong.
        cases: The inputs.
        read_as: The class the fault is to be read as; inputs that are of it are left out.
    """
    compared = rule.compared(cases)
    able = compared if compared is not None else able_to_show(cases, read_as)
    labels = cases.labels[able] if compared is None else np.zeros(int(able.sum()), dtype=np.int64)
    wrong, belongs = cases.wrong[able], belongs[able]
    inside, both = int(belongs.sum()), int((belongs & wrong).sum())
    all_wrong = int(wrong.sum())
    classes = int(labels.max(initial=0)) + 1
    totals = np.bincount(labels[~belongs], minlength=classes)
    errors = np.bincount(labels[~belongs & wrong], minlength=classes)
    overall = errors.sum() / max(1, totals.sum())
    # A class of which hardly anything lies outside borrows the rate of all inputs, as one more input of it.
    rates = (errors + overall) / (totals + 1)
    expected = float(rates[labels[belongs]].sum())
    return Slice(both, inside, all_wrong, len(labels), expected, read_as)


def able_to_show(cases: Cases, read_as: int | None) -> Array:
    """Which cases a fault of being read as a class can show in, bool `(n,)`: those of other classes."""
    return np.ones(len(cases), dtype=bool) if read_as is None else np.asarray(cases.labels != read_as)
