"""A whole backend in one file: one dense layer, kept in a text file with a row of numbers for each class.

It defines the abstract operations and nothing else; `cut` and `trace` are the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from arachne.errors import DataError, ModelError
from arachne.model.backend import LossGradient, ModelBackend, Weights, compute_gradient
from arachne.model.values import Activation, Array, Description, Inputs, LayerInfo, ParameterInfo, count


class TallyBackend(ModelBackend):
    """Scores are weighted sums of the inputs."""

    NAME = "tally"
    SUFFIXES = (".tally",)

    def __init__(self, weight: Array, source: str | None = None) -> None:
        self._weight = np.array(weight, np.float32)
        self._source = source

    @classmethod
    def load(
        cls,
        source: Any,
        *,
        weights: Path | None = None,
        device: str | None = None,
        output: str | None = None,
        trust_code: bool = False,
    ) -> Self:
        try:
            weight = np.array([[float(n) for n in line.split()] for line in Path(source).read_text().splitlines()])
        except ValueError as error:
            raise ModelError(f"'{Path(source).name}' should hold rows of numbers: {error}") from error
        if weight.ndim != 2:
            raise ModelError(f"'{Path(source).name}' should hold one row of numbers for each class")
        return cls(weight, str(source))

    @property
    def layers(self) -> Sequence[LayerInfo]:
        return (LayerInfo("tally", "dense", {"weight": ParameterInfo(self._weight.shape)}, followed_by=()),)

    def _get_weights(self, layer: str) -> Mapping[str, Array]:
        return {"weight": self._weight.copy()}

    def _set_weights(self, layer: str, parameter: str, values: Array) -> None:
        self._weight[...] = values

    def _forward(self, inputs: Inputs) -> Array:
        return np.asarray(self._check_inputs(inputs) @ self._weight.T)

    def _activations(self, inputs: Inputs, layer: str) -> tuple[Activation, ...]:
        return (Activation({"weight": self._check_inputs(inputs)}, self.forward(inputs)),)

    def _weight_gradients(self, inputs: Inputs, loss: LossGradient, parameters: Sequence[tuple[str, str]]) -> Weights:
        gradient = compute_gradient(loss, self.forward(inputs), slice(0, count(inputs)))
        return {place: gradient.T @ self._check_inputs(inputs) for place in parameters}

    def _output_gradients(self, inputs: Inputs, layer: str, seed: Array) -> tuple[Array, ...]:
        return (seed.copy(),)

    def save(self, path: Path) -> None:
        path.write_text("\n".join(" ".join(repr(float(value)) for value in row) for row in self._weight))

    def describe(self) -> Description:
        return Description("tally", "none", "tally", "cpu", self.score_kind, self._source)

    def _check_inputs(self, inputs: Inputs) -> Array:
        if isinstance(inputs, Mapping):
            raise DataError("the model takes one array, got a mapping")
        if inputs.dtype.kind not in "biuf":
            raise DataError(f"inputs should be numbers, got {inputs.dtype}")
        if inputs.ndim != 2 or inputs.shape[1] != self._weight.shape[1]:
            raise DataError(f"inputs should be of shape (n, {self._weight.shape[1]}), got {inputs.shape}")
        return inputs.astype(np.float32)
