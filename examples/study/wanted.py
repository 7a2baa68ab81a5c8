"""Figures wanted beside those measured, with the reason for the difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from arachne.scoring.statistics import Rate
from examples.study import report_text as text
from examples.study import without_cause
from examples.study.budgets import AUTO, BUDGETS, DEFAULT_BUDGET
from examples.study.cells import interval, percent, share, table, verdict
from examples.study.runs import Run
from examples.study.summary import (
    CONFUSIONS,
    SYSTEMATIC,
    gain_over,
    groups_of,
    made_by,
    rows_of,
    searchers_of,
    summarise,
)

WANTED = ((SYSTEMATIC, 0.001, 0.50), (SYSTEMATIC, 0.005, 0.72), (SYSTEMATIC, 0.01, 0.80), (CONFUSIONS, 0.005, 0.36))
"""The mean repair rates that were asked for before anything was measured, by group and budget."""

WANTED_KEPT, WANTED_SECONDS = 0.85, 6.0


def came_out(runs: Sequence[Run], reach: Mapping[str, Rate]) -> str:
    """The section: a table, and a sentence for each thing that did not come out; `reach` as for the page."""
    auto = made_by(AUTO, runs)
    rows = [*_repair_rates(auto), *_kept_budgets(auto), *_beside_members(auto), *_time(auto)]
    told = table(["what", "wanted", "measured", "came out"], rows)
    why = "\n".join(f"- {sentence}" for sentence in (*_why(auto), *_ideal(auto, reach)))
    return f"## What was wanted, and what came out\n\n{text.CAME_OUT}\n\n{told}" + (f"\n\n{why}" if why else "")


def _repair_rates(auto: Sequence[Run]) -> Iterator[list[str]]:
    for name, budget, wanted in WANTED:
        found = summarise(groups_of(auto).get(name, []), AUTO, budget)
        if found is not None:
            told, value = f"{name}: mean repaired at {percent(budget)}", found.repair.value
            measured = interval(found.repair)
            if value < wanted and share(value) == share(wanted):  # as printed it would look reached
                measured = measured.replace(share(value), f"{value:.3f}", 1)
            yield [told, f"≥ {share(wanted)}", measured, verdict(value >= wanted)]


def _kept_budgets(auto: Sequence[Run]) -> Iterator[list[str]]:
    for budget in BUDGETS:
        found = summarise(auto, AUTO, budget)
        if found is not None:
            kept = found.kept
            told = f"All: runs that keep {percent(budget)} on held-out inputs"
            measured = f"{share(kept.value)} ({kept.count} of {kept.total})"
            yield [told, f"≥ {share(WANTED_KEPT)}", measured, verdict(kept.value >= WANTED_KEPT)]


def _beside_members(auto: Sequence[Run]) -> Iterator[list[str]]:
    for name, own in groups_of(auto).items():
        count = {who: sum(map(len, rows_of(own, who, DEFAULT_BUDGET).values())) for who in searchers_of(own)}
        always = [who for who in count if who != AUTO and count[who] == count[AUTO]]
        means = {who: summarise(own, who, DEFAULT_BUDGET) for who in always}
        best = max(means, key=lambda who: found.repair.value if (found := means[who]) is not None else -1.0)
        gain = gain_over(own, AUTO, best, DEFAULT_BUDGET)
        told = f"{name}: `auto` less the best member that always ran (`{best}`) at {percent(DEFAULT_BUDGET)}"
        yield [told, "not below 0 beyond noise", interval(gain, sign=True), verdict(gain.high >= 0)]


def _time(auto: Sequence[Run]) -> Iterator[list[str]]:
    seconds = [run.seconds for run in auto]
    if seconds:
        told = f"{np.median(seconds):.1f}, {np.max(seconds):.1f} at most"
        yes = verdict(bool(np.median(seconds) <= WANTED_SECONDS))
        yield ["All: processor seconds of a repair, median", f"≤ {WANTED_SECONDS:g}", told, yes]


def _ideal(auto: Sequence[Run], reach: Mapping[str, Rate]) -> Iterator[str]:
    """Say which share is right without the cause, where that is known, and what the default repairs of the same."""
    known = [run for run in auto if run.fault in reach]
    found = without_cause.mean_of(reach, [run.fault for run in known])
    if found is not None:
        means = [(budget, summarise(known, AUTO, budget)) for budget in BUDGETS]
        told = ", ".join(f"{share(one.repair.value)} at {percent(budget)}" for budget, one in means if one is not None)
        yield " ".join(text.WITHOUT_CAUSE.format(reach=share(found[0]), count=found[1], repaired=told).split())


def _why(auto: Sequence[Run]) -> Iterator[str]:
    """How much the choice loses where a mean is too low, and on which subjects it is; which subjects are slow."""
    subjects = {name: [run for run in auto if run.subject == name] for name in sorted({run.subject for run in auto})}
    for group, budget, wanted in WANTED:
        found = summarise(groups_of(auto).get(group, []), AUTO, budget)
        if found is None or found.repair.value >= wanted:
            continue
        reach, lost = share(found.possible.value), share(found.possible.value - found.repair.value)
        own = {name: summarise(groups_of(runs).get(group, []), AUTO, budget) for name, runs in subjects.items()}
        told = [f"{name} {share(one.repair.value)}" for name, one in own.items() if one is not None]
        yield (
            f"{group} at {percent(budget)}: {reach} was within reach of the candidates, so at most {lost} is lost in "
            f"choosing, and the rest is what the search did not find. By subject: {', '.join(told)}."
        )
    medians = {name: float(np.median([run.seconds for run in runs])) for name, runs in subjects.items()}
    slow = [f"{name} {one:.1f}" for name, one in medians.items() if one > WANTED_SECONDS]
    if slow:
        yield f"Median processor seconds, where they are more than {WANTED_SECONDS:g}: {', '.join(slow)}."
