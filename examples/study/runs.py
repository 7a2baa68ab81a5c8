"""One repair of one fault, read at every budget, as a small file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from arachne.plugins.table import SEARCHERS
from arachne.scoring.statistics import Rate
from examples.study.cases import CONFUSION
from examples.study.sources import PROJECT

RESULTS = PROJECT / "examples" / "study" / "results" / "budgets"


@dataclass(frozen=True)
class Row:
    """A searcher's choice for a budget, measured on the held-out inputs.

    Attributes:
        searcher: Whose candidates could be chosen.
        budget: The share of positives it was allowed to break.
        made_by: Who made the patch; None where no candidate kept the budget, and the model stayed as it was.
        repaired: Held-out negatives that are right now.
        negatives: Of how many.
        broken: Held-out positives that are wrong now.
        positives: Of how many.
        weights: How many weights the patch changes.
        minimised_from: How many it changed before those it can do without were dropped; None where that was not tried.
        expected: The repair rate and the damage that the choice went by, on inputs the search could see.
        possible: The most any of its candidates repairs that keeps the budget on held-out inputs. Whoever chose by
            them would get so much; nobody may, so it only shows what is lost by choosing.
    """

    searcher: str
    budget: float
    made_by: str | None
    repaired: int
    negatives: int
    broken: int
    positives: int
    weights: int
    minimised_from: int | None
    expected: tuple[float, float] | None
    possible: int

    @property
    def repair(self) -> Rate:
        """The share of negatives that were repaired."""
        return Rate(self.repaired, self.negatives)

    @property
    def damage(self) -> Rate:
        """The share of positives that were broken."""
        return Rate(self.broken, self.positives)

    @property
    def keeps_budget(self) -> bool:
        """Whether the held-out inputs keep the budget."""
        return self.damage.value <= self.budget


@dataclass(frozen=True)
class Run:
    """One repair.

    Attributes:
        fault: The case's name.
        subject: The case's subject.
        kind: The case's kind.
        part: The case's set, `decide` or `judge`.
        target: What was to be repaired.
        seed: Of the two halves of the data and of the repair.
        searcher: Who ran: `auto`, whose members' candidates are told apart afterwards, or `de`.
        made_with: What decides its numbers; a run that was made with something else is made again.
        versions: Of the packages.
        seconds: Of processor time, for the whole repair.
        outcome: `done`, or why there are no numbers.
        rows: By searcher and budget.
    """

    fault: str
    subject: str
    kind: str
    part: str
    target: str
    seed: int
    searcher: str
    made_with: dict[str, Any]
    versions: dict[str, str]
    seconds: float
    outcome: str
    rows: tuple[Row, ...]

    @property
    def systematic(self) -> bool:
        """Whether the fault was planted."""
        return self.kind != CONFUSION

    def save(self, path: Path) -> None:
        """Write it, a line for each attribute and row."""
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [f" {json.dumps(one.name)}: {json.dumps(getattr(self, one.name))}" for one in fields(self)[:-1]]
        rows = ",\n".join(f"  {json.dumps(asdict(row))}" for row in self.rows)
        partial = path.with_suffix(".partial")
        partial.write_text("{\n" + ",\n".join(lines) + f',\n "rows": [\n{rows}\n ]\n}}\n')
        partial.replace(path)


def run_path(folder: Path, fault: str, seed: int, searcher: str) -> Path:
    """Where a run is kept."""
    return folder / f"{fault}.{seed}.{searcher}.json"


def read_run(path: Path) -> Run:
    """Read a run back; names that searchers had when it was made become those they have now."""
    stored = json.loads(path.read_text())
    return Run(**{**stored, "rows": tuple(Row(**_rename(row)) for row in stored["rows"])})


def _rename(row: dict[str, Any]) -> dict[str, Any]:
    names = {key: SEARCHERS.canonical(row[key]) for key in ("searcher", "made_by") if row[key] is not None}
    return {**row, **names}


def read_runs(folder: Path) -> Iterator[Run]:
    """All runs that were kept, in the order of their files."""
    return (read_run(path) for path in sorted(folder.glob("*.json")))
