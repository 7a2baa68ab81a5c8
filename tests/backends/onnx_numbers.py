"""Numbers to hold ONNX gradients against: small models of one operator, and finite differences in double precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper
from onnx.reference import ReferenceEvaluator

from arachne.model.values import Array
from arachne_onnx.derivative import SEED, Derivative
from arachne_onnx.graph import Graph
from arachne_onnx.normalise import differentiable, learn_types, make_padding_explicit, normalise
from arachne_onnx.rules import UnknownShapeError
from arachne_onnx.sessions import Device, Program

DEVICE = Device()


def model_of(
    nodes: Sequence[NodeProto] | NodeProto, values: Mapping[str, Array], *, output: str = "y", opset: int = 18
) -> ModelProto:
    """A model that computes `output`; float arrays and token arrays are inputs of unknown batch, others constants."""
    nodes = [nodes] if isinstance(nodes, NodeProto) else list(nodes)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), [None] * value.ndim)
        for name, value in values.items()
        if not name.startswith("const")
    ]
    constants = [
        onnx.numpy_helper.from_array(value, name) for name, value in values.items() if name.startswith("const")
    ]
    result = onnx.ValueInfoProto(name=output)
    graph = helper.make_graph(nodes, "one", inputs, [result], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def graph_of(model: ModelProto, feeds: Mapping[str, Array]) -> Graph:
    """The differentiable graph, with shapes from a run: these models say nothing about theirs."""
    graph = normalise(model)
    graph.scores = model.graph.output[0].name
    ready = differentiable(graph)
    names = [name for node in ready.nodes for name in node.output if name]
    run = Program(DEVICE, ready, ready.inputs, names).run(feeds)
    learn_types(ready, [{**feeds, **run}])
    make_padding_explicit(ready)
    return ready


def gradients(
    model: ModelProto, feeds: Mapping[str, Array], wanted: Sequence[str], seed: Array, **options: Any
) -> dict[str, Array]:
    """Run the gradient graph for each wanted tensor."""
    try:
        graph = normalise(model)
        graph.scores = model.graph.output[0].name
        ready = differentiable(graph)
        derivative = Derivative(ready, wanted, **options)
    except UnknownShapeError:
        ready = graph_of(model, feeds)
        derivative = Derivative(ready, wanted, **options)
    names = [derivative.gradients[name] for name in wanted]
    inputs = {**ready.inputs, SEED: derivative.graph.inputs[SEED]}
    run = Program(DEVICE, derivative.graph, inputs, names).run({**feeds, SEED: seed})
    return {name: run[gradient] for name, gradient in zip(wanted, names, strict=True)}


def slope(model: ModelProto, feeds: Mapping[str, Array], name: str, direction: Array, seed: Array) -> float:
    """Central difference of `sum(seed * y)` along a direction, computed in double precision by the reference."""
    wide = _in_double(model)
    evaluate = ReferenceEvaluator(wide)
    step = 1e-5
    values = []
    for sign in (1, -1):
        moved = {key: _double(value) for key, value in feeds.items()}
        moved[name] = moved[name] + sign * step * direction.astype(np.float64)
        values.append(float(np.sum(evaluate.run(None, moved)[0].astype(np.float64) * seed)))
    return (values[0] - values[1]) / (2 * step)


def check(
    nodes: Sequence[NodeProto] | NodeProto,
    values: Mapping[str, Array],
    wanted: Sequence[str],
    *,
    output: str = "y",
    opset: int = 18,
    tolerance: float = 1e-4,
    **options: Any,
) -> None:
    """Compare the gradient graph of one operator with finite differences, along three random directions."""
    model = model_of(nodes, values, output=output, opset=opset)
    feeds = {name: value for name, value in values.items() if not name.startswith("const")}
    rng = np.random.default_rng(7)
    shape = np.shape(_outputs(model, feeds))
    seed = rng.normal(size=shape).astype(np.float32)
    found = gradients(model, feeds, wanted, seed, **options)
    for name in wanted:
        assert found[name].shape == values[name].shape
        for _ in range(3):
            direction = rng.normal(size=values[name].shape)
            expected = slope(model, feeds, name, direction, seed)
            actual = float(np.sum(found[name].astype(np.float64) * direction))
            scale = float(np.linalg.norm(found[name].astype(np.float64)) * np.linalg.norm(direction)) + 1e-3
            assert abs(actual - expected) <= tolerance * scale, (name, actual, expected)


def check_in_single(nodes: Any, values: dict[str, Array], wanted: list[str], *, opset: int = 18) -> None:
    """Check by differences of onnxruntime's own results in single precision, where the reference is no help."""
    model = model_of(nodes, values, opset=opset)
    feeds = {name: value for name, value in values.items() if not name.startswith("const")}
    rng = np.random.default_rng(3)
    seed = rng.normal(size=_outputs(model, feeds).shape).astype(np.float32)
    found = gradients(model, feeds, wanted, seed)
    for name in wanted:
        direction = rng.normal(size=values[name].shape).astype(np.float32)
        step = np.float32(4e-3)
        moved = [
            float(np.sum(_outputs(model, {**feeds, name: values[name] + sign * step * direction}).astype(float) * seed))
            for sign in (np.float32(1), np.float32(-1))
        ]
        expected = (moved[0] - moved[1]) / (2 * float(step))
        actual = float(np.sum(found[name] * direction))
        scale = float(np.linalg.norm(found[name]) * np.linalg.norm(direction)) + 1e-2
        assert abs(actual - expected) <= 2e-3 * scale, (name, actual, expected)


def _outputs(model: ModelProto, feeds: Mapping[str, Array]) -> Array:
    graph = normalise(model)
    graph.scores = model.graph.output[0].name
    return Program(DEVICE, graph, graph.inputs, [graph.scores]).run(feeds)[graph.scores]


def _double(value: Array) -> Array:
    return value.astype(np.float64) if value.dtype.kind == "f" else value


def _in_double(model: ModelProto) -> ModelProto:
    wide = ModelProto()
    wide.CopyFrom(model)
    for value in wide.graph.initializer:
        array = onnx.numpy_helper.to_array(value)
        if array.dtype == np.float32:
            value.CopyFrom(onnx.numpy_helper.from_array(array.astype(np.float64), value.name))
    for info in wide.graph.input:
        if info.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            info.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    return wide
