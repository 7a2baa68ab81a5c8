"""The fast path: the model held open at a layer, everything that no candidate can change computed once.

The model's pass is recorded (`tape.py`) and its steps fall into two parts: those behind the layers a search may change,
and all others. The others run once for all inputs, and what the first part takes from them is kept. A candidate then
runs the first part alone, with its own values in the slots of the parameters it changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from arachne.adapting.folds import Fold
from arachne.backend import Cut, Pull, Weights, pulled
from arachne.values import Array, Inputs, batches, count, take
from arachne_torch.ending import find_ending
from arachne_torch.gradients import gradients_of, pull_back, push
from arachne_torch.layers import Layer
from arachne_torch.running import MEMORY, Runner, as_tensor, to_array
from arachne_torch.tape import NotRecordableError, Step, Tape, Values, run
from arachne_torch.taping import Picker, Recording, record
from arachne_torch.trace import TorchTrace
from arachne_torch.watch import Recorder

SMALL, LARGE = 3, 5
"""The two batch sizes a model is recorded with."""

TOLERANCE = 1e-4
"""How far, relative to the largest score, a recording's scores may lie from the model's own."""


LARGEST = 1 << 14
"""How many rows pass behind a cut at once, at most, when gradients are taken."""

TOGETHER = 64
"""Where fewer rows than this pass the whole model at once, more may pass behind a cut: it is a part of the model, and
what its weights cost to read is shared by them."""

HALF = 0.5
"""Where a loss pulls at fewer rows than this share, the others are found out by a pass without gradients."""

SINGLES = 16
"""How many inputs are tried one by one where a model's course depends on values."""


class TorchCut(Cut):
    """A recorded model, cut at the earliest use of some layers.

    Args:
        runner: The model; it has been looked at.
        inputs: `n` inputs.
        layers: The layers a search may change.

    Raises:
        NotRecordableError: The model cannot be recorded, or its recording does not give the same scores.
    """

    def __init__(self, runner: Runner, inputs: Inputs, layers: Mapping[str, Layer]) -> None:
        self._runner, self._layers, self._n = runner, layers, count(inputs)
        self._no_scores = np.empty((0, runner.classes), np.float32)
        self._tape = tape = _recorded(runner, inputs)
        at = next(at for at, step in enumerate(tape.steps) if not layers.keys().isdisjoint(step.layers))
        head = tape.steps[at]
        self._leaving = head.gives[0][0]
        leaving = tape.folds[self._leaving] if head.continues else None
        self._fold = leaving if leaving is not None and leaving.axis is not None else None
        layer = next(layer for layer in head.layers if layer in layers)
        infos = [one.info for one in layers.values()]
        super().__init__(layer, infos, continues_from_outputs=self._fold is not None)
        self._inputs = inputs
        self._then = {} if self._fold else runner.snapshot()
        touched = {tape.named[place.name] for layer in layers.values() for place in layer.stored.values()}
        before, behind = _parted(tape, at, touched)
        self._all = _needed(behind, {tape.output})
        self._up_to_head = _needed(behind[: behind.index(head) + 1], {self._leaving})
        self._from_head = _needed([step for step in behind if step is not head], {tape.output})
        self._in_place = any(step.mutates for step in behind)
        crossing = _entering(self._all, tape.output) | _entering(self._up_to_head, self._leaving)
        with torch.no_grad():
            self._own = {
                number: runner.parameters[name].detach().clone()
                for name, number in tape.named.items()
                if number in crossing
            }
            self._kept = self._computed(before, inputs, crossing)
        self._check(inputs)

    def outputs(self, rows: Array | None = None) -> Array:
        """The kept tensors through the layer's own call; step by step where the call shows no outputs."""
        if rows is not None and not len(rows):
            return self.outputs(np.array([0]))[:0]
        if self._fold is None:
            return self._traced(rows)
        found = [
            self._fold.apart(self._run(self._up_to_head, self._leaving, part, {}), len(part))
            for part in self._parts(rows)
        ]
        return np.concatenate(found)

    def _scores_from_outputs(self, outputs: Array, rows: Array | None) -> Array:
        """Everything behind the layer, with these outputs in its place."""
        if self._fold is None:
            raise NotImplementedError
        found, done = [self._no_scores], 0
        for part in self._parts(rows):
            given = self._tensor(self._fold.together(outputs[done : done + len(part)]))
            found.append(self._run(self._from_head, self._tape.output, part, {self._leaving: given}))
            done += len(part)
        return np.concatenate(found)

    def _scores_with(self, weights: Weights, rows: Array | None) -> Array:
        """Everything behind the layer and the layer itself, with these weights in their slots."""
        changed: dict[int, Tensor] = {}
        for (layer, parameter), values in weights.items():
            self._change(changed, layer, parameter, values)
        found = [self._run(self._all, self._tape.output, part, changed) for part in self._parts(rows)]
        return np.concatenate([self._no_scores, *found])

    def _weight_gradients(self, weights: Weights, pull: Pull, rows: Array | None) -> Weights:
        """The recorded calls behind the layer, run again with tensors that gradients are taken by."""
        changed: dict[int, Tensor] = {}
        for (layer, parameter), values in weights.items():
            self._change(changed, layer, parameter, values)
        places = {(layer, name): place for layer, own in self._layers.items() for name, place in own.stored.items()}
        numbers = {place.name: self._tape.named[place.name] for place in places.values()}
        leaves = {
            name: changed.get(number, self._own[number]).detach().requires_grad_() for name, number in numbers.items()
        }
        given, done = {number: leaves[name] for name, number in numbers.items()}, 0
        wanted, pulled_at = list(leaves.values()), 1.0
        for part in self._parts(rows, self._affordable):
            if self._runner.rows < TOGETHER and pulled_at < HALF:
                break
            with torch.enable_grad():
                scores = self._runner.finish(self._filled(self._all, part, given)[self._tape.output])
            seed = pull_back(scores, pull, done, wanted)
            pulled_at = float(seed.any(axis=1).mean())
            done += len(part)
        whole = np.arange(self._n) if rows is None else rows
        if done < len(whole):
            self._pull_where_needed(pull, whole, done, given, wanted)
        return gradients_of(places, leaves)

    def _pull_where_needed(
        self, pull: Pull, rows: Array, start: int, given: Mapping[int, Tensor], wanted: Sequence[Tensor]
    ) -> None:
        """Add the gradients of the rows from number `start` on; those that a loss does not pull at pass once, alone."""
        seeds, done = [], start
        for part in self._parts(rows[start:]):
            scores = self._run(self._all, self._tape.output, part, {at: leaf.detach() for at, leaf in given.items()})
            seeds.append(pulled(pull, scores, slice(done, done + len(part))))
            done += len(part)
        seed = np.concatenate(seeds)
        needed = np.flatnonzero(seed.any(axis=1))
        for some in batches(len(needed), self._affordable):
            own = needed[some]
            with torch.enable_grad():
                slots = self._filled(self._all, rows[start + own], given)
            push(self._runner.finish(slots[self._tape.output]), seed[own], wanted)

    @cached_property
    def _affordable(self) -> int:
        """How many rows may pass behind the cut at once when every result is kept for gradients."""
        few = range(min(self._n, SMALL))
        values: Values = {**self._tape.constants, **self._own, **self._chosen(few)}
        size = 0
        with torch.no_grad():
            for step in self._all:
                step.run(values, len(few))
                results = (values[number] for number, _ in step.gives)
                size += sum(result.nbytes for result in results if isinstance(result, Tensor))
        own = sum(tensor.nbytes for tensor in self._own.values())
        return max(1, min(LARGEST, max(MEMORY // 4, own) * len(few) // max(size, 1)))

    def _traced(self, rows: Array | None) -> Array:
        chosen = self._inputs if rows is None else take(self._inputs, rows)
        trace = TorchTrace(self._runner, chosen, [self.layer], gradients=False, weights=self._then)
        return trace.activations[self.layer][0].leaving

    def _change(self, changed: dict[int, Tensor], layer: str, parameter: str, values: Array) -> None:
        """Put values into the slot of the tensor they are stored in, which may hold other parameters too."""
        place = self._layers[layer].stored[parameter]
        number = self._tape.named[place.name]
        given = as_tensor(values).to(self._runner.device, self._own[number].dtype)
        if place.rows is None:
            changed[number] = place.view(given)
        else:
            whole = changed.setdefault(number, self._own[number].clone())
            place.view(whole).copy_(given)

    def _tensor(self, array: Array) -> Tensor:
        tensor = as_tensor(array).to(self._runner.device, self._runner.dtype)
        return tensor.clone() if self._in_place else tensor

    def _parts(self, rows: Array | None, size: int | None = None) -> Iterator[Array | range]:
        """The rows in batches; a range stands for rows that lie side by side."""
        if size is None:
            size = self._runner.rows if self._runner.rows >= TOGETHER else min(TOGETHER, self._affordable)
        if rows is None:
            yield from (range(part.start, part.stop) for part in batches(self._n, size))
        else:
            yield from (rows[part] for part in batches(len(rows), size))

    def _run(self, steps: Sequence[Step], wanted: int, rows: Array | range, given: Mapping[int, Tensor]) -> Array:
        with torch.no_grad():
            result = self._filled(steps, rows, given)[wanted]
            return to_array(self._runner.finish(result).float() if wanted == self._tape.output else result)

    def _filled(self, steps: Sequence[Step], rows: Array | range, given: Mapping[int, Tensor]) -> Values:
        """What stands in the slots once these steps have run on these rows."""
        values = {**self._tape.constants, **self._own, **self._chosen(rows), **given}
        run(steps, values, len(rows))
        return values

    def _chosen(self, rows: Array | range) -> Values:
        """The kept tensors of these rows."""
        index = None if isinstance(rows, range) else torch.from_numpy(np.array(rows, dtype=np.int64))
        chosen: Values = {}
        for number, kept in self._kept.items():
            tensor = kept.tensor
            if kept.axis is not None and index is not None:
                tensor = tensor.index_select(kept.axis, index.to(tensor.device))
            elif kept.axis is not None and isinstance(rows, range):
                tensor = tensor.narrow(kept.axis, rows.start, len(rows))
            tensor = tensor if kept.folded is None else tensor.flatten(kept.folded, kept.folded + 1)
            chosen[number] = tensor.clone() if self._in_place else tensor
        return chosen

    def _computed(self, before: Sequence[Step], inputs: Inputs, crossing: set[int]) -> dict[int, _Kept]:
        """Every tensor that crosses the cut, for all inputs."""
        crossing = crossing - self._tape.constants.keys() - set(self._tape.named.values())
        parts: dict[int, list[Tensor]] = {number: [] for number in crossing}
        steps = _needed(before, crossing)
        named = {number: self._runner.parameters[name].detach() for name, number in self._tape.named.items()}
        opaque = any(step.opaque for step in steps)
        for part in batches(self._n, self._runner.rows):
            batch = take(inputs, part)
            if opaque:
                values = self._picked(batch, crossing)
            else:
                values = {**self._tape.constants, **named, **_given(self._tape, self._runner, batch)}
                run(steps, values, part.stop - part.start)
            for number in crossing:
                parts[number].append(values[number])
        return {number: _joined(found, self._tape.folds[number]) for number, found in parts.items()}

    def _picked(self, inputs: Inputs, crossing: set[int]) -> Values:
        """From a pass of the model itself, where a step before the cut cannot be run again."""
        picker = Picker(self._tape, crossing, self._runner.known())
        tensors = self._runner.tensors(inputs)
        with picker:
            self._runner.choose(self._runner.call(tensors))
        return {**picker.values, **_given(self._tape, self._runner, inputs)}

    def _check(self, inputs: Inputs) -> None:
        """The recording must give what the model gives, for batches of other sizes and orders than it was made with."""
        trials = [np.unique(np.array([self._n - 1, 0]))[::-1]]
        if any(
            step.expects is not None or step.opaque for step in self._tape.steps
        ):  # another row alone may take another course
            trials += list(np.unique(np.linspace(0, self._n - 1, SINGLES).astype(np.int64))[:, None])
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


def _recorded(runner: Runner, inputs: Inputs) -> Tape:
    if runner.fixed:
        raise NotRecordableError("it takes one batch size only")
    if not count(inputs):
        raise NotRecordableError("there are no inputs")
    # Rows from all over the data, so that what differs between inputs (lengths, masks) is seen.
    rows = np.linspace(0, count(inputs) - 1, LARGE).astype(np.int64)
    small, large = (_recording(runner, take(inputs, chosen)) for chosen in (rows[:SMALL], rows))
    return record(small, large, runner.parameters)


def _recording(runner: Runner, inputs: Inputs) -> Recording:
    tensors = runner.tensors(inputs)
    recorder = Recorder(runner.known())
    with torch.no_grad(), recorder:
        output = runner.choose(runner.call(tensors))
    _, scored = find_ending(recorder.calls, output)
    return Recording(recorder.calls, tensors if isinstance(tensors, dict) else {"": tensors}, scored, count(inputs))


def _given(tape: Tape, runner: Runner, inputs: Inputs) -> Values:
    tensors = runner.tensors(inputs)
    named = tensors if isinstance(tensors, dict) else {"": tensors}
    return {number: named[name] for name, number in tape.inputs.items()}


@dataclass(frozen=True, eq=False)
class _Kept:
    """A tensor that crosses the cut.

    Attributes:
        tensor: Its values for all inputs.
        axis: The axis the inputs lie on; None if it is the same for all of them.
        folded: Where several entries per input stand on an axis of their own here, the first of the two axes that are
            one for the model.
    """

    tensor: Tensor
    axis: int | None
    folded: int | None = None


def _joined(parts: Sequence[Tensor], fold: Fold | None) -> _Kept:
    if fold is None:
        raise NotRecordableError("a tensor that crosses the cut mixes its inputs with each other")
    if fold.axis is None:
        return _Kept(parts[0], None)
    axis, folded = fold.axis, None
    if fold.each > 1:
        sizes = (fold.each, -1) if fold.strided else (-1, fold.each)
        parts = [torch.unflatten(part, axis, sizes) for part in parts]
        axis, folded = axis + int(fold.strided), axis
    try:
        whole = parts[0] if len(parts) == 1 else torch.cat(list(parts), axis)
    except RuntimeError:
        raise NotRecordableError("a tensor that crosses the cut has other sizes for other inputs") from None
    return _Kept(whole, axis, folded)


def _parted(tape: Tape, start: int, touched: set[int]) -> tuple[list[Step], list[Step]]:
    """Steps that no candidate can change, and steps behind the cut.

    Behind are those that depend on touched parameters. Where steps behind the cut work in place, order matters, and
    everything from the cut on is taken to be behind it. What depends on the number of rows alone (`arange(n)`) stands
    on both sides.
    """
    ordered = any(step.mutates for step in tape.steps[start:])
    hot = set(touched)
    before: list[Step] = []
    behind: list[Step] = []
    for at, step in enumerate(tape.steps):
        if step.expects is not None and step.takes & hot:
            raise NotRecordableError("its course depends on what the layers give")
        if step.opaque and (step.takes & hot or (ordered and at >= start)):
            raise NotRecordableError(step.opaque)
        if step.expects is None and ((ordered and at >= start) or step.takes & hot):
            behind.append(step)
            hot.update(number for number, _ in step.gives)
            continue
        before.append(step)
        if not step.follows and any(tape.folds[number] != Fold(None) for number, _ in step.gives):
            behind.append(step)
    return before, behind


def _entering(steps: Sequence[Step], wanted: int) -> set[int]:
    """The slots that have to be filled before some steps can run and one slot be read."""
    entering: set[int] = set()
    given: set[int] = set()
    for step in steps:
        entering |= step.takes - given
        given.update(number for number, _ in step.gives)
    return entering | ({wanted} - given)


def _needed(steps: Sequence[Step], wanted: set[int]) -> list[Step]:
    """The steps that some slots need, each with the slots it uses last."""
    alive = set(wanted)
    kept: list[Step] = []
    for step in reversed(steps):
        if step.mutates or step.expects is not None or any(number in alive for number, _ in step.gives):
            around = step.takes | {number for number, _ in step.gives}
            kept.append(replace(step, drops=tuple(around - alive)))
            alive |= step.takes
    return kept[::-1]
