"""Test a cause by experiment: plant it on right inputs, take it out of wrong ones, and run the model on both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from arachne.causes.cases import Cases
from arachne.causes.estimating import propose_interventions
from arachne.causes.interventions import Intervention, UsualValues
from arachne.causes.matching import Examples
from arachne.causes.rule import Rule
from arachne.causes.rules import Both
from arachne.data.labelled import LabelledData
from arachne.model.backend import ModelBackend
from arachne.model.values import Array, Inputs, by_name, read, take
from arachne.scoring.statistics import Rate
from arachne.text import Brief

MAX_PLANTED = 800
"""The most right inputs a cause is planted on."""

MAX_REMOVED = 400
"""The most errors a cause is taken out of."""

MAX_RIGHT = 2000
"""The most right inputs that are looked at to learn what is usual."""

MIN_INPUTS = 20
"""The fewest right inputs, and the fewest errors, an experiment is made with."""

MIN_REPRODUCED = 0.8
"""A planted copy must have the cause by its own rule; with a smaller share of such copies, nothing was planted."""

EFFECT = 0.25
"""A cause is confirmed if the share that fails is shown to be above this, refuted if shown to be below."""

NECESSARY = 0.5
"""A cause that does little where it is planted is confirmed by so many errors that are right without it."""

Verdict = Literal["confirmed", "refuted", "not testable"]


NOBODY = Rate(0, 0)


@dataclass(frozen=True, eq=False)
class Copies:
    """Changed copies of inputs with the labels of the originals, and the originals' row numbers `(k,)`."""

    data: LabelledData
    rows: Array


@dataclass(frozen=True, eq=False)
class Experiment(Brief):
    """The counts of an experiment in which a cause was planted and taken out, and the verdict on it.

    Attributes:
        verdict: `confirmed`, `refuted` or `not testable`.
        reason: Why it could not be tested; '' if it was.
        intervention: How it was planted; None if it was not.
        planted: Right inputs it was planted on, and how many of them fail as its errors do.
        removed: Errors it was taken out of, and how many of them are right then.
        control: Other errors of the same classes that were treated alike, and how many of them are right then.
        failing: The planted copies that fail.
        cured: The errors that are right without it, as they are then.
    """

    verdict: Verdict
    reason: str = ""
    intervention: Intervention | None = None
    planted: Rate = NOBODY
    removed: Rate = NOBODY
    control: Rate = NOBODY
    failing: Copies | None = field(default=None, repr=False)
    cured: Copies | None = field(default=None, repr=False)

    @property
    def sentence(self) -> str:
        """The verdict, with the counts it rests on."""
        if self.intervention is None:
            return f"{self.verdict} by experiment: {self.reason}"
        parts = [f"planted on {self.planted.total:,} right inputs, {_percent(self.planted)} fail"]
        if self.removed.total:
            of_others = f" (of other errors treated alike {_percent(self.control)})" if self.control.total else ""
            parts.append(
                f"taken out of {self.removed.total:,} wrong ones, {_percent(self.removed)} are right{of_others}"
            )
        reason = f" ({self.reason})" if self.reason else ""
        return f"{self.verdict} by experiment{reason}: {'; '.join(parts)}"

    def to_json(self) -> dict[str, Any]:
        """Return the object that `scan --json` prints."""
        counts = {
            name: {"inputs": rate.total, counted: rate.count}
            for name, rate, counted in (
                ("planted", self.planted, "fail"),
                ("removed", self.removed, "right"),
                ("control", self.control, "right"),
            )
            if rate.total
        }
        how = {} if self.intervention is None else {"intervention": self.intervention.words}
        return {"verdict": self.verdict, "reason": self.reason, **how, **counts, "sentence": self.sentence}


def run_experiment(
    backend: ModelBackend,
    rule: Rule,
    members: Array,
    read_as: int | None,
    data: LabelledData,
    predictions: Array,
    *,
    seed: int = 0,
) -> Experiment:
    """Plant a cause on right inputs, take it out of its errors, and count.

    Args:
        backend: The model.
        rule: The rule of the cause.
        members: Row numbers of its errors `(k,)`.
        read_as: The class that nearly all of them are read as, if there is one.
        data: The data it was found in.
        predictions: The model's predictions for that data `(n,)`.
        seed: The seed of all randomness.
    """
    rng = np.random.default_rng(seed)
    trial = _Trial.draw(rule, members, read_as, data, predictions, backend, rng)
    if len(trial.members) < MIN_INPUTS:
        return Experiment("not testable", f"it has {len(members)} errors, and {MIN_INPUTS} are needed")
    if len(trial.right) < MIN_INPUTS:
        return Experiment("not testable", "hardly any input of the classes of its errors is right without it")
    examples = trial.examples()
    if examples is None:
        return Experiment("not testable", "its inputs hold no numbers to change")
    for one in propose_interventions(rule, examples):
        copies = trial.plant(one)
        if copies is not None:
            return trial.count(one, copies)
    return Experiment("not testable", _why_not(rule))


def _why_not(rule: Rule) -> str:
    if rule.asks_model:
        return "its errors are alike inside the model, and share no values that could be planted"
    if rule.asks_metadata:
        return "metadata tell it, and its errors share no values that could be planted"
    return "nothing was found that gives other inputs this property and leaves them within the range of the data"


@dataclass(frozen=True, eq=False)
class _Trial:
    """The inputs of an experiment, as row numbers of the data."""

    rule: Rule
    read_as: int | None
    members: Array
    right: Array
    others: Array
    data: LabelledData
    predictions: Array
    backend: ModelBackend
    rng: np.random.Generator

    @classmethod
    def draw(
        cls,
        rule: Rule,
        members: Array,
        read_as: int | None,
        data: LabelledData,
        predictions: Array,
        backend: ModelBackend,
        rng: np.random.Generator,
    ) -> _Trial:
        """Draw the inputs: errors of the cause, right inputs and other errors of the same classes without it."""
        drawn = np.sort(rng.permutation(members)[:MAX_REMOVED])
        able = np.isin(data.labels, np.unique(data.labels[members]))
        if read_as is not None:
            able &= data.labels != read_as
        right = rng.permutation(np.flatnonzero(able & (predictions == data.labels)))[: 2 * MAX_RIGHT]
        others = np.setdiff1d(np.flatnonzero(able & (predictions != data.labels)), members)
        others = rng.permutation(others)[:MAX_REMOVED]
        cases = Cases.of(data, predictions, backend)
        right, others = (rows[~rule.match(cases.take(rows))] if len(rows) else rows for rows in (right, others))
        return cls(rule, read_as, drawn, right[:MAX_RIGHT], others, data, predictions, backend, rng)

    @property
    def name(self) -> str:
        """The array that is changed: the rule's own, or the first."""
        rule = self.rule.rules[0] if isinstance(self.rule, Both) else self.rule
        return str(getattr(rule, "input", next(iter(by_name(self.data.inputs)))))

    def values(self, rows: Array) -> Array:
        """Read the array that is changed, of some rows."""
        return np.asarray(by_name(self.inputs(rows))[self.name])

    def inputs(self, rows: Array) -> Inputs:
        """Read all arrays of some rows."""
        return read(take(self.data.inputs, rows))

    def examples(self) -> Examples | None:
        """Errors, and right inputs in the same mixture of classes; None where the array holds no numbers."""
        share = np.bincount(self.data.labels[self.members], minlength=int(self.data.labels.max()) + 1)
        usual = np.bincount(self.data.labels[self.right], minlength=len(share))
        weight = (share / np.maximum(usual, 1))[self.data.labels[self.right]]
        alike = self.right[self.rng.random(len(self.right)) * weight.max() <= weight]
        alike = alike if len(alike) >= MIN_INPUTS else self.right
        errors, right = self.values(self.members), self.values(alike)
        if right.dtype.kind not in "fiub":
            return None
        low, high = (float(pick([pick(errors), pick(right)])) for pick in (np.nanmin, np.nanmax))
        return Examples(self.name, errors, right, low, high, self.data.value_names)

    def plant(self, one: Intervention) -> tuple[Array, Inputs] | None:
        """Plant on right inputs; None where too few copies have the cause by its own rule.

        Returns:
            The rows it was planted on, and the copies.
        """
        rows = self.right[:MAX_PLANTED]
        copies = self.substitute(rows, one.plant(self.values(rows), self.rng))
        if not self.rule.asks_model and not self.rule.asks_metadata:
            has = self.rule(LabelledData(copies, self.data.labels[rows]))
            if has.mean() < MIN_REPRODUCED:
                return None
            rows, copies = rows[has], take(copies, np.flatnonzero(has))
        return (rows, copies) if len(rows) >= MIN_INPUTS else None

    def substitute(self, rows: Array, values: Array) -> Inputs:
        """Return the inputs of some rows with other values in the array that is changed."""
        inputs = self.inputs(rows)
        return {**inputs, self.name: values} if isinstance(inputs, Mapping) else values

    def count(self, one: Intervention, copies: tuple[Array, Inputs]) -> Experiment:
        """Run the model on the changed inputs, with the cause planted or taken out, and judge."""
        rows, inputs = copies
        read_as = self.backend.predict(inputs)
        fails = read_as != self.data.labels[rows] if self.read_as is None else read_as == self.read_as
        usual = UsualValues(self.values(self.right), self.data.labels[self.right])
        removed, cured = self.take_out(one, self.members, usual)
        control, _ = self.take_out(one, self.others, usual)
        planted = Rate(int(fails.sum()), len(rows))
        verdict, reason = judge_counts(planted, removed, control)
        return Experiment(verdict, reason, one, planted, removed, control, self.keep(rows, inputs, fails), cured)

    def take_out(self, one: Intervention, rows: Array, usual: UsualValues) -> tuple[Rate, Copies | None]:
        """Take the cause out of errors, and count how many are right then."""
        values = one.remove(self.values(rows), self.data.labels[rows], usual, self.rng) if len(rows) else None
        if values is None:
            return NOBODY, None
        inputs = self.substitute(rows, values)
        right = self.backend.predict(inputs) == self.data.labels[rows]
        return Rate(int(right.sum()), len(rows)), self.keep(rows, inputs, right)

    def keep(self, rows: Array, inputs: Inputs, wanted: Array) -> Copies:
        """Keep some of the copies `(n,)` that were made of some rows."""
        chosen = np.flatnonzero(wanted)
        labels = self.data.labels[rows[chosen]]
        names = self.data.value_names
        data = LabelledData(take(inputs, chosen), labels, class_names=self.data.class_names, value_names=names)
        return Copies(data, rows[chosen])


def judge_counts(planted: Rate, removed: Rate, control: Rate) -> tuple[Verdict, str]:
    """Turn the counts into a verdict, or into the reason why there is none."""
    low, high = planted.interval
    if low > EFFECT:
        return "confirmed", ""
    if removed.total and removed.interval[0] > NECESSARY and removed.interval[0] > control.interval[1]:
        return "confirmed", ""
    if high < EFFECT and (not removed.total or removed.interval[0] <= max(EFFECT, control.interval[1])):
        return "refuted", ""
    return "not testable", "planting it and taking it out do not agree"


def _percent(rate: Rate) -> str:
    return f"{100 * rate.value:.0f} %"
