"""Read untrusted files: only ordinary ones are opened, and any fault in their bytes becomes one sentence.

A parser raises what it likes on bytes that nobody should have written, so the border is here, around it, and not in a
list of the errors seen so far.
"""

from __future__ import annotations

import difflib
import json
import math
import os
import re
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from arachne.errors import ArachneError, InputError

DEEPEST = 100
"""Levels of lists and objects in a JSON text; ours have a dozen."""

MOST_VALUES = 3_000_000
"""Values in a JSON text; each takes some seventy bytes of memory, however few it has in the text."""

LONGEST_NUMBER = 400
"""Characters of a number in a JSON text; a float64 written out in full has about 330."""

MAX_NAMES = 2000
"""Names of files beside a missing one that are compared with it."""

HALVES = re.compile("[\ud800-\udfff]")
"""Halves of a surrogate pair: no characters, and nothing that can be written."""


def ordinary_file(path: str | Path, what: str, fault: type[InputError] = InputError, *, links: bool = True) -> Path:
    """The path, if an ordinary file is there; a pipe or a device may never end.

    Args:
        path: The path.
        what: What it should be, as the message calls it: `patch`.
        fault: What to raise.
        links: Whether a link to a file will do; those in a folder of results lead wherever somebody wanted.
    """
    path = Path(path)
    try:
        mode = path.stat(follow_symlinks=links).st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        raise fault(f"{what} '{path}' does not exist{suggest_path(path)}") from error
    except (OSError, ValueError) as error:  # a name that no file can have, or a circle of links
        raise fault(f"cannot read {what} '{path}': {error_text(error)}") from error
    if stat.S_ISLNK(mode):
        raise fault(f"{what} '{path}' is a link, expected a file")
    if stat.S_ISDIR(mode):
        raise fault(f"{what} '{path}' is a directory, expected a file{suggest_inside(path)}")
    if not stat.S_ISREG(mode):
        raise fault(f"{what} '{path}' is a pipe, a socket or a device, expected a file")
    return path


def suggest_inside(path: Path) -> str:
    """Return the end of a sentence about a directory in place of a file: the file in it that is meant, if any."""
    if (path / "patch.json").is_file():
        return f"; did you mean '{path / 'patch.json'}'?"
    weights = path / "model.safetensors"
    if weights.is_file():
        return f": give the code that builds it with --model, and '{weights}' with --weights"
    return ""


def suggest_path(path: Path) -> str:
    """The end of a sentence about a file that is not there: one beside it with nearly that name, if there is one."""
    try:
        names = sorted(one.name for one in os.scandir(path.parent))[:MAX_NAMES]
    except (OSError, ValueError):
        return ""
    close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.8)
    return f"; did you mean '{path.with_name(close[0])}'?" if close else ""


def read_bytes(path: str | Path, what: str, most: int, fault: type[InputError] = InputError) -> bytes:
    """All bytes of an ordinary file.

    Args:
        path: The file.
        what: What it should be, as the message calls it.
        most: More bytes than this are not read.
        fault: What to raise.
    """
    path = ordinary_file(path, what, fault)
    with parse_errors_as(f"{what} '{path}'", fault), path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > most:
            raise fault(f"'{path}' has {size:,} bytes, too many for a {what}")
        return stream.read(size)  # a larger number would be allocated in full, whatever the file holds


def read_text(path: str | Path, what: str, most: int, fault: type[InputError] = InputError) -> str:
    """The text of an ordinary file in UTF-8, as `read_bytes` reads it."""
    content = read_bytes(path, what, most, fault)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise fault(f"{what} '{path}' is not text in UTF-8") from error


@contextmanager
def parse_errors_as(what: str, fault: type[InputError]) -> Iterator[None]:
    """Turn any error while untrusted bytes are parsed into one sentence.

    Args:
        what: What is read, as the message calls it: `data 'x.npz'`.
        fault: What to raise.
    """
    try:
        yield
    except (ArachneError, MemoryError):
        raise
    except Exception as error:
        raise fault(f"cannot read {what}: {error_text(error)}") from error


def error_text(error: BaseException) -> str:
    """The first line of an error's message, shortened."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, KeyError):
        return f"it has no {error}"
    if isinstance(error, zipfile.BadZipFile) and "not a zip file" in str(error):
        return "it is no archive, or it was cut short"
    text = str(getattr(error, "strerror", None) or error).strip()
    line = text.splitlines()[0].rstrip(" .:") if text else type(error).__name__
    return line if len(line) <= 200 else line[:199] + "…"


def parse_json(text: str | bytes, *, finite: bool = True, bits: int = 64) -> Any:
    """The value in a JSON text of others: keys once, numbers of a sane length, characters that can be written.

    Args:
        text: The text, bytes in UTF-8.
        finite: Whether infinite numbers are refused; a model's may be the value of a mask.
        bits: How long whole numbers may be; those of a generator of random numbers have 128.

    Raises:
        ValueError: Something else; the message says what and where.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8")
    if sum(map(text.count, ",[{")) > MOST_VALUES:
        raise ValueError(f"it holds more than {MOST_VALUES:,} values")
    try:
        number, constant = (_finite, _refuse_constant) if finite else (float, float)
        value = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_int=lambda digits: _whole(digits, bits),
            parse_float=number,
            parse_constant=constant,
        )
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    _check(value, DEEPEST)
    return value


def _check(value: Any, levels: int) -> None:
    if isinstance(value, str):
        if HALVES.search(value):
            raise ValueError("it holds half a surrogate pair, which is no character")
    elif isinstance(value, (dict, list)):
        if not levels:
            raise ValueError("it is nested too deeply")
        for entry in value.values() if isinstance(value, dict) else value:
            _check(entry, levels - 1)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise ValueError(f"it has '{name}' twice in one place")
        if HALVES.search(name):
            raise ValueError("it holds half a surrogate pair, which is no character")
        members[name] = value
    return members


def _refuse_constant(name: str) -> float:
    raise ValueError(f"it holds {name}, expected finite numbers only")


def _finite(text: str) -> float:
    value = float(text) if len(text) <= LONGEST_NUMBER else math.inf
    if not math.isfinite(value):
        raise ValueError(f"it holds {text[:20]}, which is out of range")
    return value


def _whole(text: str, bits: int) -> int:
    value = int(text) if len(text) <= LONGEST_NUMBER else 1 << bits
    if not -(1 << bits - 1) <= value < 1 << bits:
        raise ValueError(f"it holds {text[:20]}…, which is out of range")
    return value
