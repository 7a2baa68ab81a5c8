"""The one thing Keras leaves to the framework below it: gradients, and compiling a function once for many calls.

`FRAMEWORK` is the object for the framework Keras runs on. Functions given to it take and return that framework's
tensors and are written with `keras.ops`.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from arachne.values import Array

Mark = Callable[[Any], Any]
"""Given a tensor of a pass, returns the one to go on with; the pass can then be differentiated by it."""

Seed = Callable[[Array], Array]
"""Given the result of a pass, returns the vector to multiply its Jacobian with, of the same shape."""


class Recording(ABC):
    """One pass kept open.

    Attributes:
        result: What the function returned.
        marked: The tensors it marked, in order.
    """

    result: Any
    marked: list[Any]

    @abstractmethod
    def gradients(self, seed: Array) -> list[Any]:
        """Vector-Jacobian product of the result with respect to each marked tensor."""


class Framework(ABC):
    """What a framework below Keras does for us."""

    name: str

    @abstractmethod
    def version(self) -> str:
        """The framework's version."""

    @abstractmethod
    def pull_back(self, function: Callable[[list[Any]], Any], tensors: Sequence[Any], seed: Seed) -> list[Any]:
        """Vector-Jacobian product of what a function gives, with respect to each tensor it takes.

        The vector is what `seed` says of the function's result. Zeros where the result does not depend on a tensor.
        """

    @abstractmethod
    def record(self, function: Callable[[Mark], Any]) -> Recording:
        """Run a function, and keep the pass open for gradients with respect to the tensors it marks."""

    @abstractmethod
    def array(self, tensor: Any) -> Array:
        """A tensor or a variable's value as an array, which may share its memory."""

    def compiled(self, function: Callable[..., Any], specimens: Sequence[Any], rows: int) -> Callable[..., Any]:
        """The function, prepared once for tensors like these; the first `rows` of them may have any number of rows."""
        return function

    def no_gradients(self) -> contextlib.AbstractContextManager[Any]:
        """A block in which nothing is kept for gradients."""
        return contextlib.nullcontext()

    def snapshot(self, variable: Any) -> Any:
        """A variable's present value, which stays as it is when the variable changes."""
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

        def version(self) -> str:
            """The framework's version."""
            return str(tf.__version__)

        def pull_back(self, function: Callable[[list[Any]], Any], tensors: Sequence[Any], seed: Seed) -> list[Any]:
            """By a tape that watches the tensors."""
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
            """By a tape that is kept."""
            return _TapeRecording(function)

        def array(self, tensor: Any) -> Array:
            """TensorFlow's own way: Keras' makes NumPy 2 warn."""
            return np.asarray(tensor.numpy())

        def compiled(self, function: Callable[..., Any], specimens: Sequence[Any], rows: int) -> Callable[..., Any]:
            """One trace with the axis of rows left open; what is returned cannot be traced again."""
            shapes = [[None, *t.shape[1:]] if i < rows else t.shape for i, t in enumerate(specimens)]
            specs = [tf.TensorSpec(shape, t.dtype) for shape, t in zip(shapes, specimens, strict=True)]
            traced = tf.function(function, autograph=False).get_concrete_function(*specs)
            return lambda *tensors: traced(*tensors)

    class _TapeRecording(Recording):
        def __init__(self, function: Callable[[Mark], Any]) -> None:
            self.marked = []
            with tf.GradientTape(persistent=True, watch_accessed_variables=False) as self._tape:
                self.result = function(self._mark)

        def gradients(self, seed: Array) -> list[Any]:
            vector = tf.convert_to_tensor(seed, self.result.dtype)
            zeros = tf.UnconnectedGradients.ZERO
            return list(self._tape.gradient(self.result, self.marked, vector, unconnected_gradients=zeros))

        def _mark(self, tensor: Any) -> Any:
            # A new tensor object: the framework may hand out one object for two values that are equal.
            tensor = tf.identity(tensor)
            self._tape.watch(tensor)
            self.marked.append(tensor)
            return tensor

    FRAMEWORK: Framework = TensorFlow()

elif keras.backend.backend() == "torch":
    import torch

    class Torch(Framework):
        """Gradients by autograd, on tensors that stand in for the variables; nothing is compiled."""

        name = "torch"

        def version(self) -> str:
            """The framework's version."""
            return str(torch.__version__)

        def pull_back(self, function: Callable[[list[Any]], Any], tensors: Sequence[Any], seed: Seed) -> list[Any]:
            """By autograd."""
            leaves = [tensor.detach().requires_grad_() for tensor in tensors]
            result = function(leaves)
            vector = torch.from_numpy(np.array(seed(to_array(result)))).to(result)
            if not result.requires_grad:
                return [torch.zeros_like(leaf) for leaf in leaves]
            return list(torch.autograd.grad(result, leaves, vector, materialize_grads=True))

        def record(self, function: Callable[[Mark], Any]) -> Recording:
            """By autograd's graph, which is kept."""
            return _GraphRecording(function)

        def array(self, tensor: Any) -> Array:
            """Without its history, on the CPU."""
            return np.asarray(tensor.detach().cpu().numpy())

        def no_gradients(self) -> contextlib.AbstractContextManager[Any]:
            """The switch torch has for it."""
            return torch.no_grad()

        def snapshot(self, variable: Any) -> Any:
            """A copy without history."""
            return variable.value.detach().clone()

    class _GraphRecording(Recording):
        def __init__(self, function: Callable[[Mark], Any]) -> None:
            self.marked = []
            self.result = function(self._mark)

        def gradients(self, seed: Array) -> list[Any]:
            if not self.result.requires_grad:
                return [torch.zeros_like(tensor) for tensor in self.marked]
            vector = torch.from_numpy(np.array(seed)).to(self.result)
            found = torch.autograd.grad(self.result, self.marked, vector, retain_graph=True, materialize_grads=True)
            return list(found)

        def _mark(self, tensor: Any) -> Any:
            if not tensor.requires_grad:
                tensor = tensor.detach().requires_grad_()
            self.marked.append(tensor)
            return tensor.clone()

    FRAMEWORK = Torch()

elif keras.backend.backend() == "jax":
    import jax

    class Jax(Framework):
        """Gradients by function transformation: a marked tensor is one to which an offset of zeros is added."""

        name = "jax"

        def version(self) -> str:
            """The framework's version."""
            return str(jax.__version__)

        def pull_back(self, function: Callable[[list[Any]], Any], tensors: Sequence[Any], seed: Seed) -> list[Any]:
            """By `jax.vjp`."""
            result, back = jax.vjp(function, list(tensors))
            return list(back(jax.numpy.asarray(seed(to_array(result)), result.dtype))[0])

        def record(self, function: Callable[[Mark], Any]) -> Recording:
            """By `jax.vjp`, after a first pass that tells the shapes."""
            return _OffsetRecording(function)

        def array(self, tensor: Any) -> Array:
            """As NumPy asks for it."""
            return np.asarray(tensor)

        def compiled(self, function: Callable[..., Any], specimens: Sequence[Any], rows: int) -> Callable[..., Any]:
            """`jax.jit`: traced once for every number of rows that occurs."""
            return jax.jit(function)  # type: ignore[no-any-return]

    class _OffsetRecording(Recording):
        def __init__(self, function: Callable[[Mark], Any]) -> None:
            self.marked = []

            def keep(tensor: Any) -> Any:
                self.marked.append(tensor)
                return tensor

            def shifted(offsets: list[Any]) -> Any:
                left = iter(offsets)
                return function(lambda tensor: tensor + next(left))

            function(keep)
            self.result, self._pull_back = jax.vjp(shifted, [jax.numpy.zeros_like(tensor) for tensor in self.marked])

        def gradients(self, seed: Array) -> list[Any]:
            return list(self._pull_back(jax.numpy.asarray(seed, self.result.dtype))[0])

    FRAMEWORK = Jax()

else:
    raise ImportError(f"Keras runs on '{keras.backend.backend()}', expected tensorflow, torch or jax", name="keras")
