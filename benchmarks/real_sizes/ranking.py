"""Measure what the ranking loses when a model's many classes are not all looked at, on a trained network.

The GTSRB network of the study has 43 classes, few enough to look at all of them. Against that: `few` looks at those of
the fault and the most predicted ones only, `turns` at those of the fault, and at the others in turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr

from arachne.data.part import Part
from arachne.data.run import whole_part
from arachne.localise import Bidirectional, Localisation
from arachne.localise.bidirectional import most_suspicious
from arachne.localise.impact import ScoredClasses
from arachne.model.backend import ModelBackend
from arachne.model.values import Array

INPUTS, SAMPLED, TOP = 2500, 100_000, 100
"""How many test inputs are looked at, how many weights are compared, and how many of the most suspicious ones."""


def measure(subject: str, passes: int, most: int) -> Iterator[dict[str, Any]]:
    """Rows for the most frequent confusion and for all mistakes, with `most` negatives and as many positives."""
    from examples.study.subjects import load_subject, whole_test

    torch.set_num_threads(1)
    backend, data = load_subject(subject), whole_test(subject)
    whole = whole_part(backend, data.take(np.random.default_rng(0).permutation(len(data))[:INPUTS]), "*:*")
    for name, rows in (("most frequent confusion", most_frequent(whole)), ("all mistakes", whole.negatives)):
        rng = np.random.default_rng(0)
        negatives = rows[:most]
        part = whole.take(np.sort(np.concatenate([negatives, rng.choice(whole.positives, len(negatives), False)])))
        expected = localise_with(backend, part, ScoredClasses(part.n_classes, tuple(range(part.n_classes))))
        for way, classes in ways(part, passes).items():
            found = compare_rankings(expected, localise_with(backend, part, classes))
            yield {"subject": subject, "fault": name, "negatives": len(negatives), "way": way, "passes": passes} | found


def most_frequent(part: Part) -> Array:
    """The rows of the most frequent confusion."""
    pairs = part.data.labels[part.negatives] * part.n_classes + part.predictions[part.negatives]
    return np.asarray(part.negatives[pairs == np.bincount(pairs).argmax()])


def ways(part: Part, passes: int) -> dict[str, ScoredClasses]:
    """Two ways to look at some classes only."""
    fault = np.concatenate([part.data.labels[part.negatives], part.predictions[part.negatives]])
    often, predicted = (np.bincount(labels, minlength=part.n_classes) for labels in (fault, part.predictions))
    concerned = [int(label) for label in np.argsort(-often, kind="stable") if often[label]]
    few = list(dict.fromkeys([*concerned, *np.argsort(-predicted, kind="stable").tolist()]))[:passes]
    always = concerned[: 2 * passes // 3]
    others = tuple(label for label in range(part.n_classes) if label not in always)
    return {
        "few": ScoredClasses(part.n_classes, tuple(few)),
        "turns": ScoredClasses(part.n_classes, tuple(always), others, passes - len(always)),
    }


def localise_with(backend: ModelBackend, part: Part, classes: ScoredClasses) -> Localisation:
    """Return what `bl` finds when it looks at these classes."""

    class Looking(Bidirectional):
        def classes(self, part: Part) -> ScoredClasses:
            return classes

    return Looking(min_weights=5).localise(backend, part, rng=np.random.default_rng(1))


def compare_rankings(expected: Localisation, found: Localisation) -> dict[str, Any]:
    """How much of what all classes give is left."""
    ours, theirs = (np.concatenate([one.forward_impact.ravel() for one in each.scores]) for each in (found, expected))
    rows = np.random.default_rng(0).choice(len(ours), min(len(ours), SAMPLED), replace=False)
    suspects = set(expected.suspects.addresses)
    return {
        "rank_correlation": round(float(spearmanr(ours[rows], theirs[rows]).statistic), 4),
        "suspects": len(suspects),
        "suspects_kept": len(suspects & set(found.suspects.addresses)),
        "top_100_kept": len(top(found) & top(expected)),
    }


def top(found: Localisation) -> set[tuple[str, str, int]]:
    """The most suspicious weights."""
    chosen, _ = most_suspicious(found.scores, TOP, TOP)
    return {(*key, place) for key, flat in chosen.items() for place in flat.tolist()}
