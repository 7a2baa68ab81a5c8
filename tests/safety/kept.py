"""Trials that a run keeps in a file: a long run can be made of slices, each of which goes on where the last stopped."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Trial:
    """How one attack or fault ended.

    Attributes:
        wrong: What did not hold, a sentence each.
        seen: Figures that the table is made of, by name.
    """

    wrong: tuple[str, ...] = ()
    seen: dict[str, Any] = field(default_factory=dict)


class Kept:
    """Trials by part and name; those that did not hold are tried again by the next run.

    Args:
        path: Where they are kept, a line of JSON each; None keeps them for this run only.
        seconds: After how many seconds no further trial begins; None never.
    """

    def __init__(self, path: Path | None = None, seconds: float | None = None) -> None:
        self._path, self._lock = path, threading.Lock()
        self._ends = None if seconds is None else time.monotonic() + seconds
        self._held: dict[tuple[str, str], Trial] = {}
        for line in path.read_text().splitlines() if path is not None and path.exists() else ():
            told = json.loads(line)
            trial = Trial(tuple(told["wrong"]), told["seen"])
            key = told["part"], told["name"]
            if trial.wrong:
                self._held.pop(key, None)
            else:
                self._held[key] = trial

    @property
    def is_limited(self) -> bool:
        """Whether the run ends when its time is up."""
        return self._ends is not None

    def over(self) -> bool:
        """Whether the time is up."""
        return self._ends is not None and time.monotonic() >= self._ends

    def has(self, part: str, name: str) -> bool:
        """Whether a trial held in an earlier slice."""
        return (part, name) in self._held

    def trial(self, part: str, name: str, attempt: Callable[[], Trial]) -> Trial | None:
        """Look a trial up, or make and keep it; None where the time is up."""
        found = self._held.get((part, name))
        if found is not None or self.over():
            return found
        made = attempt()
        if self._path is not None:
            line = json.dumps({"part": part, "name": name, "wrong": made.wrong, "seen": made.seen})
            with self._lock, self._path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        return made

    def trials(self, part: str, attempts: Mapping[str, Callable[[], Trial]]) -> list[Trial]:
        """Look trials up by name, or make and keep them; those that the time was too short for are left out."""
        found = [self.trial(part, name, attempt) for name, attempt in attempts.items()]
        return [trial for trial in found if trial is not None]
