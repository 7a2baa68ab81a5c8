"""One thread for torch while Arachne computes, and batches side by side, each on a thread of its own.

With several threads every operator ends in a barrier, at which threads spin until the slowest has come. Beside other
programs the slowest is one that does not run: an LSTM took eleven times the processor time of a single thread
(`python -m benchmarks.threads`). One thread also rounds in one way, whatever machine it runs on. So the user's number
is put aside during every call. Where a batch takes long, several run at once instead: they wait for nobody, and give
the same bits.
"""

from __future__ import annotations

import types
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import nn

Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def one_thread() -> Iterator[None]:
    """Run a block with one thread; also a decorator, `@one_thread()`."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def in_a_thread(work: Callable[[Item], Result]) -> Callable[[Item], Result]:
    """Make work fit for another thread: with one thread of torch's, and gradients as they are now in this one."""
    gradients = torch.is_grad_enabled()

    def run(item: Item) -> Result:
        torch.set_num_threads(1)
        with torch.set_grad_enabled(gradients):
            return work(item)

    return run


def has_twins(module: nn.Module) -> bool:
    """Tell whether a twin of the module runs as it does: no compiled code, no hooks, no method put in by hand."""
    return not any(
        isinstance(part, torch.jit.ScriptModule)
        or type(part).__module__.startswith("torch._dynamo")
        or part._forward_hooks
        or part._forward_pre_hooks
        or "forward" in vars(part)
        for part in module.modules()
    )


def make_twin(module: nn.Module, made: dict[int, nn.Module] | None = None) -> nn.Module:
    """Copy a module and its parts, but not their tensors: what a pass notes in one does not reach the other."""
    made = {} if made is None else made
    if id(module) in made:
        return made[id(module)]
    twin: nn.Module = object.__new__(type(module))
    made[id(module)] = twin
    vars(twin).update({name: _copy(value, made) for name, value in vars(module).items()})
    return twin


def _copy(value: Any, made: dict[int, nn.Module]) -> Any:
    if isinstance(value, nn.Module):
        return make_twin(value, made)
    if type(value) in (list, tuple, set):
        return type(value)(_copy(one, made) for one in value)
    if type(value) in (dict, OrderedDict):
        return type(value)((name, _copy(one, made)) for name, one in value.items())
    if isinstance(value, types.MethodType) and isinstance(value.__self__, nn.Module):
        return types.MethodType(value.__func__, make_twin(value.__self__, made))
    return value
