"""The result of a comparison of searchers: how each did on the same held-out inputs, as text, JSON and a page."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from arachne.choose.budget import Budget
from arachne.choose.select import select_point
from arachne.choose.simplest import SIMPLE_SEARCHERS, as_good, sentence
from arachne.evidence.grade import NOTHING_WITHIN
from arachne.io.files import atomic_write
from arachne.report.comparison import BUDGETS, SCHEMA, ComparisonTable
from arachne.report.front import counts_object, point_object
from arachne.report.json import clean, dumps
from arachne.report.markup import table
from arachne.report.terminal import as_text
from arachne.results.folder import ResultFolder, reserve_folder
from arachne.results.result import RepairResult
from arachne.scoring.outcome import Outcome
from arachne.search.measured import MeasuredCandidate
from arachne.text import Brief, percent

PAGE, DATA = "compare.html", "compare.json"
FAILED = "failed"
BUDGET_GRID = tuple(5e-4 * 1000 ** (step / 30) for step in range(31))
"""Budgets from 0.05 % to 50 %, in equal ratios."""


@dataclass(frozen=True, eq=False)
class Contender(Brief):
    """The result of one searcher.

    Attributes:
        searcher: Its name.
        localiser: The name of the localiser it worked with.
        result: Its repair; None when it failed. If nothing was within the budget, the patch changes nothing.
        failed: Why it failed; None when it did not.
        seconds: Processor time of localising, searching and choosing.
    """

    searcher: str
    localiser: str
    result: RepairResult | None
    failed: str | None
    seconds: float

    @property
    def verdict(self) -> str:
        """The word of its verdict, or `failed`."""
        return FAILED if self.result is None else self.result.evidence.verdict.word

    @property
    def sentence(self) -> str:
        """The reason for the verdict, or for the failure."""
        return self.failed or "" if self.result is None else self.result.evidence.verdict.sentence

    @property
    def point(self) -> MeasuredCandidate | None:
        """The candidate it takes within the budget of the comparison, if any."""
        return None if self.result is None or self.result.choice is None else self.within(self.result.choice.budget)

    @property
    def headline(self) -> str:
        """The outcome in a few words."""
        if self.point is None or self.result is None:
            return f"failed ({self.failed})" if self.result is None else NOTHING_WITHIN
        held_out = self.result.evidence.held_out
        return (
            f"held out, {held_out.repaired} of {held_out.negatives} repaired and {held_out.broken} of "
            f"{held_out.positives:,} broken"
        )

    def within(self, budget: Budget) -> MeasuredCandidate | None:
        """Return the candidate that this searcher chooses within a budget, without looking at held-out inputs."""
        index = self._index(budget)
        return None if self.result is None or index is None else self.result.points[index]

    def curve(self) -> list[int]:
        """Return the indices of the front it would take as the budget grows from 0.05 % to 50 %, each once."""
        taken = (self._index(Budget(budget)) for budget in BUDGET_GRID)
        return list(dict.fromkeys(index for index in taken if index is not None))

    def _index(self, budget: Budget) -> int | None:
        if self.result is None:
            return None
        if self.result.choice is not None and self.result.choice.budget == budget:
            return self.result.choice.index
        return select_point(self.result.points, budget, self.result.split.class_names).index


@dataclass(frozen=True, eq=False)
class Comparison(Brief):
    """The results of several searchers on one fault.

    Attributes:
        contenders: One for each searcher, in the order they were asked for.
        budget: The largest break rate allowed.
        backend: The backend's name.
    """

    contenders: tuple[Contender, ...]
    budget: float
    backend: str

    def __str__(self) -> str:
        """The tables as plain text."""
        return as_text(ComparisonTable(self.to_json()))

    def _repr_html_(self) -> str:
        """Render the table that a notebook shows."""
        rows = [(one.searcher, one.headline, f"{one.seconds:.1f}", one.verdict) for one in self.contenders]
        return table(["searcher", "held out", "processor seconds", "verdict"], rows, below=" ".join(self.sentences))

    @cached_property
    def best(self) -> Contender | None:
        """The searcher that repaired most held-out inputs within the budget; None if none found anything."""
        found = [one for one in self.contenders if one.point is not None]

        def rank(one: Contender) -> tuple[int, int]:
            held_out = _held_out(one)
            return (0, 0) if held_out is None else (held_out.repair.count, -held_out.breakage.count)

        return max(found, key=rank, default=None)

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """The conclusions, as whole sentences."""
        best = self.best
        outcome = None if best is None else _held_out(best)
        if best is None or outcome is None or not outcome.repair.count:
            return (f"No searcher repaired anything within a budget of {percent(self.budget)}.",)
        others = [(one, _held_out(one)) for one in self.contenders]
        equal = [(one, own) for one, own in others if own is not None and own.repair.count == outcome.repair.count]
        level = [f"'{one.searcher}'" for one, own in equal if own.breakage.count == outcome.breakage.count]
        first = f"'{best.searcher}' repaired most held-out inputs"
        if len(level) > 1:
            first = f"{', '.join(level[:-1])} and {level[-1]} repaired as many held-out inputs and broke as few"
        elif len(equal) > 1:
            first = f"no searcher repaired more held-out inputs than '{best.searcher}'"
        found = [
            f"Within a budget of {percent(self.budget)}, {first}: "
            f"{outcome.repair.count:,} of {outcome.repair.total:,}, and {outcome.breakage.count:,} of "
            f"{outcome.breakage.total:,} broke ({percent(outcome.breakage.value)})."
        ]
        found += self._simpler(best, outcome)
        over = [one.searcher for one in self.contenders if self._exceeds_budget(one)]
        if over:
            found.append(f"On held-out inputs more than the budget broke with {', '.join(map(repr, over))}.")
        return tuple(found)

    def _simpler(self, best: Contender, outcome: Outcome) -> list[str]:
        """Name the simplest searcher that would have done as well, if there is one."""
        by_name = {one.searcher: one for one in self.contenders}
        for name in SIMPLE_SEARCHERS:
            if name == best.searcher:
                break
            own = _held_out(by_name[name]) if name in by_name else None
            if own is not None and as_good(own, outcome):
                told = sentence(name, own, best.searcher, outcome)
                return [told[0].upper() + told[1:]]
        return []

    def _exceeds_budget(self, one: Contender) -> bool:
        outcome = _held_out(one)
        return outcome is not None and outcome.breakage.value > self.budget

    def to_json(self) -> dict[str, Any]:
        """Return the content of `compare.json` and of `--json`."""
        content: dict[str, Any] = clean(
            {
                "schema": SCHEMA,
                "backend": self.backend,
                "budget": self.budget,
                **_common(self.contenders),
                "best": None if self.best is None else self.best.searcher,
                "sentences": self.sentences,
                "searchers": [_row(one) for one in self.contenders],
            }
        )
        return content

    def save(
        self, folder: str | Path | ResultFolder, *, replace: bool = False, command: str | None = None
    ) -> tuple[str, ...]:
        """Write `compare.json` and the page into a folder at once; a page that cannot be drawn is left out.

        Args:
            folder: A path that does not exist, an empty folder, or the folder of an earlier comparison.
            replace: Whether an earlier comparison may be replaced.
            command: The command line that repeats the comparison.

        Returns:
            Sentences about what was left out.

        Raises:
            UsageError: The folder holds something that may not be replaced.
        """
        from arachne.report.comparison import render
        from arachne.report.folder import going_on_without

        content = self.to_json() | {"command": command}
        notes: list[str] = []
        with reserve_folder(folder, replace=replace) as target:
            atomic_write(target.draft / DATA, (dumps(content) + "\n").encode())
            with going_on_without("the page could not be drawn", notes.append):
                atomic_write(target.draft / PAGE, render(content).encode())
            target.publish()
        return tuple(notes)


def _held_out(one: Contender) -> Outcome | None:
    return None if one.point is None else one.point.held_out


def _common(contenders: tuple[Contender, ...]) -> dict[str, Any]:
    """Return the entries that are the same for all searchers, from the first that has a result."""
    for one in contenders:
        if one.result is not None:
            part = one.result.evidence.held_out
            made = one.result.patch.provenance
            return {
                "target": part.target.target,
                "seed": one.result.settings.seed,
                "held_out": {"inputs": part.inputs, "negatives": part.negatives, "positives": part.positives},
                "data": made.get("data"),
                "versions": made.get("versions"),
            }
    return {"target": None, "seed": None, "held_out": None, "data": None, "versions": None}


def _row(one: Contender) -> dict[str, Any]:
    result, point = one.result, one.point
    held_out = None
    if point is not None and result is not None:
        part = result.evidence.held_out
        accuracies = {"accuracy_before": part.accuracy_before, "accuracy_after": part.accuracy_after}
        held_out = {**counts_object(part), **accuracies}
    return {
        "searcher": one.searcher,
        "localiser": one.localiser,
        "verdict": one.verdict,
        "sentence": one.sentence,
        "failed": one.failed,
        "seconds": one.seconds,
        "made_by": None if point is None else point.candidate.made_by,
        "weights": None if point is None or result is None else len(result.patch),
        "held_out": held_out,
        "at": [{"budget": budget, **_at(one.within(Budget(budget)))} for budget in BUDGETS],
        "curve": one.curve(),
        "points": [] if result is None else [_point(point) for point in result.points],
    }


def _at(point: MeasuredCandidate | None) -> dict[str, Any]:
    if point is None or point.held_out is None:
        return {"weights": None, "held_out": None}
    return {"weights": point.weights, "held_out": counts_object(point.held_out)}


def _point(point: MeasuredCandidate) -> dict[str, Any]:
    values = point_object(point)
    return {"made_by": values["made_by"], "weights": values["weights"], **(values["held_out"] or {})}
