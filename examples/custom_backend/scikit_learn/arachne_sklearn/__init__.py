"""scikit-learn's `MLPClassifier`, alone or at the end of a pipeline, kept in a `.skops` file.

The scores are the inputs of its softmax or sigmoid. Steps of a pipeline before the network are applied to the inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import sklearn
import skops.io
from pandas import DataFrame
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline

from arachne.errors import DataError, ModelError, UnsafeModelError, UsageError
from arachne.model.backend import LossGradient, ModelBackend, Weights, compute_gradient
from arachne.model.values import Activation, Array, Description, Inputs, LayerInfo, ParameterInfo, count

# By scikit-learn's name: Arachne's name, the function of a layer's sums z, and its derivative from the result h.
ACTIVATIONS: dict[str, tuple[Any, Any, Any]] = {
    "identity": ((), lambda z: z, lambda h: np.ones_like(h)),
    "logistic": (("sigmoid",), lambda z: (1 + np.tanh(z / 2)) / 2, lambda h: h * (1 - h)),
    "relu": (("relu",), lambda z: np.maximum(z, 0), lambda h: h > 0),
    "tanh": (("tanh",), np.tanh, lambda h: 1 - h * h),
}
TRUSTED = [f"sklearn.neural_network._stochastic_optimizers.{name}Optimizer" for name in ("Adam", "SGD")]


class SklearnBackend(ModelBackend):
    """A fitted `MLPClassifier`; `names` replaces the default layer names `dense1`, `dense2`, ..."""

    NAME = "sklearn"
    SUFFIXES = (".skops",)
    OBJECT_MODULES = ("sklearn",)

    def __init__(self, model: Any, source: str | None = None, names: Sequence[str] | None = None) -> None:
        self.native, self._source = model, source
        self._net = model[-1] if isinstance(model, Pipeline) else model
        if not isinstance(self._net, MLPClassifier) or not hasattr(self._net, "coefs_"):
            raise ModelError(f"expected a fitted MLPClassifier, got a '{type(self._net).__name__}'")
        if self._net.out_activation_ == "logistic" and self._net.n_outputs_ > 1:
            raise ModelError("expected one class for each input, got a model that gives several labels at once")
        self._hidden, self._forth, self._slope = ACTIVATIONS[self._net.activation]
        names = names or [f"dense{number}" for number in range(1, self._net.n_layers_)]
        stored = zip(names, self._net.coefs_, self._net.intercepts_, strict=True)
        self._stored = {name: {"weight": weight.T, "bias": bias} for name, weight, bias in stored}  # views of the model
        self.class_names = tuple(map(str, self._net.classes_))

    @classmethod
    def load(cls, source: Any, *, trust_code: bool = False, **others: Any) -> Self:
        if any(others.values()):
            raise UsageError("a model of scikit-learn is one file or object, and takes no weights, device or output")
        if not isinstance(source, (str, Path)):
            return cls(source)
        try:
            model = skops.io.load(source, trusted=skops.io.get_untrusted_types(file=source) if trust_code else TRUSTED)
        except skops.io.exceptions.UntrustedTypesFoundException as error:
            raise UnsafeModelError(f"'{Path(source).name}' holds objects that may run code: {error}") from error
        except Exception as error:  # a file that is none of skops' may make it raise anything
            raise ModelError(f"'{Path(source).name}' is no model of scikit-learn: {error}") from error
        return cls(model, str(source))

    @property
    def layers(self) -> Sequence[LayerInfo]:
        found: list[LayerInfo] = []
        for name, own in self._stored.items():
            parameters = {key: ParameterInfo(values.shape, str(values.dtype)) for key, values in own.items()}
            followed_by = self._hidden if len(found) + 1 < len(self._stored) else ()
            found.append(LayerInfo(name, "dense", parameters, followed_by=followed_by))
        return found

    def _get_weights(self, layer: str) -> Mapping[str, Array]:
        return {parameter: values.copy() for parameter, values in self._stored[layer].items()}

    def _set_weights(self, layer: str, parameter: str, values: Array) -> None:
        self._stored[layer][parameter][...] = values

    def _forward(self, inputs: Inputs) -> Array:
        scores = [*self._run(inputs).values()][-1].leaving.astype(np.float32)
        return scores if scores.shape[1] > 1 else np.hstack([np.zeros_like(scores), scores])

    def _activations(self, inputs: Inputs, layer: str) -> tuple[Activation, ...]:
        return (self._run(inputs)[layer],)

    def _weight_gradients(self, inputs: Inputs, loss: LossGradient, parameters: Sequence[tuple[str, str]]) -> Weights:
        passed = self._run(inputs)
        at = self._back(passed, compute_gradient(loss, self.forward(inputs), slice(0, count(inputs))))
        weights = {layer: gradient.T @ passed[layer].entering["weight"] for layer, gradient in at.items()}
        return {(layer, key): weights[layer] if key == "weight" else at[layer].sum(axis=0) for layer, key in parameters}

    def _output_gradients(self, inputs: Inputs, layer: str, seed: Array) -> tuple[Array, ...]:
        return (self._back(self._run(inputs), seed)[layer],)

    def save(self, path: Path) -> None:
        skops.io.dump(self.native, path)

    def describe(self) -> Description:
        return Description(self.NAME, f"sklearn {sklearn.__version__}", "skops", "cpu", self.score_kind, self._source)

    def _run(self, inputs: Inputs) -> dict[str, Activation]:
        width = self.native.n_features_in_
        if isinstance(inputs, Mapping) or inputs.ndim != 2 or inputs.shape[1] != width:
            raise DataError(f"expected one array of shape (n, {width}), got {getattr(inputs, 'shape', 'a mapping')}")
        names = getattr(self.native, "feature_names_in_", None)  # of the table that it was fitted on
        table = inputs if names is None else DataFrame(inputs, columns=names)
        ready = self.native[:-1].transform(table) if self.native is not self._net and len(inputs) else inputs
        passed, values = {}, np.asarray(ready, self._net.coefs_[0].dtype)
        for name, stored in self._stored.items():
            passed[name] = Activation({"weight": values}, values @ stored["weight"].T + stored["bias"])
            values = self._forth(passed[name].leaving)
        return passed

    def _back(self, passed: Mapping[str, Activation], seed: Array) -> dict[str, Array]:
        gradients, gradient = {}, seed[:, -self._net.n_outputs_ :]
        for name in reversed([*passed]):
            gradients[name] = gradient
            gradient = (gradient @ self._stored[name]["weight"]) * self._slope(passed[name].entering["weight"])
        return gradients
