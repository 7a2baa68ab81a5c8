"""A whole backend in one file: dense layers with a relu between them, kept in a `.stack` file, which is an npz.

It defines the abstract operations; `trace` and `cut` are the slow, correct defaults. The layers are `dense1`, `dense2`
and so on, with a `weight` `(out, in)` and a `bias` `(out,)`, as the canonical layout wants them.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from arachne.errors import DataError, ModelError
from arachne.model.backend import LossGradient, ModelBackend, Weights, compute_gradient
from arachne.model.values import Activation, Array, Description, Inputs, LayerInfo, ParameterInfo, count

Layers = dict[str, dict[str, Array]]


class StackBackend(ModelBackend):
    """Dense layers with a relu between them.

    Args:
        layers: `weight` and `bias` of every layer, by its name, in order.
        source: The file they came from.
    """

    NAME = "stack"
    SUFFIXES = (".stack",)

    def __init__(self, layers: Mapping[str, Mapping[str, Array]], source: str | None = None) -> None:
        self._layers: Layers = {
            name: {parameter: np.array(values, np.float32) for parameter, values in parameters.items()}
            for name, parameters in layers.items()
        }
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
        layers: Layers = {}
        try:
            # A pickle could run code; and NumPy leaves a file open that it cannot read.
            with Path(source).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                for name in arrays.files:
                    layer, _, parameter = name.rpartition(".")
                    layers.setdefault(layer, {})[parameter] = arrays[name]
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise ModelError(f"'{Path(source).name}' is no stack of layers: {error}") from error
        for layer, parameters in layers.items():
            if set(parameters) != {"weight", "bias"} or not all(np.isfinite(v).all() for v in parameters.values()):
                raise ModelError(f"layer '{layer}' of '{Path(source).name}' should have a finite weight and bias")
        return cls(layers, str(source))

    @property
    def layers(self) -> Sequence[LayerInfo]:
        last = list(self._layers)[-1]
        return [
            LayerInfo(
                name,
                "dense",
                {parameter: ParameterInfo(values.shape) for parameter, values in parameters.items()},
                followed_by=() if name == last else ("relu",),
            )
            for name, parameters in self._layers.items()
        ]

    def _get_weights(self, layer: str) -> Mapping[str, Array]:
        return {parameter: values.copy() for parameter, values in self._layers[layer].items()}

    def _set_weights(self, layer: str, parameter: str, values: Array) -> None:
        self._layers[layer][parameter][...] = values

    def _forward(self, inputs: Inputs) -> Array:
        return list(self._run(inputs).values())[-1].leaving

    def _activations(self, inputs: Inputs, layer: str) -> tuple[Activation, ...]:
        return (self._run(inputs)[layer],)

    def _weight_gradients(self, inputs: Inputs, loss: LossGradient, parameters: Sequence[tuple[str, str]]) -> Weights:
        passed = self._run(inputs)
        gradients = self._back(passed, compute_gradient(loss, self.forward(inputs), slice(0, count(inputs))))
        found = {}
        for layer, gradient in gradients.items():
            found[layer, "weight"] = gradient.T @ passed[layer].entering["weight"]
            found[layer, "bias"] = gradient.sum(axis=0)
        return {place: found[place] for place in parameters}

    def _output_gradients(self, inputs: Inputs, layer: str, seed: Array) -> tuple[Array, ...]:
        return (self._back(self._run(inputs), seed)[layer],)

    def save(self, path: Path) -> None:
        arrays: dict[str, Any] = {
            f"{name}.{key}": values for name, layer in self._layers.items() for key, values in layer.items()
        }
        with path.open("wb") as file:  # np.savez would add its own suffix to a path
            np.savez(file, **arrays)

    def describe(self) -> Description:
        return Description(self.NAME, f"numpy {np.__version__}", "stack", "cpu", self.score_kind, self._source)

    def _run(self, inputs: Inputs) -> dict[str, Activation]:
        """Return the input and output of every layer."""
        width = next(iter(self._layers.values()))["weight"].shape[1]
        if isinstance(inputs, Mapping):
            raise DataError("the model takes one array, got a mapping")
        if inputs.dtype.kind not in "biuf" or inputs.ndim != 2 or inputs.shape[1] != width:
            raise DataError(f"inputs should be numbers of shape (n, {width}), got {inputs.dtype} {inputs.shape}")
        passed: dict[str, Activation] = {}
        entering = inputs.astype(np.float32)
        for name, parameters in self._layers.items():
            leaving = entering @ parameters["weight"].T + parameters["bias"]
            passed[name] = Activation({"weight": entering}, leaving)
            entering = np.maximum(leaving, 0)
        return passed

    def _back(self, passed: Mapping[str, Activation], seed: Array) -> dict[str, Array]:
        """Return the gradient at the output of every layer, from a gradient at the scores `(n, classes)`."""
        gradients: dict[str, Array] = {}
        gradient = seed.astype(np.float32)
        for name in reversed(list(passed)):
            gradients[name] = gradient
            # What enters a layer is positive exactly where the relu before it let something through.
            gradient = (gradient @ self._layers[name]["weight"]) * (passed[name].entering["weight"] > 0)
        return gradients
