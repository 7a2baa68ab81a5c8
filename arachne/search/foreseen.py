"""What a patched model says, foreseen from what was kept of the original's passes and confirmed where it matters.

A patch in the dense tail of a model changes nothing before it, so its scores follow from what entered the tail; the
scores of a patch elsewhere follow from a cut, where there is one already. They are computed here in another order of
sums, or in other batches, than in a pass of the whole model. Therefore the patched model itself runs over every input
whose two best scores lie close together, and over every input whose class changes; should it disagree on any of the
latter, it runs over all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from arachne.backend import ModelBackend
from arachne.data.split import Part, Split
from arachne.evidence.evidence import parts_of
from arachne.search.dense_tunable import DenseTunable
from arachne.search.tail_inputs import TailInputs
from arachne.search.tunable import BehindCut, Cuts, Tunable
from arachne.suspects import Suspects
from arachne.values import Address, Array, take

CLOSE = 1e-3
"""Two scores are close when they differ by less than this share of the largest score's magnitude, plus one."""

EXACT = ("float32", "float64")
"""Weights whose products a framework sums in float32 at least."""


def foresee(
    backend: ModelBackend,
    split: Split,
    addresses: Sequence[Address],
    values: Array,
    cuts: Mapping[Part, Cuts] | None = None,
) -> Callable[[Part], Array | None]:
    """What the model will say of a part with these weights in it, `(n, classes)`; None where only a pass can tell.

    Called while the model has its own weights. `cuts` are those that were made for other purposes, by their parts.
    """
    cuts = cuts or {}
    suspects = Suspects.of(backend, addresses)
    place = {address: number for number, address in enumerate(addresses)}
    ordered = np.asarray(values)[[place[address] for address in suspects.addresses]]
    found = [(part, _expected(backend, part, suspects, ordered, cuts.get(part))) for part in parts_of(split)]
    return lambda wanted: next((scores for part, scores in found if part is wanted), None)


def confirmed(backend: ModelBackend, part: Part, expected: Array | None) -> Array:
    """The scores of a part, `(n, classes)`, by the model as it is now.

    Args:
        backend: The patched model.
        part: The part.
        expected: What was foreseen; None lets the model run over all inputs.
    """
    if expected is None:
        return backend.forward(part.data.inputs)
    moved = np.argmax(expected, axis=1) != part.predictions
    asked = np.flatnonzero(moved | _close(expected))
    if not len(asked):
        return expected
    scores = backend.forward(take(part.data.inputs, asked))
    surely = ~_close(expected[asked])
    if np.any(np.argmax(scores, axis=1)[surely] != np.argmax(expected[asked], axis=1)[surely]):
        return backend.forward(part.data.inputs)
    expected = expected.copy()
    expected[asked] = scores
    return expected


def _expected(backend: ModelBackend, part: Part, suspects: Suspects, values: Array, cuts: Cuts | None) -> Array | None:
    if not len(part) or not len(suspects) or not set(suspects.dtypes) <= set(EXACT):
        return None
    tunable: Tunable | None = None
    if isinstance(part.kept, TailInputs):
        tunable = DenseTunable.of(backend, suspects, part.kept)
    if tunable is None and cuts is not None and cuts.saves(suspects.layers):
        tunable = BehindCut(backend, cuts, suspects)
    if tunable is None:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        scores = tunable.scores(values, np.arange(len(part)))
    return scores if np.isfinite(scores).all() else None


def _close(scores: Array) -> Array:
    """Which rows have their two best scores close together, bool `(n,)`."""
    if scores.shape[1] < 2:
        return np.ones(len(scores), bool)
    best = np.partition(scores, -2, axis=1)[:, -2:]
    return np.asarray(best[:, 1] - best[:, 0] < CLOSE * (1 + np.abs(scores).max(axis=1)))
