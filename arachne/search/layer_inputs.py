"""The inputs of a dense layer, one row for each fitness input, from one pass of the original model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne.model.sharding import read_shards
from arachne.model.values import Array, Inputs, batches, count
from arachne.scoring.tail_cache import TAIL_BATCH
from arachne.search.base import Problem


@dataclass(frozen=True, eq=False)
class LayerInputs:
    """The inputs of a dense layer.

    Attributes:
        means: One row for each input `(inputs, n)`: the mean over positions where the layer works on several, such as
            the words of a text.
        samples: One position of each input `(inputs, n)`, each position in turn; the same array where there is one.
    """

    means: Array
    samples: Array


def read_layer_inputs(problem: Problem, layer: str) -> LayerInputs:
    """Take what enters a layer from the model's dense tail, where it lies there, or from one pass."""
    if problem.tail is not None and layer in problem.tail:
        entering = problem.tail.entering(layer)
        return LayerInputs(entering, entering)
    return _observe(problem, problem.fitness_inputs.inputs, layer)


def project(rows: Array, vectors: Array) -> Array:
    """How far each row `(inputs, n)` goes along each vector `(k, n)`, float32 `(k, inputs)`."""
    found = np.zeros((len(vectors), len(rows)), np.float32)
    for part in batches(len(rows), TAIL_BATCH):
        found[:, part] = vectors @ np.asarray(rows[part]).T
    return found


def _observe(problem: Problem, inputs: Inputs, layer: str) -> LayerInputs:
    """Run the model up to a layer; what enters the transpose of its weight, in a tied decoder, is left out."""
    width = problem.backend.info(layer).parameters["weight"].shape[1]
    means, samples = np.zeros((2, count(inputs), width), np.float32)
    for rows, piece in read_shards(inputs):
        uses = [use for use in problem.backend.activations(piece, layer) if not use.transposed]
        if not uses:
            break
        entering = np.concatenate([use.entering["weight"].reshape(count(piece), -1, width) for use in uses], axis=1)
        each = np.arange(len(entering))
        means[rows] = entering.mean(axis=1)
        samples[rows] = entering[each, (rows.start + each) % entering.shape[1]]
    return LayerInputs(means, samples)
