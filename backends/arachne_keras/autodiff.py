"""Gradients and compiled functions, which Keras leaves to the framework below it.

`FRAMEWORK` is the object for the framework Keras runs on. Functions given to it take and return that framework's
tensors and are written with `keras.ops`.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from arachne.model.values import Array

Mark = Callable[[Any], Any]
"""Takes a tensor of a pass and returns its replacement, by which the pass can be differentiated."""

Seed = Callable[[Array], Array]
"""Takes the result of a pass and returns the vector, of the same shape, to multiply its Jacobian with."""


@dataclass(frozen=True)
class Recording:
    """One pass recorded for gradients.

    Attributes:
        result: The result of the function.
        gradients: From a vector like the result to its product with the Jacobian at each marked tensor, in order.
    """

    result: Any
    gradients: Callable[[Array], list[Any]]


class Framework(ABC):
    """The operations we need from the framework below Keras."""

    name: str
    version: str

    @abstractmethod
    def pull_back(self, function: Callable[[list[Any]], Any], tensors: Sequence[Any], seed: Seed) -> list[Any]:
        """Vector-Jacobian product of a function's result with respect to each of its arguments.

        `seed` maps the result to the vector. The product is zero if the result does not depend on a tensor.
        """

    @abstractmethod
    def record(self, function: Callable[[Mark], Any]) -> Recording:
        """Run a function and record the pass, for gradients with respect to the tensors it marks."""

    @abstractmethod
    def array(self, tensor: Any) -> Array:
        """A tensor or a variable's value as an array, which may share its memory."""

    def compile(self, function: Callable[..., Any], specimens: Sequence[Any], rows: int) -> Callable[..., Any]:
        """Compile a function for tensors like these; the first `rows` of them may have any number of rows."""
        return function

    def no_gradients(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which nothing is recorded for gradients."""
        return contextlib.nullcontext()

    def snapshot(self, variable: Any) -> Any:
        """Copy a variable's current value."""
        return keras.ops.copy(variable.value)


def to_array(tensor: Any) -> Array:
    """A fresh array; half precision becomes float32."""
    if keras.backend.standardize_dtype(tensor.dtype) in ("bfloat16", "float16"):
        tensor = keras.ops.cast(tensor, "float32")
    return np.array(FRAMEWORK.array(tensor), order="C")


def stored_array(variable: Any) -> Array:
    """A variable as it is stored, as a fresh array; only bfloat16, which NumPy lacks, crosses as float32."""
    value = variable.value
    if variable.dtype == "bfloat16":
        value = keras.ops.cast(value, "float32")
    return np.array(FRAMEWORK.array(value), order="C")


if keras.backend.backend() == "tensorflow":
    import tensorflow as tf

    class TensorFlow(Framework):
        """Gradients by tape; compiled functions are traced once, for any number of rows."""

        name = "tensorflow"
        version = str(tf.__version__)

        def pull_back(self, function: Callable[[list[Any]], Any], tensors: Sequence[Any], seed: Seed) -> list[Any]:
            """Use a tape that watches the tensors."""
            # New tensor objects: the framework may hand out one object for two values that are equal.
            tensors = [tf.identity(tensor) for tensor in tensors]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(tensors)
                result = function(tensors)
            vector = tf.convert_to_tensor(seed(to_array(result)), result.dtype)
            zeros = tf.UnconnectedGradients.ZERO
            found = tape.gradient(result, tensors, vector, unconnected_gradients=zeros)
            return [tf.convert_to_tensor(gradient) for gradient in found]  # an embedding's gradient comes as slices

        def record(self, function: Callable[[Mark], Any]) -> Recording:
            """Use a persistent tape."""
            marked: list[Any] = []

            def mark(tensor: Any) -> Any:
                marked.append(tf.identity(tensor))  # new objects, as above
                tape.watch(marked[-1])
                return marked[-1]

            def gradients(seed: Array) -> list[Any]:
                vector, zeros = tf.convert_to_tensor(seed, result.dtype), tf.UnconnectedGradients.ZERO
                return list(tape.gradient(result, marked, vector, unconnected_gradients=zeros))

            with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
                result = function(mark)
            return Recording(result, gradients)

        def array(self, tensor: Any) -> Array:
            """Convert with TensorFlow itself: Keras' conversion makes NumPy 2 warn."""
            return np.asarray(tensor.numpy())

        def compile(self, function: Callable[..., Any], specimens: Sequence[Any], rows: int) -> Callable[..., Any]:
            """Trace once for any number of rows; the result cannot be traced again."""
            shapes = [[None, *t.shape[1:]] if i < rows else t.shape for i, t in enumerate(specimens)]
            specs = [tf.TensorSpec(shape, t.dtype) for shape, t in zip(shapes, specimens, strict=True)]
            traced = tf.function(function, autograph=False).get_concrete_function(*specs)
            return lambda *tensors: traced(*tensors)

    FRAMEWORK: Framework = TensorFlow()

elif keras.backend.backend() == "torch":
    import torch

    class Torch(Framework):
        """Gradients by autograd, on copies of the variables; nothing is compiled."""

        name = "torch"
        version = str(torch.__version__)

        def pull_back(self, function: Callable[[list[Any]], Any], tensors: Sequence[Any], seed: Seed) -> list[Any]:
            """Use autograd."""
            leaves = [tensor.detach().requires_grad_() for tensor in tensors]
            result = function(leaves)
            vector = torch.from_numpy(np.array(seed(to_array(result)))).to(result)
            if not result.requires_grad:
                return [torch.zeros_like(leaf) for leaf in leaves]
            return list(torch.autograd.grad(result, leaves, vector, materialize_grads=True))

        def record(self, function: Callable[[Mark], Any]) -> Recording:
            """Keep autograd's graph."""
            marked: list[Any] = []

            def mark(tensor: Any) -> Any:
                marked.append(tensor if tensor.requires_grad else tensor.detach().requires_grad_())
                return marked[-1].clone()

            def gradients(seed: Array) -> list[Any]:
                if not result.requires_grad:
                    return [torch.zeros_like(tensor) for tensor in marked]
                vector = torch.from_numpy(np.array(seed)).to(result)
                return list(torch.autograd.grad(result, marked, vector, retain_graph=True, materialize_grads=True))

            result = function(mark)
            return Recording(result, gradients)

        def array(self, tensor: Any) -> Array:
            """Detach the tensor and move it to the CPU."""
            return np.asarray(tensor.detach().cpu().numpy())

        def no_gradients(self) -> contextlib.AbstractContextManager[Any]:
            """Return `torch.no_grad()`."""
            return torch.no_grad()

        def snapshot(self, variable: Any) -> Any:
            """A copy without history."""
            return variable.value.detach().clone()

    FRAMEWORK = Torch()

elif keras.backend.backend() == "jax":
    import jax

    class Jax(Framework):
        """Gradients by function transformation: a marked tensor is one to which an offset of zeros is added."""

        name = "jax"
        version = str(jax.__version__)

        def pull_back(self, function: Callable[[list[Any]], Any], tensors: Sequence[Any], seed: Seed) -> list[Any]:
            """Use `jax.vjp`."""
            result, back = jax.vjp(function, list(tensors))
            return list(back(jax.numpy.asarray(seed(to_array(result)), result.dtype))[0])

        def record(self, function: Callable[[Mark], Any]) -> Recording:
            """Use `jax.vjp`, after a first pass for the shapes."""
            offsets: list[Any] = []

            def mark(tensor: Any) -> Any:
                offsets.append(jax.numpy.zeros_like(tensor))
                return tensor

            def with_offsets(offsets: list[Any]) -> Any:
                left = iter(offsets)
                return function(lambda tensor: tensor + next(left))

            function(mark)
            result, back = jax.vjp(with_offsets, offsets)
            return Recording(result, lambda seed: list(back(jax.numpy.asarray(seed, result.dtype))[0]))

        def array(self, tensor: Any) -> Array:
            """Convert with NumPy."""
            return np.asarray(tensor)

        def compile(self, function: Callable[..., Any], specimens: Sequence[Any], rows: int) -> Callable[..., Any]:
            """Use `jax.jit`, which traces once for every number of rows that occurs."""
            return jax.jit(function)  # type: ignore[no-any-return]

    FRAMEWORK = Jax()

else:
    raise ImportError(f"Keras runs on '{keras.backend.backend()}', expected tensorflow, torch or jax", name="keras")
