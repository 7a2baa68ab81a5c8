"""Which objects of a pass are tensors of the model, or views of them, found by object identity."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from arachne_torch.stored import Stored

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


class Known:
    """What is known of a pass's objects; views are kept alive, because the id of a freed object may be used again.

    Args:
        tensors: The model's tensors, or what stands in for them, by name.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._stored = {id(tensor): Stored(name) for name, tensor in tensors.items()}
        self._rows = {name: len(tensor) if tensor.ndim else 0 for name, tensor in tensors.items()}
        self._orders: dict[int, Tensor] = {}
        self._alive: list[Any] = [tensors]

    def stored(self, value: Any) -> Stored | None:
        """Where a tensor is stored; None for one that is not the model's."""
        return self._stored.get(id(value))

    def rows(self, name: str) -> int:
        """How many rows a tensor of the model has."""
        return self._rows[name]

    def order(self, batch_sizes: Tensor) -> Tensor | None:
        """How the inputs were sorted before they were packed, if they were: the input that stands in each row."""
        return self._orders.get(id(batch_sizes))

    def note(self, call: Callable[..., Any], args: Sequence[Any], result: Any) -> None:
        """Remember what a call makes of a tensor of the model, or of the order of the inputs."""
        name = operation(call)
        if not args:
            return
        if name == "index_select" and len(args) > 2:
            self._keep(self._orders, result, args[2])
        elif name == "_pack_padded_sequence" and id(args[0]) in self._orders:
            self._keep(self._orders, result[1], self._orders[id(args[0])])
        stored = self._stored.get(id(args[0]))
        if stored is None:
            return
        if name in TRANSPOSES and isinstance(result, Tensor) and result.shape == args[0].shape[::-1]:
            self._keep(self._stored, result, Stored(stored.name, not stored.transposed, stored.rows))
        elif name in SLICES and not stored.transposed:
            for part in [result] if isinstance(result, Tensor) else result:
                rows = _rows(args[0], part)
                if rows is not None:
                    first = 0 if stored.rows is None else stored.rows[0]
                    self._keep(self._stored, part, Stored(stored.name, False, (first + rows[0], first + rows[1])))

    def _keep(self, table: dict[int, Any], key: Any, value: Any) -> None:
        table[id(key)] = value
        self._alive.append(key)


def _rows(whole: Tensor, part: Any) -> tuple[int, int] | None:
    """Which rows of a tensor a view of it is; None if it is none."""
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
