"""Activations and gradients of the original model for decisions of a part.

They come from the cached activations of the model's one pass if these suffice, and from another pass otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from arachne.data.part import Part
from arachne.model.accumulate import observe_traces
from arachne.model.backend import ActivationAccumulator, LossGradient, ModelBackend, Seeds, Trace, Weights
from arachne.model.values import Array, take
from arachne.tasks import OutputGradient

MAX_TAIL_BYTES = 16 << 20
"""The bytes that a trace of cached activations may hold; sums depend on it, so that it does not depend on memory."""


def observe_part(
    backend: ModelBackend,
    part: Part,
    rows: Array,
    layers: Sequence[str],
    observer: ActivationAccumulator,
    seeds: Seeds | None = None,
) -> None:
    """Pass the activations and gradients of layers for some decisions to an observer, one input for each decision.

    Args:
        backend: The original model.
        part: The part.
        rows: Numbers of decisions of the part.
        layers: The layers.
        observer: The accumulator of activations and gradients.
        seeds: Returns d value / d scores `(rows, classes)` of a batch of the decisions; no gradients when None.
    """
    kept = part.cached_activations
    if not part.task.SINGLE:
        inputs = take(part.data.inputs, part.decisions.inputs[rows])
        backend.observe(inputs, layers, observer, None if seeds is None else partial(_pull_back, part, rows, seeds))
    elif kept is None or kept.trace(rows[:1], layers) is None:
        backend.observe(take(part.data.inputs, rows), layers, observer, seeds)
    else:
        tail = partial(_trace_some, backend, part, rows, layers)
        observe_traces(tail, len(rows), observer, seeds, most=MAX_TAIL_BYTES)


def weight_gradients_of(
    backend: ModelBackend, part: Part, rows: Array, loss_gradient: LossGradient, parameters: Sequence[tuple[str, str]]
) -> Weights:
    """Return the gradients of a loss over some decisions of a part, by `(layer, parameter)`."""
    if not part.task.SINGLE:
        asked, decisions = np.arange(len(rows)), part.choose_decisions(rows)
        inputs = decisions.inputs_of(asked)
        gradient = OutputGradient(decisions, loss_gradient, asked, inputs)
        return backend.weight_gradients(take(part.data.inputs, inputs), gradient, parameters)
    cache = part.cached_activations
    found = None if cache is None else cache.weight_gradients(rows, loss_gradient, parameters)
    return found or backend.weight_gradients(take(part.data.inputs, rows), loss_gradient, parameters)


def _trace_some(backend: ModelBackend, part: Part, rows: Array, layers: Sequence[str], some: slice) -> Trace:
    cache = part.cached_activations
    found = None if cache is None else cache.trace(rows[some], layers)
    return found or backend.trace(take(part.data.inputs, rows[some]), layers)


def _pull_back(part: Part, rows: Array, seeds: Seeds, batch: slice) -> Iterator[Array]:
    """Convert the seeds of a batch of decisions to seeds of their inputs' outputs, input by input."""
    own = part.choose_decisions(rows[batch])
    inputs, each = own.owners, np.arange(len(own))
    outputs, labels = part.outputs[inputs], part.data.labels[inputs]
    found = part.task.read(outputs, labels)
    ranks = own.numbers - np.searchsorted(own.inputs, inputs)
    positions = np.searchsorted(found.inputs, each) + ranks
    for seed in seeds(batch):
        gradient = np.zeros(found.scores.shape, np.float32)
        gradient[positions] = seed
        yield part.task.pull_back(gradient, outputs, labels)
