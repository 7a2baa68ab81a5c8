"""What the engine needs from a model: `ModelBackend`, and the `Cut`, `Trace` and `WeightFile` it hands out.

The engine never sees a tensor, a device or a graph; a backend never sees a fitness or a fault. NumPy arrays cross the
border, weights in the canonical layout of `arachne.values`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from arachne.errors import ModelError, UnknownLayerError, UsageError, WeightShapeError, did_you_mean
from arachne.values import Activation, Array, Description, Inputs, LayerInfo, Weights, count, take
from arachne.weight_file import WeightFile

__all__ = ["Cut", "ModelBackend", "Trace", "WeightFile", "Weights", "check_count", "restored"]

Pull = Callable[[Array, slice], Array]
"""A loss as gradients see it: from the scores `(rows, classes)` of some rows to d loss / d scores, of the same shape.

The loss is a sum over rows. A backend calls its pull once for each batch, with the float32 scores of that batch and the
slice of rows they belong to; every row comes once, in order, and rows that only fill a batch never come.
`arachne.losses` has the usual ones.
"""


class Trace(ABC):
    """One forward pass of some inputs, kept open so that several gradients can be taken from it."""

    activations: Mapping[str, tuple[Activation, ...]]
    """What passed through each traced layer, one `Activation` per use."""

    @abstractmethod
    def output_gradients(self, seed: Array) -> Mapping[str, tuple[Array, ...]]:
        """As `ModelBackend.output_gradients`, for every traced layer at once."""


class Cut(ABC):
    """A model held open at one layer: everything before it is computed once, everything behind it as often as asked.

    `rows` always means row numbers of the inputs the cut was made with; None means all of them.
    """

    CONTINUES_FROM_OUTPUTS: ClassVar[bool] = True
    """Whether `scores_from_outputs` works; where it does not, `scores_with` does the same job more slowly."""

    layer: str
    """The layer the model is held open at: the earliest of those asked for, at its first use."""

    @abstractmethod
    def outputs(self, rows: Array | None = None) -> Array:
        """What leaves `layer` at its first use, with the weights the model had when it was cut: `(rows, ...)`."""

    @abstractmethod
    def scores_from_outputs(self, outputs: Array, rows: Array | None = None) -> Array:
        """Class scores `(rows, classes)` when the first use of `layer` gives `outputs` instead."""

    @abstractmethod
    def scores_with(self, weights: Weights, rows: Array | None = None) -> Array:
        """Class scores `(rows, classes)` with other values for whole parameters of the layers the cut was made for.

        Called once per candidate, and therefore hot. The model itself keeps its weights.
        """

    def weight_gradients(self, weights: Weights, pull: Pull, rows: Array | None = None) -> Weights:
        """Gradients of a loss with respect to every parameter of the layers the cut was made for, as fresh arrays.

        Nothing before the cut is computed again. The plain cut of `ModelBackend` has full passes for it.

        Args:
            weights: Where the gradients are taken, as in `scores_with`.
            pull: The loss; the slices it gets count within `rows`.
            rows: Which inputs the loss sums over.
        """
        raise NotImplementedError(f"a '{type(self).__name__}' gives no gradients; the plain cut of the base class does")


class ModelBackend(ABC):
    """A trained classifier, whatever framework it lives in.

    Called once: `load`, `layers`. A few times per localisation: `trace` (or `activations` and `output_gradients`) and
    `weight_gradients`. Once per block of candidates, and therefore hot: what `cut` returns. Inputs come in any number;
    a backend batches them as its memory allows.
    """

    NAME: ClassVar[str]
    """The name it is registered under."""

    SUFFIXES: ClassVar[tuple[str, ...]] = ()
    """File endings it can load."""

    OBJECT_MODULES: ClassVar[tuple[str, ...]] = ()
    """Top-level packages whose objects it can wrap; an object's base classes count too."""

    SUPPORTS_GRADIENTS: ClassVar[bool] = True
    """Whether the gradient operations work; without them only random localisation does."""

    score_kind: str = "logits"
    """What `forward` returns: `logits` where the model allows, else `log-probabilities`."""

    class_names: tuple[str, ...] | None = None
    """The names of the classes, where the model carries them."""

    native: Any = None
    """The framework's own model object, for users who want it back."""

    @classmethod
    @abstractmethod
    def load(
        cls,
        source: Any,
        *,
        weights: Path | None = None,
        device: str | None = None,
        output: str | None = None,
        trust_code: bool = False,
    ) -> Self:
        """Make a backend of a file, a `module:factory` string or a framework's own model object.

        Called once per run. Loading reads data and runs no code that came in the file unless `trust_code` is set.

        Args:
            source: A path, `module:factory`, or a model object.
            weights: The file a factory's model takes its weights from.
            device: Where to compute, in the framework's words.
            output: Which of several outputs holds the class scores.
            trust_code: Whether code inside the file may run.

        Raises:
            ModelError: Nothing this backend can repair.
            UnsafeModelError: The file would run code or reach outside its folder.
        """

    @classmethod
    def weight_file(cls, path: Path) -> WeightFile:
        """Open a file's weights for patching, without a model.

        Raises:
            ModelError: This backend patches no files, or not this one.
        """
        raise ModelError(f"backend '{cls.NAME}' cannot patch '{path.name}' as a file")

    @classmethod
    def quantised(cls, path: Path, kind: str) -> Callable[[Inputs], Array]:
        """What `forward` would give in a quantised copy of a file: `int8` or `fp16`. The copy is run, never repaired.

        Raises:
            ModelError: This backend quantises no files, or not this one.
        """
        raise ModelError(f"backend '{cls.NAME}' cannot quantise '{path.name}'; export it to .onnx first")

    @property
    @abstractmethod
    def layers(self) -> Sequence[LayerInfo]:
        """The repairable layers in order of execution. A layer used several times is listed once, at its first use."""

    @property
    def unreachable(self) -> Mapping[str, str]:
        """Parameters of the model that cannot be repaired, by their names in its framework, each with the reason."""
        return {}

    @abstractmethod
    def get_weights(self, layer: str) -> Mapping[str, Array]:
        """A copy of every parameter of a layer; changing it changes nothing in the model.

        Raises:
            UnknownLayerError: The model has no such layer.
        """

    @abstractmethod
    def set_weights(self, layer: str, parameter: str, values: Array) -> None:
        """Replace one parameter of a layer, in place; `values` is copied, never kept.

        Raises:
            UnknownLayerError: The model has no such layer or parameter.
            WeightShapeError: Another shape than `get_weights(layer)[parameter]`; nothing is broadcast.
        """

    @abstractmethod
    def forward(self, inputs: Inputs) -> Array:
        """Class scores, float32 `(n, classes)`, of the kind `score_kind` says.

        Raises:
            DataError: Inputs of a shape or dtype the model does not take.
        """

    @abstractmethod
    def activations(self, inputs: Inputs, layer: str) -> tuple[Activation, ...]:
        """What enters a layer and what leaves it before the non-linearity, one `Activation` per use."""

    @abstractmethod
    def weight_gradients(
        self, inputs: Inputs, pull: Pull, parameters: Iterable[tuple[str, str]] | None = None
    ) -> Weights:
        """Gradients of a loss with respect to parameters, as fresh arrays.

        Called twice per localisation. The arrays belong to the caller, who may overwrite them.

        Args:
            inputs: `n` inputs.
            pull: The loss.
            parameters: Which `(layer, parameter)` to differentiate by; None means all, in the order of `layers`.

        Raises:
            UnknownLayerError: The model has no such layer or parameter.
        """

    @abstractmethod
    def output_gradients(self, inputs: Inputs, layer: str, seed: Array) -> tuple[Array, ...]:
        """Vector-Jacobian product of the scores with respect to what leaves a layer, one array per use.

        Args:
            inputs: `n` inputs.
            layer: The layer.
            seed: `(n, classes)`; row by row the vector the Jacobian is multiplied with.
        """

    def input_gradients(self, inputs: Inputs, pull: Pull) -> Inputs:
        """Gradient of a loss with respect to the inputs, in their shapes: an array, or a mapping as `inputs` is.

        Raises:
            UsageError: The inputs are whole numbers (`check_real`), or the backend cannot differentiate by inputs.
        """
        raise UsageError(f"backend '{self.NAME}' gives no gradients with respect to the inputs")

    def trace(self, inputs: Inputs, layers: Sequence[str]) -> Trace:
        """Activations and gradients of several layers from one pass. Overridden for speed alone."""
        return _LayerByLayer(self, inputs, layers)

    def cut(self, inputs: Inputs, layers: Sequence[str]) -> Cut:
        """The model held open at the earliest use of these layers. Overridden for speed alone.

        Called once per search; the inputs are kept. Weights set on the model afterwards do not reach the cut.
        """
        return _FullForward(self, inputs, layers)

    @abstractmethod
    def save(self, path: Path) -> None:
        """Write the model with its current weights in the format it came in; the original file stays as it is."""

    @property
    def suffix(self) -> str:
        """The ending of the file `save` writes: that of the file the model came from, unless the backend says else."""
        source = self.describe().source
        return (Path(source).suffix if source else "") or (self.SUFFIXES[0] if self.SUFFIXES else "")

    def example_inputs(self, n: int, *, seed: int = 0) -> Inputs:
        """`n` random inputs of the shapes and dtypes the model takes.

        Raises:
            ModelError: The model does not tell what it takes.
        """
        raise ModelError(f"backend '{self.NAME}' does not tell what inputs a model takes; give some data instead")

    def export_onnx(self, path: Path, *, inputs: Inputs | None = None, opset: int = 18) -> None:
        """Write the model with its current weights as ONNX; the file appears whole or not at all.

        Args:
            path: Where the file goes.
            inputs: Inputs to follow through the model, where it does not tell what it takes.
            opset: The version of ONNX' operators.

        Raises:
            UsageError: This backend exports nothing.
            ModelError: The exporter does not know an operation of the model, or nothing tells what it takes.
            BackendUnavailableError: The exporter is not installed.
        """
        raise UsageError(f"backend '{self.NAME}' does not export to ONNX")

    @abstractmethod
    def describe(self) -> Description:
        """What the model is, where it came from and where it runs."""

    def predict(self, inputs: Inputs) -> Array:
        """Predicted class of every input, `(n,)`; the first of several equal scores wins."""
        return np.asarray(np.argmax(self.forward(inputs), axis=1))

    def info(self, layer: str) -> LayerInfo:
        """The `LayerInfo` of a name.

        Raises:
            UnknownLayerError: The model has no such layer.
        """
        for info in self.layers:
            if info.name == layer:
                return info
        raise UnknownLayerError(
            f"the model has no layer '{layer}'" + did_you_mean(layer, [info.name for info in self.layers])
        )

    def chosen(self, parameters: Iterable[tuple[str, str]] | None) -> list[tuple[str, str]]:
        """The `(layer, parameter)` that gradients are asked of, each once; all of the model's for None."""
        if parameters is None:
            return [(info.name, parameter) for info in self.layers for parameter in info.parameters]
        known = {info.name: info for info in self.layers}
        found = list(dict.fromkeys(parameters))
        for layer, parameter in found:
            info = known[layer] if layer in known else self.info(layer)
            if parameter not in info.parameters:
                choices = did_you_mean(parameter, info.parameters)
                raise UnknownLayerError(f"layer '{layer}' has no parameter '{parameter}'{choices}")
        return found

    def check_values(self, layer: str, parameter: str, values: Array) -> None:
        """What `set_weights` refuses, in one place for all backends."""
        parameters = self.info(layer).parameters
        if parameter not in parameters:
            choices = did_you_mean(parameter, parameters)
            raise UnknownLayerError(f"layer '{layer}' has no parameter '{parameter}'{choices}")
        shape = parameters[parameter].shape
        if values.shape != shape:
            raise WeightShapeError(
                f"layer '{layer}' has a {parameter} of shape {shape}, got values of shape {values.shape}"
            )


@contextmanager
def restored(backend: ModelBackend, parameters: Iterable[tuple[str, str]]) -> Iterator[None]:
    """Put these parameters back as they were when the block ends, however it ends."""
    kept = {(layer, parameter): backend.get_weights(layer)[parameter] for layer, parameter in parameters}
    try:
        yield
    finally:
        for (layer, parameter), values in kept.items():
            backend.set_weights(layer, parameter, values)


class _LayerByLayer(Trace):
    """The plain trace: every layer asks for its own pass."""

    def __init__(self, backend: ModelBackend, inputs: Inputs, layers: Sequence[str]) -> None:
        self._backend = backend
        self._inputs = inputs
        self.activations = {layer: backend.activations(inputs, layer) for layer in layers}

    def output_gradients(self, seed: Array) -> Mapping[str, tuple[Array, ...]]:
        return {layer: self._backend.output_gradients(self._inputs, layer, seed) for layer in self.activations}


class _FullForward(Cut):
    """The plain cut: nothing is kept, every question is a full forward pass of the rows."""

    CONTINUES_FROM_OUTPUTS = False

    def __init__(self, backend: ModelBackend, inputs: Inputs, layers: Sequence[str]) -> None:
        order = [info.name for info in backend.layers]
        self._backend = backend
        self._inputs = inputs
        self._layers = tuple(layers)
        self._weights = {
            (layer, parameter): values for layer in order for parameter, values in backend.get_weights(layer).items()
        }
        self.layer = min((backend.info(layer).name for layer in layers), key=order.index)

    def outputs(self, rows: Array | None = None) -> Array:
        with restored(self._backend, self._weights):
            self._set(self._weights)
            return self._backend.activations(self._rows(rows), self.layer)[0].leaving

    def scores_from_outputs(self, outputs: Array, rows: Array | None = None) -> Array:
        raise NotImplementedError(f"backend '{self._backend.NAME}' cannot continue from a layer's outputs")

    def scores_with(self, weights: Weights, rows: Array | None = None) -> Array:
        with self._standing(weights):
            return self._backend.forward(self._rows(rows))

    def weight_gradients(self, weights: Weights, pull: Pull, rows: Array | None = None) -> Weights:
        asked = [place for place in self._weights if place[0] in self._layers]
        with self._standing(weights):
            return self._backend.weight_gradients(self._rows(rows), pull, asked)

    @contextmanager
    def _standing(self, weights: Weights) -> Iterator[None]:
        """The model as it was when it was cut, with these weights, for the duration."""
        for layer, _ in weights:
            if layer not in self._layers:
                raise UnknownLayerError(f"the cut was not made for layer '{layer}'" + did_you_mean(layer, self._layers))
        with restored(self._backend, self._weights):
            self._set({**self._weights, **weights})
            yield

    def _set(self, weights: Weights) -> None:
        for (layer, parameter), values in weights.items():
            self._backend.set_weights(layer, parameter, values)

    def _rows(self, rows: Array | None) -> Inputs:
        return self._inputs if rows is None else take(self._inputs, rows)


def check_count(inputs: Inputs, other: Array, name: str) -> None:
    """Refuse labels or seeds that are not one per input."""
    if count(inputs) != len(other):
        raise WeightShapeError(f"expected {count(inputs)} {name}, one per input, got {len(other)}")


def pulled(pull: Pull, scores: Array, rows: slice) -> Array:
    """What a pull says of some rows, checked: `(rows, classes)` like their scores.

    Raises:
        WeightShapeError: It gives another shape than it was given.
    """
    gradient = np.asarray(pull(scores, rows))
    if gradient.shape != scores.shape:
        raise WeightShapeError(
            f"a loss gives one gradient for each score, expected the shape {scores.shape}, got {gradient.shape}"
        )
    return gradient


def check_real(inputs: Inputs) -> None:
    """Refuse gradients with respect to inputs that are whole numbers; bytes of an image pass."""
    for array in inputs.values() if isinstance(inputs, Mapping) else (inputs,):
        if array.dtype.kind != "f" and array.dtype != np.uint8:
            raise UsageError(f"there is no gradient with respect to whole numbers, such as tokens; got {array.dtype}")
