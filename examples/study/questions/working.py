"""Measure what has no line yet, on several processors, in slices that can be ended at any time and gone on with."""

from __future__ import annotations

import hashlib
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import arachne
from examples.study.questions.kept import DONE, Cell, Kept, add, keep_facts, read, tidy
from examples.study.questions.repairing import DEFAULT
from examples.study.subjects import SUBJECTS, facts_of, weights_of
from examples.study.training import Say
from examples.study.versions import versions

PRESENT = 3
"""Raised when the default search finds something else: its lines are then made again, those of others are kept."""

Make = Callable[[Cell], dict[str, Any]]


@dataclass(frozen=True)
class Question:
    """A question of the paper.

    Attributes:
        name: `rq1` to `rq7`.
        cells: What to measure for it.
        make: Measures one of them; processor seconds are under `seconds`.
        recipe: Raised when `make` changes what it finds: all of it is then measured again.
    """

    name: str
    cells: Callable[[Scope], Iterable[Cell]]
    make: Make
    recipe: int = 1


@dataclass(frozen=True)
class Scope:
    """How much of a question to measure.

    Attributes:
        subjects: Of these subjects, by name or by the name of their data; of all if none is named.
        ways: In these ways; in all if none is named.
        runs: How many seeds; None for the question's own number.
        faults: How many faults; None for the question's own number.
        quick: A smaller version that ends in minutes.
        backends: Through these backends.
    """

    subjects: tuple[str, ...] = ()
    ways: tuple[str, ...] = ()
    runs: int | None = None
    faults: int | None = None
    quick: bool = False
    backends: tuple[str, ...] = ("torch",)

    def of(self, subjects: Iterable[str]) -> list[str]:
        """Select cells by subject."""
        return [name for name in subjects if not self.subjects or {name, name.partition("-")[0]} & set(self.subjects)]

    def in_ways(self, ways: Iterable[str]) -> list[str]:
        """Select cells by way."""
        return [way for way in ways if not self.ways or way in self.ways]

    def seeds(self, usual: int, quick: int = 1) -> range:
        """The seeds to run."""
        return range(self.runs or (quick if self.quick else usual))


def measure(
    questions: Sequence[Question],
    scope: Scope,
    *,
    folder: Path,
    jobs: int = 1,
    minutes: float | None = None,
    say: Say = print,
) -> None:
    """Measure every cell that has no line yet, and begin none after these minutes; the next call goes on."""
    by_name = {question.name: question for question in questions}
    kept = {one.cell: one for question in questions for one in read(folder, question.name)}
    cells = list(_keep_trained([cell for question in questions for cell in question.cells(scope)], say))
    waiting = [cell for cell in cells if not _is_done(kept.get(cell), made_with(by_name[cell.question], cell))]
    say(f"{len(cells) - len(waiting)} of {len(cells)} measurements have their line, {len(waiting)} to make")
    for subject in {cell.subject for cell in waiting}:
        if (facts := facts_of(subject)) is not None:
            keep_facts(subject, facts, folder)
    start = time.perf_counter()
    done = 0
    for number, one in enumerate(_make_all(by_name, waiting, jobs, start, minutes), 1):
        add(one, folder)
        left = (time.perf_counter() - start) / number * (len(waiting) - number)
        say(f"[{number}/{len(waiting)}] {one.cell}: {_tell(one)}; about {left / 60:.0f} min left")
        done = number
    tidy(path for path in {cell.path(folder) for cell in waiting} if path.is_file())
    if done < len(waiting):
        say(f"stopped after {minutes:g} min; {len(waiting) - done} measurements are left for the next time")


def _keep_trained(cells: Sequence[Cell], say: Say) -> Iterator[Cell]:
    """The cells whose network is there; of the others it is said how to train it."""
    missing = {
        name for name in dict.fromkeys(cell.subject for cell in cells) if name in SUBJECTS and not facts_of(name)
    }
    for name in sorted(missing):
        say(f"{name} is not trained, so it is left out; train it: python -m examples.study train --subject {name}")
    yield from (cell for cell in cells if cell.subject not in missing)


def made_with(question: Question, cell: Cell) -> dict[str, Any]:
    """Everything that decides a cell's numbers; of the default also which one."""
    path = weights_of(cell.subject)
    own = {"default": PRESENT} if cell.way.partition("@")[0] == DEFAULT else {}
    return {"recipe": question.recipe, "weights": _hash(path) if path.is_file() else None, **own}


def is_present(kept: Kept) -> bool:
    """Whether a line of the default was made with the present one."""
    return kept.made_with.get("default") == PRESENT


def _is_done(kept: Kept | None, made_with: dict[str, Any]) -> bool:
    return kept is not None and kept.outcome == DONE and kept.made_with == made_with


@cache
def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _make_all(
    questions: dict[str, Question], cells: Sequence[Cell], jobs: int, start: float, minutes: float | None
) -> Iterator[Kept]:
    """Measure cells and yield them as they are ready; a worker takes a new cell only while there is time."""
    until = None if minutes is None else start + 60 * minutes
    work = partial(_one, questions, until)
    if jobs == 1:
        results: Iterable[Kept | None] = map(work, cells)
        yield from (one for one in results if one is not None)
        return
    # Where processes can be forked they share the data that is read already.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    with context.Pool(jobs, initializer=_one_thread) as pool:
        yield from (one for one in pool.imap_unordered(work, cells) if one is not None)


def _one(questions: dict[str, Question], until: float | None, cell: Cell) -> Kept | None:
    if until is not None and time.perf_counter() > until:
        return None
    question = questions[cell.question]
    start = time.process_time()
    outcome, found = DONE, {}
    try:
        found = question.make(cell)
    except arachne.ArachneError as error:
        outcome = f"not possible: {error}"
    seconds = round(found.pop("seconds", time.process_time() - start), 2)
    return Kept(cell, made_with(question, cell), versions(), seconds, outcome, found)


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _tell(kept: Kept) -> str:
    held_out = kept.found.get("held_out")
    told = held_out if held_out and held_out["negatives"] else kept.found.get("seen")
    if kept.outcome != DONE:
        return kept.outcome
    if told is None:
        return f"{kept.seconds:.1f} s"
    rate, broken = told["repaired"] / max(1, told["negatives"]), told["broken"] / max(1, told["positives"])
    return f"{rate:.2f} repaired, {100 * broken:.2f} % broken, {kept.seconds:.1f} s"
