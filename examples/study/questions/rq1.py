"""RQ1: one weight is made faulty; where does it stand in the order of each localiser?

A weight whose gradient to the class scores is above average gets noise from N(0, 1), again and again, until 0.1 % of
the test set is read otherwise. Negatives are the inputs that are read otherwise now, positives all others; the labels
are what the network said before, so that exactly the negatives are wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import arachne
from arachne.data.part import Part
from arachne.data.run import whole_part
from arachne.localise import Contrast, Fisher, Spectrum
from arachne.model.backend import restoring_weights
from arachne.model.values import Address, Array
from examples.study.cases import open_network
from examples.study.questions.kept import Cell
from examples.study.questions.working import Question, Scope

SUBJECTS = ("fm-mlp", "c10-cnn", "gtsrb-cnn")
LOCALISERS = ("bl", "gl", "rs", "spectrum", "contrast", "fisher")
CHANGED = 0.001
"""The share of test inputs that must be read otherwise."""

MOST_DRAWS = 20
"""After so many draws without enough change another weight is taken."""

GRADIENT_INPUTS = 2000
"""From how many test inputs the gradient to the class scores is taken."""


def cells(scope: Scope) -> Iterator[Cell]:
    """One fault for each seed; all localisers rank the same one."""
    for subject in scope.of(SUBJECTS):
        yield from (Cell("rq1", subject, "ranks", "injected", seed) for seed in scope.seeds(30))


def make(cell: Cell) -> dict[str, Any]:
    """Inject a fault and rank all weights."""
    backend, data = open_network(cell.subject)
    rng = np.random.default_rng(cell.seed)
    parameters = [(info.name, name) for info in backend.layers for name in info.weights]
    before = backend.forward(data.inputs).argmax(axis=1)
    with restoring_weights(backend, parameters):
        address, draws = inject(backend, data, before, parameters, rng=rng)
        part = whole_part(backend, arachne.LabelledData(data.inputs, before, data.class_names), "*:*")
        found = ranks(backend, part, address, rng=rng)
    weights = sum(backend.info(layer).parameters[name].size for layer, name in parameters)
    return {
        "layer": address.layer,
        "draws": draws,
        "inputs": len(data),
        "changed": len(part.negatives),
        "weights": weights,
        "ranks": found,
        "auc": {name: round(1 - own / (weights - 1), 6) for name, own in found.items()},
    }


def inject(
    backend: arachne.ModelBackend,
    data: arachne.LabelledData,
    before: Array,
    parameters: list[tuple[str, str]],
    *,
    rng: np.random.Generator,
) -> tuple[Address, int]:
    """Make one weight faulty, and tell which, and how many draws it took."""
    inputs = data.take(np.sort(rng.choice(len(data), min(GRADIENT_INPUTS, len(data)), replace=False))).inputs
    steep = backend.weight_gradients(inputs, lambda scores, _: np.ones_like(scores), parameters)
    sizes = np.concatenate([np.abs(steep[place]).ravel() for place in parameters])
    starts = np.cumsum([0, *(steep[place].size for place in parameters)])
    able = np.flatnonzero(sizes > sizes.mean())
    while True:
        number = int(rng.choice(able))
        which = int(np.searchsorted(starts, number, side="right")) - 1
        layer, parameter = parameters[which]
        values = np.array(backend.get_weights(layer)[parameter])
        index = tuple(int(i) for i in np.unravel_index(number - starts[which], values.shape))
        original = values.copy()
        for draw in range(1, MOST_DRAWS + 1):
            values[index] += rng.standard_normal()
            backend.set_weights(layer, parameter, values)
            if np.mean(backend.forward(data.inputs).argmax(axis=1) != before) >= CHANGED:
                return Address(layer, parameter, index), draw
        backend.set_weights(layer, parameter, original)


def ranks(backend: arachne.ModelBackend, part: Part, address: Address, *, rng: np.random.Generator) -> dict[str, float]:
    """How many weights every localiser puts before the faulty one.

    Weights with the same score count half; those that a localiser does not score are last.
    """
    both = arachne.Bidirectional.faithful().localise(backend, part, rng=rng)
    losses = {(own.layer, own.parameter): own.gradient_loss for own in both.scores}
    row = _row({place: values.shape for place, values in losses.items()}, address)
    found = {
        "bl": float(np.flatnonzero(both.ranking == row)[0]),
        "gl": _rank(losses, address, both.n_candidates),
        "rs": float(rng.integers(both.n_candidates)),
    }
    for localiser in (Spectrum(), Contrast(depth="all"), Fisher(depth="all")):
        scores = dict(localiser.scores(backend, part, rng=rng))
        found[localiser.name] = _rank(scores, address, both.n_candidates)
    return found


def _rank(scores: dict[tuple[str, str], Array], address: Address, total: int) -> float:
    own = scores.get((address.layer, address.parameter))
    scored = sum(values.size for values in scores.values())
    if own is None:
        return scored + (total - scored - 1) / 2
    score = own[address.index]
    above = sum(int((values > score).sum()) for values in scores.values())
    equal = sum(int((values == score).sum()) for values in scores.values())
    return above + (equal - 1) / 2


def _row(shapes: dict[tuple[str, str], tuple[int, ...]], address: Address) -> int:
    """The number of a weight in the order of candidates."""
    start = 0
    for place, shape in shapes.items():
        if place == (address.layer, address.parameter):
            return start + int(np.ravel_multi_index(address.index, shape))
        start += int(np.prod(shape))
    raise KeyError(address)


RQ1 = Question("rq1", cells, make, recipe=2)
