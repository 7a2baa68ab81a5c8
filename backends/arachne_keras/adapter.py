"""`KerasBackend`: Keras 3 models, on whichever of tensorflow, torch and jax Keras runs.

Training mode
    Layers are called with `training=False`, each by itself; nothing is set on the model. A recurrent layer that keeps
    its state from batch to batch is refused. `fit` trains that way too: nothing is dropped out, and statistics of batch
    normalisation stay.

Layout
    Keras stores dense matrices as `(in, out)`, kernels as `(*kernel, in / groups, out)`, a GRU's gates as z r n with
    both biases in one tensor, attention maps with a separate axis for their heads. `layout.py` turns each, both
    ways. Activations with their channels last cross as `(n, channels, *positions)`. A flatten keeps Keras' order,
    channels fastest: the columns of the dense layer behind it are in that order too, and not in PyTorch's.

Copies
    The user's model is wrapped, not copied: `set_weights` assigns to its variables. Gradients, traces and cuts run on
    copies of them (`keras.StatelessScope`), so nothing else changes the model, and later changes do not reach them.

Devices
    Everything runs where Keras puts it, or on the device asked for. Arrays come and go through the CPU; half precision
    crosses as float32.

Outputs
    Scores are the inputs of a final softmax, log-softmax or sigmoid, fused into a layer or not; other probabilities are
    recognised by their sum and become log-probabilities. One sigmoid output z is two classes with scores (0, z). The
    output of a layer is taken before its fused activation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from arachne.adapting.backend import RunnerBackend
from arachne.adapting.outputs import class_names
from arachne.errors import ModelError
from arachne.model.backend import LossGradient, WeightFile, Weights
from arachne.model.fitting import OnStep, Plan
from arachne.model.values import Array, Inputs, LayerInfo, check_real, count
from arachne_keras import export, io
from arachne_keras.autodiff import FRAMEWORK, Seed, stored_array, to_array
from arachne_keras.cut import KerasCut
from arachne_keras.fitting import fit_weights
from arachne_keras.gradients import gradients_of, seed_of
from arachne_keras.running import Runner
from arachne_keras.trace import KerasTrace
from arachne_keras.unsupported import unreached_parameters, variable_sizes


class KerasBackend(RunnerBackend):
    """A Keras classifier."""

    NAME = "keras"
    SUFFIXES = (".keras", ".h5", ".hdf5")
    OBJECT_MODULES = ("keras",)
    SUPPORTS_FIT = True

    _open_model = staticmethod(io.open_model)
    _model: io.LoadedModel
    _runner: Runner

    def __init__(self, model: io.LoadedModel, output: str | None = None) -> None:
        self._model = model
        self._runner = Runner(model.model, output, model.device)
        self._infos = self._runner.infos()
        self.native = model.model
        self.class_names = class_names(model.model)
        self._notes = [*model.notes, *self._runner.notes]
        self._learn_output_head(self._runner.output_head)
        for variable in model.model.variables:
            if variable.dtype.startswith(("float", "bfloat")) and not np.isfinite(stored_array(variable)).all():
                raise ModelError(f"the model's weight '{variable.path}' holds a value that is not finite")

    @classmethod
    def weight_file(cls, path: Path) -> WeightFile:
        """Open the weights of a `.keras` file."""
        return io.open_weights(path)

    @property
    def layers(self) -> Sequence[LayerInfo]:
        """Return the layers in order of execution."""
        return tuple(self._infos.values())

    @property
    def unreachable(self) -> Mapping[str, str]:
        """Map paths of trainable variables to reasons."""
        return unreached_parameters(self.native, self._runner.layers, self._runner.graph.steps)

    @property
    def unreachable_sizes(self) -> Mapping[str, int]:
        """Return the number of elements of every variable that belongs to no layer."""
        found = self.unreachable
        return {name: size for name, size in variable_sizes(self.native).items() if name in found}

    def _get_weights(self, layer: str) -> Mapping[str, Array]:
        """Copies in the canonical layout."""
        return {parameter: stored.get() for parameter, stored in self._runner.layers[layer].stored.items()}

    def _set_weights(self, layer: str, parameter: str, values: Array) -> None:
        """Assign to the stored variable, rounded to its dtype."""
        self._runner.layers[layer].stored[parameter].set(np.asarray(values))

    def _forward(self, inputs: Inputs) -> Array:
        """Class scores, batch by batch."""
        with FRAMEWORK.no_gradients():
            return np.concatenate(
                [to_array(self._runner.scores(batch))[: count(batch)] for batch in self._runner.batches(inputs)]
            )

    def _weight_gradients(self, inputs: Inputs, loss: LossGradient, parameters: Sequence[tuple[str, str]]) -> Weights:
        """Take gradients on copies of the variables, and add up batches."""
        slices = {(layer, name): self._runner.layers[layer].stored[name] for layer, name in parameters}
        wanted = {id(stored.variable): stored.variable for stored in slices.values()}
        variables = self._variables()
        fixed = {id(variable): FRAMEWORK.snapshot(variable) for variable in variables}

        def pull_back(batch: Inputs, seed: Seed) -> Sequence[Any]:
            def scores(tensors: Sequence[Any]) -> Any:
                with self._runner.stateless({**fixed, **dict(zip(wanted, tensors, strict=True))}, variables):
                    return self._runner.scores(batch)

            return FRAMEWORK.pull_back(scores, [fixed[key] for key in wanted], seed)

        return gradients_of(slices, (pull_back(batch, seed) for batch, seed in self._batches_with_seeds(inputs, loss)))

    def _output_gradients(self, inputs: Inputs, layer: str, seed: Array) -> tuple[Array, ...]:
        """One pass and one backward pass per batch."""
        return KerasTrace(self._runner, inputs, [layer]).output_gradients(seed)[layer]

    def _input_gradients(self, inputs: Inputs, loss: LossGradient) -> Inputs:
        """Take gradients on the input tensors."""
        parts = []
        for batch, seed in self._batches_with_seeds(inputs, loss):
            given = self._runner.graph_inputs(batch)
            for tensor in given.values():
                kind = keras.backend.standardize_dtype(tensor.dtype)
                check_real(np.empty(0, "float32" if "float" in kind else kind))

            def scores(tensors: Sequence[Any], slots: Iterable[int] = tuple(given)) -> Any:
                values = dict(zip(slots, tensors, strict=True))
                return self._runner.scores_from(values, self._runner.graph.steps)

            found = FRAMEWORK.pull_back(scores, list(given.values()), seed)
            parts.append([to_array(gradient)[: count(batch)] for gradient in found])
        joined = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
        if not isinstance(inputs, Mapping):
            return joined[0]
        named = dict(zip(self._runner.names or inputs, joined, strict=True))
        return {name: named[name] for name in inputs}

    def _fit(self, inputs: Inputs, labels: Array, plan: Plan, on_step: OnStep) -> Weights:
        """Train the variables with Keras' own training step, and restore their values afterwards."""
        slices = {
            (layer, name): self._runner.layers[layer].stored[name] for layer, name in self.resolve_parameters(None)
        }
        return fit_weights(self._runner, slices, inputs, labels, plan, on_step)

    def _trace(self, inputs: Inputs, layers: Sequence[str]) -> KerasTrace:
        """Record one pass; every gradient is one backward pass."""
        return KerasTrace(self._runner, inputs, layers)

    def _cut(self, inputs: Inputs, layers: Sequence[str]) -> KerasCut:
        """Compile the steps behind the layers once."""
        return KerasCut(self._runner, inputs, layers)

    def save(self, path: Path) -> None:
        """A model from a file becomes a copy of that file in which only changed weights differ."""
        io.save(self._model, self._runner.layers, Path(path))

    @property
    def suffix(self) -> str:
        """Return `.weights.h5`, the suffix Keras requires, for a weight file, or `.keras` for a whole model."""
        return ".weights.h5" if self._model.format == "weights" else ".keras"

    def example_inputs(self, n: int, *, seed: int = 0) -> Inputs:
        """Draw inputs for a functional model; one with its own `call` does not declare its inputs."""
        return export.example_inputs(self.native, self.layers, n, seed=seed)

    def export_onnx(self, path: Path, *, inputs: Inputs | None = None, opset: int = 18) -> None:
        """Export with Keras' own exporter."""
        given = self.example_inputs(2) if inputs is None else inputs
        export.export_onnx(self.native, given, Path(path), opset=opset)

    def _watch(self, inputs: Inputs, layer: str) -> KerasTrace:
        """Capture activations by replacing the layer's `call` for one pass."""
        return KerasTrace(self._runner, inputs, [layer], gradients=False)

    def _framework(self) -> str:
        return f"keras {keras.__version__} on {FRAMEWORK.name} {FRAMEWORK.version}"

    def _device(self) -> str:
        value = self.native.variables[0].value
        return self._model.device or str(getattr(value, "device", "cpu")).rpartition("device:")[2].lower() or "cpu"

    def _variables(self) -> list[Any]:
        """The variables of all repairable layers, each once."""
        stored = (stored for layer in self._runner.layers.values() for stored in layer.stored.values())
        return list({id(one.variable): one.variable for one in stored}.values())

    def _batches_with_seeds(self, inputs: Inputs, loss: LossGradient) -> Iterator[tuple[Inputs, Seed]]:
        """Yield batches of inputs, each with the loss gradient of its rows."""
        done = 0
        for batch in self._runner.batches(inputs):
            yield batch, seed_of(loss, done, count(batch))
            done += count(batch)
