"""Members that train on: gradient steps on every weight of every layer, held near the original model.

`tune@anchored` trains on as one would by hand, by cross-entropy, and is anchored to the original by divergence. With p
the softmax of scores and p_0 that of the original, the loss of a step is

    mean over all inputs of w CE(p, label) + w ANCHOR KL(p_0 | p) over those that are right

where w is 1 for inputs that are right, and grows from 1 to LAST_BOOST along the path for negatives. It breaks some
inputs and puts others right, which is what `--max-drop` allows. `tune@training` does the same with training inputs in
every step: half of them drawn from all, half from those whose scores are nearest to a negative's.

Both are cross-fitted; points differ in how long they train, and in how far they go from the original towards what was
trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from arachne.decisions.losses import cross_entropy, probabilities
from arachne.errors import UsageError
from arachne.model.backend import LossGradient
from arachne.model.values import Array, take
from arachne.plugins.options import option
from arachne.scoring.cut import Cuts
from arachne.scoring.dense_tail import make_scorer
from arachne.search.base import Problem
from arachne.search.folds import Batch
from arachne.search.gradient import STEPS_PER_POINT, GradientSearch
from arachne.search.state import SearchState
from arachne.search.weight_choice import CHOICES

ANCHOR, LAST_BOOST = 1.0, 30.0
"""The weight of the divergence from the original, and that of a negative at the end of the path."""

NEAREST = 20
"""How many training inputs count as near to a negative."""


@dataclass(frozen=True, kw_only=True)
class TuneAnchored(GradientSearch):
    """Fine-tuning of every weight of every layer that may change, anchored to the original by divergence."""

    name = "tune@anchored"

    USES_ALPHA = False
    NEEDS_SINGLE_LABEL = True
    CHANGES_MATRICES = True

    steps: int = option(64, "Gradient steps of each run.", least=STEPS_PER_POINT)
    folds: int = option(3, "Runs, each over all seen inputs but a share of them.", least=2)

    def begin(self, problem: Problem, *, rng: np.random.Generator) -> SearchState:
        if problem.fitness_inputs.decisions is not None or not problem.fitness_inputs.task.SINGLE:
            raise UsageError("this search trains on one label for each input")
        return super().begin(problem, rng=rng)

    def select_weights(self, problem: Problem) -> Problem:
        return problem.with_selection("all", lambda: CHOICES["all"](problem))

    def loss_gradient(self, problem: Problem, batch: Batch, progress: float) -> LossGradient:
        inputs = problem.fitness_inputs
        weights = batch.shares.copy()
        for kind in ("negative", "positive", "never_break"):
            weights[inputs.of_kind(kind)[batch.rows]] *= inputs.of_kind(kind).sum()
        weights[batch.negative] *= LAST_BOOST**progress
        weights /= weights.sum()
        anchors = np.where(batch.negative, 0.0, ANCHOR * weights)
        labels = cross_entropy(batch.labels, weights, score_kind=problem.backend.score_kind)
        return partial(_pull_back, labels, probabilities(batch.before), anchors, problem.backend.score_kind)


@dataclass(frozen=True, kw_only=True)
class TuneTraining(TuneAnchored):
    """Anchored fine-tuning with training inputs in every step, many of them near the negatives."""

    name = "tune@training"

    USES_TRAINING = True
    NEEDS_TRAINING = True

    steps: int = option(128, "Gradient steps of each run.", least=STEPS_PER_POINT)

    def begin(self, problem: Problem, *, rng: np.random.Generator) -> SearchState:
        if problem.training is None:
            raise UsageError("there are no training inputs")
        return super().begin(problem, rng=rng)

    def gradient(
        self, problem: Problem, values: Array, batch: Batch, progress: float, *, rng: np.random.Generator
    ) -> Array:
        """Return the mean of the gradients over seen and over training inputs, float64 `(k,)`."""
        training = problem.training
        if training is None:
            raise ValueError("`begin` refuses a problem without training inputs")
        own = super().gradient(problem, values, batch, progress, rng=rng)
        near = _near_negatives(problem)
        size = min(len(training), len(batch.rows))
        rows = np.concatenate([rng.choice(near, size // 2), rng.choice(len(training), size - size // 2)])
        inputs = take(training.inputs, rows)
        scorer = make_scorer(problem.backend, inputs, problem.suspects, None, (Cuts(problem.backend, inputs), None))
        loss = cross_entropy(training.labels[rows], score_kind=problem.backend.score_kind)
        return (own + scorer.gradients(values, loss, np.arange(len(rows)))) / 2


def _near_negatives(problem: Problem) -> Array:
    """Return the training inputs whose scores are nearest to those of a negative, each once, int64 `(n,)`."""
    if "training near negatives" not in problem.shared and problem.training is not None:
        scores = problem.backend.forward(problem.training.inputs)
        found = []
        for wanted in problem.original_scores[problem.fitness_inputs.of_kind("negative")]:
            distances = np.square(scores - wanted).sum(axis=1)
            found.append(np.argsort(distances, kind="stable")[:NEAREST])
        problem.shared["training near negatives"] = np.unique(np.concatenate(found))
    near: Array = problem.shared["training near negatives"]
    return near


def _pull_back(
    labels: LossGradient, before: Array, anchors: Array, score_kind: str, scores: Array, rows: slice
) -> Array:
    """Return the gradient of cross-entropy plus the weighted divergence from probabilities `before` `(n, classes)`."""
    now = 0.0 if score_kind == "log-probabilities" else probabilities(scores)
    pull = anchors[rows, None] * (now - before[rows])
    return np.asarray(labels(scores, rows) + pull, scores.dtype)
