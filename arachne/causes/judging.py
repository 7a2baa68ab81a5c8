"""Test whether a rule separates errors from right inputs: exact p-value, share of errors and odds ratio."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from arachne.causes.cases import Cases
from arachne.causes.rule import Rule
from arachne.model.values import Array

MIN_DOMINANT_SHARE = 0.8
"""If at least this share of a slice's errors is read as one class, the fault is being read as that class."""


@dataclass(frozen=True)
class Slice:
    """Counts of a rule's inputs and errors among all inputs.

    Attributes:
        wrong: Errors the rule matches.
        inside: Inputs the rule matches.
        all_wrong: All errors.
        inputs: All inputs.
        expected: Errors expected among its inputs if they were wrong as often as others of the same true class.
        read_as: The class that nearly all of its errors are read as; None if there is none. Inputs of that class cannot
            show the fault and are not counted above.
    """

    wrong: int
    inside: int
    all_wrong: int
    inputs: int
    expected: float
    read_as: int | None

    @cached_property
    def p(self) -> float:
        """One-sided exact hypergeometric test: the chance of so many errors among so many inputs."""
        from scipy.stats import hypergeom  # here, because it is slow to load and a repair does without it

        return float(hypergeom.sf(self.wrong - 1, self.inputs, self.all_wrong, self.inside)) if self.wrong else 1.0

    @property
    def share(self) -> float:
        """The share of its inputs that is wrong."""
        return self.wrong / self.inside if self.inside else 0.0

    @property
    def share_elsewhere(self) -> float:
        """The share of all other inputs that is wrong."""
        outside = self.inputs - self.inside
        return (self.all_wrong - self.wrong) / outside if outside else 0.0

    @property
    def odds_ratio(self) -> float:
        """The odds of being wrong divided by the expected odds; half an input is added to each count."""
        odds = (self.wrong + 0.5) / (self.inside - self.wrong + 0.5)
        expected = (self.expected + 0.5) / (max(0.0, self.inside - self.expected) + 0.5)
        return odds / expected


def dominant_prediction(belongs: Array, cases: Cases) -> int | None:
    """Return the class that nearly all errors among the matched inputs (bool `(n,)`) are read as, if there is one."""
    predictions = cases.predictions[belongs & cases.wrong]
    if not len(predictions):
        return None
    counts = np.bincount(predictions)
    return int(counts.argmax()) if counts.max() >= MIN_DOMINANT_SHARE * len(predictions) else None


def judge(rule: Rule, belongs: Array, cases: Cases, read_as: int | None) -> Slice:
    """Compare the matched inputs with the others.

    Args:
        rule: The rule. One about the model's activations is compared with inputs read as the same class, any other with
            inputs of the same true classes.
        belongs: Which inputs the rule matches, bool `(n,)`.
        cases: The inputs.
        read_as: The class the errors are read as; inputs of that class are left out.
    """
    compared = rule.comparison_group(cases)
    able = compared if compared is not None else can_show_fault(cases, read_as)
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


def can_show_fault(cases: Cases, read_as: int | None) -> Array:
    """Return which cases can be wrongly read as a class, bool `(n,)`: those of other classes."""
    return np.ones(len(cases), dtype=bool) if read_as is None else np.asarray(cases.labels != read_as)
