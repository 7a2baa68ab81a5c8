"""The command line run inside a test's own process, where the framework is loaded already.

Whatever the command does, the files it reads are afterwards what they were before: this is asserted of every run.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arachne.cli import run
from arachne.io.files import sha256_of

OUTPUTS = ("-o", "--out", "--report", "--junit", "--plot", "--page", "--log-file")


@dataclass(frozen=True)
class Ran:
    """Output and exit code of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def arachne(*arguments: str | Path, cwd: Path) -> Ran:
    """Run a command in a folder."""
    out, err = io.StringIO(), io.StringIO()
    words = [str(argument) for argument in arguments]
    before = inputs(words, cwd)
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(words)
    assert inputs(words, cwd) == before, f"an input has changed: arachne {' '.join(words)}"
    return Ran(code, out.getvalue(), err.getvalue())


def inputs(words: list[str], folder: Path) -> dict[str, tuple[int, int, str]]:
    """Inode, time of change and hash of every file a command line names, apart from its outputs."""
    written = {other for word, other in itertools.pairwise(words) if word in OUTPUTS}
    paths = {word: folder / word for word in words if word not in written and len(word) < 200}
    found = {word: path for word, path in paths.items() if path.is_file()}
    return {word: (path.stat().st_ino, path.stat().st_mtime_ns, sha256_of(path)) for word, path in found.items()}
