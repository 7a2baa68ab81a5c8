"""One measurement of the paper's study and the file that keeps it: a line of JSON for each, by question and way."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from examples.study.sources import PROJECT

RESULTS = PROJECT / "examples" / "study" / "results"
DONE = "done"


@dataclass(frozen=True, order=True)
class Cell:
    """One thing to measure.

    Attributes:
        question: `rq1` to `rq7`, or `reference`.
        subject: Whose network and data it takes.
        way: How it is repaired or localised.
        case: Which fault, in the question's own words: a rank, or a value of alpha.
        seed: Of the halves of the data, of the repair, of what is injected.
    """

    question: str
    subject: str
    way: str
    case: str
    seed: int

    def __str__(self) -> str:
        """`rq3 fm-mlp faithful, 1, seed 0`."""
        return f"{self.question} {self.subject} {self.way}, {self.case}, seed {self.seed}"

    def path(self, folder: Path) -> Path:
        """The file its line goes to."""
        return folder / self.question / f"{self.subject}.{self.way}.jsonl"


@dataclass(frozen=True)
class Kept:
    """One measurement.

    Attributes:
        cell: Of which measurement.
        made_with: What decides the numbers; a cell that was made with something else is made again.
        versions: Of the packages.
        seconds: Of processor time.
        outcome: `done`, or why there are no numbers.
        found: The numbers, by the question's own names.
    """

    cell: Cell
    made_with: dict[str, Any]
    versions: dict[str, str]
    seconds: float
    outcome: str
    found: dict[str, Any]

    def line(self) -> str:
        """As it is kept; the question, the subject and the way are the file's name."""
        told = {
            "case": self.cell.case,
            "seed": self.cell.seed,
            **{k: v for k, v in asdict(self).items() if k != "cell"},
        }
        return json.dumps(told, ensure_ascii=False) + "\n"


def add(kept: Kept, folder: Path) -> None:
    """Put a line at the end of its file; lines of one cell that were made earlier do not count any more."""
    path = kept.cell.path(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf8") as file:
        file.write(kept.line())


def tidy(paths: Iterable[Path]) -> None:
    """Write files anew: one line for each cell, in the order of cases and seeds."""
    for path in paths:
        text = "".join(kept.line() for kept in _read(path))
        if text != path.read_text(encoding="utf8"):
            partial = path.with_suffix(".partial")
            partial.write_text(text, encoding="utf8")
            partial.replace(path)


def read(folder: Path, question: str) -> list[Kept]:
    """All that is kept of a question, in the order of subjects, ways, cases and seeds."""
    return [kept for path in sorted((folder / question).glob("*.jsonl")) for kept in _read(path)]


def _read(path: Path) -> Iterator[Kept]:
    subject, way = path.stem.split(".", 1)
    found: dict[Cell, Kept] = {}
    for line in path.read_text(encoding="utf8").splitlines():
        told = json.loads(line)
        cell = Cell(path.parent.name, subject, way, told.pop("case"), told.pop("seed"))
        found[cell] = Kept(cell, **told)
    yield from sorted(found.values(), key=lambda kept: (len(kept.cell.case), kept.cell))


def keep_facts(subject: str, facts: dict[str, Any], folder: Path) -> None:
    """Write down the facts about a subject's network, beside the lines that were measured on it."""
    path = folder / "subjects" / f"{subject}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    told = {name: facts[name] for name in ("test_accuracy", "epochs", "seconds", "weights")}
    path.write_text(json.dumps(told) + "\n", encoding="utf8")


def read_facts(folder: Path) -> dict[str, dict[str, Any]]:
    """Read the facts about all subjects, by name."""
    return {path.stem: json.loads(path.read_text(encoding="utf8")) for path in sorted(folder.glob("subjects/*.json"))}
