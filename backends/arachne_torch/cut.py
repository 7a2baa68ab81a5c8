"""The fast path: the model held open at a layer, everything that no candidate can change computed once.

The model's pass is recorded (`tape.py`) and its steps fall into two parts: those behind the layers a search may change,
and all others. The others run once for all inputs, and the results that the first part needs are stored. A candidate
then runs the first part alone, with its own values in the slots of the parameters it changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from arachne.adapting.batch_axis import BatchAxis
from arachne.adapting.outputs import join_activations
from arachne.model.backend import Cut, LossGradient, Weights, compute_gradient
from arachne.model.values import EVEN, Activation, Array, Inputs, batches, count, take
from arachne_torch.gradients import gradients_of, pull_back, push
from arachne_torch.layers import Layer
from arachne_torch.output_head import find_output_head
from arachne_torch.recorder import Picker, Recording, record
from arachne_torch.running import MAX_BATCH_BYTES, Runner, as_tensor, to_array
from arachne_torch.tape import (
    NotRecordableError,
    RecordedCall,
    Tape,
    Values,
    required_slots,
    run,
    select_needed,
    split_steps,
)
from arachne_torch.threads import one_thread
from arachne_torch.trace import Pass, TorchTrace
from arachne_torch.watch import Recorder, Watch

SMALL_BATCH_ROWS, LARGE_BATCH_ROWS = 3, 5
"""The two batch sizes a model is recorded with."""

TOLERANCE = 1e-4
"""How far, relative to the largest score, a recording's scores may lie from the model's own."""


MAX_GRADIENT_ROWS = 1 << 14
"""The largest number of rows that run behind a cut at once when gradients are taken."""

MIN_ROWS_PER_CALL = 64
"""If the whole model takes fewer rows than this at once, run up to this many behind a cut: that part of the model needs
less memory, and larger batches share the cost of reading its weights."""

MIN_SEEDED_SHARE = 0.5
"""If fewer rows than this share have a loss gradient, find those rows first by a pass without gradients."""

SINGLE_ROW_TRIALS = 16
"""How many inputs are tried one by one if a model's control flow depends on values."""


class TorchCut(Cut):
    """A recorded model, cut at the earliest use of some layers.

    Args:
        runner: The model, after `look`.
        inputs: `n` inputs.
        layers: The layers a search may change.

    Raises:
        NotRecordableError: The model cannot be recorded, or its recording does not give the same scores.
    """

    def __init__(self, runner: Runner, inputs: Inputs, layers: Mapping[str, Layer]) -> None:
        self._runner, self._layers, self._n = runner, layers, count(inputs)
        self._no_scores = np.empty((0, *runner.shape), np.float32)
        self._tape = tape = _record_model(runner, inputs)
        at = next(at for at, step in enumerate(tape.steps) if not layers.keys().isdisjoint(step.layers))
        head = tape.steps[at]
        self._leaving = head.gives[0][0]
        leaving = tape.batch_axes[self._leaving] if head.continues else None
        self._batch_axis = leaving if leaving is not None and leaving.axis is not None else None
        layer = next(layer for layer in head.layers if layer in layers)
        infos = [one.info for one in layers.values()]
        super().__init__(layer, infos, continues_from_outputs=self._batch_axis is not None)
        self._inputs = None if self._batch_axis else inputs
        self._then = {} if self._batch_axis else runner.snapshot()
        touched = {tape.named[slice_.name] for layer in layers.values() for slice_ in layer.stored.values()}
        before, behind = split_steps(tape, at, touched)
        self._all = select_needed(behind, {tape.output})
        self._up_to_head = select_needed(behind[: behind.index(head) + 1], {self._leaving})
        self._from_head = select_needed([step for step in behind if step is not head], {tape.output})
        self._in_place = any(step.mutates for step in behind)
        crossing = required_slots(self._all, tape.output) | required_slots(self._up_to_head, self._leaving)
        with torch.no_grad():
            self._own = {
                number: runner.parameters[name].detach().clone()
                for name, number in tape.named.items()
                if number in crossing
            }
            self._crossing = self._compute_crossing(before, inputs, crossing)
        self._check(inputs)

    @one_thread()
    def outputs(self, rows: Array | None = None) -> Array:
        """Run the layer's own call on the stored tensors; step by step if the call shows no outputs."""
        if rows is not None and not len(rows):
            return self.outputs(np.array([0]))[:0]
        if self._batch_axis is None:
            return self._trace_outputs(rows)
        found = [
            self._batch_axis.to_batch_first(self._run(self._up_to_head, self._leaving, part, {}), len(part))
            for part in self._parts(rows)
        ]
        return np.concatenate(found)

    @one_thread()
    def activation(self, rows: Array) -> Activation | None:
        """Watch the recorded calls up to the layer's own."""
        if self._batch_axis is None or self._layers[self.layer].info.uses != 1 or not len(rows):
            return None
        with torch.no_grad():
            return join_activations(self._runner.run_steps(self._watch, self._parts(rows)), len(rows))[self.layer][0]

    @one_thread()
    def _scores_from_outputs(self, outputs: Array, rows: Array | None) -> Array:
        """Run everything behind the layer on these outputs."""
        if self._batch_axis is None:
            raise NotImplementedError
        found, done = [self._no_scores], 0
        for part in self._parts(rows):
            given = self._tensor(self._batch_axis.from_batch_first(outputs[done : done + len(part)]))
            found.append(self._run(self._from_head, self._tape.output, part, {self._leaving: given}))
            done += len(part)
        return np.concatenate(found)

    @one_thread()
    def _scores_with(self, weights: Weights, rows: Array | None) -> Array:
        """Run the layer and everything behind it with these weights."""
        changed: dict[int, Tensor] = {}
        for (layer, parameter), values in weights.items():
            self._change(changed, layer, parameter, values)
        run = partial(self._run, self._all, self._tape.output, given=changed)
        return np.concatenate([self._no_scores, *self._runner.run_steps(run, self._parts(rows))])

    @one_thread()
    def _weight_gradients(self, weights: Weights, loss: LossGradient, rows: Array | None) -> Weights:
        """Run the recorded calls behind the layer again, with weights that require gradients."""
        changed: dict[int, Tensor] = {}
        for (layer, parameter), values in weights.items():
            self._change(changed, layer, parameter, values)
        slices = {(layer, name): slice_ for layer, own in self._layers.items() for name, slice_ in own.stored.items()}
        numbers = {slice_.name: self._tape.named[slice_.name] for slice_ in slices.values()}
        leaves = {
            name: changed.get(number, self._own[number]).detach().requires_grad_() for name, number in numbers.items()
        }
        given, done = {number: leaves[name] for name, number in numbers.items()}, 0
        wanted, pulled_at = list(leaves.values()), 1.0
        for part in self._parts(rows, self._affordable):
            if self._runner.rows < MIN_ROWS_PER_CALL and pulled_at < MIN_SEEDED_SHARE:
                break
            with torch.enable_grad():
                scores = self._runner.finish(self._run_steps(self._all, part, given)[self._tape.output])
            seed = pull_back(scores, loss, done, wanted)
            pulled_at = float(seed.any(axis=1).mean())
            done += len(part)
        whole = np.arange(self._n) if rows is None else rows
        if done < len(whole):
            self._pull_where_needed(loss, whole, done, given, wanted)
        return gradients_of(slices, leaves)

    def _pull_where_needed(
        self, loss: LossGradient, rows: Array, start: int, given: Mapping[int, Tensor], wanted: Sequence[Tensor]
    ) -> None:
        """Add the gradients of the rows from `start` on; rows without a loss gradient skip the backward pass."""
        values = {at: leaf.detach() for at, leaf in given.items()}
        run = partial(self._run, self._all, self._tape.output, given=values)
        seeds, done = [], start
        for scores in self._runner.run_steps(run, self._parts(rows[start:])):
            seeds.append(compute_gradient(loss, scores, slice(done, done + len(scores))))
            done += len(scores)
        seed = np.concatenate(seeds)
        needed = np.flatnonzero(seed.any(axis=1))
        for some in batches(len(needed), self._affordable):
            own = needed[some]
            with torch.enable_grad():
                slots = self._run_steps(self._all, rows[start + own], given)
            push(self._runner.finish(slots[self._tape.output]), seed[own], wanted)

    @cached_property
    def _affordable(self) -> int:
        """How many rows fit into memory behind the cut when every result is kept for gradients."""
        few = range(min(self._n, SMALL_BATCH_ROWS))
        values: Values = {**self._tape.constants, **self._own, **self._select_rows(few)}
        size = 0
        with torch.no_grad():
            for step in self._all:
                step.run(values, len(few))
                results = (values[number] for number, _ in step.gives)
                size += sum(result.nbytes for result in results if isinstance(result, Tensor))
        own = sum(tensor.nbytes for tensor in self._own.values())
        return max(1, min(MAX_GRADIENT_ROWS, max(MAX_BATCH_BYTES // 4, own) * len(few) // max(size, 1)))

    def _watch(self, part: Array | range) -> Mapping[str, Sequence[Activation]]:
        """Run the recorded calls up to the layer on some rows, and watch it."""

        def run(watch: Watch) -> Tensor:
            with watch:
                found: Tensor = self._run_steps(self._up_to_head, part, {})[self._leaving]
            return found

        own = {name: self._own[number] for name, number in self._tape.named.items() if number in self._own}
        return Pass(self._runner, len(part), run, [self.layer], own).seen

    def _trace_outputs(self, rows: Array | None) -> Array:
        if self._inputs is None:
            raise ValueError("this cut runs its layer's own call")
        trace = TorchTrace(self._runner, take(self._inputs, rows), [self.layer], gradients=False, weights=self._then)
        return trace.activations[self.layer][0].leaving

    def _change(self, changed: dict[int, Tensor], layer: str, parameter: str, values: Array) -> None:
        """Put values into the slot of the tensor they are stored in, which may hold other parameters too."""
        slice_ = self._layers[layer].stored[parameter]
        number = self._tape.named[slice_.name]
        given = as_tensor(values).to(self._runner.device, self._own[number].dtype)
        if slice_.rows is None:
            changed[number] = slice_.view(given)
        else:
            whole = changed.setdefault(number, self._own[number].clone())
            slice_.view(whole).copy_(given)

    def _tensor(self, array: Array) -> Tensor:
        tensor = as_tensor(array).to(self._runner.device, self._runner.dtype)
        return tensor.clone() if self._in_place else tensor

    def _parts(self, rows: Array | None, size: int | None = None) -> Iterator[Array | range]:
        """Yield the rows in batches, as a range if they are adjacent."""
        if size is None:
            size = (
                self._runner.rows
                if self._runner.rows >= MIN_ROWS_PER_CALL
                else min(MIN_ROWS_PER_CALL, self._affordable)
            )
        if rows is None:
            yield from (range(part.start, part.stop) for part in batches(self._n, size))
        else:
            yield from (rows[part] for part in batches(len(rows), size))

    def _run(
        self, steps: Sequence[RecordedCall], wanted: int, rows: Array | range, given: Mapping[int, Tensor]
    ) -> Array:
        with torch.no_grad():
            result = self._run_steps(steps, rows, given)[wanted]
            return to_array(self._runner.finish(result).float() if wanted == self._tape.output else result)

    def _run_steps(self, steps: Sequence[RecordedCall], rows: Array | range, given: Mapping[int, Tensor]) -> Values:
        """Run steps on some rows and return the values of all slots."""
        values = {**self._tape.constants, **self._own, **self._select_rows(rows), **given}
        run(steps, values, len(rows))
        return values

    def _select_rows(self, rows: Array | range) -> Values:
        """Select some rows of every stored tensor."""
        index = None if isinstance(rows, range) else torch.from_numpy(np.array(rows, dtype=np.int64))
        chosen: Values = {}
        for number, kept in self._crossing.items():
            tensor = kept.tensor
            if kept.axis is not None and index is not None:
                tensor = tensor.index_select(kept.axis, index.to(tensor.device))
            elif kept.axis is not None and isinstance(rows, range):
                tensor = tensor.narrow(kept.axis, rows.start, len(rows))
            tensor = tensor if kept.folded is None else tensor.flatten(kept.folded, kept.folded + 1)
            chosen[number] = tensor.clone() if self._in_place else tensor
        return chosen

    def _compute_crossing(
        self, before: Sequence[RecordedCall], inputs: Inputs, crossing: set[int]
    ) -> dict[int, _CrossingTensor]:
        """Compute every tensor that crosses the cut, for all inputs."""
        crossing = crossing - self._tape.constants.keys() - set(self._tape.named.values())
        joined = {number: _Joined(self._n, self._tape.batch_axes[number]) for number in crossing}
        steps = select_needed(before, crossing)
        named = {number: self._runner.parameters[name].detach() for name, number in self._tape.named.items()}
        opaque = any(step.opaque for step in steps)

        def run_part(part: slice) -> Values:
            batch = take(inputs, part)
            if opaque:
                return self._pick_from_pass(batch, crossing)
            values = {**self._tape.constants, **named, **_input_slots(self._tape, self._runner, batch)}
            run(steps, values, part.stop - part.start)
            return {number: values[number] for number in crossing}

        each = batches(self._n, max(EVEN, self._runner.rows))
        for values in map(run_part, each) if opaque else self._runner.run_steps(run_part, each):
            for number, one in joined.items():
                one.add(values[number])
        return {number: one.crossing for number, one in joined.items()}

    def _pick_from_pass(self, inputs: Inputs, crossing: set[int]) -> Values:
        """Take crossing tensors from a pass of the model itself, because a step before the cut cannot be run again."""
        picker = Picker(self._tape, crossing, self._runner.tensor_ids())
        tensors = self._runner.tensors(inputs)
        with picker:
            self._runner.pick_output(self._runner.call(tensors))
        return {**picker.values, **_input_slots(self._tape, self._runner, inputs)}

    def _check(self, inputs: Inputs) -> None:
        """Compare the recording with the model, on batches of other sizes and orders than it was recorded with."""
        trials = [np.unique(np.array([self._n - 1, 0]))[::-1]]
        if any(
            step.expects is not None or step.opaque for step in self._tape.steps
        ):  # another row alone may take another course
            trials += list(np.unique(np.linspace(0, self._n - 1, SINGLE_ROW_TRIALS).astype(np.int64))[:, None])
        if any(step.opaque for step in self._tape.steps):  # sizes follow the inputs' values: try all of them
            trials += [np.arange(self._n)[part] for part in batches(self._n, self._runner.rows)]
        for rows in trials:
            with torch.no_grad():
                expected = to_array(self._runner.scores(take(inputs, rows)).float())
            try:
                given = self.scores_with({}, rows)
            except (RuntimeError, IndexError, ValueError, TypeError) as error:
                raise NotRecordableError("its recorded calls cannot be run again on other inputs") from error
            if np.abs(given - expected).max() > TOLERANCE * max(1.0, np.abs(expected).max()):
                raise NotRecordableError("running its recorded calls again gives other scores")


def _record_model(runner: Runner, inputs: Inputs) -> Tape:
    if runner.fixed:
        raise NotRecordableError("it takes one batch size only")
    if not count(inputs):
        raise NotRecordableError("there are no inputs")
    # Rows from all over the data, so that what differs between inputs (lengths, masks) is seen.
    rows = np.linspace(0, count(inputs) - 1, LARGE_BATCH_ROWS).astype(np.int64)
    small, large = (_record_pass(runner, take(inputs, chosen)) for chosen in (rows[:SMALL_BATCH_ROWS], rows))
    return record(small, large, runner.parameters)


def _record_pass(runner: Runner, inputs: Inputs) -> Recording:
    tensors = runner.tensors(inputs)
    recorder = Recorder(runner.tensor_ids())
    with torch.no_grad(), recorder:
        output = runner.pick_output(runner.call(tensors))
    _, scored = find_output_head(recorder.calls, output)
    return Recording(recorder.calls, tensors if isinstance(tensors, dict) else {"": tensors}, scored, count(inputs))


def _input_slots(tape: Tape, runner: Runner, inputs: Inputs) -> Values:
    tensors = runner.tensors(inputs)
    named = tensors if isinstance(tensors, dict) else {"": tensors}
    return {number: named[name] for name, number in tape.inputs.items()}


@dataclass(frozen=True, eq=False)
class _CrossingTensor:
    """A tensor that crosses the cut.

    Attributes:
        tensor: Its values for all inputs.
        axis: The axis the inputs lie on; None if it is the same for all of them.
        folded: The first of two axes that are a single axis in the model, if several entries belong to one input.
    """

    tensor: Tensor
    axis: int | None
    folded: int | None = None


class _Joined:
    """A tensor that crosses the cut: batches are copied to their place as they come, never held beside the whole."""

    def __init__(self, n: int, batch_axis: BatchAxis | None) -> None:
        if batch_axis is None:
            raise NotRecordableError("a tensor that crosses the cut mixes its inputs with each other")
        self._n, self._axis, self._each, self._strided = n, batch_axis.axis, batch_axis.each, batch_axis.strided
        self._whole: Tensor | None = None
        self._done = 0

    def add(self, part: Tensor) -> None:
        """Take the next batch."""
        axis = self._axis
        if axis is None:
            self._whole = part if self._whole is None else self._whole
            return
        if self._each > 1:
            part = torch.unflatten(part, axis, (self._each, -1) if self._strided else (-1, self._each))
            axis += int(self._strided)
        if self._whole is None:
            self._whole = part if part.shape[axis] == self._n else _make_room(part, axis, self._n)
        if self._whole is not part:
            place = self._whole.narrow(axis, self._done, min(part.shape[axis], self._n - self._done))
            if (place.shape, place.dtype) != (part.shape, part.dtype):
                raise NotRecordableError("a tensor that crosses the cut has other sizes for other inputs")
            place.copy_(part)
        self._done += part.shape[axis]

    @property
    def crossing(self) -> _CrossingTensor:
        """The tensor with all batches."""
        if self._whole is None or (self._axis is not None and self._done != self._n):
            raise NotRecordableError("a tensor that crosses the cut has other sizes for other inputs")
        if self._axis is None or self._each == 1:
            return _CrossingTensor(self._whole, self._axis)
        return _CrossingTensor(self._whole, self._axis + int(self._strided), self._axis)


def _make_room(part: Tensor, axis: int, n: int) -> Tensor:
    """Make a tensor for `n` inputs, which lie on an axis, with the layout of a batch and no values yet."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(part.dim(), torch.contiguous_format)
    plain = part.is_contiguous() or not part.is_contiguous(memory_format=last)
    shape, layout = (*part.shape[:axis], n, *part.shape[axis + 1 :]), torch.contiguous_format if plain else last
    return torch.empty(shape, dtype=part.dtype, device=part.device, memory_format=layout)
