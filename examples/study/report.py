"""The page of what was measured, and its figure, from the result files alone: no number is typed by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from arachne.scoring.statistics import Rate
from arachne.text import pluralise
from examples.study import report_text as text
from examples.study import without_cause
from examples.study.budgets import AUTO, BUDGETS, DE, DEFAULT_BUDGET, DONE, RECIPES
from examples.study.cells import cell, percent, share, short_cell, table
from examples.study.faults import BY_NAME, CONFUSED_SUBJECTS, JUDGE
from examples.study.figure import draw
from examples.study.runs import RESULTS, Run, read_runs
from examples.study.sources import PROJECT
from examples.study.summary import groups_of, made_by, searchers_of, shared_runs, summarise
from examples.study.wanted import came_out

PAGE = PROJECT / "reports" / "repairs-at-equal-damage.md"
FIGURE = "pictures/repairs-at-equal-damage.svg"

PRESENT = "present"
"""The folder of today's runs, beside that of the budgets."""

KIND_NAMES = {"deadrows": "dead rows"}
"""Kinds of faults in words, where the name alone would not read well."""


def write(folder: Path = RESULTS, page: Path = PAGE) -> None:
    """Write page and figure."""
    runs, present = list(read_runs(folder)), list(read_runs(folder.parent / PRESENT))
    page.parent.mkdir(parents=True, exist_ok=True)
    draw(_panels(_of_today(runs, present)), page.parent / FIGURE)
    page.write_text(page_text(runs, present, without_cause.read(folder.parent)))


def page_text(runs: Sequence[Run], present: Sequence[Run] = (), reach: Mapping[str, Rate] | None = None) -> str:
    """The whole page.

    Args:
        runs: Runs of an earlier default and of the paper's search.
        present: Runs of today's default, where there are any.
        reach: What networks read rightly without the cause, by fault.
    """
    judged, reach = _of_today(runs, present), reach or {}
    parts = [
        text.HEAD,
        _of_which_default(made_by(AUTO, judged)),
        f"![Repaired against broken]({FIGURE})\n\n{text.CAPTION}",
        came_out(judged, reach),
    ]
    parts += [_group(name, own) for name, own in groups_of(judged).items()]
    parts += [
        _by_kind(judged, reach),
        _against_de(judged),
        _earlier([run for run in runs if run.part == JUDGE], made_by(AUTO, judged)) if present else "",
        _sets(judged),
        _made_with(judged),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _of_which_default(auto: Sequence[Run]) -> str:
    """Say how many runs were made before the default had its present members; nothing if none were."""
    older = sum(run.made_with.get("recipe") != RECIPES[AUTO] for run in auto)
    return text.OLDER.format(older=older, count=len(auto)) if older else ""


def _of_today(runs: Sequence[Run], present: Sequence[Run]) -> list[Run]:
    """The runs that judge: today's, where there are any, and those of the paper's search on the same faults."""
    today, judged = ([run for run in own if run.part == JUDGE] for own in (present, runs))
    faults = {run.fault for run in today}
    return [*today, *(run for run in made_by(DE, judged) if run.fault in faults)] if today else judged


def _earlier(judged: Sequence[Run], today: Sequence[Run]) -> str:
    """The default before directions and gates joined it, beside today's where both ran, and where it alone did."""
    earlier, rows = made_by(AUTO, judged), []
    for name in groups_of(earlier):
        for told, both in (("on the faults above", True), ("on others", False)):
            known = {run.fault for run in today}
            own = [run for run in groups_of(earlier)[name] if (run.fault in known) is both]
            rows += _rows(f"{name}, earlier, {told}", own)
            if both:
                faults = {run.fault for run in own}
                rows += _rows(f"{name}, today, on the same", [run for run in today if run.fault in faults])
    heads = ["faults", "count", "runs", *(percent(budget) for budget in BUDGETS), "runs that keep each", "seconds"]
    subjects = sorted({run.subject for run in earlier} - {run.subject for run in today})
    told = f" Subjects that were not run again: {', '.join(subjects)}." if subjects else ""
    return f"## Beside the earlier default\n\n{text.EARLIER}{told}\n\n{table(heads, rows)}" if rows else ""


def _rows(told: str, runs: Sequence[Run]) -> list[list[str]]:
    """A row of the default over some runs; none if there are none."""
    if not runs:
        return []
    found = [summarise(runs, AUTO, budget) for budget in BUDGETS]
    kept = ", ".join("" if one is None else f"{one.kept.count}" for one in found)
    counts = [str(len({run.fault for run in runs})), str(len(runs))]
    return [[told, *counts, *map(short_cell, found), kept, f"{np.median([run.seconds for run in runs]):.1f}"]]


def _panels(runs: Sequence[Run]) -> dict[str, list[Run]]:
    panels = {name: made_by(AUTO, own) for name, own in groups_of(runs).items()}
    both = shared_runs(runs, (AUTO, DE))
    return panels | ({f"Where {DE} ran too": both} if both else {})


def _group(name: str, runs: Sequence[Run]) -> str:
    """All searchers at all budgets over one group of faults."""
    auto = made_by(AUTO, runs)
    faults, seeds = len({run.fault for run in auto}), sorted({run.seed for run in auto})
    head = f"{pluralise(faults, 'fault')}, {pluralise(len(auto), 'run')}, {pluralise(len(seeds), 'seed')} at most."
    seconds = np.median([run.seconds for run in auto])
    return f"## {name}\n\n{head} A repair takes {seconds:.1f} processor seconds (median).\n\n{_searchers(auto)}"


def _searchers(runs: Sequence[Run]) -> str:
    """Repaired at broken by budget; budgets kept and weights changed at the default budget."""
    rows = []
    for searcher in searchers_of(runs):
        found = [summarise(runs, searcher, budget) for budget in BUDGETS]
        shown = cell if searcher in (AUTO, DE) else short_cell
        own = summarise(runs, searcher, DEFAULT_BUDGET)
        weights = "" if own is None or own.weights is None else f"{own.weights:,.0f}"
        kept = "" if own is None else share(own.kept.value)
        rows.append([f"`{searcher}`", *map(shown, found), kept, weights])
    best = [summarise(runs, AUTO, budget) for budget in BUDGETS]
    rows.append(["within reach", *("" if one is None else share(one.possible.value) for one in best), "", ""])
    return table(["searcher", *(percent(budget) for budget in BUDGETS), "kept", "weights"], rows)


def _by_kind(runs: Sequence[Run], reach: Mapping[str, Rate]) -> str:
    """The default by what carries the fault, and by subject."""
    auto = made_by(AUTO, runs)
    parts = {run.kind: KIND_NAMES.get(run.kind, run.kind) for run in auto}
    groups = {name: [run for run in auto if run.kind == kind] for kind, name in sorted(parts.items())}
    for subject in dict.fromkeys(run.subject for run in auto):
        kinds = groups_of([run for run in auto if run.subject == subject])
        groups |= {f"{subject}, {name.lower()}": found for name, found in kinds.items()}
    rows = []
    for name, own in groups.items():
        found = [summarise(own, AUTO, budget) for budget in BUDGETS]
        seconds = f"{np.median([run.seconds for run in own]):.1f}"
        ideal = without_cause.mean_of(reach, [run.fault for run in own])
        told = "" if ideal is None else share(ideal[0])
        rows.append([name, str(len({run.fault for run in own})), *map(short_cell, found), told, seconds])
    heads = ["kind, or subject", "faults", *(percent(budget) for budget in BUDGETS)]
    heads += ["without the cause", "seconds"]
    return f"## The default by kind of fault and by subject\n\n{text.BY_KIND}\n\n{table(heads, rows)}"


def _against_de(runs: Sequence[Run]) -> str:
    """All searchers on the faults and seeds that differential evolution finished, too."""
    both = shared_runs(runs, (AUTO, DE))
    given_up = [run for run in made_by(DE, runs) if run.outcome != DONE]
    if not both:
        return ""
    faults = (
        f"{pluralise(len({run.fault for run in both}), 'fault')}, {pluralise(len(made_by(DE, both)), 'run')} of each"
    )
    told = f"{faults}; {pluralise(len(given_up), 'run')} of `{DE}` {'was' if len(given_up) == 1 else 'were'} given up."
    without = sorted({run.subject for run in runs} - {run.subject for run in both})
    not_run = f" Not run on {', '.join(without)}." if without else ""
    return f"## Beside the paper's search\n\n{text.AGAINST_DE}\n\n{told}{not_run}\n\n{_searchers(both)}"


def _sets(runs: Sequence[Run]) -> str:
    """Say which faults decided, which judge, and which of these were not run."""
    known = {run.fault for run in runs}
    missing = [name for name, fault in BY_NAME.items() if fault.part == JUDGE and name not in known]
    missing += [f"confusions of {name}" for name in CONFUSED_SUBJECTS if name not in _confused_subjects(runs)]
    told = f" Not run: {', '.join(missing)}." if missing else ""
    return f"## Which faults decided, and which judge\n\n{text.SETS}{told}"


def _confused_subjects(runs: Sequence[Run]) -> set[str]:
    """Subjects of which confusions were run."""
    return {run.subject for run in runs if not run.systematic}


def _made_with(runs: Sequence[Run]) -> str:
    """The versions behind the numbers, and how to make them again."""
    versions = {key: sorted({run.versions[key] for run in runs if key in run.versions}) for key in runs[0].versions}
    told = ", ".join(f"{key} {' and '.join(own)}" for key, own in versions.items())
    return f"{text.AGAIN}\n\nMade with {told}."
