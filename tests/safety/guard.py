"""Watch and limit the process that meets a hostile file."""

from __future__ import annotations

import os
import resource
import sys
import tempfile
from pathlib import Path
from types import CodeType
from typing import Any

HELPERS = (
    *("sh", "bash", "python", "python3", "perl", "gs", "gswin64c", "convert", "magick", "ffmpeg", "dot", "unzip"),
    *("gzip", "tar", "curl", "wget", "xdg-open", "git"),
)
"""Programs that a library may start; `PATH` holds a false one of each, which leaves its name in the trace."""

STARTED = (
    *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.startfile", "os.fork"),
    *("os.forkpty", "pty.spawn", "socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg"),
    *("socket.getaddrinfo", "socket.gethostbyname", "urllib.Request", "ftplib.connect", "smtplib.connect"),
    "webbrowser.open",
)
"""Audit events of a program started or an address looked up."""

CHANGED = {
    "os.rename": 1,
    "os.remove": 0,
    "os.rmdir": 0,
    "os.mkdir": 0,
    "os.link": 1,
    "os.symlink": 1,
    "os.truncate": 0,
}
"""Audit events that change a path, and which argument is that path."""

OWN_CODE = "networks.py"
"""The one file of a case's folder whose code the user asked for, by naming its factory on the command line."""

MEMORY_GUARD = 1536 << 20
"""Address space that a case may take on top of what the idle process has, so that no case can take the machine down."""


def make_helpers(folder: Path, trace: Path) -> None:
    """Write false helper programs that leave their name."""
    folder.mkdir()
    for name in HELPERS:
        program = folder / name
        program.write_text(f'#!/bin/sh\necho "program {name} $*" >> "{trace}"\n')
        program.chmod(0o755)


def enclose(work: Path, folder: Path, trace: Path) -> None:
    """Point everything a library looks up by itself into the case's own folders, and limit the memory."""
    sys.dont_write_bytecode = True
    for name in ("home", "tmp"):
        (work / name).mkdir(exist_ok=True)
    make_helpers(work / "bin", trace)
    os.environ.update(HOME=str(work / "home"), TMPDIR=str(work / "tmp"), PATH=str(work / "bin"), COLUMNS="120")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(work / "tmp" / "inductor")  # torch has chosen one before TMPDIR was set
    tempfile.tempdir = None
    os.chdir(folder)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_GUARD
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def watch(work: Path, folder: Path, trace: Path) -> None:
    """Write every program started, address looked up, file written elsewhere and code of the folder into the trace."""
    descriptor = os.open(trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    inside, strange = str(work), str(folder)

    def tell(text: str) -> None:
        os.write(descriptor, text.encode("utf-8", "replace") + b"\n")

    def elsewhere(path: object) -> bool:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return False
        full = os.path.abspath(os.fsdecode(path))
        return not full.startswith((inside, "/dev/", "/proc/"))

    def strangers_code(code: CodeType) -> bool:
        return code.co_filename.startswith(strange) and code.co_filename != os.path.join(strange, OWN_CODE)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in STARTED:
            tell(f"{event} {arguments[:2]!r}")
        elif event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and elsewhere(path):
                tell(f"written outside: {path!r}")
        elif event in CHANGED and elsewhere(arguments[CHANGED[event]]):
            tell(f"{event} outside: {arguments[CHANGED[event]]!r}")
        elif event == "exec" and isinstance(arguments[0], CodeType) and strangers_code(arguments[0]):
            tell(f"code of the folder run: {arguments[0].co_filename!r}")
        elif event == "ctypes.dlopen" and str(arguments[0]).startswith(strange):
            tell(f"library of the folder loaded: {arguments[0]!r}")

    sys.addaudithook(hook)
