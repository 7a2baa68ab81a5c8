"""Remove a final softmax or sigmoid from the program that JAX makes of a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Var, jaxpr_as_fun


def without_output_head(function: Callable[..., tuple[Any, Any]], *arguments: Any) -> tuple[jax.Array, Any]:
    """Call a function whose first result may be probabilities, and return class scores instead.

    Args:
        function: Returns a model's outputs `(n, ...)` and another value.
        *arguments: Its arguments.

    Returns:
        Scores `(n, classes)`, and the other value. One sigmoid output z becomes the scores (0, z); one
        raw output stays as it is, for a task to read.
    """
    program, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
    outputs = list(program.jaxpr.outvars)
    makers = {maker.outvars[0]: maker for maker in program.jaxpr.eqns}
    scores, sigmoid = _head_input(outputs[0], makers)
    changed = program.replace(jaxpr=program.jaxpr.replace(outvars=[scores, *outputs[1:]]))
    flat = jaxpr_as_fun(changed)(*jax.tree.leaves(arguments))
    found, others = jax.tree.unflatten(jax.tree.structure(shapes), flat)
    if sigmoid and found.ndim == 2 and found.shape[1] == 1:
        found = jnp.concatenate([jnp.zeros_like(found), found], axis=1)
    return found.astype(jnp.float32), others


def _head_input(output: Any, makers: dict[Any, Any]) -> tuple[Any, bool]:
    """Return the input of a softmax or sigmoid that makes `output`, else `output`; and whether it is a sigmoid."""
    last = makers.get(output) if isinstance(output, Var) else None
    if last is None:
        return output, False
    if last.primitive.name == "logistic":
        return last.invars[0], True
    if last.primitive.name == "div" and _is_made_by("exp", last.invars[0], makers):
        power = makers[last.invars[0]].invars[0]
        # JAX takes the largest score away first, which changes no probability.
        if _is_made_by("sub", power, makers) and makers[power].invars[1].aval.shape[-1:] == (1,):
            power = makers[power].invars[0]
        return power, False
    return output, False


def _is_made_by(primitive: str, variable: Any, makers: dict[Any, Any]) -> bool:
    return isinstance(variable, Var) and variable in makers and makers[variable].primitive.name == primitive
