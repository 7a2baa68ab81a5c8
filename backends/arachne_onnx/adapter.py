"""`OnnxBackend`: ONNX files and `ModelProto` objects, run by onnxruntime alone.

Training mode
    An ONNX graph has none: dropout does nothing, batch norm uses its stored statistics.

Layout
    Exporters store a matrix as `(in, out)` or `(out, in)`, stack the directions of a recurrent layer, order its gates
    in ONNX's way. The canonical layout is the stored tensor after the transposes and reshapes between it and its node;
    writing reverses them. A stored int8, uint8 or int32 tensor behind `DequantizeLinear` is a weight whose values lie
    on the grid of its scale; `QLinearConv` and its kin are first written as float operators between (de)quantisations.
    Scores come from onnxruntime's integer kernels; gradients pass the quantisation of activations straight through.

Copies
    The user's file or message is only read. What runs is a normalised copy of the graph; weights that were set are
    inputs of its sessions. Saving copies the original and changes the bytes of changed weights, nothing else.

Devices
    `device` names an execution provider (`cpu`, `cuda:0`, `tensorrt`); `describe` shows the one a session really uses.
    Threads are set to the processors this process may use. Gradients of half-precision models are computed in float32.

Outputs
    Scores are the inputs of a final softmax, log-softmax or sigmoid, also in a scikit-learn export with labels and
    probabilities; other probabilities are recognised by their sum and become log-probabilities. One sigmoid output z
    is two classes with scores (0, z).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnxruntime
from onnx import helper

from arachne.adapting.backend import RunnerBackend
from arachne.adapting.exporting import random_inputs
from arachne.errors import ModelError
from arachne.model.accumulate import ActivationAccumulator, Seeds, observe_traces
from arachne.model.backend import Cut, LossGradient, PlainCut, Trace, WeightFile, Weights
from arachne.model.values import Array, Description, Inputs, LayerInfo, check_real, count, take
from arachne.weights.storage import carrier_of
from arachne_onnx import io
from arachne_onnx.cut import OnnxCut
from arachne_onnx.cut_cache import NotCuttableError
from arachne_onnx.gradients import gradients_of
from arachne_onnx.graph import Graph
from arachne_onnx.graph_inputs import with_fixed
from arachne_onnx.layers import find_layers
from arachne_onnx.output_head import OutputHead, find_output_head, unused_inputs
from arachne_onnx.running import Runner
from arachne_onnx.sessions import BOTH_PACKAGES, Device, Program, both_packages
from arachne_onnx.trace import OnnxTrace
from arachne_onnx.unsupported import before_blocks, out_of_reach, unreached_parameters
from arachne_onnx.weights import OnnxWeightFile


class OnnxBackend(RunnerBackend):
    """An ONNX classifier."""

    NAME = "onnx"
    SUFFIXES = (".onnx",)
    OBJECT_MODULES: ClassVar[tuple[str, ...]] = ("onnx",)

    _open_model: ClassVar[Callable[..., Any]] = staticmethod(io.open_model)
    _model: io.LoadedModel
    _runner: Runner

    def __init__(self, model: io.LoadedModel, output: str | None = None) -> None:
        self._model = model
        self._output = output
        self.native = model.model
        self._open_graph(model, Device(model.device))

    def _open_graph(self, model: io.LoadedModel, device: Device) -> None:
        """Find the scores and the layers of a model's graph."""
        graph = self._graph_of(model)
        head = find_output_head(model.model, graph, self._output)
        self.class_names = head.class_names
        self._open(self._runner_of(graph, head, device, unused_inputs(graph, head)))

    def _graph_of(self, model: io.LoadedModel) -> Graph:
        """Read the graph of a model; an adapter of a format that is translated to ONNX checks it further."""
        return io.read_graph(model)

    def _runner_of(self, graph: Graph, head: OutputHead, device: Device, unused: Collection[str]) -> Runner:
        """Make what runs a graph; an adapter of a format that is translated to ONNX has its own."""
        return Runner(graph, head, device, unused)

    def _open(self, runner: Runner) -> None:
        """Find the layers of a runner's graph."""
        model, graph, unused = self._model, runner.graph, runner.unused
        self._runner = runner
        found = find_layers(self._runner.graph, model.weight_tensors)
        io.check_finite(found, graph.constants)
        lost, operators = out_of_reach(self._runner.deep, found)
        self._layers = {name: layer for name, layer in found.items() if name not in lost}
        self._unreached = unreached_parameters(self._runner.graph, model.locations, found, lost, operators)
        self._notes = io.shared_tensors(self._layers)
        if unused:
            self._notes.append(f"the scores do not depend on {_some(sorted(unused))}, which data need not hold")
        if lost:
            self._notes.append(_without_rule(operators, lost, list(self._layers)))
        if both_packages():
            self._notes.append(BOTH_PACKAGES)
        if not self._layers:
            self.only_scores = (
                _without_rule(operators, lost, [])
                if lost
                else f"the model has no layer that can be repaired: {_largest(self._unreached, model)}"
            )
            return
        self._forward_program()

    @classmethod
    def weight_file(cls, path: Path) -> WeightFile:
        """Open the weights of an `.onnx` file."""
        return OnnxWeightFile(path)

    @classmethod
    def quantise(cls, path: Path, kind: str) -> Callable[[Inputs], Array]:
        """Quantise with onnxruntime's own tools, which are imported here: no other repair needs them."""
        from arachne_onnx.quantise import quantise_copy

        return quantise_copy(path, kind)

    @property
    def layers(self) -> Sequence[LayerInfo]:
        """Return the layers in order of execution; the notes list the layers that no gradient reaches."""
        return tuple(layer.info for layer in self._layers.values())

    @property
    def unreachable(self) -> Mapping[str, str]:
        """Map names of stored tensors in the file to reasons."""
        return dict(self._unreached)

    @property
    def unreachable_sizes(self) -> Mapping[str, int]:
        """Return the number of elements of every stored tensor that belongs to no layer."""
        return {name: math.prod(self._model.locations[name].shape) for name in self._unreached}

    def _get_weights(self, layer: str) -> Mapping[str, Array]:
        """Copies in the canonical layout."""
        return {name: np.array(values, order="C") for name, values in self._read_weights(layer).items()}

    def _read_weights(self, layer: str) -> Mapping[str, Array]:
        """The stored arrays themselves, unless they have to be widened."""
        found = {}
        for name, slice_ in self._layers[layer].stored.items():
            stored = self._runner.values[slice_.name]
            found[name] = np.asarray(slice_.read(stored), carrier_of(str(stored.dtype)))
        return found

    def _set_weights(self, layer: str, parameter: str, values: Array) -> None:
        """Write into a copy of the stored tensor, rounded to its dtype; the next run takes it as an input."""
        slice_ = self._layers[layer].stored[parameter]
        stored = np.array(self._runner.values[slice_.name])
        slice_.write(stored, values)
        self._runner.set(slice_.name, stored)

    def _look(self, inputs: Inputs) -> None:
        """Run the model on the first inputs to find shapes, its output head and the batch axes of its tensors."""
        if self._runner.looked:
            return
        self._runner.look(inputs)
        self._learn_output_head(self._runner.output_head.kind)
        found = find_layers(self._runner.graph, self._model.weight_tensors)
        self._layers = {name: found[name] for name in self._layers if name in found}

    def _forward(self, inputs: Inputs) -> Array:
        """Class scores, batch by batch."""
        return self._runner.scores(inputs)

    def _weight_gradients(self, inputs: Inputs, loss: LossGradient, parameters: Sequence[tuple[str, str]]) -> Weights:
        """The forward nodes, then the backward nodes of the chosen weights, batch by batch; batches add up."""
        slices = {(layer, name): self._layers[layer].stored[name] for layer, name in parameters}
        names = sorted({slice_.name for slice_ in slices.values()})
        if parameters == self.resolve_parameters(None) and not self._runner.derivative(names).gradients:
            raise ModelError("no gradient of the scores reaches a weight, so they are no class scores to repair")
        totals = {name: np.zeros(self._runner.deep.constants[name].shape, np.float32) for name in names}
        for found, _ in self._runner.loss_gradients(inputs, names, loss):
            for name, gradient in found.items():
                totals[name] += gradient
        return gradients_of(slices, totals)

    def _output_gradients(self, inputs: Inputs, layer: str, seed: Array) -> tuple[Array, ...]:
        """One pass forward and one back per batch, down to the layer and no further."""
        found = []
        for rows in self._runner.row_batches(count(inputs)):
            trace = OnnxTrace(self._runner, take(inputs, rows), {layer: self._layers[layer]})
            found.append(trace.output_gradients(seed[rows])[layer])
        return tuple(np.concatenate(uses) for uses in zip(*found, strict=True))

    def _input_gradients(self, inputs: Inputs, loss: LossGradient) -> Inputs:
        """The backward nodes down to the model's inputs."""
        feeds = self._runner.feeds(inputs)
        before, operators = before_blocks(self._runner.deep)
        for name, array in feeds.items():
            check_real(array)
            if name in before:
                raise ModelError(f"no gradient reaches the input '{name}', because none passes {_some(operators)}")
        parts: dict[str, list[Array]] = {name: [] for name in feeds}
        for found, n in self._runner.loss_gradients(inputs, list(feeds), loss):
            for name, gradient in found.items():
                parts[name].append(np.array(gradient[:n], np.float32))
        joined = {
            name: np.concatenate(parts[name]) if parts[name] else np.zeros(array.shape, np.float32)
            for name, array in feeds.items()
        }
        return {name: joined[name] for name in inputs} if isinstance(inputs, Mapping) else next(iter(joined.values()))

    def _trace(self, inputs: Inputs, layers: Sequence[str]) -> Trace:
        """Record one pass; every gradient is one run of the backward nodes."""
        return OnnxTrace(self._runner, inputs, {layer: self._layers[layer] for layer in layers})

    def _observe(
        self, inputs: Inputs, layers: Sequence[str], observer: ActivationAccumulator, seeds: Seeds | None
    ) -> None:
        """Record passes that fit into memory; what gradients need is kept only where there are seeds."""
        chosen = {layer: self._layers[layer] for layer in layers}

        def record(rows: slice) -> Trace:
            return OnnxTrace(self._runner, take(inputs, rows), chosen, gradients=seeds is not None)

        observe_traces(record, count(inputs), observer, seeds)

    def _cut(self, inputs: Inputs, layers: Sequence[str]) -> Cut:
        """Cut the graph before the layers; use the plain cut if a tensor mixes the inputs."""
        chosen = {name: layer for name, layer in self._layers.items() if name in layers}
        first = next(iter(chosen))
        frozen = dict(self._runner.values), frozenset(self._runner.touched)

        def outputs(rows: Array | None) -> Array:
            with self._runner.temporary_weights(*frozen):
                return self.activations(take(inputs, rows), first)[0].leaving

        def plain() -> Cut:
            with self._runner.temporary_weights(*frozen):
                return PlainCut(self, inputs, layers)

        try:
            return OnnxCut(self._runner, inputs, chosen, outputs, plain)
        except NotCuttableError as error:
            return self._cut_plainly(inputs, layers, error)

    def save(self, path: Path) -> None:
        """A copy of the original in which only the bytes of changed weights differ."""
        io.save(self._model, {name: self._runner.values[name] for name in sorted(self._runner.touched)}, Path(path))

    def fix_inputs(self, values: Mapping[str, Array]) -> None:
        """Make the values constants of the graph; the file does not change."""
        runner = self._runner
        graph = with_fixed(runner.bare, values, runner.unused)
        self._open(self._runner_of(graph, runner.output_head, runner.device, runner.unused))

    def fix_shapes(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Read the graph again with these sizes in place of free ones; the file does not change."""
        self.only_scores = None
        self._open_graph(replace(self._model, model=io.with_shapes(self._model.model, shapes)), self._runner.device)

    def example_inputs(self, n: int, *, seed: int = 0) -> Inputs:
        """Draw inputs of the declared shapes and dtypes."""
        taken = {
            name: (kind.shape[1:], str(helper.tensor_dtype_to_np_dtype(kind.element)))
            for name, kind in self._runner.graph.inputs.items()
            if kind.shape is not None
        }
        if len(taken) < len(self._runner.graph.inputs):
            raise ModelError(
                "the model does not tell the shapes of its inputs; give some data instead", argument="data"
            )
        return random_inputs(taken, n, self.layers, seed=seed)

    def describe(self) -> Description:
        """Describe the model; the notes list shared tensors and layers that are out of reach."""
        return replace(super().describe(), beside=tuple(sorted(self._model.beside)))

    def _watch(self, inputs: Inputs, layer: str) -> OnnxTrace:
        """Compute tensors of the graph, batch first, in one run."""
        return OnnxTrace(self._runner, inputs, {layer: self._layers[layer]}, gradients=False)

    def _framework(self) -> str:
        return f"onnxruntime {onnxruntime.__version__}"

    def _device(self) -> str:
        return self._forward_program().providers[0]

    def _forward_program(self) -> Program:
        return self._runner.score_program()


def _without_rule(operators: Sequence[str], lost: Sequence[str], left: Sequence[str]) -> str:
    remain = f"; these remain: {_some(left)}" if left else "; none remains"
    if any(operator.startswith("com.microsoft") for operator in operators):
        remain += "; onnxruntime has fused this graph: repair the file from before its optimisation"
    return f"no gradient passes {_some(operators)}, so these layers are out of reach: {_some(lost)}{remain}"


def _largest(reasons: Mapping[str, str], model: io.LoadedModel) -> str:
    if not reasons:
        return "no floating-point weights stand before its scores"
    name = max(reasons, key=lambda name: math.prod(model.locations[name].shape))
    return f"its largest weight is '{name}', and {reasons[name]}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
