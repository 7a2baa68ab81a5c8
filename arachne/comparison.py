"""Searchers side by side: what each of them did to the same held-out inputs, and what to think of that."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from arachne.evidence.verdict import NOTHING_WITHIN, percent
from arachne.files import atomic_write
from arachne.report.comparison import BUDGETS, SCHEMA, ComparisonTable
from arachne.report.front import point_object
from arachne.report.json import clean, dumps
from arachne.report.markup import table
from arachne.report.terminal import as_text
from arachne.result import RepairResult
from arachne.result_folder import ResultFolder, place_for
from arachne.search.budget import Budget
from arachne.search.choose import choose
from arachne.search.simpler import SIMPLE, as_good, sentence
from arachne.search.standing import Point, Standing

PAGE, DATA = "compare.html", "compare.json"
FAILED = "failed"
GROWING = tuple(5e-4 * 1000 ** (step / 30) for step in range(31))
"""Budgets from 0.05 % to 50 %, at even ratios."""


@dataclass(frozen=True, eq=False)
class Contender:
    """What one searcher made of a fault.

    Attributes:
        searcher: Its name.
        localiser: The name of the localiser it worked with.
        result: Its repair; None when it failed. Where nothing kept the budget, the patch changes nothing.
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
        """A verdict's word, or that it failed."""
        return FAILED if self.result is None else self.result.evidence.verdict.word

    @property
    def sentence(self) -> str:
        """Why."""
        return self.failed or "" if self.result is None else self.result.evidence.verdict.sentence

    @property
    def point(self) -> Point | None:
        """The point it takes within the budget, if any."""
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

    def within(self, budget: Budget) -> Point | None:
        """The point it would take within a budget; held-out inputs play no part in that."""
        index = self._index(budget)
        return None if self.result is None or index is None else self.result.points[index]

    def curve(self) -> list[int]:
        """Which points of its front it would take as the budget grows from 0.05 % to 50 %, each once."""
        taken = (self._index(Budget(budget)) for budget in GROWING)
        return list(dict.fromkeys(index for index in taken if index is not None))

    def _index(self, budget: Budget) -> int | None:
        if self.result is None:
            return None
        if self.result.choice is not None and self.result.choice.budget == budget:
            return self.result.choice.index
        return choose(self.result.points, budget, self.result.split.class_names).index


@dataclass(frozen=True, eq=False)
class Comparison:
    """Searchers side by side on one fault.

    Attributes:
        contenders: In the order they were asked for.
        budget: The break rate a repair may cost.
        backend: The backend's name.
    """

    contenders: tuple[Contender, ...]
    budget: float
    backend: str

    def __str__(self) -> str:
        """The tables as plain text."""
        return as_text(ComparisonTable(self.to_json()))

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        rows = [(one.searcher, one.headline, f"{one.seconds:.1f}", one.verdict) for one in self.contenders]
        return table(["searcher", "held out", "processor seconds", "verdict"], rows, below=" ".join(self.sentences))

    @cached_property
    def best(self) -> Contender | None:
        """Who repaired most of the held-out inputs among those that found something within the budget."""
        found = [one for one in self.contenders if one.point is not None]

        def place(one: Contender) -> tuple[int, int]:
            held_out = _held_out(one)
            return (0, 0) if held_out is None else (held_out.repair.count, -held_out.breakage.count)

        return max(found, key=place, default=None)

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """What the comparison says, in whole sentences."""
        best = self.best
        standing = None if best is None else _held_out(best)
        if best is None or standing is None or not standing.repair.count:
            return (f"No searcher repaired anything within a budget of {percent(self.budget)}.",)
        told = [
            f"Within a budget of {percent(self.budget)}, '{best.searcher}' repaired most held-out inputs: "
            f"{standing.repair.count:,} of {standing.repair.total:,}, and {standing.breakage.count:,} of "
            f"{standing.breakage.total:,} broke ({percent(standing.breakage.value)})."
        ]
        told += self._simpler(best, standing)
        over = [one.searcher for one in self.contenders if self._over(one)]
        if over:
            told.append(f"On held-out inputs more than the budget broke with {', '.join(map(repr, over))}.")
        return tuple(told)

    def _simpler(self, best: Contender, standing: Standing) -> list[str]:
        """Whether something simpler would have done as well."""
        by_name = {one.searcher: one for one in self.contenders}
        for name in SIMPLE:
            if name == best.searcher:
                break
            own = _held_out(by_name[name]) if name in by_name else None
            if own is not None and as_good(own, standing):
                return [sentence(name, own, best.searcher, standing)]
        return []

    def _over(self, one: Contender) -> bool:
        standing = _held_out(one)
        return standing is not None and standing.breakage.value > self.budget

    def to_json(self) -> dict[str, Any]:
        """What `compare.json` and `--json` hold."""
        told: dict[str, Any] = clean(
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
        return told

    def save(self, folder: str | Path | ResultFolder, *, replace: bool = False, command: str | None = None) -> None:
        """Write the page and what it is made from into a folder, both or none.

        Args:
            folder: Where to: nothing is there yet, or an empty folder, or an earlier comparison.
            replace: Whether an earlier one may be replaced.
            command: What to type to get the same again.

        Raises:
            UsageError: Something is there that may not be replaced.
        """
        from arachne.report.comparison_page import render

        told = self.to_json() | {"command": command}
        with place_for(folder, replace=replace) as place:
            atomic_write(place.draft / DATA, (dumps(told) + "\n").encode())
            atomic_write(place.draft / PAGE, render(told).encode())
            place.publish()


def _held_out(one: Contender) -> Standing | None:
    return None if one.point is None else one.point.held_out


def _common(contenders: tuple[Contender, ...]) -> dict[str, Any]:
    """What is the same for all of them."""
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
    return {
        "searcher": one.searcher,
        "localiser": one.localiser,
        "verdict": one.verdict,
        "sentence": one.sentence,
        "failed": one.failed,
        "seconds": one.seconds,
        "made_by": None if point is None else point.candidate.made_by,
        "weights": None if point is None or result is None else len(result.patch),
        "held_out": None if point is None or result is None else _evidence(result),
        "at": [{"budget": budget, **_at(one.within(Budget(budget)))} for budget in BUDGETS],
        "curve": one.curve(),
        "points": [] if result is None else [_point(point) for point in result.points],
    }


def _evidence(result: RepairResult) -> dict[str, Any]:
    part = result.evidence.held_out
    return {
        "repaired": part.repaired,
        "negatives": part.negatives,
        "repair_interval": part.repair.interval,
        "broken": part.broken,
        "positives": part.positives,
        "break_interval": part.breakage.interval,
        "accuracy_before": part.accuracy_before,
        "accuracy_after": part.accuracy_after,
    }


def _at(point: Point | None) -> dict[str, Any]:
    if point is None or point.held_out is None:
        return {"weights": None, "held_out": None}
    repair, breakage = point.held_out.repair, point.held_out.breakage
    held_out = {
        "repaired": repair.count,
        "negatives": repair.total,
        "repair_interval": repair.interval,
        "broken": breakage.count,
        "positives": breakage.total,
        "break_interval": breakage.interval,
    }
    return {"weights": point.weights, "held_out": held_out}


def _point(point: Point) -> dict[str, Any]:
    told = point_object(point)
    return {"made_by": told["made_by"], "weights": told["weights"], **(told["held_out"] or {})}
