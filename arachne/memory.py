"""What to do when memory does not suffice: smaller batches before a search, a clear end during it; and to need less."""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np

from arachne.backend import ModelBackend
from arachne.errors import EnvironmentFaultError, OutOfMemoryError
from arachne.wording import counted

T = TypeVar("T")

FRAMEWORKS_WORDS = re.compile(
    r"allocat\w* memory|out of memory|bad[_ ]alloc|resource_?exhausted|unable to allocate", re.I
)
"""How NumPy, PyTorch, TensorFlow, JAX and onnxruntime say it; they share no class for it."""


def ran_out(error: BaseException) -> bool:
    """Whether an error, or one behind it, says that there was not enough memory."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError) or FRAMEWORKS_WORDS.search(f"{type(cause).__name__}: {cause}"):
            return True
        cause = cause.__cause__
    return False


@contextmanager
def memory_faults() -> Iterator[None]:
    """Turn whatever a framework raises for lack of memory into one sentence.

    Raises:
        OutOfMemoryError: There was not enough memory.
    """
    try:
        yield
    except OutOfMemoryError:
        raise
    except Exception as error:
        if not ran_out(error):
            raise
        told = str(error) if isinstance(error, EnvironmentFaultError) else "not enough memory"
        raise OutOfMemoryError(f"{told}; use fewer inputs, or a machine with more") from error


def in_batches_that_fit(
    backend: ModelBackend, work: Callable[[], T], *, rng: np.random.Generator, tell: Callable[[str], None] | None
) -> T:
    """Do some work with the model, in ever smaller batches while memory does not suffice.

    Args:
        backend: The model.
        work: What to do; it begins anew, with the same random numbers.
        rng: Where all randomness comes from.
        tell: Called with a sentence when batches get smaller.

    Raises:
        OutOfMemoryError: A batch of one input does not fit either.
    """
    before = rng.bit_generator.state
    while True:
        try:
            with memory_faults():
                return work()
        except OutOfMemoryError:
            rows = backend.halve_batches()
            if rows is None:
                raise
            rng.bit_generator.state = before
            if tell is not None:
                tell(f"not enough memory: the model runs on {counted(rows, 'input')} at a time from now on")


def give_back() -> None:
    """Hand freed memory back to the system where the C library can.

    It keeps what many small tensors leave behind, often more than a model's weights; called between steps that each
    need much.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
