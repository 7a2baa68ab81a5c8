"""A cause: a property that some mistakes share, with a rule that recognises it in an input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from arachne.causes.base import Finder
from arachne.causes.experiment import Experiment, run_experiment
from arachne.causes.finding import find_rules
from arachne.causes.judging import Slice
from arachne.causes.rule import Rule
from arachne.causes.wording import sentence
from arachne.data.labelled import LabelledData
from arachne.model.backend import ModelBackend
from arachne.model.values import Array
from arachne.plugins.drawing import Drawable


@dataclass(frozen=True, eq=False)
class Cause(Drawable):
    """A property that some mistakes share.

    Attributes:
        number: Its number in the scan, from 1.
        finder: The name of the finder that proposed it.
        rule: Whether an input has it: `rule(inputs)`, or `rule(data, backend)` for metadata and activations.
        members: Row numbers of the errors it explains `(k,)`; an error is explained once.
        sentence: The property in words, and how often inputs with it are wrong.
        p: The p-value on the half of the data that no finder saw, corrected for the rules tested there.
        slice: Counts of its inputs among all inputs that no earlier cause has.
        data: The data it was found in.
        predictions: The model's predictions for that data `(n,)`.
        experiment: What happened when it was planted on right inputs and taken out of wrong ones; None if nobody tried.
    """

    number: int
    finder: str
    rule: Rule
    members: Array
    sentence: str
    p: float
    slice: Slice
    data: LabelledData = field(repr=False)
    predictions: Array = field(repr=False)
    experiment: Experiment | None = field(default=None, repr=False)

    @property
    def target(self) -> str:
        """The target that repairs it."""
        return f"cause:{self.number}"

    @property
    def headline(self) -> str:
        """Its target and sentence."""
        return f"{self.target}: {self.sentence}"

    @property
    def count(self) -> int:
        """How many errors it explains."""
        return len(self.members)

    def __str__(self) -> str:
        """Its number and sentence."""
        return f"cause {self.number}: {self.sentence}"

    def explain(self) -> str:
        """Describe the cause in a few lines."""
        found = self.slice
        labels, counts = np.unique(self.data.labels[self.members], return_counts=True)
        order = np.argsort(-counts, kind="stable")[:MAX_LISTED_CLASSES]
        truly = ", ".join(f"{self.data.class_name(int(labels[one]))} ({counts[one]})" for one in order)
        more = f" and {len(labels) - len(order)} more" if len(labels) > len(order) else ""
        return "\n".join(
            (
                str(self),
                f"found by '{self.finder}' in one half of the data, confirmed in the other (p = {self.p:.2g}, exact "
                "hypergeometric test, corrected for all rules that were tested there)",
                f"odds of being wrong: {_times(found.odds_ratio)} times those of other inputs of the same classes",
                f"true classes of its errors: {truly}{more}",
                *(() if self.experiment is None else (self.experiment.sentence,)),
                f"repair it with the target '{self.target}'",
            )
        )

    def to_json(self) -> dict[str, Any]:
        """Return the object that `scan --json` prints."""
        return {
            "target": self.target,
            "finder": self.finder,
            "sentence": self.sentence,
            "count": self.count,
            "p": self.p,
            "members": self.members.tolist(),
            "rule": self.rule.to_json(),
            "experiment": None if self.experiment is None else self.experiment.to_json(),
        }


def _times(ratio: float) -> str:
    """Format how many times as large something is, with three digits that count: `9.5`, `512`, `83,500`."""
    return f"{ratio:.3g}" if ratio < 1000 else f"{float(f'{ratio:.3g}'):,.0f}"


MAX_LISTED_CLASSES = 5
"""Classes that `Cause.explain` lists."""


def find_causes(
    backend: ModelBackend | None,
    data: LabelledData,
    predictions: Array,
    *,
    finders: Sequence[Finder] | None = None,
    seed: int = 0,
) -> tuple[Cause, ...]:
    """Find the causes of a model's mistakes, the cause of most errors first; arguments as for `find_rules`."""
    found = find_rules(backend, data, predictions, finders=finders, seed=seed)
    ranked = sorted(found, key=lambda one: -len(one.members))
    return tuple(
        Cause(
            number,
            one.finder,
            one.rule,
            one.members,
            sentence(one.rule, one.slice, predictions[one.members], data),
            one.p,
            one.slice,
            data,
            predictions,
        )
        for number, one in enumerate(ranked, 1)
    )


def try_causes(causes: Sequence[Cause], backend: ModelBackend, *, seed: int = 0) -> tuple[Cause, ...]:
    """Plant each cause on right inputs and take it out of wrong ones; describe a confirmed one by what was planted."""
    return tuple(_with_experiment(cause, backend, seed) for cause in causes)


def _with_experiment(cause: Cause, backend: ModelBackend, seed: int) -> Cause:
    found = run_experiment(
        backend, cause.rule, cause.members, cause.slice.read_as, cause.data, cause.predictions, seed=seed
    )
    words = None if found.intervention is None or found.verdict != "confirmed" else found.intervention.words
    text = sentence(cause.rule, cause.slice, cause.predictions[cause.members], cause.data, words)
    return replace(cause, experiment=found, sentence=text)
