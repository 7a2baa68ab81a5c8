"""One thread for torch while Arachne computes; the user's number is restored after every call.

With several threads every operator ends in a barrier, at which threads spin until the slowest has come. Beside other
programs the slowest is one that does not run: an LSTM took eleven times the processor time of a single thread
(`python -m benchmarks.threads`). One thread also rounds in one way, whatever machine it runs on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_lock = threading.Lock()
_running: set[int] = set()
"""The threads of Python in which a call is under way."""

_own = threading.local()
"""How deep this thread is in calls, and the user's number; in torch every thread has its own."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Run a block with one thread; also a decorator, `@one_thread()`.

    Part of the number is common to all threads of Python, so it stays at one while another thread computes.
    """
    _own.depth = getattr(_own, "depth", 0) + 1
    if _own.depth == 1:
        with _lock:
            _running.add(threading.get_ident())
        _own.before = getattr(_own, "before", None) or torch.get_num_threads()
        torch.set_num_threads(1)
    try:
        yield
    finally:
        _own.depth -= 1
        if not _own.depth:
            with _lock:
                _running.discard(threading.get_ident())
                if not _running:
                    torch.set_num_threads(_own.before)
                    _own.before = None
