"""One thread for the matrix products of NumPy and SciPy while candidates are judged.

The products of a dense tail are many and small. Shared between threads they take several times as long, because each
of them waits for the slowest thread, and several processes may compute at once. Neither package has a switch for this,
but the OpenBLAS in its wheels has one. With another BLAS nothing is done here; set `MKL_NUM_THREADS` or
`OMP_NUM_THREADS` instead.

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
import scipy

PREFIXES = ("scipy_openblas", "openblas")
SUFFIXES = ("64_", "")


@contextmanager
def one_thread() -> Iterator[None]:
    """Run a block with single-threaded products; the numbers of threads are restored afterwards."""
    before = [get() for get, _ in _switches()]
    for _, put in _switches():
        put(1)
    try:
        yield
    finally:
        for (_, put), number in zip(_switches(), before, strict=True):
            put(number)


@functools.cache
def _switches() -> tuple[tuple[Callable[[], int], Callable[[int], None]], ...]:
    """Return a getter and a setter of the number of threads of each OpenBLAS, NumPy's first; none for another BLAS."""
    found = []
    for package in (Path(np.__file__).parent, Path(scipy.__file__).parent):
        libraries = (package.parent / f"{package.name}.libs", package / ".dylibs")
        files = [file for folder in libraries for file in sorted(folder.glob("*openblas*"))]
        found += [switch for file in files if (switch := _switch_of(file)) is not None][:1]
    return tuple(found)


def _switch_of(file: Path) -> tuple[Callable[[], int], Callable[[int], None]] | None:
    library = ctypes.CDLL(str(file))
    for prefix in PREFIXES:
        for suffix in SUFFIXES:
            get = getattr(library, f"{prefix}_get_num_threads{suffix}", None)
            put = getattr(library, f"{prefix}_set_num_threads{suffix}", None)
            if get is not None and put is not None:
                return get, put
    return None
