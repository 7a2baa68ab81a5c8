"""Which mistakes a model makes, the most frequent first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from arachne.values import Array


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


def confusions(
    labels: Array, predictions: Array, n_classes: int, class_names: Sequence[str] | None = None
) -> tuple[Confusion, ...]:
    """Every pair of classes that is confused, ranked by count; ties by class numbers.

    Args:
        labels: True classes `(n,)`.
        predictions: Predicted classes `(n,)`.
        n_classes: How many classes there are.
        class_names: Their names, for the targets' text.
    """
    codes = np.asarray(labels, dtype=np.int64) * n_classes + np.asarray(predictions, dtype=np.int64)
    pairs, counts = np.unique(codes[labels != predictions], return_counts=True)
    per_class = np.bincount(labels, minlength=n_classes)
    total = int(counts.sum())
    found = []
    for row in np.lexsort((pairs, -counts)):
        label, prediction = divmod(int(pairs[row]), n_classes)
        n = int(counts[row])
        text = f"{_word(label, class_names)}:{_word(prediction, class_names)}"
        found.append(Confusion(text, label, prediction, n, n / total, n / int(per_class[label])))
    return tuple(found)


def wildcards(
    labels: Array, predictions: Array, n_classes: int, class_names: Sequence[str] | None = None
) -> tuple[Confusion, ...]:
    """What the mistakes have in common: one true class (`a:*`) or one prediction (`*:b`), ranked by count.

    Only those with more inputs than the most frequent pair are listed. A stuck pixel that makes everything a seven
    shows up here, while among the pairs it is scattered over nine small ones.
    """
    pairs = confusions(labels, predictions, n_classes, class_names)
    wrong = labels != predictions
    total, most = int(wrong.sum()), pairs[0].count if pairs else 0
    found = []
    for label in range(n_classes):
        word = _word(label, class_names)
        own = int((wrong & (labels == label)).sum())
        read = int((wrong & (predictions == label)).sum())
        size = int((labels == label).sum())
        if own > most:
            found.append(Confusion(f"{word}:*", label, None, own, own / total, own / size))
        if read > most:
            found.append(Confusion(f"*:{word}", None, label, read, read / total, read / max(1, len(labels) - size)))
    return tuple(sorted(found, key=lambda one: -one.count))


def _word(label: int, class_names: Sequence[str] | None) -> str:
    """A class's name where a target's text can hold it, else its number."""
    if class_names is None or label >= len(class_names):
        return str(label)
    name = class_names[label]
    plain = not set(":=*") & set(name) and name == name.strip() and list(class_names).count(name) == 1
    return name if name and plain and name not in ("top", "rows", "group") else str(label)
