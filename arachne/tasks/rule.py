"""RuleTask: which classes are allowed, in place of a label for each input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from arachne.decisions.decisions import Array, Decisions
from arachne.errors import DataError, ModelError, UsageError, did_you_mean
from arachne.plugins.options import option
from arachne.tasks.base import Pair, Task
from arachne.tasks.words import Words
from arachne.text import is_whole_number

PREFIX = "rule:"
"""How a target begins that is a rule."""

UNDER_RULE = -1
"""The label of an input that the rule is for; any other label is the class that the input must keep."""

FORBIDDEN, ALLOWED = 0, 1
"""The classes that decisions are between."""

FORMS = "'rule:not 2,3,4' or 'rule:any of cat,dog'"


@dataclass(frozen=True, kw_only=True)
class RuleTask(Task):
    """Inputs without labels that may be read as some classes only: `not 2,3,4`, or `any of cat,dog`.

    A decision is between the best forbidden class and the best allowed one, and right where the allowed one wins; for
    an input that is kept as it is, all classes are forbidden but the one it has now. Outputs are class scores
    `(n, classes)`, labels `(n,)` as `UNDER_RULE` says.
    """

    name = "rule"

    NEEDS_LABELS = False
    WORDS = Words(
        showed="broke the rule",
        shows=("breaks the rule", "break the rule"),
        shows_it=("breaks it", "break it"),
        repaired=("keeps it now", "keep it now"),
        unrepaired="does not keep it now",
        gone="of the breaches are gone",
        was_right="kept the rule",
        broke="break it now",
        share="rule kept",
        classes=False,
    )

    rule: str = option("", "The allowed or forbidden classes: 'not 2,3,4' or 'any of cat,dog'.", metavar="WORDS")
    allowed: tuple[int, ...] = ()

    def resolve(self, outputs: Array, names: Sequence[str] | None) -> Self:
        classes = self.n_names(outputs)
        known = tuple(map(str, range(classes))) if names is None else tuple(names)
        return replace(self, allowed=read_rule(self.rule, known))

    def read(self, outputs: Array, labels: Array) -> Decisions:
        forbidden, allowed = self._best(outputs, labels)
        each = np.arange(len(outputs))
        scores = np.stack([outputs[each, forbidden], outputs[each, allowed]], axis=1)
        return Decisions(scores, np.full(len(outputs), ALLOWED), each)

    def pull_back(self, gradient: Array, outputs: Array, labels: Array) -> Array:
        found, each = np.zeros_like(outputs), np.arange(len(outputs))
        for column, best in enumerate(self._best(outputs, labels)):
            found[each, best] = gradient[:, column]
        return found

    def check(self, outputs: Array, labels: Array) -> None:
        classes = self.n_names(outputs)
        if labels.shape != (len(outputs),) or labels.min(initial=0) < UNDER_RULE or labels.max(initial=0) >= classes:
            raise DataError(f"a rule is for inputs without labels, got labels of shape {labels.shape}")

    def n_classes(self, outputs: Array) -> int:
        self.n_names(outputs)
        return 2

    def n_names(self, outputs: Array) -> int:
        if outputs.ndim != 2 or outputs.shape[1] < 2:
            raise ModelError(
                f"a rule is about class scores of shape (inputs, classes), got outputs of shape {outputs.shape}"
            )
        return int(outputs.shape[1])

    def name_classes(self, names: Sequence[str] | None, n_names: int) -> tuple[str, ...]:
        return "forbidden", "allowed"

    def label_as_decided(self, outputs: Array) -> Array:
        return self.decide(outputs)

    def find_target(self, text: str, classes: Sequence[str]) -> Pair | None:
        is_mine = text.startswith(PREFIX) and text.removeprefix(PREFIX).split() == self.rule.split()
        return (ALLOWED, FORBIDDEN) if is_mine else None

    def target_text(self, label: int, prediction: int, classes: Sequence[str]) -> str | None:
        return f"{PREFIX}{self.rule}"

    def _best(self, outputs: Array, labels: Array) -> tuple[Array, Array]:
        """Return the best forbidden and the best allowed class of each input, both `(n,)`."""
        may = np.zeros(outputs.shape, bool)
        under = labels == UNDER_RULE
        may[np.ix_(under, self.allowed)] = True
        kept = np.flatnonzero(~under)
        may[kept, labels[kept]] = True
        lowest = np.asarray(-np.inf, outputs.dtype)
        return self.decide(np.where(may, lowest, outputs)), self.decide(np.where(may, outputs, lowest))


def read_rule(text: str, names: Sequence[str]) -> tuple[int, ...]:
    """Return the classes that a rule allows, ascending, from its words and the names of all classes in order.

    Raises:
        UsageError: It is no rule, names no class, or forbids all or none.
    """
    words = text.strip()
    negated = words.startswith("not ")
    if not negated and not words.startswith("any of "):
        raise UsageError(f"expected a rule such as {FORMS}, got '{PREFIX}{text}'")
    listed = words.removeprefix("not ").removeprefix("any of ")
    named = {_find_class(part.strip(), text, names) for part in listed.split(",") if part.strip()}
    allowed = tuple(number for number in range(len(names)) if (number in named) != negated)
    if not named or not allowed or len(allowed) == len(names):
        raise UsageError(
            f"the rule '{text}' allows {len(allowed)} of {len(names)} classes; a rule allows some and forbids others"
        )
    return allowed


def _find_class(name: str, text: str, names: Sequence[str]) -> int:
    if name in names:
        return list(names).index(name)
    if is_whole_number(name) and int(name) < len(names):
        return int(name)
    raise UsageError(
        f"the rule '{text}' names the class '{name}', which the model does not have{did_you_mean(name, names)}"
    )


def rule_in(targets: object, task: Task | None = None) -> RuleTask | None:
    """Return the task of targets that are a rule; None if none of them is one.

    Args:
        targets: One target, or several.
        task: The task that was asked for, if any.

    Raises:
        UsageError: A rule beside other targets, or beside a task whose outputs are no class scores.
    """
    several = targets if isinstance(targets, Sequence) and not isinstance(targets, str) else [targets]
    texts = [one for one in several if isinstance(one, str)]
    rules = [text.strip() for text in texts if text.strip().startswith(PREFIX)]
    if not rules:
        return None
    if len(texts) > 1:
        raise UsageError(
            f"a rule stands alone, got {len(texts)} targets; name all classes in one rule, such as {FORMS}"
        )
    if task is not None and not task.SINGLE and not isinstance(task, RuleTask):
        raise UsageError(
            f"a rule is about class scores, one class for each input, and the task is '{task.name}'; give labels"
        )
    return RuleTask(rule=rules[0].removeprefix(PREFIX).strip())
