"""Which objects of a pass are tensors of the model, or views of them, found by object identity."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from arachne_torch.parameter_slice import ParameterSlice

TRANSPOSES = ("t", "transpose", "permute", "T", "mT", "numpy_T", "matrix_H")
"""Calls that transpose a matrix of the model."""

SLICES = ("__getitem__", "chunk", "split", "split_with_sizes", "tensor_split", "narrow", "slice", "getitem")
"""Calls that may hand on some rows of a tensor of the model."""


def operation(call: Callable[..., Any]) -> str:
    """The name of a torch call without its overload: `conv2d` for both `torch.conv2d` and `aten.conv2d.default`."""
    name = str(getattr(call, "__name__", ""))
    if name == "__get__":  # an attribute such as `weight.T`
        return str(getattr(getattr(call, "__self__", None), "__name__", ""))
    return name.partition(".")[0]


class TensorIds:
    """The model's tensors and their views in a pass, by object id; views are kept alive, since ids are reused.

    Args:
        tensors: The model's tensors, or their replacements, by name.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._slices = {id(tensor): ParameterSlice(name) for name, tensor in tensors.items()}
        self._rows = {name: len(tensor) if tensor.ndim else 0 for name, tensor in tensors.items()}
        self._orders: dict[int, Tensor] = {}
        self._alive: list[Any] = [tensors]

    def slice_of(self, value: Any) -> ParameterSlice | None:
        """Return the parameter slice that a tensor is; None if it is not part of the model."""
        return self._slices.get(id(value))

    def rows(self, name: str) -> int:
        """How many rows a tensor of the model has."""
        return self._rows[name]

    def order(self, batch_sizes: Tensor) -> Tensor | None:
        """Return the number of the input in each row, if the inputs were sorted before packing."""
        return self._orders.get(id(batch_sizes))

    def note(self, call: Callable[..., Any], args: Sequence[Any], result: Any) -> None:
        """Remember views of the model's tensors and the order of packed inputs."""
        name = operation(call)
        if not args:
            return
        if name == "index_select" and len(args) > 2:
            self._keep(self._orders, result, args[2])
        elif name == "_pack_padded_sequence" and id(args[0]) in self._orders:
            self._keep(self._orders, result[1], self._orders[id(args[0])])
        stored = self._slices.get(id(args[0]))
        if stored is None:
            return
        if name in TRANSPOSES and isinstance(result, Tensor) and result.shape == args[0].shape[::-1]:
            self._keep(self._slices, result, ParameterSlice(stored.name, not stored.transposed, stored.rows))
        elif name in SLICES and not stored.transposed:
            for part in [result] if isinstance(result, Tensor) else result:
                rows = _rows(args[0], part)
                if rows is not None:
                    first = 0 if stored.rows is None else stored.rows[0]
                    self._keep(
                        self._slices, part, ParameterSlice(stored.name, False, (first + rows[0], first + rows[1]))
                    )

    def _keep(self, table: dict[int, Any], key: Any, value: Any) -> None:
        table[id(key)] = value
        self._alive.append(key)


def _rows(whole: Tensor, part: Any) -> tuple[int, int] | None:
    """Return the row range of a view in a tensor; None if it is no such view."""
    if not isinstance(part, Tensor) or part.shape[1:] != whole.shape[1:] or part.ndim != whole.ndim or not part.ndim:
        return None
    same = part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr() and part.stride() == whole.stride()
    first, left = divmod(int(part.storage_offset()) - int(whole.storage_offset()), max(1, whole.stride(0)))
    return (first, first + len(part)) if same and not left else None


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Every tensor inside nested tuples, lists and mappings."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)
