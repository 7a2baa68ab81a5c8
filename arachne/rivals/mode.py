"""MODE (Ma et al., 2018): state differential analysis of the features, and retraining on inputs chosen by it.

The heat map of a class is the contribution of each feature to its score: the last layer's weights times the mean
features. For the true class t of the negatives,

    right  = W_t * mean features of inputs of class t that are classified correctly
    wrong  = W_p * features of the negatives, averaged, with p their predicted class
    differential = right / max |right| - wrong / max |wrong|

Where the class is much more accurate on training inputs than on seen ones, it is over-fitted, and the training inputs
of the class that are least like its heat map help most; otherwise it is under-fitted, and the inputs that show most of
the differential help most.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne.data.part import Part
from arachne.model.values import Array, Inputs, take
from arachne.plugins.options import option
from arachne.rivals.apricot import training_of
from arachne.rivals.features import feature_layer, features, joined_features
from arachne.rivals.retraining import Retraining
from arachne.search.problem import Problem
from arachne.tasks import correct


@dataclass(frozen=True, kw_only=True)
class Mode(Retraining):
    """Retraining on the training inputs that a differential of the features says will help, mixed with others.

    Attributes:
        helpful: The number of training inputs to choose.
        mixed: The share of other, randomly drawn inputs in the training set.
        overfit_gap: A class is over-fitted if it is more accurate on training inputs by more than this.
    """

    name = "mode"

    NEEDS_TRAINING = True

    helpful: int = option(1000, "Training inputs to choose.", least=1)
    mixed: float = option(0.5, "Share of ordinary inputs among those a rival retrains on.", least=0, most=0.99)
    overfit_gap: float = option(0.1, "From which gap in accuracy on a class is over-fitted.", least=0, most=1)

    def prepare(
        self, problem: Problem, arrays: dict[str, Array], number: int, *, rng: np.random.Generator
    ) -> dict[str, Array]:
        """Choose the training inputs."""
        training, seen = training_of(problem), problem.split.seen
        classes, counts = np.unique(seen.data.labels[seen.negatives], return_counts=True)
        chosen = []
        for label, share in zip(classes.tolist(), counts / counts.sum(), strict=True):
            own = np.flatnonzero(training.labels == label)
            most = min(len(own), max(1, round(share * self.helpful)))
            if len(own):
                chosen.append(own[self._rank(problem, label, own)[:most]])
        helpful = np.concatenate([np.zeros(0, np.int64), *chosen])
        others = np.setdiff1d(np.arange(len(training)), helpful)
        more = min(len(others), max(1, round(len(helpful) * self.mixed / (1 - self.mixed))))
        return {**arrays, "rows": np.concatenate([helpful, rng.choice(others, size=more, replace=False)])}

    def training_set(self, problem: Problem, arrays: dict[str, Array]) -> tuple[Inputs, Array]:
        training = training_of(problem)
        return take(training.inputs, arrays["rows"]), training.labels[arrays["rows"]]

    def _rank(self, problem: Problem, label: int, rows: Array) -> Array:
        """Rank training inputs of a class, the most helpful first, as positions in `rows`."""
        training, seen = training_of(problem), problem.split.seen
        weight = problem.backend.get_weights(feature_layer(problem.backend).name)["weight"]
        right, differential = heat_maps(problem, seen, label, weight)
        ranks, hits = [], 0
        for scores, found in features(problem.backend, take(training.inputs, rows)):
            hits += int(correct(scores, np.full(len(scores), label)).sum())
            contributions = found * _row(weight, label)
            length = np.maximum(np.linalg.norm(contributions, axis=1), 1e-12)
            ranks.append(np.stack([contributions @ differential, contributions @ right], axis=1) / length[:, None])
        of_class = seen.data.labels == label
        accuracy = float((seen.predictions[of_class] == label).mean())
        overfitted = hits / len(rows) - accuracy > self.overfit_gap
        by_differential, by_right = np.concatenate(ranks).T
        return np.argsort(by_right if overfitted else -by_differential, kind="stable")


def heat_maps(problem: Problem, seen: Part, label: int, weight: Array) -> tuple[Array, Array]:
    """Return the heat map of a class, and its differential to the negatives of that class: both `(in,)`."""
    positives = seen.positives[seen.data.labels[seen.positives] == label]
    negatives = seen.negatives[seen.data.labels[seen.negatives] == label]
    taken_for = seen.predictions[negatives]
    wrong = np.stack([_row(weight, int(one)) for one in taken_for])
    found = joined_features(problem.backend, take(seen.data.inputs, negatives))
    faulty = _normalise((wrong * found).mean(axis=0))
    if not len(positives):
        return -faulty, -faulty
    own = joined_features(problem.backend, take(seen.data.inputs, positives)).mean(axis=0)
    right = _normalise(_row(weight, label) * own)
    return right, right - faulty


def _row(weight: Array, label: int) -> Array:
    """Return the weights of a class's score; a single sigmoid output is the second class, and negated the first."""
    if len(weight) > 1:
        return np.asarray(weight[label])
    return np.asarray(weight[0] if label else -weight[0])


def _normalise(found: Array) -> Array:
    return np.asarray(found / max(float(np.abs(found).max()), 1e-12))
