"""A hostile file and the command that is handed it.

A module `tests/safety/cases_*.py` exports `CASES`; `python -m tests.safety hostile` runs them all, the suite a sample.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SERVERS = {"torch": "torch", "pt": "torch", "pt2": "torch", "safetensors": "torch", "keras": "keras", "h5": "keras",
           "tflite": "tflite"}  # fmt: skip
"""Which warmed-up process a kind of file runs in; every other kind runs in `core`, which knows ONNX and no other."""


@dataclass(frozen=True)
class Case:
    """One attack.

    Attributes:
        name: What it is, unique, as a statement's subject (`png-that-is-postscript`).
        kind: The kind of file: `onnx`, `pt`, `pt2`, `safetensors`, `keras`, `h5`, `picture`, `npz`, `csv`, `patch`, …
        attack: The class of attack: `bomb`, `code`, `type`, `size`, `pipe`, `escape`, …
        make: Writes the hostile files into an empty folder and returns the command line behind `arachne`. It runs in
            the process that runs the case, where the framework is loaded; import the framework inside it.
        exits: Exit codes that are right; 3 unless there is a reason for another.
    """

    name: str
    kind: str
    attack: str
    make: Callable[[Path], list[str]]
    exits: tuple[int, ...] = (3,)

    @property
    def server(self) -> str:
        """The process it runs in: `core`, `torch`, `keras` or `tflite`."""
        return SERVERS.get(self.kind, "core")


def canary(folder: Path) -> Path:
    """The file that code inside a hostile file should try to make; where it stands after the run, code ran."""
    return folder / "CANARY"


@functools.cache
def all_cases() -> dict[str, Case]:
    """Every case by its name."""
    found: dict[str, Case] = {}
    for path in sorted(Path(__file__).parent.glob("cases_*.py")):
        for case in importlib.import_module(f"tests.safety.{path.stem}").CASES:
            if case.name in found:
                raise ValueError(f"two cases are named '{case.name}'")
            found[case.name] = case
    return found
