"""A Keras model as a list of steps in order of execution: the graph of a functional model, nested models opened up.

A model without such a graph (a subclass with its own `call`) is one step. The order is that of a depth-first walk
from the outputs, which goes through one branch before it starts the next, as code that calls layers would.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import keras
from keras import tree

from arachne.adapting.outputs import unknown_output
from arachne.errors import ModelError
from arachne_keras.swapping import swap_attributes

Values = dict[int, Any]
"""Tensors by slot: the number of a tensor in the graph."""


@dataclass(frozen=True)
class OpCall:
    """One call of a layer or operation.

    Attributes:
        operation: The layer or operation.
        arguments: Its arguments, with symbolic tensors in place of values; None for a model called with its inputs.
        takes: The slot of each symbolic tensor among the arguments, by the tensor's identity.
        gives: The slots of its results.
        prefix: The prefix of the names of its layers: the names of the nested models around it.
        bare: Whether it runs without its fused activation.
    """

    operation: Any
    arguments: Any
    takes: Mapping[int, int]
    gives: tuple[int, ...]
    prefix: str = ""
    bare: bool = False

    def run(self, values: Values) -> None:
        """Compute the results from the values of its arguments."""
        if self.bare:
            with swap_attributes({(self.operation, "activation"): keras.activations.linear}):
                return replace(self, bare=False).run(values)
        args, kwargs = self.arguments.fill_in({key: values[slot] for key, slot in self.takes.items()})
        if "training" in getattr(self.operation, "_call_context_args", ()):
            kwargs = {**kwargs, "training": False}
        results = tree.flatten(self.operation(*args, **kwargs))
        values.update(zip(self.gives, results, strict=True))
        return None


@dataclass(frozen=True)
class WholeModelCall(OpCall):
    """A call of an opaque model with all of its inputs.

    Attributes:
        names: The names of its inputs, where it takes a mapping.
        output: Which of its outputs is wanted.
        ended: Replacements that switch off its last activation.
    """

    names: tuple[str, ...] | None = None
    output: str | None = None
    ended: Mapping[tuple[Any, str], Any] = field(default_factory=dict)

    def run(self, values: Values) -> None:
        """One call."""
        given = [values[slot] for slot in self.takes.values()]
        inputs = given[0] if self.names is None else dict(zip(self.names, given, strict=True))
        with swap_attributes(self.ended):
            answer = self.operation(inputs, training=False)
        values[self.gives[0]] = self._choose_output(answer)

    def _choose_output(self, answer: Any) -> Any:
        if not isinstance(answer, (Mapping, list, tuple)):
            return answer
        pairs = answer.items() if isinstance(answer, Mapping) else enumerate(answer)
        named = {str(name): value for name, value in pairs}
        if self.output is not None and self.output not in named:
            raise unknown_output(self.output, named)
        if self.output is None and len(named) > 1:
            raise ModelError(f"the model has {len(named)} outputs, name one: {', '.join(named)}")
        return named[self.output or next(iter(named))]


@dataclass
class Graph:
    """Steps, and where inputs come in and scores go out.

    Attributes:
        inputs: The slots of the inputs.
        steps: In order of execution.
        output: The slot of the scores.
        shapes: The symbolic shape at each slot, where it is known.
    """

    inputs: tuple[int, ...] = ()
    steps: list[OpCall] = field(default_factory=list)
    output: int = -1
    shapes: dict[int, tuple[int | None, ...]] = field(default_factory=dict)

    def run(self, values: Values, steps: Sequence[OpCall] | None = None, keep: Collection[int] = ()) -> Values:
        """Run steps (all by default) on these values; drop values after their last use, except output and `keep`."""
        steps = self.steps if steps is None else steps
        last = {slot: number for number, step in enumerate(steps) for slot in step.takes.values()}
        wanted = {self.output, *keep}
        values = dict(values)
        for number, step in enumerate(steps):
            step.run(values)
            for slot in step.takes.values():
                if last[slot] == number and slot not in wanted:
                    values.pop(slot, None)
        return values

    def takers(self, slot: int) -> list[OpCall]:
        """Return the steps that read a slot."""
        return [step for step in self.steps if slot in step.takes.values()]

    def giver(self, slot: int) -> OpCall | None:
        """Return the step that writes a slot; None for inputs."""
        return next((step for step in self.steps if slot in step.gives), None)

    def new_slot(self, shape: Sequence[int | None] | None = None) -> int:
        """A slot not used yet."""
        slot = len(self.shapes)
        self.shapes[slot] = () if shape is None else tuple(shape)
        return slot

    def inline(self, model: Any, given: Sequence[int], prefix: str) -> list[int]:
        """Add the steps of a functional model with inputs at these slots; return the slots of its outputs."""
        slots = {id(tensor): slot for tensor, slot in zip(model.inputs, given, strict=True)}
        waiting = list(reversed(model.outputs))
        while waiting:
            tensor = waiting[-1]
            operation, number, _ = tensor._keras_history
            node = operation._inbound_nodes[number]
            missing = [t for t in node.input_tensors if id(t) not in slots]
            if id(tensor) in slots or missing:
                waiting = waiting[:-1] if id(tensor) in slots else [*waiting, *reversed(missing)]
                continue
            results = self._add(node, slots, prefix)
            slots.update({id(t): slot for t, slot in zip(node.outputs, results, strict=True)})
        return [slots[id(tensor)] for tensor in model.outputs]

    def _add(self, node: Any, slots: Mapping[int, int], prefix: str) -> list[int]:
        takes = {id(tensor): slots[id(tensor)] for tensor in node.input_tensors}
        nested = functional(node.operation)
        if nested is not None and len(nested.inputs) == len(node.input_tensors):
            given = [slots[id(tensor)] for tensor in node.input_tensors]
            return self.inline(nested, given, f"{prefix}{node.operation.name}/")
        gives = [self.new_slot(tensor.shape) for tensor in node.outputs]
        self.steps.append(OpCall(node.operation, node.arguments, takes, tuple(gives), prefix))
        return gives


def functional(model: Any) -> Any:
    """The functional graph of a model, or None where it has none or has its own `call`."""
    if isinstance(model, keras.Sequential) and type(model).call is keras.Sequential.call:
        return model._functional
    own = getattr(keras.Model, "call", None)
    if isinstance(model, keras.Model) and hasattr(model, "_nodes_by_depth"):
        written_by = next(cls for cls in type(model).__mro__ if "call" in vars(cls))
        return model if written_by.__module__.startswith("keras.") and written_by is not own else None
    return None
