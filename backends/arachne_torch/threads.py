"""One thread for torch while Arachne computes; the user's number is restored after every call.

With several threads every operator ends in a barrier, at which threads spin until the slowest has come. Beside other
programs the slowest is one that does not run: an LSTM took eleven times the processor time of a single thread
(`python -m benchmarks.threads`). One thread also rounds in one way, whatever machine it runs on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Run a block with one thread; also a decorator, `@one_thread()`."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
