"""The user's module and torch's own settings as they were before a pass, however it ends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import nn


@contextlib.contextmanager
def as_found(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Run in evaluation mode, and restore training flags and the random state afterwards."""
    forked = torch.random.fork_rng(devices=[device] if device.type != "cpu" else [], device_type=device.type)
    with plain_attention(), forked, evaluating(module):
        yield


def random_state() -> bytes:
    """Return the state of torch's random numbers, unseen by who watches torch's calls."""
    with torch._C.DisableTorchFunction():
        return torch.get_rng_state().numpy().tobytes()


@contextlib.contextmanager
def plain_attention() -> Iterator[None]:
    """Leave out the fused kernel that torch has for attention in evaluation mode.

    It rounds in another way than the calls we see, and a cut would then not give the bits of a full pass.
    """
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)


@contextlib.contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Run in evaluation mode, and restore the flag of every submodule afterwards."""
    flags = [(part, part.training) for part in module.modules()]
    try:
        for part, _ in flags:
            part.training = False
        yield
    finally:
        for part, flag in flags:
            part.training = flag
