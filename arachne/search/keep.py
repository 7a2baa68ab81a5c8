"""Keep: gradient steps that move the negatives over the border and keep the positives where they are.

With margin the score of the true class minus the best other, margin_0 the original's, and unit the median margin_0 of
the positives, the loss of a step is

    (mean over negatives of relu(TARGET unit - margin) / unit
     + lambda * STIFFNESS * mean over positives of relu(min(margin_0, GUARD unit) - margin) / unit) / (1 + lambda)

A positive costs nothing while its margin is above its guard. lambda falls from FIRM to LOOSE along the path, so its
points lead from "break nothing" to "repair whatever it takes".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile

import numpy as np

from arachne.backend import Pull
from arachne.errors import UsageError
from arachne.localise.contrast import Contrast
from arachne.localise.fisher import Fisher
from arachne.localise.ranked import deep_layers
from arachne.losses import margins
from arachne.options import option
from arachne.search.base import Problem
from arachne.search.folds import Batch
from arachne.search.gradient import EVERY, GradientSearch
from arachne.suspects import Suspects
from arachne.values import Address, Array, LayerInfo

TARGET, GUARD, STIFFNESS = 0.2, 0.5, 10.0
FIRM, LOOSE = 300.0, 0.03
MOST_WORDS = 2
"""How many words' vectors are searched: those that the mistake depends on most."""

WIDE = 50
"""Hidden layers are wide when they have this many times the weights that `wide` may change."""


@dataclass(frozen=True, kw_only=True)
class Keep(GradientSearch):
    """Margins of the negatives up, those of the positives not below their guard."""

    name = "keep"

    def pull(self, problem: Problem, batch: Batch, progress: float) -> Pull:
        unit = problem.unit
        stiffness = FIRM * (LOOSE / FIRM) ** progress
        guards = np.minimum(margins(batch.before, batch.labels), GUARD * unit)
        wanted = np.where(batch.negative, TARGET * unit, guards)
        weights = np.where(batch.negative, 1.0, stiffness * STIFFNESS) * batch.shares / (unit * (1 + stiffness))
        return partial(_short_of, batch.labels, wanted, weights)


def _short_of(labels: Array, wanted: Array, weights: Array, scores: Array, rows: slice) -> Array:
    """A `Pull`: margins below what is wanted, times what each input counts, `(n,)` all three."""
    each, own, others = np.arange(len(scores)), labels[rows], scores.copy()
    others[each, own] = -np.inf
    rivals = np.argmax(others, axis=1)
    short = scores[each, own] - others[each, rivals] < wanted[rows]
    gradient = np.zeros_like(scores)
    gradient[each, rivals] = short * weights[rows]
    gradient[each, own] = -gradient[each, rivals]
    return gradient


@dataclass(frozen=True, kw_only=True)
class KeepHidden(Keep):
    """Keep on the hidden dense layers alone: a cause that the last layer only passes on is cut out where it enters."""

    name = "hidden"

    def over(self, problem: Problem) -> Problem:
        return problem.elsewhere("hidden layers", lambda: _hidden(problem))


@dataclass(frozen=True, kw_only=True)
class KeepDeep(Keep):
    """Keep on the last convolutions or recurrent layers, where textures, stickers and sensors leave their traces.

    Every step runs all that lies behind the first of these layers, so there are fewer and smaller ones.
    """

    name = "deep"

    steps: int = option(64, "Gradient steps of each run.", least=EVERY)
    folds: int = option(3, "Runs, each over all seen inputs but a share of them.", least=2)

    def over(self, problem: Problem) -> Problem:
        return problem.elsewhere("deep layers", lambda: _deep(problem))


def _deep(problem: Problem) -> Suspects:
    """The weights with the largest contrast in the last layers that are not dense."""
    layers = deep_layers(problem.backend.layers)
    if not layers:
        raise UsageError("the model has no convolution or recurrent layer")
    return _in_layers(problem, [info.name for info in layers])


@dataclass(frozen=True, kw_only=True)
class KeepWords(KeepDeep):
    """Keep on the vectors of words: where one word makes the mistake, its own vector is what is wrong."""

    name = "words"

    steps: int = option(128, "Gradient steps of each run.", least=EVERY)
    step_size: str = option("deviation", "What a step is measured in.", choices=("influence", "deviation"))

    def over(self, problem: Problem) -> Problem:
        return problem.elsewhere("embeddings", lambda: _words(problem))

    def at_the_start(self, problem: Problem, scale: Array) -> dict[str, Array]:
        """At the mean of all words' vectors: where a word decides alone, no slope leads away from its own."""
        start = super().at_the_start(problem, scale)
        addresses = problem.suspects.addresses
        table = problem.backend.get_weights(addresses[0].layer)["weight"]
        means = table.mean(axis=0)[[address.index[1] for address in addresses]]
        start["change"] = np.divide(means - problem.suspects.values, scale, out=start["change"], where=scale > 0)
        return start


def _words(problem: Problem) -> Suspects:
    """The whole vectors of the words with the largest contrast, in the longest table; shorter ones are of positions."""
    tables = [info for info in problem.backend.layers if info.kind == "embedding"]
    if not tables:
        raise UsageError("the model has no vectors of words")
    name = max(tables, key=lambda info: info.parameters["weight"].shape[0]).name
    scores = Contrast(include=(name,)).scores(problem.backend, problem.split.seen, rng=np.random.default_rng(0))
    vectors = scores[name, "weight"]
    words = np.sort(np.argsort(-vectors.sum(axis=1), kind="stable")[:MOST_WORDS])
    places = ((word, column) for word in words.tolist() for column in range(vectors.shape[1]))
    return Suspects.of(problem.backend, [Address(name, "weight", place) for place in places])


@dataclass(frozen=True, kw_only=True)
class KeepSparing(Keep):
    """Keep on the weights that the Fisher ratio ranks first: those that do little to the positives."""

    name = "sparing"

    def over(self, problem: Problem) -> Problem:
        return problem.elsewhere("sparing", lambda: _sparing(problem))


@dataclass(frozen=True, kw_only=True)
class KeepWide(Keep):
    """Keep on many more weights of wide hidden layers, in which a sticker or a trigger is spread over many.

    A step there costs more, so there are fewer and smaller ones.

    Attributes:
        wide_weights: How many weights it may change.
    """

    name = "wide"

    steps: int = option(64, "Gradient steps of each run.", least=EVERY)
    folds: int = option(3, "Runs, each over all seen inputs but a share of them.", least=2)
    batch: int = option(400, "Negatives, and positives, that one step looks at.", least=1)
    wide_weights: int = option(3000, "Weights of wide hidden layers it may change.", least=1)

    def over(self, problem: Problem) -> Problem:
        return problem.elsewhere(f"wide {self.wide_weights}", lambda: _wide(problem, self.wide_weights))


def _wide(problem: Problem, weights: int) -> Suspects:
    """The weights with the largest contrast in wide hidden layers."""
    layers = _hidden_layers(problem)
    there = sum(info.parameters["weight"].size for info in layers)
    if there < WIDE * weights:
        raise UsageError(
            f"the hidden dense layers have {there:,} weights, too few for a search over {weights:,} of them to differ"
        )
    return _in_layers(problem, [info.name for info in layers], weights)


def _sparing(problem: Problem) -> Suspects:
    return Fisher().localise(problem.backend, problem.split.seen, rng=np.random.default_rng(0)).suspects


def _hidden(problem: Problem) -> Suspects:
    """The weights with the largest contrast in the dense layers before the last."""
    return _in_layers(problem, [info.name for info in _hidden_layers(problem)])


def _hidden_layers(problem: Problem) -> list[LayerInfo]:
    tail = list(takewhile(lambda info: info.kind == "dense", reversed(problem.backend.layers)))[1:]
    if not tail:
        raise UsageError("the model has no hidden dense layer in front of its last one")
    return tail


def _in_layers(problem: Problem, layers: Sequence[str], count: int | None = None) -> Suspects:
    """The weights with the largest contrast in these layers."""
    localiser = Contrast(include=tuple(layers), count=count)
    return localiser.localise(problem.backend, problem.split.seen, rng=np.random.default_rng(0)).suspects
