"""From a Keras model to the graph that is run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import keras
from keras import layers as kl

from arachne.adapting.outputs import unknown_output
from arachne.errors import ModelError
from arachne_keras.graph import Graph, WholeModelCall
from arachne_keras.kinds import Kind
from arachne_keras.output_head import select_needed


def input_names(graph: Any) -> tuple[str, ...]:
    """The names of a functional model's inputs, in its order."""
    struct = getattr(graph, "_inputs_struct", None)
    if isinstance(struct, dict):
        return tuple(keras.tree.flatten({name: name for name in struct}))
    return tuple(tensor.name for tensor in graph.inputs)


def build_graph(source: Any, output: str | None) -> Graph:
    """Build the graph of a functional model."""
    graph = Graph()
    graph.inputs = tuple(graph.new_slot(tensor.shape) for tensor in source.inputs)
    outputs = graph.inline(source, graph.inputs, "")
    struct = getattr(source, "_outputs_struct", None)
    names = list(source.output_names) if hasattr(source, "output_names") else [str(i) for i in range(len(outputs))]
    if isinstance(struct, dict):
        names = list(keras.tree.flatten({name: name for name in struct}))
    if output is not None and output not in names:
        raise unknown_output(output, names)
    if output is None and len(outputs) > 1:
        raise ModelError(f"the model has {len(outputs)} outputs, name one: {', '.join(names)}")
    graph.output = outputs[0 if output is None else names.index(output)]
    graph.steps = select_needed(graph)
    return graph


def opaque_graph(model: Any, output: str | None) -> Graph:
    """Build a graph of one step for a model with its own `call`."""
    if not model.built:
        raise ModelError(f"model '{model.name}' was never called, so it has no weights yet; call it on some data first")
    graph = Graph()
    given, result = graph.new_slot(), graph.new_slot()
    graph.inputs, graph.output = (given,), result
    graph.steps = [WholeModelCall(model, None, {0: given}, (result,), names=None, output=output)]
    return graph


def with_inputs(graph: Graph, names: list[str] | None, many: int) -> Graph:
    """Return the graph of an opaque model with as many inputs as given."""
    step = graph.steps[0]
    named = None if names is None else tuple(names)
    if not isinstance(step, WholeModelCall) or (step.names == named and len(step.takes) == many):
        return graph
    slots = (*graph.inputs, *(graph.new_slot() for _ in range(many - len(graph.inputs))))
    return replace(
        graph,
        inputs=slots[:many],
        steps=[replace(step, names=named, takes=dict(enumerate(slots[:many])))],
    )


def merge_padding(graph: Graph, kinds: Sequence[Kind]) -> None:
    """Merge a zero-padding layer into the geometry of the only convolution behind it."""
    for step in graph.steps:
        if not isinstance(step.operation, (kl.ZeroPadding1D, kl.ZeroPadding2D, kl.ZeroPadding3D)):
            continue
        takers = graph.takers(step.gives[0])
        uses = [other for other in graph.steps if takers and other.operation is takers[0].operation]
        for kind in kinds:
            if len(takers) == 1 and len(uses) == 1 and kind.keras is takers[0].operation and kind.name == "conv":
                padding = step.operation.padding
                pairs = [padding] if isinstance(padding[0], int) else padding
                kind.padding = tuple((int(before), int(after)) for before, after in pairs)


def first_call_shapes(model: Any) -> list[tuple[int | None, ...]]:
    """Return the input shapes of a model's first call, if Keras has stored them."""
    shapes = getattr(model, "_build_shapes_dict", None) or {}
    found = list(shapes.values())
    plain = all(isinstance(s, (tuple, list)) and all(d is None or isinstance(d, int) for d in s) for s in found)
    return [tuple(shape) for shape in found] if plain and len(found) == 1 else []
