"""A model as pure functions, compiled once for every structure of a model and shape of its inputs.

A layer is watched by giving it, inside the function and on a copy of the model, a class whose call reports inputs and
outputs. The functions are compiled with the model's structure as a static argument, so that two models of one structure
share them. XLA drops unused computations: if the input of a layer is given, nothing before the layer is computed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from arachne_flax.layers import Kind, channels_last, channels_second, layers_of, parameters_of, to_stored
from arachne_flax.output_head import without_output_head

Values = Mapping[tuple[str, str], Any]
"""Whole parameters by `(layer, parameter)`, in the canonical layout."""

NOTHING: Mapping[str, Mapping[str, Any]] = {"entering": {}, "leaving": {}, "taps": {}}
"""No replaced inputs or outputs of layers, and nothing added to outputs."""


@functools.partial(jax.jit, static_argnames=("graph", "names"))
def answers(graph: Any, state: Any, weights: Values, inputs: Any, held: Any, names: tuple[str, ...]) -> Any:
    """Return the scores `(n, classes)`, and a list of uses for each of some layers."""
    scores, passed = _run_scores(graph, state, weights, inputs, held)
    return scores, {name: passed[name] for name in names if name in passed}


def order_of(graph: Any, state: Any, weights: Values, shapes: Any) -> tuple[Any, dict[str, list[Any]]]:
    """Return the shape of the scores and the input shapes of every layer, in order of execution, without computing."""
    order: dict[str, list[Any]] = {}

    def trace(state: Any, weights: Values, inputs: Any) -> Any:
        order.clear()
        return _run_scores(graph, state, weights, inputs, NOTHING, order)[0]

    scores = jax.eval_shape(trace, state, dict(weights), shapes)
    return scores, order


@functools.partial(jax.jit, static_argnames=("graph",))
def weight_gradients(graph: Any, state: Any, weights: Values, fixed: Values, inputs: Any, held: Any, seed: Any) -> Any:
    """The gradient of the sum of seed × scores with respect to `weights`; `fixed` are the others."""

    def total(own: Values) -> Any:
        return jnp.sum(_run_scores(graph, state, {**fixed, **own}, inputs, held)[0] * seed)

    return jax.grad(total)(dict(weights))


@functools.partial(jax.jit, static_argnames=("graph", "names"))
def output_gradients(graph: Any, state: Any, weights: Values, inputs: Any, seed: Any, names: tuple[str, ...]) -> Any:
    """The gradient of the sum of seed × scores with respect to the outputs of some layers, one array for each use."""
    passed = jax.eval_shape(functools.partial(_run, graph), state, weights, inputs, NOTHING)[1]
    taps = {name: [jnp.zeros(use["leaving"].shape) for use in passed[name]] for name in names}

    def total(added: Any) -> Any:
        return jnp.sum(_run_scores(graph, state, weights, inputs, {**NOTHING, "taps": added})[0] * seed)

    return jax.grad(total)(taps)


def _run_scores(graph: Any, state: Any, weights: Values, inputs: Any, held: Any, order: Any = None) -> Any:
    return without_output_head(functools.partial(_run, graph, order=order), state, dict(weights), inputs, held)


def _run(
    graph: Any, state: Any, weights: Values, inputs: Any, held: Any, order: dict[str, list[Any]] | None = None
) -> tuple[Any, dict[str, list[Any]]]:
    """Return a model's outputs and the uses of its layers.

    JAX sorts dictionaries by their keys; `order`, if given, receives the inputs of each layer, in order of execution.
    """
    model = nnx.merge(graph, state)
    model.eval()
    passed: dict[str, list[Any]] = {}
    for name, layer, kind in list(layers_of(model)):
        for parameter, variable in parameters_of(layer, kind).items():
            variable[...] = to_stored(kind, parameter, weights[name, parameter]).astype(variable[...].dtype)
        vars(layer)["_watch"] = functools.partial(_watch, passed, held, name, kind, layer)
        layer.__class__ = _watched_class(type(layer))  # type: ignore[arg-type]  # mypy knows no type of Any as hashable
    given = model(**inputs) if isinstance(inputs, Mapping) else model(inputs)
    if order is not None:
        order.update({name: [use["value"] for use in uses] for name, uses in passed.items()})
    return given, passed


@functools.cache
def _watched_class(base: Any) -> Any:
    """Make a class of layers whose calls go through `_watch`."""

    def call(self: Any, value: Any, *others: Any, **named: Any) -> Any:
        return self._watch(lambda x: base.__call__(self, x, *others, **named), value)

    return type(base.__name__, (base,), {"__call__": call})


def _watch(passed: dict[str, list[Any]], held: Any, name: str, kind: Kind, layer: Any, call: Any, value: Any) -> Any:
    uses = passed.setdefault(name, [])
    if not uses and name in held["entering"]:
        value = held["entering"][name]
    leaving = call(value)
    if name in held["taps"]:
        leaving = leaving + channels_last(kind, held["taps"][name][len(uses)])
    if not uses and name in held["leaving"]:
        leaving = channels_last(kind, held["leaving"][name])
    multiplied = _normalise(layer, call, value) if kind.kind == "norm" else value
    parameter = next(iter(kind.attributes))
    uses.append({
        "entering": {parameter: channels_second(kind, multiplied)},
        "leaving": channels_second(kind, leaving),
        "value": value,
    })  # fmt: skip
    return leaving


def _normalise(layer: Any, call: Any, value: Any) -> Any:
    """Compute the normalised input: the output of a norm with a scale of 1 and a bias of 0."""
    kept = {name: getattr(layer, name) for name in ("scale", "bias") if getattr(layer, name, None) is not None}
    before = {name: variable[...] for name, variable in kept.items()}
    for name, variable in kept.items():
        variable[...] = jnp.full_like(before[name], name == "scale")
    found = call(value)
    for name, variable in kept.items():
        variable[...] = before[name]
    return found
