"""Traces and cuts: the input or output of a layer is stored, and XLA drops everything before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from arachne.model.backend import Cut, LossGradient, Trace, Weights
from arachne.model.values import Array, Inputs, LayerInfo, count, take
from arachne_flax.batches import Model, activations
from arachne_flax.running import NOTHING, Values


class FlaxTrace(Trace):
    """Activations of several layers from one pass, and gradients of all of them from another for each seed."""

    def __init__(self, model: Model, weights: Values, inputs: Inputs, layers: Sequence[str]) -> None:
        self.n = count(inputs)
        self._model, self._weights, self._inputs = model, weights, inputs
        self.activations = {
            name: activations(uses) for name, uses in model.watch_layers(weights, inputs, tuple(layers)).items()
        }

    def _output_gradients(self, seed: Array) -> Mapping[str, tuple[Array, ...]]:
        return self._model.gradients_at_outputs(self._weights, self._inputs, seed, tuple(self.activations))


class FlaxCut(Cut):
    """A cut at the input and at the output of the first use of a layer."""

    def __init__(self, model: Model, weights: Values, inputs: Inputs, layers: Sequence[LayerInfo]) -> None:
        super().__init__(layers[0].name, layers)
        self._model, self._weights, self._inputs = model, dict(weights), inputs
        first = model.watch_layers(weights, inputs, (self.layer,))[self.layer][0]
        self._entering, self._leaving = first["value"], first["leaving"]

    def outputs(self, rows: Array | None = None) -> Array:
        """Return the layer's outputs at the time of the cut."""
        return np.array(self._leaving if rows is None else self._leaving[rows])

    def _scores_from_outputs(self, outputs: Array, rows: Array | None) -> Array:
        held = {**NOTHING, "leaving": {self.layer: outputs}}
        return self._model.scores(self._weights, self._rows(self._inputs, rows), held)

    def _scores_with(self, weights: Weights, rows: Array | None) -> Array:
        return self._model.scores(self._with(weights), self._rows(self._inputs, rows), self._held_inputs(rows))

    def _weight_gradients(self, weights: Weights, loss: LossGradient, rows: Array | None) -> Weights:
        of = [place for place in self._weights if place[0] in self.layers]
        return self._model.gradients(
            self._with(weights), of, self._rows(self._inputs, rows), loss, self._held_inputs(rows)
        )

    def _with(self, weights: Weights) -> Values:
        return {**self._weights, **{place: self._model.put(np.asarray(v, np.float32)) for place, v in weights.items()}}

    def _held_inputs(self, rows: Array | None) -> Mapping[str, Mapping[str, Array]]:
        return {**NOTHING, "entering": {self.layer: self._rows(self._entering, rows)}}

    def _rows(self, values: Inputs, rows: Array | None) -> Inputs:
        return values if rows is None else take(values, rows)
