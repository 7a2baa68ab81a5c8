"""Members that train on: gradient steps on every weight of every layer, held near the original model.

`tune@anchored` trains on as one would by hand, by cross-entropy, and is anchored to the original by divergence. With p
the softmax of scores and p_0 that of the original, the loss of a step is

    mean over all inputs of w CE(p, label) + w ANCHOR KL(p_0 | p) over those that are right

where w is 1 for inputs that are right, and grows from 1 to LAST_BOOST along the path for negatives. It breaks some
inputs and puts others right, which is what `--max-drop` allows: there it trains on all errors, and w grows to
BALANCED_BOOST. With a fairness objective the loss has its cost too, with a weight that grows from 0 to FAIR; negatives
then count as other inputs do, and w is a little larger the rarer a class is, so that fairness is not bought from the
inputs of a rare class.

`tune@training` first trains on training inputs alone, once for all folds: seen inputs judge these points and have no
part in them. From there every run goes on as above, with training inputs in every step: half of them drawn from all,
half from those whose scores are nearest to a negative's.

Both are cross-fitted; points differ in how long they train, and in how far they go from the original towards what was
trained. The last point of `tune@anchored` goes beyond it, twice as far: this costs no step, and is what a large budget
is spent on. Steps become shorter towards the end, so that what the last inputs drawn had to say does not stay in the
patch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Self, get_args

import numpy as np
from scipy.special import expit

from arachne.data.labelled import LabelledData
from arachne.data.part import TermKind
from arachne.decisions.losses import cross_entropy, probabilities
from arachne.errors import UsageError
from arachne.model.backend import LossGradient
from arachne.model.values import Array, take
from arachne.plugins.options import option
from arachne.scoring.cut import Cuts
from arachne.scoring.dense_tail import make_scorer
from arachne.search.effort import share_of_rows
from arachne.search.folds import Batch
from arachne.search.gradient import (
    CARRIED_ARRAYS,
    MAX_BATCH_BEHIND_CUT,
    MAX_PACE,
    MIN_STEPS,
    GradientSearch,
    stay_in_range,
)
from arachne.search.problem import Problem
from arachne.search.state import SearchState
from arachne.search.weight_choice import CHOICES
from arachne.tasks import best_others, margins

ANCHOR, LAST_BOOST, BALANCED_BOOST = 1.0, 10.0, 3.0
"""The weight of the divergence from the original, and that of a negative at the end of the path.

Where accuracy is limited and not what breaks, a negative has `BALANCED_BOOST` there: other errors are worth repairing
too.
"""

ALONE_POINTS = 2
"""Points of the path that training inputs alone lead to."""

FAIR, FAIR_MARGIN, RARITY = 2.0, 0.25, 0.25
"""The weight of a fairness objective at the end of the path; over which share of the unit of margins an input becomes
right in its loss; and by which power of its frequency an input of a rare class then weighs more."""

NEAREST = 20
"""How many training inputs count as near to a negative."""


@dataclass(frozen=True, kw_only=True)
class TuneAnchored(GradientSearch):
    """Fine-tuning of every weight of every layer that may change, anchored to the original by divergence.

    Attributes:
        beyond: How many times as far as it trained the last point goes. With a fairness objective it goes no further:
            what makes groups even, doubled, makes them uneven the other way.
    """

    name = "tune@anchored"

    USES_ALPHA = False
    CHANGES_MATRICES = True
    KEPT_BY_THE_MEAN: ClassVar[float] = 0.6
    STEPS_PER_POINT: ClassVar[int] = 64
    TRAINS_OTHERS = True

    steps: int = option(192, "Gradient steps of each run.", least=MIN_STEPS)
    folds: int = option(3, "Runs, each over all seen inputs but a share of them.", least=2)
    pace: float = option(2.0, "How much longer than usual a step is.", least=0.01, most=100.0)
    beyond: float = option(2.0, "How many times as far as trained the last point goes.", least=1.0)

    @property
    def points(self) -> int:
        return super().points + (self.beyond > 1)

    def within(self, problem: Problem, most: float) -> Self | None:
        """Return the search with fewer passes; it goes no further than it trained before it takes fewer steps."""
        near = replace(self, beyond=1.0)
        return near if near.passes(problem) <= most else super(TuneAnchored, near).within(problem, most)

    def begin(self, problem: Problem, *, rng: np.random.Generator) -> SearchState:
        if not problem.fitness_inputs.task.ONE_LABEL:
            raise UsageError("this search trains on one label for each input")
        return super().begin(problem, rng=rng)

    def advance(
        self, problem: Problem, state: SearchState, fold: int, point: int, *, rng: np.random.Generator
    ) -> tuple[dict[str, Array], int]:
        """Take the next steps; after the last of them, go as far again without any."""
        if point < super().points:
            return super().advance(problem, state, fold, point, rng=rng)
        carried = {name: state.arrays[name].copy() for name in CARRIED_ARRAYS}
        carried["change"] *= 1.0 if self._is_fair(problem) else self.beyond
        return carried, 0

    def length(self, progress: float) -> float:
        return (1 + math.cos(math.pi * progress)) / 2

    def select_weights(self, problem: Problem) -> Problem:
        return problem.with_selection("all", lambda: CHOICES["all"](problem))

    def loss_gradient(self, problem: Problem, batch: Batch, progress: float) -> LossGradient:
        inputs = problem.fitness_inputs
        weights = batch.shares.copy()
        for kind in get_args(TermKind):
            weights[inputs.of_kind(kind)[batch.rows]] *= inputs.of_kind(kind).sum()
        if self._is_fair(problem):
            weights *= np.bincount(inputs.labels)[batch.labels] ** -RARITY
        else:
            weights[batch.negative] *= (BALANCED_BOOST if problem.counts_others else LAST_BOOST) ** progress
        weights /= weights.sum()
        wrong = batch.negative | inputs.of_kind("other")[batch.rows]
        anchors = np.where(wrong, 0.0, ANCHOR * weights)
        labels = cross_entropy(batch.labels, weights, score_kind=problem.backend.score_kind)
        return partial(_pull_back, labels, probabilities(batch.before), anchors, problem.backend.score_kind)

    def gradient(
        self, problem: Problem, values: Array, batch: Batch, progress: float, *, rng: np.random.Generator
    ) -> Array:
        """Return the gradient of one step's loss, float64 `(k,)`; a fairness objective is a part of it."""
        loss = self.loss_gradient(problem, batch, progress)
        if self._is_fair(problem):
            loss = partial(_add, loss, _fairness_loss(problem, values, batch, FAIR * progress))
        return problem.scorer.gradients(values, loss, batch.rows)

    def _is_fair(self, problem: Problem) -> bool:
        """Tell whether a fairness objective is a part of the loss: that of training inputs knows no groups."""
        return problem.has_objective and not self.NEEDS_TRAINING


@dataclass(frozen=True, kw_only=True)
class TuneTraining(TuneAnchored):
    """Training on with training inputs alone, then anchored fine-tuning with them, many of them near the negatives.

    Attributes:
        alone: Steps on training inputs alone, from which every run goes on.
        drawn: Training inputs that one of these steps looks at.
    """

    name = "tune@training"

    USES_TRAINING = True
    NEEDS_TRAINING = True
    NEEDS_SINGLE_LABEL = True
    DRAWS_ALIKE = False
    KEPT_BY_THE_MEAN: ClassVar[float] = 1.0

    alone: int = option(1536, "Gradient steps on training inputs alone.", least=ALONE_POINTS)
    drawn: int = option(128, "Training inputs that one of these steps looks at.", least=1)
    steps: int = option(64, "Gradient steps of each run.", least=MIN_STEPS)
    beyond: float = option(1.0, "How many times as far as trained the last point goes.", least=1.0)

    @property
    def points(self) -> int:
        return ALONE_POINTS + super().points

    def passes(self, problem: Problem) -> float:
        near, alone = len(_training_of(problem)), 2 * self.alone * self.drawn
        beside = 2 * self.folds * self.steps * share_of_rows(problem, MAX_BATCH_BEHIND_CUT)
        return super().passes(problem) + (near + alone) / len(problem.split.seen) + beside

    def within(self, problem: Problem, most: float) -> Self | None:
        for share in (1.0, 0.75, 0.5, 0.25, 0.125):
            pace = self.pace * min(MAX_PACE, 1 / share) ** 0.5
            fewer = replace(
                self, alone=int(share * self.alone), steps=max(MIN_STEPS, int(share * self.steps)), pace=pace
            )
            if fewer.passes(problem) <= most:
                return fewer
        return None

    def begin(self, problem: Problem, *, rng: np.random.Generator) -> SearchState:
        _training_of(problem)
        if not problem.fitness_inputs.task.SINGLE:
            raise UsageError("this search trains on training inputs with one label and a score for each class")
        return super().begin(problem, rng=rng)

    def advance(
        self, problem: Problem, state: SearchState, fold: int, point: int, *, rng: np.random.Generator
    ) -> tuple[dict[str, Array], int]:
        """Train on training inputs alone in the first run; other runs start from its weights."""
        if point >= ALONE_POINTS:
            return super().advance(problem, state, fold, point - ALONE_POINTS, rng=rng)
        if fold:
            carried = self.initial(problem, state.arrays["scale"])
            return {**carried, "change": state.arrays["path"][point] * (self.folds / fold)}, 0
        carried = {name: state.arrays[name].copy() for name in CARRIED_ARRAYS}
        numbers = range(point * self.alone // ALONE_POINTS, (point + 1) * self.alone // ALONE_POINTS)
        for number in numbers:
            values = problem.suspects.values + carried["change"] * state.arrays["scale"]
            rows = rng.choice(len(_training_of(problem)), self.drawn)
            slope = _training_gradient(problem, values, rows) * state.arrays["scale"]
            self.take_step(carried, slope, number, number / max(1, self.alone - 1))
            stay_in_range(problem.suspects, carried["change"], state.arrays["scale"])
        if point == ALONE_POINTS - 1:  # the runs go on with moments of their own
            carried = {**self.initial(problem, state.arrays["scale"]), "change": carried["change"]}
        return carried, len(numbers)

    def gradient(
        self, problem: Problem, values: Array, batch: Batch, progress: float, *, rng: np.random.Generator
    ) -> Array:
        """Return the mean of the gradients over seen and over training inputs, float64 `(k,)`."""
        own = super().gradient(problem, values, batch, progress, rng=rng)
        near, count = _near_negatives(problem), len(_training_of(problem))
        size = min(count, len(batch.rows))
        rows = np.concatenate([rng.choice(near, size // 2), rng.choice(count, size - size // 2)])
        return (own + _training_gradient(problem, values, rows)) / 2


def _training_of(problem: Problem) -> LabelledData:
    if problem.training is None:
        raise UsageError("there are no training inputs")
    return problem.training


def _training_gradient(problem: Problem, values: Array, rows: Array) -> Array:
    """Return the gradient of the cross-entropy of some training inputs, float64 `(k,)`."""
    training = _training_of(problem)
    inputs = take(training.inputs, rows)
    scorer = make_scorer(problem.backend, inputs, problem.suspects, None, (Cuts(problem.backend, inputs), None))
    loss = cross_entropy(training.labels[rows], score_kind=problem.backend.score_kind)
    return scorer.gradients(values, loss, np.arange(len(rows)))


def _near_negatives(problem: Problem) -> Array:
    """Return the training inputs whose scores are nearest to those of a negative, each once, int64 `(n,)`."""
    if "training near negatives" not in problem.shared:
        scores = problem.backend.forward(_training_of(problem).inputs)
        found = []
        for wanted in problem.original_scores[problem.fitness_inputs.of_kind("negative")]:
            distances = np.square(scores - wanted).sum(axis=1)
            found.append(np.argsort(distances, kind="stable")[:NEAREST])
        problem.shared["training near negatives"] = np.unique(np.concatenate(found))
    near: Array = problem.shared["training near negatives"]
    return near


def _fairness_loss(problem: Problem, values: Array, batch: Batch, weight: float) -> LossGradient:
    """Return the gradient of a fairness objective's cost over a batch, where an input is right by degrees.

    An input counts as the logistic function of its margin. The counts of the batch stand for those of all inputs; how
    the cost changes with each count is the same for all inputs of a group and class.
    """
    inputs, rows = problem.fitness_inputs, batch.rows
    unit = FAIR_MARGIN * problem.margin_unit
    right = expit(margins(problem.scorer.scores(values, rows), batch.labels) / unit)
    worth = batch.shares.copy()
    for kind in get_args(TermKind):
        worth[inputs.of_kind(kind)[rows]] *= inputs.of_kind(kind).sum()
    pulls = weight * worth * problem.objective_slopes(right, worth, rows) / unit
    return partial(_become_right, batch.labels, pulls, unit)


def _become_right(labels: Array, pulls: Array, unit: float, scores: Array, rows: slice) -> Array:
    """Return the gradient of the sum of `pulls` `(n,)` times the logistic functions of margins."""
    own, each = labels[rows], np.arange(len(scores))
    rivals, right = best_others(scores, own), expit(margins(scores, own) / unit)
    gradient = np.zeros_like(scores)
    gradient[each, own] = pulls[rows] * right * (1 - right)
    gradient[each, rivals] = -gradient[each, own]
    return gradient


def _add(first: LossGradient, second: LossGradient, scores: Array, rows: slice) -> Array:
    return np.asarray(first(scores, rows) + second(scores, rows), scores.dtype)


def _pull_back(
    labels: LossGradient, before: Array, anchors: Array, score_kind: str, scores: Array, rows: slice
) -> Array:
    """Return the gradient of cross-entropy plus the weighted divergence from probabilities `before` `(n, classes)`."""
    now = 0.0 if score_kind == "log-probabilities" else probabilities(scores)
    pull = anchors[rows, None] * (now - before[rows])
    return np.asarray(labels(scores, rows) + pull, scores.dtype)
