"""How the command ends: with its own exit code, whatever becomes of its streams or a library ends the process."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import errno
import os
import sys
from collections.abc import Iterator
from typing import NoReturn

from arachne.errors import EnvironmentFaultError

ENVIRONMENT = EnvironmentFaultError.exit_code

MEGABYTE = 1 << 20
NEEDED = {True: (192, 64), False: (1024, 128)}
"""Megabytes of addresses that a light command needs, or one with a framework, and for each further thread of BLAS."""


def prepare() -> None:
    """Prepare the streams, and the exit code for a library that ends the process.

    A file that is opened while standard output is closed would become standard output. And OpenBLAS, when it gets no
    memory, says so and calls `exit(1)`, which here means that a gate failed.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    with contextlib.suppress(AttributeError, OSError):  # a system without them
        libc = ctypes.CDLL(None)
        ended = ctypes.cast(libc._exit, ctypes.c_void_p)
        libc.__cxa_atexit(ended, ctypes.c_void_p(ENVIRONMENT), None)


def check_address_space(*, light: bool) -> None:
    """Refuse to begin where `ulimit -v` leaves less than libraries take by themselves.

    OpenBLAS asks for its buffers again and again, holding Python's lock, so that a run neither ends nor hears a signal.

    Raises:
        EnvironmentFaultError: The limit is below what the command needs at least.
    """
    try:
        import resource
    except ImportError:  # a system without limits
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    first, further = NEEDED[light]
    threads = os.environ.get("OMP_NUM_THREADS", "")
    needed = first + further * ((int(threads) if threads.isdecimal() else os.cpu_count() or 1) - 1)
    if limit != resource.RLIM_INFINITY and limit < needed * MEGABYTE:
        raise EnvironmentFaultError(
            f"this command needs at least {needed:,} MB of address space, and the process may have "
            f"{limit // MEGABYTE:,}; raise the limit (ulimit -v), or take fewer threads (OMP_NUM_THREADS=1)"
        )


def leave(code: int) -> NoReturn:
    """End the process with a code; with that of a failing environment if the output could not be written."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError as error:
            if code == 0:
                code = ENVIRONMENT
                with contextlib.suppress(OSError):
                    os.write(2, f"error: not everything could be printed: {error.strerror}\n".encode())
    atexit._run_exitfuncs()
    os._exit(code)


@contextlib.contextmanager
def report_closed_pipe() -> Iterator[None]:
    """Report a closed pipe with its own exit code; click would exit with 1."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EPIPE:
            raise
        raise EnvironmentFaultError("standard output was closed before everything was written") from error
