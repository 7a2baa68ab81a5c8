"""`KerasBackend`: Keras 3 models, on whichever of tensorflow, torch and jax Keras runs.

Training mode
    Layers are called with `training=False`, each by itself; nothing is set on the model. A recurrent layer that keeps
    its state from batch to batch is refused.

Layout
    Keras stores dense matrices as `(in, out)`, kernels as `(*kernel, in / groups, out)`, a GRU's gates as z r n with
    both biases in one tensor, attention maps with their heads as an axis of their own. `layout.py` turns each, both
    ways. Activations with their channels last cross as `(n, channels, *positions)`. A flatten keeps Keras' order,
    channels fastest: the columns of the dense layer behind it are in that order too, and not in PyTorch's.

Copies
    The user's model is wrapped, not copied: `set_weights` assigns to its variables. Gradients, traces and cuts run with
    tensors that stand in for them (`keras.StatelessScope`), so nothing else changes the model, and they keep what they
    saw.

Devices
    Everything runs where Keras puts it, or on the device asked for. Arrays come and go through the CPU; half precision
    crosses as float32.

Outputs
    A final softmax, log-softmax or sigmoid is looked behind, fused into a layer or not; probabilities made in any other
    way are told by their sum and become log-probabilities. One sigmoid output z is two classes with scores (0, z). What
    leaves a layer is taken before its fused activation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from arachne.backend import ModelBackend, WeightFile, check_count
from arachne.errors import DataError, ModelError
from arachne.values import Activation, Array, Description, Inputs, LayerInfo, count
from arachne_keras import io
from arachne_keras.autodiff import FRAMEWORK, stored_array, to_array
from arachne_keras.cut import KerasCut
from arachne_keras.layers import unreachable
from arachne_keras.running import Runner
from arachne_keras.trace import KerasTrace


class KerasBackend(ModelBackend):
    """A Keras classifier."""

    NAME = "keras"
    SUFFIXES = (".keras", ".h5")
    OBJECT_MODULES = ("keras",)

    def __init__(self, model: io.Opened, output: str | None = None) -> None:
        self._model = model
        self._runner = Runner(model.model, output, model.device)
        self._infos = self._runner.infos()
        self.native = model.model
        self.class_names = io.class_names(model.model)
        self.score_kind = "log-probabilities" if self._runner.ending == "probabilities" else "logits"
        for variable in model.model.variables:
            if variable.dtype.startswith(("float", "bfloat")) and not np.isfinite(stored_array(variable)).all():
                raise ModelError(f"the model's weight '{variable.path}' holds a value that is not finite")

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
        """Wrap a `keras.Model`, open a `.keras` file, or call `module:factory` and load its weights."""
        return cls(io.open_model(source, weights=weights, device=device, trust_code=trust_code), output)

    @classmethod
    def weight_file(cls, path: Path) -> WeightFile:
        """Open the weights of a `.keras` file."""
        return io.open_weights(path)

    @property
    def layers(self) -> Sequence[LayerInfo]:
        """In order of execution."""
        return tuple(self._infos.values())

    def get_weights(self, layer: str) -> Mapping[str, Array]:
        """Copies in the canonical layout."""
        name = self.info(layer).name
        return {parameter: stored.get() for parameter, stored in self._runner.layers[name].stored.items()}

    def set_weights(self, layer: str, parameter: str, values: Array) -> None:
        """Assigned to the stored variable, rounded to its dtype."""
        self.check_values(layer, parameter, values)
        self._runner.layers[layer].stored[parameter].set(np.asarray(values))

    def forward(self, inputs: Inputs) -> Array:
        """Class scores, batch by batch."""
        with FRAMEWORK.no_gradients():
            return np.concatenate(
                [to_array(self._runner.scores(batch))[: count(batch)] for batch in self._runner.batches(inputs)]
            )

    def activations(self, inputs: Inputs, layer: str) -> tuple[Activation, ...]:
        """Seen by functions that stand in for the layer's `call` while it runs."""
        return KerasTrace(self._runner, inputs, [self.info(layer).name], gradients=False).activations[layer]

    def weight_gradients(self, inputs: Inputs, labels: Array) -> Mapping[str, Mapping[str, Array]]:
        """Taken on tensors that stand in for the variables; batches add up."""
        check_count(inputs, labels, "labels")
        variables = self._variables()
        values = [FRAMEWORK.snapshot(variable) for variable in variables]
        total = [np.zeros(tuple(variable.shape), np.float32) for variable in variables]
        done = 0
        for batch in self._runner.batches(inputs):
            wanted = np.asarray(labels[done : done + count(batch)])
            found = FRAMEWORK.gradient(lambda v, b=batch, w=wanted: self._loss(variables, v, b, w), values)  # type: ignore[misc]
            for sums, gradient in zip(total, found, strict=True):
                sums += to_array(gradient)
            done += count(batch)
        sums_of = {id(variable): sums / max(done, 1) for variable, sums in zip(variables, total, strict=True)}
        return {
            name: {
                parameter: stored.canonical(sums_of[id(stored.variable)]) for parameter, stored in layer.stored.items()
            }
            for name, layer in self._runner.layers.items()
        }

    def output_gradients(self, inputs: Inputs, layer: str, seed: Array) -> tuple[Array, ...]:
        """One pass and one backward pass per batch."""
        check_count(inputs, seed, "rows of the seed")
        return KerasTrace(self._runner, inputs, [self.info(layer).name]).output_gradients(seed)[layer]

    def trace(self, inputs: Inputs, layers: Sequence[str]) -> KerasTrace:
        """One pass kept open; every gradient taken from it is one backward pass."""
        return KerasTrace(self._runner, inputs, [self.info(layer).name for layer in layers])

    def cut(self, inputs: Inputs, layers: Sequence[str]) -> KerasCut:
        """The steps behind the layers, compiled once."""
        return KerasCut(self._runner, inputs, [self.info(layer).name for layer in layers])

    def save(self, path: Path) -> None:
        """A model from a file becomes a copy of that file in which only changed weights differ."""
        io.save(self._model, self._runner.layers, Path(path))

    @property
    def suffix(self) -> str:
        """Keras reads a weight file as one of today only by its double ending; whole models are saved as of today."""
        return ".weights.h5" if self._model.format == "weights" else ".keras"

    def describe(self) -> Description:
        """Also tells, in its notes, which weights cannot be repaired and what had to be assumed."""
        reached = {id(variable) for variable in self._variables()}
        hidden = unreachable(self.native, reached)
        notes = [*self._model.notes, *self._runner.notes]
        if hidden:
            notes.append(f"weights that cannot be repaired: {', '.join(hidden)}")
        return Description(
            backend=self.NAME,
            framework=f"keras {keras.__version__} on {FRAMEWORK.name} {FRAMEWORK.version()}",
            format=self._model.format,
            device=self._model.device or self._device(),
            scores=self.score_kind,
            source=None if self._model.path is None else str(self._model.path),
            notes=tuple(notes),
        )

    def _device(self) -> str:
        """Where the weights are, in the framework's words."""
        value = self.native.variables[0].value
        return str(getattr(value, "device", "cpu")).rpartition("device:")[2].lower() or "cpu"

    def _variables(self) -> list[Any]:
        """The variables of all repairable layers, each once."""
        stored = (stored for layer in self._runner.layers.values() for stored in layer.stored.values())
        return list({id(one.variable): one.variable for one in stored}.values())

    def _loss(self, variables: Sequence[Any], values: Sequence[Any], inputs: Inputs, labels: Array) -> Any:
        """Summed cross-entropy of one batch; rows that filled it up have no say."""
        standing = {id(variable): value for variable, value in zip(variables, values, strict=True)}
        with self._runner.stateless(standing, variables):
            scores = self._runner.scores(inputs)
        n, classes = int(scores.shape[0]), int(scores.shape[1])
        if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
            raise DataError(f"labels should lie between 0 and {classes - 1}, got {labels.min()} to {labels.max()}")
        chosen = np.zeros((n, classes), np.float32)
        chosen[np.arange(len(labels)), labels] = 1.0
        meant = ops.sum(scores * ops.convert_to_tensor(chosen))
        if self.score_kind == "log-probabilities":
            return -meant
        there = ops.convert_to_tensor((np.arange(n) < len(labels)).astype(np.float32))
        return ops.sum(ops.logsumexp(scores, axis=1) * there) - meant
