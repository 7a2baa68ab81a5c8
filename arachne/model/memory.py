"""Out-of-memory handling, and returning freed memory to the operating system."""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np

from arachne.errors import EnvironmentFaultError, OutOfMemoryError, is_out_of_memory
from arachne.model.backend import ModelBackend
from arachne.text import pluralise

T = TypeVar("T")


@contextmanager
def memory_faults() -> Iterator[None]:
    """Turn any exception of a framework for lack of memory into an error of one sentence.

    Raises:
        OutOfMemoryError: There was not enough memory.
    """
    try:
        yield
    except OutOfMemoryError:
        raise
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        reason = str(error) if isinstance(error, EnvironmentFaultError) else "not enough memory"
        raise OutOfMemoryError(f"{reason}; use fewer inputs, or a machine with more") from error


def in_batches_that_fit(
    backend: ModelBackend, work: Callable[[], T], *, rng: np.random.Generator, tell: Callable[[str], None] | None
) -> T:
    """Do some work with the model; halve the batches and begin again while memory does not suffice.

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
                tell(f"not enough memory: the model runs on {pluralise(rows, 'input')} at a time from now on")


def peak_memory() -> int | None:
    """Return the most bytes that this process has held at once, frameworks included; None where nobody counts them."""
    if sys.platform == "win32":
        return None
    try:  # on Linux `getrusage` begins with the peak of whoever started the process
        found = re.search(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text("ascii", "replace"), re.M)
    except OSError:
        found = None
    if found is not None:
        return int(found[1]) << 10
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most << 10


MAPPED_ABOVE_BYTES = 1 << 20
"""Arrays of more bytes are returned when they are freed, where memory is limited."""


def return_large_arrays() -> None:
    """Have large arrays returned to the operating system as they are freed, from now on, where the C library can.

    Otherwise arrays of up to 32 MB come from its heap once one of that size was freed, and what others leave there
    stays the process's.
    """
    change = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if change is not None:
        change(-3, MAPPED_ABOVE_BYTES)  # M_MMAP_THRESHOLD


def release_freed_memory() -> None:
    """Return freed memory to the operating system where the C library can.

    The C library holds on to what many small tensors leave behind, often more than a model's weights. Called between
    steps that each need much memory.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
