"""The entry of the command `arachne` and of `python -m arachne`: Ctrl-C ends it in one line from its first import on.

This module imports next to nothing, since it can only speak for what comes after it: modules that the interpreter has
loaded anyway, or is built with.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # built in; `signal` would import enum first
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

INTERRUPTED = 130


def main() -> NoReturn:
    """Run the command line, and leave with its exit code."""
    early = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a process in the background ignores it
    if early:
        signal.signal(signal.SIGINT, _leave)
    from arachne.cli import main as run

    if early:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run()
    except KeyboardInterrupt:
        _leave(signal.SIGINT, None)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """End the process at once: nothing was begun that would have to be put in order."""
    os.write(2, b"error: interrupted\n")
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
