"""A cut of a Keras model: crossing tensors are stored, the steps behind them are compiled once for all candidates.

The compiled function takes the crossing tensors and the touched variables as arguments. Nothing is assigned to the
model, and TensorFlow traces the function once for all rows and weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from keras import ops

from arachne.model.backend import Cut, LossGradient, Weights
from arachne.model.values import Array, Inputs, batches, count
from arachne_keras.autodiff import FRAMEWORK, stored_array, to_array
from arachne_keras.gradients import gradients_of, seed_of
from arachne_keras.graph import Graph, OpCall, Values
from arachne_keras.running import Runner, affordable
from arachne_keras.watch import Watch

MAX_ROWS_PER_CALL = 1 << 14
"""The largest number of rows per call of a compiled function."""


class KerasCut(Cut):
    """The steps behind some layers.

    Args:
        runner: The model.
        inputs: The inputs to keep.
        layers: The names of the touched layers.
    """

    def __init__(self, runner: Runner, inputs: Inputs, layers: Sequence[str]) -> None:
        self._runner = runner
        self._graph = runner.graph
        self._touched = {name: runner.layers[name] for name in runner.layers if name in layers}
        infos = [layer.info() for layer in self._touched.values()]
        # A sequence has no single output to continue from.
        super().__init__(infos[0].name, infos, continues_from_outputs=infos[0].kind != "recurrent")
        self._crossing = _CrossingTensors(runner, inputs, _users(runner, layers))
        self._behind = self._crossing.behind
        self._rows = runner.fixed or affordable(self._graph, self._behind, MAX_ROWS_PER_CALL)
        variables = [stored.variable for layer in self._touched.values() for stored in layer.stored.values()]
        self._variables = list({id(variable): variable for variable in variables}.values())
        self._arrays = {id(variable): stored_array(variable) for variable in self._variables}
        used = {id(v): v for step in self._behind for v in getattr(step.operation, "variables", ())}
        self._fixed = {key: FRAMEWORK.snapshot(variable) for key, variable in used.items()}
        self._functions: dict[str, Callable[..., Any]] = {}

    def outputs(self, rows: Array | None = None) -> Array:
        """One watched pass; nothing behind the layer's step is computed."""
        found = []
        for values, n in self._crossing.batches(rows, self._rows):
            watch = Watch(self._runner.kinds, [self.layer])
            scope = self._runner.stateless(self._fixed, self._runner.model.variables)
            with FRAMEWORK.no_gradients(), scope, self._runner.faults(), watch.watching():
                self._graph.run(values, self._behind[:1])
            found.append(watch.uses[self.layer][0].activation(n).leaving)
        return np.concatenate(found)

    def _scores_from_outputs(self, outputs: Array, rows: Array | None) -> Array:
        """Replace the result of the first use by `outputs`; all other weights are those at the time of the cut."""
        layer = self._runner.layers[self.layer]
        whole = layer.kind.inverse(layer, np.asarray(outputs))
        found, done = [], 0
        for values, n in self._crossing.batches(rows, self._rows):
            part = whole[done : done + n]
            filled = len(next(iter(values.values()))) - n
            part = np.concatenate([part, np.zeros((filled, *part.shape[1:]), part.dtype)]) if filled else part
            given = ops.convert_to_tensor(np.ascontiguousarray(part), dtype=layer.kind.keras.compute_dtype)
            found.append(self._call("outputs", values, [given])[:n])
            done += n
        return np.concatenate(found)

    def _scores_with(self, weights: Weights, rows: Array | None) -> Array:
        """Pass the touched variables as arguments."""
        given = self._variable_tensors(weights)
        batches_of_rows = self._crossing.batches(rows, self._rows)
        return np.concatenate([self._call("weights", values, given)[:n] for values, n in batches_of_rows])

    def _weight_gradients(self, weights: Weights, loss: LossGradient, rows: Array | None) -> Weights:
        """Run the steps behind the layers again, with weights that require gradients."""
        given = self._variable_tensors(weights)
        slices = {(name, key): s for name, layer in self._touched.items() for key, s in layer.stored.items()}

        def batches_of_rows() -> Iterator[Sequence[Any]]:
            done = 0
            for values, n in self._crossing.batches(rows, self._rows):
                kept = self._tensors(values)
                yield FRAMEWORK.pull_back(partial(self._behind_with, kept), given, seed_of(loss, done, n))
                done += n

        return gradients_of(slices, batches_of_rows())

    def _behind_with(self, kept: Sequence[Any], tensors: Sequence[Any]) -> Any:
        return self._with_weights(*kept, *tensors)

    def _variable_tensors(self, weights: Weights) -> list[Any]:
        """Return the touched variables as tensors, with these parameters replaced."""
        arrays = dict(self._arrays)
        for (layer, parameter), values in weights.items():
            stored = self._touched[layer].stored[parameter]
            arrays[id(stored.variable)] = stored.put(arrays[id(stored.variable)], np.asarray(values))
        return [ops.convert_to_tensor(arrays[id(v)], dtype=v.dtype) for v in self._variables]

    def _tensors(self, values: Values) -> list[Any]:
        """List the crossing tensors, then their masks."""
        slots, masks = self._crossing.slots, self._crossing.masked
        return [values[slot] for slot in slots] + [values[slot]._keras_mask for slot in masks]

    def _call(self, what: str, values: Values, given: Sequence[Any]) -> Array:
        tensors = self._tensors(values)
        if what not in self._functions:
            function = self._from_outputs if what == "outputs" else self._with_weights
            self._functions[what] = FRAMEWORK.compile(
                function, [*tensors, *given], rows=len(tensors) + (what == "outputs")
            )
        with FRAMEWORK.no_gradients(), self._runner.faults():
            return to_array(self._functions[what](*tensors, *given))

    def _from_outputs(self, *tensors: Any) -> Any:
        watch = Watch(self._runner.kinds, [self.layer], given={self.layer: tensors[-1]})
        with self._runner.stateless(self._fixed, self._runner.model.variables):
            return self._runner.scores_from(self._values(tensors[:-1]), self._behind, watch)

    def _with_weights(self, *tensors: Any) -> Any:
        n = len(self._variables)
        changed = {id(variable): tensor for variable, tensor in zip(self._variables, tensors[-n:], strict=True)}
        with self._runner.stateless({**self._fixed, **changed}, self._runner.model.variables):
            return self._runner.scores_from(self._values(tensors[:-n]), self._behind)

    def _values(self, tensors: Sequence[Any]) -> Values:
        slots = self._crossing.slots
        values = dict(zip(slots, tensors[: len(slots)], strict=True))
        for slot, mask in zip(self._crossing.masked, tensors[len(slots) :], strict=True):
            values[slot]._keras_mask = mask
        return {**values, **self._crossing.constant}


class _CrossingTensors:
    """The tensors that cross the cut, for all inputs.

    Attributes:
        behind: The steps behind the cut.
        slots: The slots whose values cross it, one row per input.
        masked: The slots with a Keras mask.
        constant: Values that cross it and do not depend on the inputs.
    """

    def __init__(self, runner: Runner, inputs: Inputs, first: set[int]) -> None:
        self._runner = runner
        self._n = count(inputs)
        self.behind = _steps_behind(runner.graph, first)
        before = [step for step in runner.graph.steps if step not in self.behind]
        made = {slot for step in self.behind for slot in step.gives}
        crossing = {slot for step in self.behind for slot in step.takes.values()} - made
        parts: dict[int, list[Any]] = {slot: [] for slot in sorted(crossing)}
        masks: dict[int, list[Any]] = {}
        self.constant: Values = {}
        for batch in runner.batches(inputs):
            with FRAMEWORK.no_gradients(), runner.faults():
                values = runner.graph.run(runner.graph_inputs(batch), before, keep=crossing)
            full = runner.fixed or max(count(batch), 1)
            for slot in parts:
                if len(values[slot].shape) == 0 or values[slot].shape[0] != full:
                    self.constant[slot] = values[slot]
                    continue
                parts[slot].append(values[slot][: count(batch)])
                mask = getattr(values[slot], "_keras_mask", None)
                if mask is not None:
                    masks.setdefault(slot, []).append(mask[: count(batch)])
        self.slots = [slot for slot in parts if slot not in self.constant]
        self.masked = list(masks)
        self._tensors = {slot: _concatenate(parts[slot]) for slot in self.slots}
        self._masks = {slot: _concatenate(found) for slot, found in masks.items()}

    def batches(self, rows: Array | None, size: int) -> Sequence[tuple[Values, int]]:
        """Return the values of some rows batch by batch, each with its number of rows without padding."""
        chosen = np.arange(self._n) if rows is None else np.arange(self._n)[np.asarray(rows)]
        found = []
        for part in batches(max(len(chosen), 1), size):
            wanted = chosen[part]
            least = self._runner.fixed or 1
            filled = np.concatenate([wanted, np.zeros(max(least - len(wanted), 0), np.int64)])
            if rows is None and len(wanted) == self._n == len(filled):
                values = dict(self._tensors)  # no copy for the common case
            else:
                values = {slot: self._take_rows(tensor, filled) for slot, tensor in self._tensors.items()}
            for slot, mask in self._masks.items():
                values[slot]._keras_mask = self._take_rows(mask, filled)
            found.append((values, len(wanted)))
        return found

    def _take_rows(self, tensor: Any, rows: Array) -> Any:
        if not self._n:  # no inputs at all: use one row of zeros, which is cut off again
            return ops.zeros((len(rows), *tensor.shape[1:]), dtype=tensor.dtype)
        return ops.take(tensor, rows, axis=0)


def _concatenate(parts: Sequence[Any]) -> Any:
    return parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=0)


def _users(runner: Runner, layers: Sequence[str]) -> set[int]:
    return {number for layer in layers for number in runner.users[layer]}


def _steps_behind(graph: Graph, first: set[int]) -> list[OpCall]:
    """The steps that use a touched layer or depend on one that does."""
    found: list[OpCall] = []
    made: set[int] = set()
    for number, step in enumerate(graph.steps):
        if number in first or made & set(step.takes.values()):
            found.append(step)
            made |= set(step.gives)
    return found
