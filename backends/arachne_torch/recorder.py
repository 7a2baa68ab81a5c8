"""Make a tape from two passes of a model, and pick values from another pass with the same calls.

The model is recorded twice, on batches of two sizes. An argument that is a whole number and grew with the batch is a
multiple of the batch size; one that stayed is a constant. Nothing is traced symbolically, so any model can be recorded
unless its *control flow* depends on the inputs' values, which is detected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from torch import Tensor

from arachne.adapting.batch_axis import BatchAxis, MixedInputsError
from arachne_torch.batch_axis import find_batch_axis
from arachne_torch.tape import Multiple, NotRecordableError, RecordedCall, Slot, Tape, Values, value_at
from arachne_torch.tensor_ids import TensorIds, tensors_in
from arachne_torch.watch import Call, Listener

READS = ("item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__", "__array__", "equal", "allclose")
"""Calls through which a value leaves torch, so that Python can decide by it."""


@dataclass(frozen=True, eq=False)
class Recording:
    """One recorded pass: its calls, its inputs by name, the input of its output head, and its batch size.

    The inputs of the smaller one are the first of the larger one.
    """

    calls: Sequence[Call]
    inputs: Mapping[str, Tensor]
    output: Tensor
    rows: int


def record(small: Recording, large: Recording, parameters: Mapping[str, Tensor]) -> Tape:
    """The tape two recordings agree on.

    Raises:
        NotRecordableError: They do not.
    """
    return _Reader(small, large, parameters).tape


class _Reader:
    """Reads two recordings side by side."""

    def __init__(self, small: Recording, large: Recording, parameters: Mapping[str, Tensor]) -> None:
        self.tape = Tape()
        self._sizes = (small.rows, large.rows)
        self._slots: dict[tuple[int, int], int] = {}
        self._from_inputs: set[int] = set()
        for name in small.inputs:
            self.tape.inputs[name] = self._slot(small.inputs[name], large.inputs[name])
        self._from_inputs.update(self.tape.inputs.values())
        for name, tensor in parameters.items():
            self.tape.named[name] = self._slot(tensor, tensor)
        ours, theirs = ([call for call in one.calls if _matters(call)] for one in (small, large))
        if [call.name for call in ours] != [call.name for call in theirs]:
            raise NotRecordableError("its course depends on the inputs")
        self.tape.names = [call.name for call in ours]
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            self._step(number, one, other)
        output = self._slots.get((id(small.output), id(large.output)))
        if output is None:
            raise NotRecordableError("its scores come from a call that torch does not show")
        self.tape.output = output

    def _step(self, number: int, one: Call, other: Call) -> None:
        taken: set[int] = set()
        opaque, args, kwargs, expects = "", (), {}, None
        try:
            args = tuple(self._template(a, b, taken) for a, b in zip(one.args, other.args, strict=True))
            kwargs = {name: self._template(value, other.kwargs[name], taken) for name, value in one.kwargs.items()}
        except NotRecordableError as error:
            opaque, taken = str(error), self._known_slots(one, other)
        follows = bool(opaque or taken & self._from_inputs)
        if one.name in READS:
            if not follows:
                return
            expects = one.result
            if not isinstance(one.result, (bool, int, float)) or one.result != other.result:
                opaque, expects = "its course depends on the inputs", None
        leaves, others = _leaves(one.result), _leaves(other.result)
        if [path for path, _ in leaves] != [path for path, _ in others]:
            raise NotRecordableError("its calls give other results for other batches")
        gives = tuple((self._slot(a, b), path) for (path, a), (_, b) in zip(leaves, others, strict=True))
        if follows:
            self._from_inputs.update(slot for slot, _ in gives)
        layers = tuple(use.layer for use in one.uses)
        continues = len(one.uses) == 1 and one.uses[0].kind.continues and one.uses[0].columns is None
        self.tape.steps.append(
            RecordedCall(
                one.func,
                args,
                kwargs,
                frozenset(taken),
                gives,
                follows,
                number,
                layers,
                continues,
                one.mutates,
                expects,
                opaque,
            )
        )

    def _known_slots(self, one: Call, other: Call) -> set[int]:
        pairs = zip(tensors_in((one.args, one.kwargs)), tensors_in((other.args, other.kwargs)), strict=False)
        return {self._slots[id(a), id(b)] for a, b in pairs if (id(a), id(b)) in self._slots}

    def _slot(self, one: Tensor, other: Tensor) -> int:
        key = (id(one), id(other))
        if key not in self._slots:
            self._slots[key] = len(self._slots)
            self.tape.batch_axes[self._slots[key]] = self._batch_axis(one, other)
        return self._slots[key]

    def _batch_axis(self, one: Tensor, other: Tensor) -> BatchAxis | None:
        try:
            return find_batch_axis(one, other, self._sizes)
        except MixedInputsError:
            return None

    def _template(self, one: Any, other: Any, taken: set[int]) -> Any:
        if isinstance(one, Tensor) and isinstance(other, Tensor):
            if (id(one), id(other)) not in self._slots:
                if one is not other:
                    raise NotRecordableError("a tensor comes from a call that torch does not show")
                self.tape.constants[self._slot(one, one)] = one
            taken.add(self._slot(one, other))
            return Slot(self._slot(one, other))
        if type(one) is not type(other):
            raise NotRecordableError("its calls change their arguments with the batch")
        if isinstance(one, (tuple, list)):
            items = [self._template(a, b, taken) for a, b in zip(one, other, strict=True)]
            return items if isinstance(one, list) else tuple(items)
        if isinstance(one, dict):
            return {name: self._template(value, other[name], taken) for name, value in one.items()}
        if isinstance(one, slice):
            return slice(
                *(self._template(getattr(one, at), getattr(other, at), taken) for at in ("start", "stop", "step"))
            )
        if type(one) is int and one != other:
            return self._multiple(one, other)
        if one is other or bool(one == other):
            return one
        raise NotRecordableError("its calls change their arguments with the batch")

    def _multiple(self, one: int, other: int) -> Multiple:
        factor = Fraction(one, self._sizes[0])
        if factor * self._sizes[1] != other:
            raise NotRecordableError("a size does not grow evenly with the batch")
        return Multiple(factor)


class Picker(Listener):
    """Takes some results from a pass of the model itself, by the numbers of its calls.

    Args:
        tape: The recorded pass; this one must make the same calls.
        wanted: The slots to fill.
        tensor_ids: The model's tensors by identity.

    Attributes:
        values: What was taken.
    """

    def __init__(self, tape: Tape, wanted: Iterable[int], tensor_ids: TensorIds) -> None:
        super().__init__(tensor_ids)
        slots = set(wanted)
        self.values: Values = {}
        self._names = tape.names
        self._number = 0
        self._wanted = {
            step.number: [(slot, path) for slot, path in step.gives if slot in slots]
            for step in tape.steps
            if any(slot in slots for slot, _ in step.gives)
        }

    def on_call(self, call: Call) -> None:
        if not _matters(call):
            return
        if self._number >= len(self._names) or call.name != self._names[self._number]:
            raise NotRecordableError("its course depends on the inputs")
        for slot, path in self._wanted.get(self._number, ()):
            self.values[slot] = value_at(call.result, path)
        self._number += 1


def _matters(call: Call) -> bool:
    return call.mutates or call.name in READS or next(tensors_in(call.result), None) is not None


def _leaves(result: Any, path: tuple[int, ...] = ()) -> list[tuple[tuple[int, ...], Tensor]]:
    if isinstance(result, Tensor):
        return [(path, result)]
    if isinstance(result, (tuple, list)):
        return [leaf for at, item in enumerate(result) for leaf in _leaves(item, (*path, at))]
    return []
