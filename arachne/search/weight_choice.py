"""Selections of weights for searches that do not use the suspects: by kind of layer, or by another ranking.

Each is a function from the problem to the weights that the search may change. All of them respect the layers that the
user allows, and raise an error if the model has no layer of the kind, or none that is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from glob import escape
from itertools import takewhile

import numpy as np

from arachne.errors import UsageError
from arachne.localise.contrast import Contrast
from arachne.localise.fisher import Fisher
from arachne.localise.ranked import deep_layers
from arachne.model.values import LayerInfo
from arachne.search.problem import Problem
from arachne.weights.selection import Selection

MAX_EMBEDDING_ROWS = 2
"""How many rows of an embedding are searched: the ones that the mistake depends on most."""

TRAINED_KINDS = ("dense", "conv", "recurrent")
"""The kinds of layers that are trained on; normalisation stays as it is."""

WIDE_FACTOR = 50
"""Hidden layers are wide when they have this many times the weights that the search may change."""


def hidden_layers(problem: Problem) -> Selection:
    """Choose the weights with the largest contrast in the dense layers before the last."""
    return _largest_contrast(problem, hidden_dense(problem))


def wide_hidden_layers(problem: Problem, count: int) -> Selection:
    """Choose `count` weights with the largest contrast in wide hidden dense layers."""
    layers = hidden_dense(problem)
    there = sum(info.parameters["weight"].size for info in layers)
    if there < WIDE_FACTOR * count:
        raise UsageError(
            f"the hidden dense layers have {there:,} weights, too few for a search over {count:,} of them to differ"
        )
    return _largest_contrast(problem, layers, count)


def last_convolutions(problem: Problem) -> Selection:
    """Choose the weights with the largest contrast in the last convolutions or recurrent layers."""
    layers = deep_layers(problem.backend.layers)
    if not layers:
        raise UsageError("the model has no convolution or recurrent layer")
    return _largest_contrast(problem, problem.allowed_layers(layers, "the last convolutions or recurrent layers"))


def embedding_rows(problem: Problem) -> Selection:
    """Choose whole rows with the largest contrast in the longest embedding; shorter embeddings encode positions."""
    tables = [info for info in problem.backend.layers if info.kind == "embedding"]
    if not tables:
        raise UsageError("the model has no vectors of words")
    tables = problem.allowed_layers(tables, "the embeddings")
    name = max(tables, key=lambda info: info.parameters["weight"].shape[0]).name
    localiser = Contrast(include=(escape(name),))
    vectors = localiser.scores(problem.backend, problem.split.seen, rng=np.random.default_rng(0))[name, "weight"]
    rows = np.sort(np.argsort(-vectors.sum(axis=1), kind="stable")[:MAX_EMBEDDING_ROWS])
    width = vectors.shape[1]
    return Selection.at(problem.backend, {(name, "weight"): np.add.outer(rows * width, np.arange(width)).ravel()})


def by_fisher_ratio(problem: Problem) -> Selection:
    """Choose the weights that the Fisher ratio ranks first: the ones that do little to the positives."""
    return _fisher(problem).localise(problem.backend, problem.split.seen, rng=np.random.default_rng(0)).suspects


def fisher_layers(problem: Problem) -> list[str]:
    """Return the names of the layers in which the Fisher ratio is computed."""
    localiser, backend = _fisher(problem), problem.backend
    found = localiser.filter_by_depth(backend, problem.split.seen, localiser.layers(backend))
    return [info.name for info in found]


def _fisher(problem: Problem) -> Fisher:
    allowed = problem.allowed
    return Fisher(include=allowed.include, exclude=allowed.exclude, biases=allowed.biases)


def every_layer(problem: Problem) -> Selection:
    """Choose every weight of the dense, convolutional and recurrent layers that may change."""
    known = [info for info in problem.backend.layers if info.kind in TRAINED_KINDS and info.weights]
    if not known:
        raise UsageError("the model has no dense, convolutional or recurrent layer to train")
    layers = problem.allowed_layers(known, "all layers that can be trained")
    trained = [
        (one.name, name) for one in layers for name in (one.parameters if problem.allowed.biases else one.weights)
    ]
    return Selection.whole(problem.backend, trained)


def class_biases(problem: Problem) -> Selection:
    """Choose the biases of the last layer."""
    return last_layer(problem, ("bias",))


def last_layer(problem: Problem, parameters: tuple[str, ...] = ("weight", "bias")) -> Selection:
    """Choose every weight of these parameters of the last layer."""
    info = problem.backend.layers[-1]
    own = [name for name in parameters if name in info.parameters]
    if info.kind != "dense" or not own:
        raise UsageError(f"the last layer, '{info.name}', has no {' or '.join(parameters)} of a dense layer to change")
    problem.allowed_layers([info], f"the last layer, '{info.name}'")
    return Selection.whole(problem.backend, [(info.name, name) for name in own])


def hidden_dense(problem: Problem) -> list[LayerInfo]:
    """Return the dense layers before the last one that may change, the last first.

    Raises:
        UsageError: The model has none, or the user allows none.
    """
    tail = list(takewhile(lambda info: info.kind == "dense", reversed(problem.backend.layers)))[1:]
    if not tail:
        raise UsageError("the model has no hidden dense layer in front of its last one")
    return problem.allowed_layers(tail, "the hidden dense layers")


def _largest_contrast(problem: Problem, layers: Sequence[LayerInfo], count: int | None = None) -> Selection:
    names = tuple(escape(info.name) for info in layers)
    localiser = Contrast(include=names, count=count, biases=problem.allowed.biases)
    return localiser.localise(problem.backend, problem.split.seen, rng=np.random.default_rng(0)).suspects


CHOICES: dict[str, Callable[[Problem], Selection]] = {
    "all": every_layer,
    "class biases": class_biases,
    "conv": last_convolutions,
    "embeddings": embedding_rows,
    "fisher": by_fisher_ratio,
    "hidden": hidden_layers,
}
"""The selections by name, as in `margin@hidden`; `margin@wide` also has a number of weights."""
