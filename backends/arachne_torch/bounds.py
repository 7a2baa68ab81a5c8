"""The first pass of a program from a file, in which no call may make a tensor out of proportion.

Sizes in a program come from its file. Before each call, the sizes of its results are computed on tensors without
memory, which is cheap and done once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from arachne.errors import ModelError

ALWAYS_ALLOWED_BYTES = 256 * 2**20
PROPORTION = 64
"""Results of a pass may take this many bytes, or this many times the bytes of weights and inputs if that is more."""

MAX_PROGRAM_ROWS = 1 << 16
"""The largest batch that a program may ask for."""

BY_VALUES = ("repeat_interleave", "one_hot")
"""Calls whose result sizes depend on the values of their arguments."""


class Bounded(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's base class is untyped
    """Refuse results that take more than a share of memory, before they are allocated.

    Args:
        tensors: The weights and the inputs.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self._left = max(ALWAYS_ALLOWED_BYTES, PROPORTION * sum(tensor.nbytes for tensor in tensors))

    supports_higher_order_operators = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by torch for every operator."""
        if isinstance(func, HigherOrderOperator):
            return self._inside(func, args)
        self._left -= _bytes_of(func, args, kwargs or {})
        if self._left < 0:
            name = str(func).removeprefix("aten.").partition(".")[0]
            raise ModelError(f"the model's call of '{name}' makes a tensor out of proportion to its weights and inputs")
        return func(*args, **(kwargs or {}))

    def _inside(self, func: Any, args: Any) -> Any:
        """Run a call that takes graphs, with the bound on the calls inside them too."""
        match str(func):
            case "cond":
                decided, then, otherwise, given = args
                with self:
                    return (then if decided else otherwise)(*given)
            case "wrap_with_set_grad_enabled":
                with self:
                    return args[1](*args[2:])
            case "wrap_with_autocast":
                device, dtype, enabled, cached, graph, *given = args
                with self, torch.autocast(device, dtype=dtype, enabled=enabled, cache_enabled=cached):
                    return graph(*given)
        raise ModelError(f"the model calls '{func}', which is not known to be safe")


def _bytes_of(func: Any, args: Any, kwargs: Any) -> int:
    """Bytes that a call allocates for its results (views count nothing); 0 if that cannot be computed beforehand."""
    seen: dict[int, Tensor] = {}

    def empty(value: Any) -> Any:
        if isinstance(value, torch.device):
            return torch.device("meta")
        if not isinstance(value, Tensor):
            return value
        if id(value) not in seen:
            seen[id(value)] = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="meta")
        return seen[id(value)]

    try:
        given = tree_map(empty, kwargs)
        if any(argument.name == "device" for argument in func._schema.arguments):
            given["device"] = torch.device("meta")
        results = func(*tree_map(empty, args), **given)
    except Exception as error:  # no rule for such tensors, or the call itself is wrong and will say so
        if func._schema.name.removeprefix("aten::") in BY_VALUES:
            raise ModelError(f"the model calls '{func._schema.name}' with sizes that only its values tell") from error
        return 0
    given_storages = {value.untyped_storage()._cdata for value in seen.values()}
    made = {
        result.untyped_storage()._cdata: result.untyped_storage().nbytes()
        for result in tree_leaves(results)
        if isinstance(result, Tensor)
    }
    return sum(size for storage, size in made.items() if storage not in given_storages)
