"""`TorchBackend`: PyTorch modules, state dicts with a factory, and exported programs.

Training mode
    A module is run in evaluation mode and gets its flags back after every call, each submodule its own. An exported
    program has no such switch: exported dropout is turned off, batch norm exported in training mode is refused.
    `fit` trains in evaluation mode too: nothing is dropped out, and statistics of batch norm stay.

Layout
    torch stores weights as the canonical layout wants them, transposed convolutions too. A product `x @ weight` has its
    matrix stored as `(in, out)`; its canonical form is the transpose, seen as a view. Packed attention is three layers,
    `attention.q`, `attention.k` and `attention.v`, each a row slice of `in_proj_weight`. A recurrent module is a layer
    for each of its layers and directions, `lstm.l0` and `lstm.l0_reverse`; an LSTM's projection is a dense layer,
    `lstm.l0.projection`. A weight that weight norm or another parametrisation computes is a weight like others if
    it can take any value: setting it sets its originals (`derived.py`).

Copies
    The user's module is wrapped, not copied: `set_weights` writes into it and nothing else about it ever changes, not
    even `requires_grad` or `.grad`, because gradients are taken on tensors that replace the parameters while it
    runs. Only a module asked for on another device is copied there first.

Devices
    Everything runs where the weights are. Arrays come and go through the CPU; half precision crosses as float32.

Outputs
    Scores are the inputs of a final softmax, log-softmax or sigmoid, in a module or in functional code; other
    probabilities are recognised by their sum and become log-probabilities. One sigmoid output z is two classes with
    scores (0, z).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from arachne.adapting.backend import RunnerBackend
from arachne.adapting.outputs import class_names, join_gradients
from arachne.errors import DataError, ModelError
from arachne.model.backend import (
    ActivationAccumulator,
    Cut,
    LossGradient,
    Seeds,
    Trace,
    WeightFile,
    Weights,
)
from arachne.model.fitting import OnStep, Plan
from arachne.model.values import Array, Inputs, LayerInfo, count, take
from arachne_torch import export, io
from arachne_torch.cut import TorchCut
from arachne_torch.fitting import fit_weights
from arachne_torch.gradients import gradients_of, input_gradients, pull_back
from arachne_torch.layers import declared_uses, gather
from arachne_torch.names import layer_name
from arachne_torch.running import FIRST_LOOK_ROWS, Runner, as_tensor, as_view, to_array
from arachne_torch.tape import NotRecordableError
from arachne_torch.threads import one_thread
from arachne_torch.trace import TorchTrace, observe
from arachne_torch.unsupported import SAME, unreached_parameters
from arachne_torch.weight_readers import open_module_weights


class TorchBackend(RunnerBackend):
    """A PyTorch classifier."""

    NAME = "torch"
    SUFFIXES = (".pt2", ".pt", ".pth", ".safetensors")
    OBJECT_MODULES = ("torch",)
    SUPPORTS_FIT = True

    _open_model = staticmethod(io.open_model)
    _model: io.LoadedModel
    _runner: Runner

    def __init__(self, model: io.LoadedModel, output: str | None = None) -> None:
        self._model = model
        self._runner = Runner(model.module, output, model.program)
        self._parameters = self._runner.parameters
        self._notes = [] if model.program is None else list(model.program.notes)
        self.native = model.module
        self.class_names = class_names(model.module)
        for name, tensor in self._parameters.items():
            if isinstance(tensor, torch.nn.UninitializedParameter):
                raise ModelError(f"layer '{layer_name(name)}' has no weights yet; run the model once before its repair")
            if not bool(torch.isfinite(tensor).all()):
                raise ModelError(f"layer '{layer_name(name)}' has weights that are not finite, in '{name}'")
        with self._runner.override_derived():
            self._layers = gather(declared_uses(model.module, self._parameters), self._parameters)
        self._runner.unreached = unreached_parameters(model.module, self._layers, None, derived=self._runner.derived)

    @classmethod
    def weight_file(cls, path: Path) -> WeightFile:
        """The weights of a `.safetensors`, `.pt`, `.pth` or `.pt2` file."""
        return open_module_weights(path)

    @property
    def layers(self) -> Sequence[LayerInfo]:
        """Return the layers in order of execution, or in order of declaration before the first inputs."""
        return tuple(layer.info for layer in self._layers.values())

    @property
    def unreachable(self) -> Mapping[str, str]:
        """Map names of the state dict to reasons; the reasons are more precise after the first inputs."""
        return dict(self._runner.unreached)

    @property
    def unreachable_sizes(self) -> Mapping[str, int]:
        """Return the number of elements of every parameter that belongs to no layer."""
        return {name: self.native.get_parameter(name).numel() for name in self._runner.unreached}

    def _get_weights(self, layer: str) -> Mapping[str, Array]:
        """Copies in the canonical layout."""
        stored = self._layers[layer].stored
        return {name: to_array(slice_.view(self._parameters[slice_.name])) for name, slice_ in stored.items()}

    def _read_weights(self, layer: str) -> Mapping[str, Array]:
        """The tensors' own memory, on the CPU."""
        stored = self._layers[layer].stored
        return {name: as_view(slice_.view(self._parameters[slice_.name])) for name, slice_ in stored.items()}

    def _set_weights(self, layer: str, parameter: str, values: Array) -> None:
        """Written into the stored tensor, rounded to its dtype."""
        slice_ = self._layers[layer].stored[parameter]
        self._runner.put(slice_.name, lambda stored: slice_.view(stored).copy_(as_tensor(values)))

    @one_thread()
    def _look(self, inputs: Inputs) -> None:
        """Run the model on the first inputs to find the order and uses of its layers, and its output head."""
        if self._runner.looked:
            return
        layers = self._runner.look(inputs)
        if not layers:
            largest = sorted(self._runner.unreached, key=lambda name: -self.native.get_parameter(name).numel())
            reason = self._runner.unreached[largest[0]]
            raise ModelError(f"the model uses no layer that can be repaired: {reason}")
        self._learn_output_head(self._runner.output_head)
        self._layers = layers
        for layer, uses in self._runner.batch_axes.items():
            if layer in layers and any(axis.axis is None for batch_axes in uses for axis in batch_axes.values()):
                self._try(layer, inputs)

    @one_thread()
    def _forward(self, inputs: Inputs) -> Array:
        """Class scores, batch by batch."""
        with torch.no_grad():
            parts = self._runner.run_all(
                lambda runner, batch: to_array(runner.scores(batch).float()), self._runner.batches(inputs)
            )
            return np.concatenate(list(parts))

    @one_thread()
    def _weight_gradients(self, inputs: Inputs, loss: LossGradient, parameters: Sequence[tuple[str, str]]) -> Weights:
        """Batches add up in one set of buffers, as large as the chosen weights, which become the arrays."""
        slices = {(layer, name): self._layers[layer].stored[name] for layer, name in parameters}
        leaves = {name: tensor.detach() for name, tensor in self._parameters.items()}
        wanted = {slice_.name: leaves[slice_.name].requires_grad_() for slice_ in slices.values()}
        done = 0
        with self._runner.swap_parameters(leaves), torch.enable_grad():
            for batch in self._runner.batches(inputs, gradients=True):
                pull_back(self._runner.scores(batch), loss, done, list(wanted.values()))
                done += count(batch)
        return gradients_of(slices, wanted)

    @one_thread()
    def _output_gradients(self, inputs: Inputs, layer: str, seed: Array) -> tuple[Array, ...]:
        """One backward pass per batch, down to the layer and no further."""
        found, done = [], 0
        for batch in self._runner.batches(inputs, gradients=True):
            trace = TorchTrace(self._runner, batch, [layer])
            found.append(trace.output_gradients(seed[done : done + count(batch)]))
            done += count(batch)
        return join_gradients(found)[layer]

    @one_thread()
    def _input_gradients(self, inputs: Inputs, loss: LossGradient) -> Inputs:
        """Run one backward pass per batch, down to copies of the inputs."""
        fixed = {name: tensor.detach() for name, tensor in self._parameters.items()}
        parts, done = [], 0
        with self._runner.swap_parameters(fixed), torch.enable_grad():
            for batch in self._runner.batches(inputs, gradients=True):
                parts.append(input_gradients(self._runner, batch, loss, done))
                done += count(batch)
        if isinstance(inputs, Mapping):
            return {name: np.concatenate([part[name] for part in parts]) for name in inputs}
        return np.concatenate([part[""] for part in parts])

    @one_thread()
    def _fit(self, inputs: Inputs, labels: Array, plan: Plan, on_step: OnStep) -> Weights:
        """Train copies of the parameters with an optimiser of torch."""
        slices = {(layer, name): self._layers[layer].stored[name] for layer, name in self.resolve_parameters(None)}
        return fit_weights(self._runner, slices, inputs, labels, plan, on_step)

    @one_thread()
    def _trace(self, inputs: Inputs, layers: Sequence[str]) -> Trace:
        """One pass kept open; every gradient asked of it is one backward pass."""
        return TorchTrace(self._runner, inputs, layers, weights=self._runner.snapshot())

    @one_thread()
    def _observe(
        self, inputs: Inputs, layers: Sequence[str], observer: ActivationAccumulator, seeds: Seeds | None
    ) -> None:
        """Show activations and gradients from inside the forward and backward passes."""
        observe(self._runner, inputs, layers, observer, seeds)

    @one_thread()
    def _cut(self, inputs: Inputs, layers: Sequence[str]) -> Cut:
        """The recorded calls behind the layers; the plain cut where a pass cannot be recorded."""
        wanted = {layer: self._layers[layer] for layer in layers}
        try:
            return TorchCut(self._runner, inputs, wanted)
        except NotRecordableError as error:
            return self._cut_plainly(inputs, layers, error)

    def save(self, path: Path) -> None:
        """A model from a file becomes a copy of that file in which only the changed weights differ."""
        io.save(self._model, Path(path))

    @property
    def suffix(self) -> str:
        """Return the suffix of the model's file; an object is saved as a safe state dict."""
        return ".safetensors" if self._model.path is None else self._model.path.suffix

    def example_inputs(self, n: int, *, seed: int = 0) -> Inputs:
        """For an exported program; a module does not declare its inputs."""
        return export.example_inputs(self.native, self.layers, n, seed=seed)

    def export_onnx(self, path: Path, *, inputs: Inputs | None = None, opset: int = 18) -> None:
        """Export with torch's own exporter."""
        given = self.example_inputs(2) if inputs is None else inputs
        export.export_onnx(self.native, given, Path(path), opset=opset, batch=self._runner.fixed)

    @one_thread()
    def _watch(self, inputs: Inputs, layer: str) -> TorchTrace:
        """Capture the calls that use the layer's weight."""
        return TorchTrace(self._runner, inputs, [layer], gradients=False)

    def _framework(self) -> str:
        return f"torch {torch.__version__}"

    def _device(self) -> str:
        return str(self._runner.device)

    def _try(self, layer: str, inputs: Inputs) -> None:
        """Drop a layer with one output for all inputs (positions) if the model fails with one output per input."""
        few = take(inputs, np.linspace(0, max(count(inputs) - 1, 0), FIRST_LOOK_ROWS).astype(np.int64))
        with torch.no_grad():
            expected = to_array(self._runner.scores(few).float())
        try:
            given = TorchTrace(self._runner, few, [layer]).scores
            fine = bool(np.allclose(given, expected, rtol=1e-3, atol=1e-4))
        except (DataError, ModelError, RuntimeError):
            fine = False
        if not fine:
            dropped = self._layers.pop(layer)
            self._runner.unreached |= {slice_.name: SAME for slice_ in dropped.stored.values()}
