"""A team of processes, forked from this one, that go on with the same work and hand each other parts of it.

A fork sees every array of the process it comes from without copying it, and goes on at the same line: so all members of
a team are in the same state, and stay so, if each gives the others what only it computes. Only NumPy may run in a fork:
threads of a framework do not survive it (`arachne.model.forks`). A member that fails or hangs gives nothing any more;
the first one, which is the process that was there before, then goes on alone.
"""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import signal
import sys
import time
import warnings
from contextlib import suppress
from typing import Any

from arachne.model.forks import mark_as_fork

END_WITH_PARENT = 1
"""The number of `PR_SET_PDEATHSIG`, which has a process end when the one that started it does."""

SIGNALS = (signal.SIGINT, signal.SIGTERM)

SIZE_BYTES = 8
"""How many bytes before a value tell its size."""

FIRST_NAP, LONGEST_NAP = 5e-5, 2e-3
"""For how many seconds a member that waits sleeps before it looks again, at first and at last."""


def can_fork() -> bool:
    """Tell whether processes can be forked here; elsewhere than on Linux, BLAS libraries may not survive it."""
    return sys.platform == "linux" and hasattr(os, "memfd_create")


class Team:
    """Some processes that run the same code from here on.

    Args:
        size: How many, this one included.

    Attributes:
        rank: The number of this process; 0 is the one that was there before.

    Raises:
        OSError: There is no room for another process.
    """

    def __init__(self, size: int) -> None:
        self.size, self.rank = size, 0
        self._files = [os.memfd_create("arachne-team") for _ in range(size)]
        self._read, self._written = [0] * size, 0
        self._processes: dict[int, int] = {}
        for rank in range(1, size):
            try:
                process = _fork()
            except OSError:
                self.end()
                raise
            if not process:
                self.rank = rank
                return
            self._processes[rank] = process

    def give(self, value: Any) -> None:
        """Give a value to all others, who receive the values of a member in the order in which it gave them."""
        content = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
        rest = memoryview(len(content).to_bytes(SIZE_BYTES, "little") + content)
        while len(rest):
            done = os.pwrite(self._files[self.rank], rest, self._written)
            self._written, rest = self._written + done, rest[done:]

    def receive(self, rank: int, seconds: float) -> Any:
        """Wait for the next value of a member.

        Args:
            rank: Its number.
            seconds: How long the first member waits; others wait for it until they end with it.

        Raises:
            TimeoutError: It has ended, or gave nothing in time.
        """
        size = int.from_bytes(self._wait_for(rank, SIZE_BYTES, seconds), "little")
        return pickle.loads(self._wait_for(rank, size, seconds))

    def is_whole(self) -> bool:
        """Tell whether all members are there; asked of the first one."""
        return all(self._runs(rank) for rank in range(1, self.size))

    def end(self) -> None:
        """End all other processes; called once, by the first."""
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            with suppress(ChildProcessError):  # an application may have said that it does not wait for processes
                os.waitpid(process, 0)
        for file in self._files:
            os.close(file)

    def _wait_for(self, rank: int, size: int, seconds: float) -> bytes:
        """Return the next bytes of a member; a file's size grows when its content is there."""
        at, nap, until = self._read[rank], FIRST_NAP, time.monotonic() + seconds
        while os.fstat(self._files[rank]).st_size < at + size:
            if not self.rank and (time.monotonic() > until or not self._runs(rank)):
                raise TimeoutError
            time.sleep(nap)
            nap = min(2 * nap, LONGEST_NAP)
        content = b""
        while len(content) < size:
            content += os.pread(self._files[rank], size - len(content), at + len(content))
        self._read[rank] += size
        return content

    def _runs(self, rank: int) -> bool:
        """Tell whether another process has not ended yet."""
        try:
            ended = os.waitpid(self._processes[rank], os.WNOHANG)[0]
        except (ChildProcessError, KeyError):
            ended = True
        if ended:
            self._processes.pop(rank, None)
        return not ended


def _fork() -> int:
    """Fork; return the new process's number, and 0 there. It hears no signal before it is deaf to them.

    Nothing may be raised in the new process here: its caller could not tell it from the first one, and would clean up.
    """
    parent, before = os.getpid(), signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        with warnings.catch_warnings():  # of other threads, whose code and locks the new process never touches
            warnings.simplefilter("ignore")
            process = os.fork()
        if not process:
            _leave(parent)
        return process
    except BaseException:
        if os.getpid() != parent:
            os._exit(0)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _leave(parent: int) -> None:
    """Be deaf to signals that are for the parent, end with it, and run no finaliser of what it owns."""
    mark_as_fork()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(END_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)
    gc.disable()
