"""The two programs that apply a delta, each as a command; the one in C is built with the address sanitiser."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from arachne.delta import Delta, make_delta

SOURCES = Path(__file__).parents[2] / "arachne" / "delta"
PYTHON = (sys.executable, "-I", str(SOURCES / "arachne_delta.py"))


def build(folder: Path, *flags: str) -> Path:
    """Compile the program in C into a folder; the test is skipped where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    program = folder / "arachne_delta"
    strict = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1")
    subprocess.run([compiler, *strict, *flags, "-o", program, SOURCES / "arachne_delta.c"], check=True)
    return program


@pytest.fixture(scope="session")
def checked_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program in C, which ends with an error of its own at the first wrong access to memory."""
    return build(tmp_path_factory.mktemp("checked"), "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@pytest.fixture(scope="session")
def plain_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program in C as a device would have it."""
    return build(tmp_path_factory.mktemp("plain"))


@pytest.fixture(params=["python", "c"])
def program(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The words that call either program."""
    return PYTHON if request.param == "python" else (str(request.getfixturevalue("checked_program")),)


def call(program: Sequence[str], *words: object, code: int = 0) -> str:
    """Run a program, check its exit code, and return what it printed."""
    done = subprocess.run([*program, *map(str, words)], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done
    return done.stdout + done.stderr


class Pair:
    """An old and a new file, and the delta between them in a file."""

    def __init__(self, folder: Path) -> None:
        rng = np.random.default_rng(0)
        self.old_bytes = rng.bytes(9000)
        changed = bytearray(self.old_bytes)
        for start, size in ((0, 1), (700, 4), (4094, 8), (8999, 1)):
            for place in range(start, min(start + size, len(changed))):
                changed[place] ^= 0xFF
        self.new_bytes = bytes(changed)
        self.old, self.new, self.file = folder / "old", folder / "new", folder / "fix.delta"
        self.old.write_bytes(self.old_bytes)
        self.new.write_bytes(self.new_bytes)
        self.delta: Delta = make_delta(self.old, self.new)
        self.file.write_bytes(self.delta.to_bytes())


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    folder = tmp_path / "pair"
    folder.mkdir()
    return Pair(folder)
