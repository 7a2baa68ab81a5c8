"""BatchAxis: the axis on which a tensor holds its inputs, and their layout there when other axes are folded into it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne.model.values import Array


class MixedInputsError(Exception):
    """No axis of a tensor holds its inputs."""


@dataclass(frozen=True)
class BatchAxis:
    """How the inputs of a batch lie in a tensor.

    Models move the axis of inputs, `(steps, n, units)`, and fold it into others, `(n * steps, units)`.

    Attributes:
        axis: The axis that holds the inputs; None when the tensor is the same for any inputs.
        each: How many entries of that axis belong to one input.
        strided: Whether the entries of one input lie apart: first the first entries of all inputs, then the second.
    """

    axis: int | None = 0
    each: int = 1
    strided: bool = False

    @property
    def plain(self) -> bool:
        """Whether the tensor is `(n, ...)` as it is."""
        return self.axis == 0 and self.each == 1

    def to_batch_first(self, array: Array, n: int) -> Array:
        """Return the tensor as `(n, ...)`, inputs first; axes that were folded with them are split off.

        Raises:
            MixedInputsError: The axis does not hold `n` inputs.
        """
        if self.axis is None:
            return np.broadcast_to(array, (n, *array.shape))
        if array.shape[self.axis] != n * self.each:
            raise MixedInputsError
        if self.each == 1:
            return np.moveaxis(array, self.axis, 0)
        before, after = array.shape[: self.axis], array.shape[self.axis + 1 :]
        pair = (self.each, n) if self.strided else (n, self.each)
        split = array.reshape(*before, *pair, *after)
        return np.moveaxis(split, self.axis + int(self.strided), 0)

    def from_batch_first(self, array: Array) -> Array:
        """The inverse of `to_batch_first`."""
        if self.axis is None:
            return np.asarray(array[0])
        if self.each == 1:
            return np.moveaxis(array, 0, self.axis)
        split = np.moveaxis(array, 0, self.axis + int(self.strided))
        return split.reshape(*split.shape[: self.axis], -1, *split.shape[self.axis + 2 :])
