"""Ctrl-C and SIGTERM end a run in good order: the current step is finished, and its state is kept.

The first signal asks the search to end after the evaluation under way. Where that takes longer than `GRACE` seconds, it
is abandoned, and what was reached before it is kept. A thread of its own watches over this, since the main one may be
inside a framework for long: after `PATIENCE` seconds the thread itself keeps what was reached and ends the process. A
second signal ends it at once.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Protocol

import click

from arachne.errors import ArachneError, EnvironmentFaultError, Interrupted, NothingWithinBudgetError

SIGNALS = (signal.SIGINT, signal.SIGTERM)
GRACE, PATIENCE = 1.5, 3.0
"""Seconds after which the evaluation under way is abandoned, and after which the process is ended."""

CURSOR_SHOWN = "\x1b[?25h"
CLOSING = b"\0"


class Resumable(Protocol):
    """Something that a run can resume from: the checkpoints of a repair, or of a comparison."""

    pause: Callable[[], None] | None

    @property
    def has_files(self) -> bool: ...

    @property
    def resumable(self) -> bool: ...

    @property
    def progress(self) -> str: ...

    def flush(self) -> None: ...

    def forget(self) -> None: ...


class Stopping:
    """A block that a signal ends in good order; use as a context manager, in the main thread.

    Args:
        tell: Prints a line.
        again: Gives the command that goes on with the run.
    """

    def __init__(self, tell: Callable[[str], None], again: Callable[[], str]) -> None:
        self._tell, self._again = tell, again
        self._checkpoint: Resumable | None = None
        self._asked: int | None = None
        self._late = self._done = False
        self._expected = 0
        self._before: dict[int, Any] = {}
        self._ends: tuple[int, int] | None = None
        self._fd_before = -1
        self._thread: threading.Thread | None = None

    @contextmanager
    def keeping(self, checkpoint: Resumable | None) -> Iterator[None]:
        """A block that a next run resumes from these checkpoints; if the machine fails in it, the user is told how."""
        self._checkpoint = checkpoint
        if checkpoint is None:
            yield
            return
        checkpoint.pause = self._pause
        try:
            yield
            self._checkpoint, self._done = None, True
        except EnvironmentFaultError:
            if checkpoint.has_files:
                self._tell(f"{checkpoint.progress} is kept; this goes on from there:")
                self._tell(f"  {self._again()}")
            raise
        except NothingWithinBudgetError:
            checkpoint.forget()
            raise

    def __enter__(self) -> Stopping:
        if threading.current_thread() is threading.main_thread():
            self._ends = os.pipe()
            os.set_blocking(self._ends[1], False)
            self._fd_before = signal.set_wakeup_fd(self._ends[1], warn_on_full_buffer=False)
            self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}
            self._thread = threading.Thread(
                target=self._watch, args=[self._ends[0]], daemon=True, name="arachne-signals"
            )
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._ends is None or self._thread is None:
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._fd_before)
        os.write(self._ends[1], CLOSING)
        self._thread.join()
        for end in self._ends:
            os.close(end)

    @property
    def _resumable(self) -> bool:
        return self._checkpoint is not None and self._checkpoint.resumable

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Called in the main thread: end the run now, or when the search asks next."""
        self._asked = self._asked or number
        if self._late or not self._resumable:
            raise Interrupted(self._asked, self._sentence())

    def _pause(self) -> None:
        if self._asked is not None:
            raise Interrupted(self._asked, self._sentence())

    def _sentence(self) -> str:
        if self._done:
            return "interrupted; the run had ended, and its results are written"
        if self._checkpoint is None:
            return "interrupted; nothing is kept without a folder for the results (--out)"
        if not self._resumable:
            return "interrupted; nothing is kept, since the search had not begun"
        return f"interrupted after {self._checkpoint.progress}; this goes on from there:\n  {self._again()}"

    def _watch(self, signals: int) -> None:
        """Called in a thread of its own."""
        first: int | None = None
        began = 0.0
        while True:
            due = None if first is None else began + (PATIENCE if self._late else GRACE) - time.monotonic()
            if select.select([signals], [], [], due if due is None else max(due, 0.0))[0]:
                for number in os.read(signals, 64):
                    if number == CLOSING[0]:
                        return
                    if number not in SIGNALS:
                        continue
                    if self._expected:
                        self._expected -= 1
                    elif first is not None:
                        _leave(128 + number)
                    else:
                        first, began = number, time.monotonic()
                        if self._resumable:
                            self._tell("stopping when the evaluation under way is done; Ctrl-C again leaves at once")
            elif first is not None and not self._late:
                self._late, self._expected = True, 1
                signal.pthread_kill(threading.main_thread().ident or 0, first)
            elif first is not None:
                self._end(first)

    def _end(self, number: int) -> None:
        """Keep the state reached so far and end the process, whatever the main thread is doing."""
        code, text = 128 + number, self._sentence()
        try:
            if self._checkpoint is not None:
                self._checkpoint.flush()
        except ArachneError as error:
            code, text = error.exit_code, str(error)
        _leave(code, f"error: {text}\n")


def _leave(code: int, text: str = "") -> None:
    """End the process at once; a progress bar has hidden the cursor."""
    if sys.stderr.isatty():
        text = CURSOR_SHOWN + text
    click.echo(text, err=True, nl=False)
    os._exit(code)
