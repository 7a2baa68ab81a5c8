"""`KerasBackend`: Keras 3 models, on whichever of tensorflow, torch and jax Keras runs.

Training mode
    Layers are called with `training=False`, each by itself; nothing is set on the model. A recurrent layer that keeps
    its state from batch to batch is refused. `fit` trains that way too: nothing is dropped out, and statistics of batch
    normalisation stay.

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
    Scores are what enters a final softmax, log-softmax or sigmoid, fused into a layer or not; other probabilities are
    recognised by their sum and become log-probabilities. One sigmoid output z is two classes with scores (0, z). What
    leaves a layer is taken before its fused activation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import keras
import numpy as np

from arachne.adapting.outputs import class_names
from arachne.backend import ModelBackend, Pull, WeightFile, Weights
from arachne.errors import ModelError
from arachne.fitting import OnStep, Plan
from arachne.values import Activation, Array, Description, Inputs, LayerInfo, check_real, count
from arachne_keras import export, io
from arachne_keras.autodiff import FRAMEWORK, Seed, stored_array, to_array
from arachne_keras.cut import KerasCut
from arachne_keras.fitting import fitted
from arachne_keras.gradients import gradients_of, seed_of
from arachne_keras.reasons import unreached, variable_sizes
from arachne_keras.running import Runner
from arachne_keras.trace import KerasTrace


class KerasBackend(ModelBackend):
    """A Keras classifier."""

    NAME = "keras"
    SUFFIXES = (".keras", ".h5")
    OBJECT_MODULES = ("keras",)
    SUPPORTS_FIT = True

    def __init__(self, model: io.Opened, output: str | None = None) -> None:
        self._model = model
        self._runner = Runner(model.model, output, model.device)
        self._infos = self._runner.infos()
        self.native = model.model
        self.class_names = class_names(model.model)
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

    @property
    def unreachable(self) -> Mapping[str, str]:
        """Trainable variables by their paths."""
        return unreached(self.native, self._runner.layers, self._runner.graph.steps)

    @property
    def unreachable_sizes(self) -> Mapping[str, int]:
        """Of all variables that belong to no layer."""
        found = self.unreachable
        return {name: size for name, size in variable_sizes(self.native).items() if name in found}

    def _get_weights(self, layer: str) -> Mapping[str, Array]:
        """Copies in the canonical layout."""
        return {parameter: stored.get() for parameter, stored in self._runner.layers[layer].stored.items()}

    def _set_weights(self, layer: str, parameter: str, values: Array) -> None:
        """Assigned to the stored variable, rounded to its dtype."""
        self._runner.layers[layer].stored[parameter].set(np.asarray(values))

    def _forward(self, inputs: Inputs) -> Array:
        """Class scores, batch by batch."""
        with FRAMEWORK.no_gradients():
            return np.concatenate(
                [to_array(self._runner.scores(batch))[: count(batch)] for batch in self._runner.batches(inputs)]
            )

    def _activations(self, inputs: Inputs, layer: str) -> tuple[Activation, ...]:
        """Seen by functions that stand in for the layer's `call` while it runs."""
        return KerasTrace(self._runner, inputs, [layer], gradients=False).activations[layer]

    def _forward_through(self, inputs: Inputs, layer: str) -> tuple[Array, tuple[Activation, ...]]:
        """One watched pass."""
        trace = KerasTrace(self._runner, inputs, [layer], gradients=False)
        return trace.scores, trace.activations[layer]

    def _weight_gradients(self, inputs: Inputs, pull: Pull, parameters: Sequence[tuple[str, str]]) -> Weights:
        """Taken on tensors that stand in for the variables; batches add up."""
        places = {(layer, name): self._runner.layers[layer].stored[name] for layer, name in parameters}
        wanted = {id(stored.variable): stored.variable for stored in places.values()}
        variables = self._variables()
        fixed = {id(variable): FRAMEWORK.snapshot(variable) for variable in variables}

        def pull_back(batch: Inputs, seed: Seed) -> Sequence[Any]:
            def scores(tensors: Sequence[Any]) -> Any:
                with self._runner.stateless({**fixed, **dict(zip(wanted, tensors, strict=True))}, variables):
                    return self._runner.scores(batch)

            return FRAMEWORK.pull_back(scores, [fixed[key] for key in wanted], seed)

        return gradients_of(places, (pull_back(batch, seed) for batch, seed in self._seeded(inputs, pull)))

    def _output_gradients(self, inputs: Inputs, layer: str, seed: Array) -> tuple[Array, ...]:
        """One pass and one backward pass per batch."""
        return KerasTrace(self._runner, inputs, [layer]).output_gradients(seed)[layer]

    def _input_gradients(self, inputs: Inputs, pull: Pull) -> Inputs:
        """Taken on the tensors the model is given."""
        parts = []
        for batch, seed in self._seeded(inputs, pull):
            given = self._runner.graph_inputs(batch)
            for tensor in given.values():
                kind = keras.backend.standardize_dtype(tensor.dtype)
                check_real(np.empty(0, "float32" if "float" in kind else kind))

            def scores(tensors: Sequence[Any], places: Iterable[int] = tuple(given)) -> Any:
                values = dict(zip(places, tensors, strict=True))
                return self._runner.continued(values, self._runner.graph.steps)

            found = FRAMEWORK.pull_back(scores, list(given.values()), seed)
            parts.append([to_array(gradient)[: count(batch)] for gradient in found])
        joined = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
        if not isinstance(inputs, Mapping):
            return joined[0]
        named = dict(zip(self._runner.names or inputs, joined, strict=True))
        return {name: named[name] for name in inputs}

    def _fit(self, inputs: Inputs, labels: Array, plan: Plan, on_step: OnStep) -> Weights:
        """By Keras' own training step, on the variables themselves, which have their values again afterwards."""
        places = {(layer, name): self._runner.layers[layer].stored[name] for layer, name in self.chosen(None)}
        return fitted(self._runner, places, inputs, labels, plan, on_step)

    def _trace(self, inputs: Inputs, layers: Sequence[str]) -> KerasTrace:
        """One pass kept open; every gradient taken from it is one backward pass."""
        return KerasTrace(self._runner, inputs, layers)

    def _cut(self, inputs: Inputs, layers: Sequence[str]) -> KerasCut:
        """The steps behind the layers, compiled once."""
        return KerasCut(self._runner, inputs, layers)

    def halve_batches(self) -> int | None:
        """Not where the model takes batches of one size only."""
        return self._runner.halve()

    def save(self, path: Path) -> None:
        """A model from a file becomes a copy of that file in which only changed weights differ."""
        io.save(self._model, self._runner.layers, Path(path))

    @property
    def suffix(self) -> str:
        """`.weights.h5` for a weight file, which Keras knows by that ending; `.keras` for a whole model."""
        return ".weights.h5" if self._model.format == "weights" else ".keras"

    def example_inputs(self, n: int, *, seed: int = 0) -> Inputs:
        """For a functional model; one with its own `call` does not declare its inputs."""
        return export.example_inputs(self.native, self.layers, n, seed=seed)

    def export_onnx(self, path: Path, *, inputs: Inputs | None = None, opset: int = 18) -> None:
        """By Keras' own exporter."""
        given = self.example_inputs(2) if inputs is None else inputs
        export.export_onnx(self.native, given, Path(path), opset=opset)

    def describe(self) -> Description:
        """The notes say what had to be assumed."""
        return Description(
            backend=self.NAME,
            framework=f"keras {keras.__version__} on {FRAMEWORK.name} {FRAMEWORK.version()}",
            format=self._model.format,
            device=self._model.device or self._device(),
            scores=self.score_kind,
            source=None if self._model.path is None else str(self._model.path),
            notes=(*self._model.notes, *self._runner.notes),
        )

    def _device(self) -> str:
        """Where the weights are, in the framework's words."""
        value = self.native.variables[0].value
        return str(getattr(value, "device", "cpu")).rpartition("device:")[2].lower() or "cpu"

    def _variables(self) -> list[Any]:
        """The variables of all repairable layers, each once."""
        stored = (stored for layer in self._runner.layers.values() for stored in layer.stored.values())
        return list({id(one.variable): one.variable for one in stored}.values())

    def _seeded(self, inputs: Inputs, pull: Pull) -> Iterator[tuple[Inputs, Seed]]:
        """Batches of inputs, each with what the pull says of its rows."""
        done = 0
        for batch in self._runner.batches(inputs):
            yield batch, seed_of(pull, done, count(batch))
            done += count(batch)
