"""Count the mistakes of a model by pairs of classes, the most frequent first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from arachne.errors import UsageError
from arachne.model.values import Array
from arachne.tasks import SINGLE_LABEL, Task
from arachne.text import Brief


@dataclass(frozen=True)
class Confusion:
    """Inputs of one class read as another.

    Attributes:
        target: The text that makes it a repair's target.
        label: The true class; None for any.
        prediction: The class it is read as; None for any.
        count: How many inputs.
        share: Their share of all mistakes.
        share_of_class: Their share of all inputs of the true class.
    """

    target: str
    label: int | None
    prediction: int | None
    count: int
    share: float
    share_of_class: float


MAX_DENSE_CLASSES = 2000
"""The most classes for which a table of all pairs is made; with more it takes tens of megabytes."""


@dataclass(frozen=True, eq=False)
class PairCounts(Brief):
    """Counts of (true class, predicted class), sorted; only the pairs that occur.

    Attributes:
        n_classes: How many classes there are.
        labels: True classes `(pairs,)`.
        predictions: Predicted classes `(pairs,)`.
        counts: How many inputs, `(pairs,)`.
    """

    n_classes: int
    labels: Array
    predictions: Array
    counts: Array

    @classmethod
    def of(cls, labels: Array, predictions: Array, n_classes: int) -> PairCounts:
        """Count true and predicted classes `(n,)`."""
        codes = np.asarray(labels, dtype=np.int64) * n_classes + np.asarray(predictions, dtype=np.int64)
        pairs, counts = np.unique(codes, return_counts=True)
        return cls(n_classes, pairs // n_classes, pairs % n_classes, counts)

    @property
    def right(self) -> int:
        """How many inputs are right."""
        return int(self.counts[self.labels == self.predictions].sum())

    def dense(self) -> Array:
        """Return all pairs as a table `(classes, classes)`; rows are true classes.

        Raises:
            UsageError: There are more than `MAX_DENSE_CLASSES` classes.
        """
        if self.n_classes > MAX_DENSE_CLASSES:
            raise UsageError(
                f"a table of {self.n_classes:,} by {self.n_classes:,} classes is not made; use the pairs that occur"
            )
        table = np.zeros((self.n_classes, self.n_classes), np.int64)
        table[self.labels, self.predictions] = self.counts
        return table


def confusions(
    labels: Array,
    predictions: Array,
    n_classes: int,
    class_names: Sequence[str] | None = None,
    task: Task = SINGLE_LABEL,
) -> tuple[Confusion, ...]:
    """List every pair of classes that is confused, ranked by count; ties by class numbers.

    Args:
        labels: True classes `(n,)`.
        predictions: Predicted classes `(n,)`.
        n_classes: How many classes there are.
        class_names: Their names, for the targets' text.
        task: Has words of its own for some targets.
    """
    found = PairCounts.of(labels[labels != predictions], predictions[labels != predictions], n_classes)
    per_class = np.bincount(labels, minlength=n_classes)
    total, word = int(found.counts.sum()), _word_of(class_names)
    ranked = []
    for row in np.argsort(-found.counts, kind="stable"):
        label, prediction, n = (int(column[row]) for column in (found.labels, found.predictions, found.counts))
        own = None if class_names is None else task.target_text(label, prediction, class_names)
        text = own or f"{word(label)}:{word(prediction)}"
        ranked.append(Confusion(text, label, prediction, n, n / total, n / int(per_class[label])))
    return tuple(ranked)


def wildcards(
    labels: Array, predictions: Array, n_classes: int, class_names: Sequence[str] | None = None
) -> tuple[Confusion, ...]:
    """List mistakes of one true class (`a:*`) or one prediction (`*:b`), ranked by count.

    Only those with more inputs than the most frequent pair are included. A stuck pixel that makes everything a seven
    shows up here, while among the pairs it is scattered over nine small ones.
    """
    wrong = labels != predictions
    pairs = PairCounts.of(labels[wrong], predictions[wrong], n_classes)
    total, most, word = int(wrong.sum()), int(pairs.counts.max(initial=0)), _word_of(class_names)
    sizes, own, read = (np.bincount(of, minlength=n_classes) for of in (labels, labels[wrong], predictions[wrong]))
    found = []
    for label in np.flatnonzero((own > most) | (read > most)).tolist():
        size, missed, taken = (int(counts[label]) for counts in (sizes, own, read))
        if missed > most:
            found.append(Confusion(f"{word(label)}:*", label, None, missed, missed / total, missed / size))
        if taken > most:
            share = taken / max(1, len(labels) - size)
            found.append(Confusion(f"*:{word(label)}", None, label, taken, taken / total, share))
    return tuple(sorted(found, key=lambda one: -one.count))


def _word_of(class_names: Sequence[str] | None) -> Callable[[int], str]:
    """Return a function that gives the word for a class in a target: its name if unambiguous, else its number."""
    times = Counter(class_names or ())

    def word(label: int) -> str:
        if class_names is None or label >= len(class_names):
            return str(label)
        name = class_names[label]
        plain = not set(":=*") & set(name) and name == name.strip() and times[name] == 1
        return name if name and plain and name not in ("top", "rows", "group") else str(label)

    return word
