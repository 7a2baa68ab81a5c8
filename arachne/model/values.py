"""The values that cross the border between the engine and a backend.

Weights cross in one canonical layout, whatever the framework stores, so that an address means one weight everywhere:

    dense       weight (out, in)                     bias (out,)
    conv        weight (out, in / groups, *kernel)   bias (out,)
    conv_transpose   as the convolution it is the gradient of: weight (in, out / groups, *kernel), bias (out,)
    recurrent   weight_ih (gates * units, in)        weight_hh (gates * units, units)    bias_ih, bias_hh
                gates in the order i f g o (LSTM) or r z n (GRU)
    embedding   weight (rows, width)
    norm        scale (channels,)                    bias (channels,)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from arachne.errors import DataError, UsageError, WeightShapeError
from arachne.model.lazy import LazyArray, as_array
from arachne.text import Brief
from arachne.weights.storage import IntegerGrid, Storage, storage_named

Array = npt.NDArray[Any]
Inputs = Array | Mapping[str, Array]
"""The inputs of a model: one array `(n, ...)`, or a mapping of such arrays for models with several inputs.

Such an array may be a `LazyArray`, which is read when it is indexed. A backend's implementations never get one.
"""

Weights = Mapping[tuple[str, str], Array]
"""Whole parameters by `(layer, parameter)`."""

WEIGHT_PARAMETERS = ("weight", "weight_ih", "weight_hh")
"""Matrices and kernels, in canonical order: localisation looks at these by default."""


@dataclass(frozen=True, slots=True)
class Address:
    """The address of one weight, which is the same in every framework."""

    layer: str
    parameter: str
    index: tuple[int, ...]

    def __str__(self) -> str:
        """`fc2.weight[0, 13]`."""
        return f"{self.layer}.{self.parameter}[{', '.join(map(str, self.index))}]"


@dataclass(frozen=True)
class Geometry:
    """How a convolution walks over its input; one number, or one pair, for each spatial axis.

    Attributes:
        stride: Step between two positions.
        padding: Zeros before and after.
        dilation: Step between two elements of the kernel.
        groups: Number of groups the channels fall into.
    """

    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int = 1


@dataclass(frozen=True)
class ParameterInfo:
    """Shape of a parameter in the canonical layout, and the dtype it is stored in.

    Attributes:
        shape: The canonical shape.
        dtype: The dtype of the stored numbers.
        grid: For whole numbers, the values they stand for, in the canonical layout.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    grid: IntegerGrid | None = field(default=None, compare=False, repr=False)

    @property
    def storage(self) -> Storage:
        """The numbers that the parameter can hold."""
        return storage_named(self.dtype) if self.grid is None else self.grid

    def to_file(self, values: Array) -> Array:
        """Return the numbers that lie in a file for these values: themselves, or whole numbers of a grid."""
        return values if self.grid is None else self.grid.to_stored(values)

    def from_file(self, numbers: Array) -> Array:
        """Return the values that numbers of a file stand for, exactly: the inverse of `to_file`."""
        return numbers if self.grid is None else self.grid.to_float(numbers.astype(self.dtype))

    @property
    def size(self) -> int:
        """Number of weights."""
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True)
class LayerInfo(Brief):
    """One repairable layer.

    Attributes:
        name: The layer's name in its framework.
        kind: `dense`, `conv`, `conv_transpose`, `recurrent`, `embedding` or `norm`.
        parameters: What it stores, weight matrices first.
        geometry: For convolutions.
        uses: How often the model calls it in one forward pass; a patch to a shared layer changes every use.
        followed_by: What stands between this layer and the next linear one (`relu`, `flatten`, ...), where the backend
            knows; only the evaluator's speed depends on it.
    """

    name: str
    kind: str
    parameters: Mapping[str, ParameterInfo]
    geometry: Geometry | None = None
    uses: int = 1
    followed_by: tuple[str, ...] | None = None

    @property
    def weights(self) -> tuple[str, ...]:
        """The names of its matrices and kernels."""
        return tuple(name for name in WEIGHT_PARAMETERS if name in self.parameters)

    @property
    def is_quantised(self) -> bool:
        """Whether its matrices or kernels are stored as whole numbers."""
        return any(self.parameters[name].grid is not None for name in self.weights)


@dataclass(frozen=True)
class Activation:
    """The activations of one use of a layer: its inputs and its outputs.

    Attributes:
        entering: For each weight parameter, what it is multiplied with: `(n, in)` for a dense layer (further axes may
            stand between, as in `(n, steps, in)`), `(n, channels, *positions)` for a convolution.
            For a recurrent layer `(n, steps, in)` and `(n, steps, units)`, for an embedding the row numbers
            `(n, ...)`, for a norm what its scale is multiplied with.
        leaving: What leaves the layer before the non-linearity: `(n, out)` or `(n, channels, *positions)`.
        transposed: Whether this use multiplies with the transpose of the weight (a decoder tied to its encoder).
    """

    entering: Mapping[str, Array]
    leaving: Array
    transposed: bool = False


@dataclass(frozen=True)
class Description:
    """Facts about the model that a backend holds, for people and for result files.

    Attributes:
        backend: The backend's name.
        framework: The framework and its version.
        format: What kind of file or object the model came in.
        device: Where it computes.
        scores: The kind of its scores, `logits` or `log-probabilities`.
        source: Its file, if it came from one.
        notes: What a patch's author should know.
        beside: The other files that hold a part of it, by their names from the folder of `source`; a saved copy has
            them beside it too.
    """

    backend: str
    framework: str
    format: str
    device: str
    scores: str
    source: str | None = None
    notes: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()


def by_name(inputs: Inputs) -> Mapping[str, Array]:
    """Return the arrays of inputs by name; a single one has the empty name."""
    return inputs if isinstance(inputs, Mapping) else {"": inputs}


def map_arrays(change: Callable[[Array], Array], inputs: Inputs) -> Inputs:
    """Change every array of inputs, which are one array or a mapping as before."""
    return {name: change(one) for name, one in inputs.items()} if isinstance(inputs, Mapping) else change(inputs)


def count(inputs: Inputs) -> int:
    """Count the inputs."""
    return len(next(iter(by_name(inputs).values())))


def count_bytes(inputs: Inputs) -> int:
    """Count the bytes of some inputs."""
    return sum(array.nbytes for array in by_name(inputs).values())


def take(inputs: Inputs, rows: Array | slice | Sequence[int] | None) -> Inputs:
    """Select rows of an array, or of every array of a mapping; all when None. Those of a lazy one stay unread."""
    if rows is None:
        return inputs
    return map_arrays(lambda one: as_array(one.take(rows)) if isinstance(one, LazyArray) else one[rows], inputs)


def read(inputs: Inputs, rows: slice = slice(None)) -> Inputs:
    """Return inputs as plain arrays: lazy ones are read, others are returned as they are."""
    if rows == slice(None):
        return map_arrays(lambda array: array.read() if isinstance(array, LazyArray) else array, inputs)
    return map_arrays(lambda array: array[rows], inputs)  # a lazy one gives its rows when it is indexed


def check_inputs(inputs: Inputs) -> None:
    """Refuse arrays that hold no numbers, or do not have one row per input.

    Raises:
        DataError: There is such an array, or none at all.
    """
    named = by_name(inputs)
    for name, array in named.items():
        which = f" for '{name}'" if name else ""
        if array.dtype.kind not in "biuf":
            raise DataError(f"inputs are numbers, got an array of dtype '{array.dtype}'{which}")
        if array.ndim == 0:
            raise DataError(f"inputs are arrays with one row per input, got a single number{which}")
    if len({len(array) for array in named.values()}) != 1:
        lengths = ", ".join(f"{name} {len(array)}" for name, array in named.items())
        raise DataError(f"every input of the model needs as many rows as the others, got {lengths or 'none'}")


def check_real(inputs: Inputs) -> None:
    """Refuse gradients with respect to inputs that are whole numbers; bytes of an image pass.

    Raises:
        UsageError: They are whole numbers.
    """
    for array in by_name(inputs).values():
        if array.dtype.kind != "f" and array.dtype != np.uint8:
            raise UsageError(f"there is no gradient with respect to whole numbers, such as tokens; got {array.dtype}")


def check_rows(n: int, rows: Array, name: str) -> None:
    """Refuse an array that does not have one row for each of `n` inputs.

    Raises:
        WeightShapeError: It has more or fewer.
    """
    if len(rows) != n:
        raise WeightShapeError(f"expected {n} {name}, one per input, got {len(rows)}")


EVEN = 32
"""In batches of a multiple of this size every row goes through the same machine code, and rounds the same way.

In other batches the last rows may not: matrix products and vectorised functions handle an incomplete block differently.
"""


MAX_BLOCK_BYTES = 16 << 20
"""The most bytes of inputs that are looked at together, unless one input has more."""


def batches(n: int, size: int) -> Iterator[slice]:
    """Slices of at most `size` that cover `range(n)`: about equally long, multiples of `EVEN` where possible."""
    unit = EVEN if size >= EVEN else 1
    units = -(-n // unit)
    parts = -(-units // (size // unit))
    for number in range(parts):
        yield slice(unit * (number * units // parts), min(n, unit * ((number + 1) * units // parts)))


def blocks(inputs: Inputs, most: int) -> Iterator[slice]:
    """Slices of at most `most` rows, and of about `MAX_BLOCK_BYTES`, that cover some inputs; lazy ones stay unread."""
    n = count(inputs)
    return batches(n, max(1, min(most, n * MAX_BLOCK_BYTES // max(1, count_bytes(inputs)))))
