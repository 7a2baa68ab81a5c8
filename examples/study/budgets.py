"""How much each searcher repairs of held-out inputs at several budgets of damage: one file for each repair.

A case is cut into two halves by the seed; the repair sees one, and what it chooses is counted on the other. One run of
`auto` serves its members too: their candidates are told apart by who made them, and chosen by the same rule.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import arachne
from arachne.choose.select import select_point
from arachne.data.part import Part
from arachne.errors import NothingWithinBudgetError
from arachne.search import Pool
from arachne.search.measured import MeasuredCandidate
from arachne.settings import make_localiser, make_searcher
from examples.study.cases import Case, cases
from examples.study.faults import DECIDE, JUDGE
from examples.study.poisoning import halves
from examples.study.runs import RESULTS, Row, Run, read_run, run_path
from examples.study.subjects import weights_of
from examples.study.training import Say
from examples.study.versions import versions

BUDGETS = (0.001, 0.005, 0.01, 0.02)
DEFAULT_BUDGET = 0.005
"""The budget a repair is asked to keep; others are chosen from the same front. Only this patch is minimised."""

AUTO, DE, ERASE, LOW_RANK = "auto", "de", "erase", "low-rank"
MEMBERS = Pool().members
RUNS = (AUTO, DE)
"""Searches in the report; `erase` and `low-rank` alone run where they are asked for."""

RECIPES = {AUTO: 8, DE: 1, ERASE: 2, LOW_RANK: 1}
"""Raise one when that repair changes what it finds: all its runs are then made again."""

DE_SUBJECTS = ("fm-mlp", "fm-cnn", "c10-cnn", "gtsrb-cnn")
"""Where differential evolution runs, over the weights of dense layers."""

DE_SECONDS = 180.0
"""Processor time after which it is given up."""

DONE = "done"


class OverTimeError(Exception):
    """A search took longer than it may."""


@dataclass(frozen=True)
class Job:
    """A run to make.

    Attributes:
        case: The fault.
        seed: Of the halves and of the repair.
        searcher: `auto`, `de`, `erase` or `low-rank`.
        folder: Where its file goes.
    """

    case: Case
    seed: int
    searcher: str
    folder: Path

    @property
    def path(self) -> Path:
        """Its file."""
        return run_path(self.folder, self.case.name, self.seed, self.searcher)

    @property
    def made_with(self) -> dict[str, Any]:
        """Everything that decides its numbers."""
        weights = hashlib.sha256(weights_of(self.case.network).read_bytes()).hexdigest()[:16]
        return {
            "recipe": RECIPES[self.searcher],
            "budgets": list(BUDGETS),
            "target": self.case.target,
            "weights": weights,
        }

    @property
    def is_done(self) -> bool:
        """Whether there is a file made in just this way."""
        return self.path.is_file() and read_run(self.path).made_with == self.made_with


def measure(
    parts: Sequence[str] = (DECIDE, JUDGE),
    subjects: Sequence[str] = (),
    searchers: Sequence[str] = RUNS,
    *,
    seeds: int = 5,
    minutes: float | None = None,
    folder: Path = RESULTS,
    say: Say = print,
) -> None:
    """Make every run that has no file yet, and stop after these minutes; the next call goes on.

    Args:
        parts: `decide`, `judge` or both.
        subjects: Of these subjects; of all if none is named.
        searchers: `auto`, `de`, `erase` or `low-rank`; the first two by default.
        seeds: How many, from 0 on.
        minutes: No run is begun after so much time.
        folder: Where the files go.
        say: Told a line before and after every run.
    """
    jobs = list(_jobs(parts, subjects, searchers, seeds, folder))
    waiting = [job for job in jobs if not job.is_done]
    say(f"{len(jobs) - len(waiting)} of {len(jobs)} runs have their file, {len(waiting)} to make")
    start = time.perf_counter()
    for number, job in enumerate(waiting, 1):
        passed = time.perf_counter() - start
        if minutes is not None and passed > 60 * minutes:
            say(f"stopped after {passed / 60:.0f} min; {len(waiting) - number + 1} runs are left for the next time")
            return
        if job.is_done:  # by another slice that runs at the same time
            continue
        run = run_job(job)
        run.save(job.path)
        left = (time.perf_counter() - start) / number * (len(waiting) - number)
        say(f"[{number}/{len(waiting)}] {_line(run)}; about {left / 60:.0f} min left")


def _jobs(
    parts: Sequence[str], subjects: Sequence[str], searchers: Sequence[str], seeds: int, folder: Path
) -> Iterator[Job]:
    """By searcher, cheap ones first, then by fault, so that a network is opened once for all of its seeds."""
    found = list(cases(parts, subjects))
    for searcher in searchers:
        for case in found:
            if searcher != DE or case.subject in DE_SUBJECTS:
                yield from (Job(case, seed, searcher, folder) for seed in range(seeds))


def run_job(job: Job) -> Run:
    """Repair, and read the front at every budget."""
    case = job.case
    backend, data = case.open()
    seen, held_out = halves(data, job.seed)
    settings = _settings(job, backend)
    start = time.process_time()

    def on_generation(_: arachne.Generation) -> None:
        if job.searcher == DE and time.process_time() - start > DE_SECONDS:
            raise OverTimeError

    outcome = DONE
    rows: tuple[Row, ...] = ()
    try:
        result = arachne.repair(
            backend, seen, case.target, holdout=held_out, settings=settings, on_generation=on_generation
        )
        rows = tuple(rows_of(result, job.searcher))
    except NothingWithinBudgetError as error:
        rows = tuple(rows_of(error.result, job.searcher))
    except OverTimeError:
        outcome = f"given up after {DE_SECONDS:.0f} s"
    except arachne.ArachneError as error:
        outcome = f"not possible: {error}"
    seconds = round(time.process_time() - start, 2)
    told = (case.name, case.subject, case.kind, case.part, case.target, job.seed, job.searcher)
    return Run(*told, job.made_with, versions(), seconds, outcome, rows)


def _settings(job: Job, backend: arachne.ModelBackend) -> arachne.Settings:
    """The default, or the paper's localisation and search, over dense layers, for the same budget.

    Inputs that are twice in the data are never on both sides.
    """
    common: dict[str, Any] = {"seed": job.seed, "drop_overlap": True, "budget": arachne.Budget(DEFAULT_BUDGET)}
    if job.searcher == AUTO:
        return arachne.Settings(**common)
    if job.searcher in (ERASE, LOW_RANK):
        return arachne.Settings(searcher=make_searcher(job.searcher), **common)
    others = tuple(layer.name for layer in backend.layers if layer.kind != "dense")
    return arachne.Settings(
        localiser=make_localiser("bl", exclude=others), searcher=arachne.DifferentialEvolution(), **common
    )


def rows_of(result: arachne.RepairResult, searcher: str) -> Iterator[Row]:
    """By whose candidates may be chosen and by budget; the choice looks at what the search saw alone."""
    names = result.split.class_names
    for who in (AUTO, *MEMBERS) if searcher == AUTO else (searcher,):
        points = [point for point in result.points if who in (searcher, point.candidate.made_by)]
        if not points and who != searcher:  # the pool has left this member out
            continue
        for budget in BUDGETS:
            taken = select_point(points, arachne.Budget(budget), names).index
            if who == searcher and budget == DEFAULT_BUDGET and result.choice is not None:
                taken = result.choice.index
            yield _row(who, budget, points, taken, result.split.held_out)


def _row(who: str, budget: float, points: Sequence[MeasuredCandidate], taken: int | None, held_out: Part) -> Row:
    found = [point.held_out for point in points if point.held_out is not None]
    possible = max((one.repair.count for one in found if one.breakage.value <= budget), default=0)
    if taken is None:
        return Row(who, budget, None, 0, len(held_out.negatives), 0, len(held_out.positives), 0, None, None, possible)
    point, standing = points[taken], found[taken]
    repair, damage = standing.repair, standing.breakage
    expected = (round(point.selection_outcome.repair.value, 4), round(point.selection_outcome.breakage.value, 6))
    counts = (repair.count, repair.total, damage.count, damage.total)
    return Row(who, budget, point.candidate.made_by, *counts, point.weights, point.minimised_from, expected, possible)


def _line(run: Run) -> str:
    head = f"{run.fault}, seed {run.seed}, {run.searcher}, {run.seconds:.1f} s of processor time"
    own = next((row for row in run.rows if row.budget == DEFAULT_BUDGET), None)
    if own is None:
        return f"{head}: {run.outcome}"
    return f"{head}: {own.repair.value:.2f} repaired, {100 * own.damage.value:.2f} % broken"
