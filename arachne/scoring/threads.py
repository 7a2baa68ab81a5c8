"""One thread for NumPy's matrix products while candidates are judged.

The products of a dense tail are many and small. Shared between threads they take several times as long, because each
of them waits for the slowest thread. NumPy has no switch for this, but the OpenBLAS in its wheels has one. With another
BLAS nothing is done here; set `MKL_NUM_THREADS` or `OMP_NUM_THREADS` instead.

threadpoolctl does this for every BLAS, but one `limit` takes 90 µs where this switch takes 12, and the demo's default
repair enters it 3,711 times in 2.2 s: 0.3 s more.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

PREFIXES = ("scipy_openblas", "openblas")
SUFFIXES = ("64_", "")


@contextmanager
def one_thread() -> Iterator[None]:
    """Run a block with single-threaded products; the number of threads is restored afterwards."""
    switch = _switch()
    if switch is None:
        yield
        return
    get, put = switch
    before = get()
    put(1)
    try:
        yield
    finally:
        put(before)


@functools.cache
def _switch() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """Return a getter and a setter of the number of threads of NumPy's OpenBLAS; None if it has another BLAS."""
    package = Path(np.__file__).parent
    for folder in (package.parent / "numpy.libs", package / ".dylibs"):
        for file in sorted(folder.glob("*openblas*")):
            library = ctypes.CDLL(str(file))
            for prefix in PREFIXES:
                for suffix in SUFFIXES:
                    get = getattr(library, f"{prefix}_get_num_threads{suffix}", None)
                    put = getattr(library, f"{prefix}_set_num_threads{suffix}", None)
                    if get is not None and put is not None:
                        return get, put
    return None
