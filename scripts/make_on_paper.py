"""Make reports/on-paper.md of what benchmarks/cluster.py has measured.

python -m benchmarks.cluster --out benchmarks/results/cluster.json
python scripts/make_on_paper.py
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "cluster.json"
PAGE = ROOT / "reports" / "on-paper.md"

SHARD = 1024
INPUTS = 10**8
MACHINES = (50, 500)
POPULATION, GENERATIONS = 100, 100
QUESTIONS_EACH = 4
"""Questions per worker and wave, when each is about many shards."""
QUESTIONS_PER_MESSAGE = 16
"""Questions in a message, at most."""

TEXT = """# On paper: a hundred million inputs

What a repair by many machines costs, from what was measured on a small one. `python -m benchmarks.cluster`
measures, `scripts/make_on_paper.py` makes this page of the numbers it keeps. The subject is a convolutional network on
Fashion-MNIST (3.3 million weights) with suspects in its middle convolution: every candidate runs half of the network.

## Measured

{n:,} seen inputs, one process with one thread, then {workers} workers with one thread each, right after each other on a
machine with {processors} processors. Load when the workers started: {loads}, of which one is the process before them.

| | differential evolution | keep |
|---|---|---|
| one process, by the clock | {de[alone_clock]:.1f} s | {keep[alone_clock]:.1f} s |
| two workers, by the clock | {de[taken]:.1f} s | {keep[taken]:.1f} s |
| **as fast as one process, by the clock** | **{de[clock]:.2f} ×** | **{keep[clock]:.2f} ×** |
| **as fast as one process, by processor time** | **{de[ratio]:.2f} ×** | **{keep[ratio]:.2f} ×** |
| the same values found | {de[same]} | {keep[same]} |
| processor time per input and candidate (or gradient step) | {de[each]:.1f} µs | {keep[each]:.1f} µs |
| questions per generation | {de[questions]:.1f} | {keep[questions]:.1f} |
| rounds per generation | {de[rounds]:.1f} | {keep[rounds]:.1f} |
| bytes per generation | {de[traffic]:,.0f} | {keep[traffic]:,.0f} |

{verdict}

A round in which nothing is computed takes {round:.1f} ms, and each further message in it {message:.1f} ms.

## The model, and whether it holds

    time = Σ over rounds (round + further messages · message + slowest worker) + what the asking process computes

*Predicted* puts the recorded times into this sum. *Replayed* asks two real workers as many questions of as many bytes,
who answer after the recorded times and compute nothing. *Taken* is the run itself, by the clock:

| | predicted | replayed | taken | predicted off by |
|---|---|---|---|---|
| differential evolution | {de[predicted]:.1f} s | {de[replayed]:.1f} s | {de[taken]:.1f} s | {de[off]:.0%} |
| keep | {keep[predicted]:.1f} s | {keep[replayed]:.1f} s | {keep[taken]:.1f} s | {keep[off]:.0%} |

## {inputs:,} inputs

{shards:,} shards of {shard:,} inputs, {population} candidates, one generation of differential evolution:

| machines | computing | scheduler and bytes, {few} pieces per machine | the same with a piece per shard |
|---|---|---|---|
{rows}

{generations} generations take {days}. One machine alone would compute for {alone:.0f} days.

## Where the scheduler becomes the limit

A message of up to {together} questions costs {message:.1f} ms; a shard takes its worker {per_shard:.0f} ms per
generation, in {per:.1f} rounds. With a question per shard, more than about **{limit:,.0f} machines** have nothing left
to gain; with runs of whole shards, {few} for each worker as differential evolution asks, about {few_limit:,.0f}. Before
that, search on fewer inputs: all negatives, and as many positives as the budget's guarantee takes, which are thousands.
Not in this model: reading the data ({size:.0f} GB), machines that fail, and slow networks between machines.
"""

WANTED = 1.6
"""How much faster than one process two workers should be."""


def verdict(de: dict[str, Any], keep: dict[str, Any], others: list[dict[str, Any]]) -> str:
    """Whether two workers are as fast as they should be."""
    told = []
    for name, one in (("differential evolution", de), ("keep", keep)):
        reached = "reached" if one["clock"] >= WANTED else "**not reached**"
        told.append(
            f"{reached} with {name} ({one['clock']:.2f} × by the clock, {one['ratio']:.2f} × by processor time)"
        )
    return (
        f"Two workers on two processors should be {WANTED} × as fast as one process on one: {'; '.join(told)}. Shards "
        f"are shared out whole, so five of them go at most 5/3 times as fast.{before(others)}"
    )


def before(others: list[dict[str, Any]]) -> str:
    """List what other sizes gave, beside other work on the same machine."""
    told = []
    for one in others:
        clock, processor = (one["ratio"][name] for name in ("clock", "processor"))
        told.append(f"{one['search']} {clock:.2f} × by the clock, {processor:.2f} × by processor time")
    return f" With {others[0]['inputs']:,} seen inputs, beside another program: {'; '.join(told)}." if others else ""


def page(found: dict[str, Any]) -> str:
    """The page that these numbers make."""
    searches = {one["search"]: one for one in found["searches"]}
    de, keep = describe_search(searches["de"]), describe_search(searches["keep"])
    message, rounds = (min(one["overhead"][name] for one in searches.values()) for name in ("message", "round"))
    shards = -(-INPUTS // SHARD)
    per = searches["de"]["shared"]["rounds"] / max(1, searches["de"]["generations"])
    per_shard = SHARD * POPULATION * de["each"] / 1e6
    rows, days = [], []
    for machines in MACHINES:
        computing = INPUTS * POPULATION * de["each"] / 1e6 / machines
        asking = per * (rounds + shards / QUESTIONS_PER_MESSAGE * message)
        few = per * (rounds + machines * message)
        traffic = [pieces * per * de["bytes"] / 1e6 for pieces in (QUESTIONS_EACH * machines, shards)]
        rows.append(
            f"| {machines} | {computing / 60:.1f} min | {few:.1f} s, {traffic[0]:.0f} MB "
            f"| {asking / 60:.1f} min, {traffic[1]:,.0f} MB |"
        )
        days.append(f"{GENERATIONS * (computing + few) / 3600:.1f} h on {machines} machines")
    return TEXT.format(
        n=searches["de"]["inputs"],
        workers=2,
        processors=found["processors"],
        loads=", ".join(f"{one['load'] or 0:.1f} ({name})" for name, one in searches.items()),
        verdict=textwrap.fill(verdict(de, keep, found.get("others", [])), 120),
        de=de,
        keep=keep,
        round=1e3 * rounds,
        inputs=INPUTS,
        shards=shards,
        shard=SHARD,
        population=POPULATION,
        few=QUESTIONS_EACH,
        rows="\n".join(rows),
        generations=GENERATIONS,
        days=", ".join(days),
        alone=GENERATIONS * INPUTS * POPULATION * de["each"] / 1e6 / 86400,
        per=per,
        per_shard=1e3 * per_shard,
        message=1e3 * message,
        together=QUESTIONS_PER_MESSAGE,
        limit=per_shard * QUESTIONS_PER_MESSAGE / (per * message),
        few_limit=(INPUTS * POPULATION * de["each"] / 1e6 / (per * message)) ** 0.5,
        size=INPUTS * 784 * 4 / 1e9,
    )


def describe_search(one: dict[str, Any]) -> dict[str, Any]:
    """Return what the page says of one search."""
    shared, questions = one["shared"], max(1, one["shared"]["questions"])
    pairs = max(1, one["evaluations"]) * one["inputs"]
    traffic = shared["sent"] + shared["received"]
    return {
        "generations": one["generations"],
        "evaluations": one["evaluations"],
        "alone_clock": one["alone"]["seconds"],
        "clock": one["ratio"]["clock"],
        "asking": shared["asking"],
        "rounds": shared["rounds"] / max(1, one["generations"]),
        "before_alone": one["alone"]["before"],
        "before": shared["before"],
        "start": one["overhead"]["start"],
        "replayed": shared["replayed"],
        "alone": one["alone"]["processor"],
        "critical": shared["critical"],
        "working": shared["working"],
        "ratio": one["ratio"]["processor"],
        "same": "yes" if one["same"] else "**no**",
        "each": 1e6 * one["alone"]["processor"] / pairs,
        "questions": shared["questions"] / max(1, one["generations"]),
        "bytes": traffic / questions,
        "traffic": traffic / max(1, one["generations"]),
        "predicted": shared["predicted"],
        "taken": shared["seconds"],
        "off": shared["predicted"] / shared["seconds"] - 1,
    }


if __name__ == "__main__":
    PAGE.write_text(page(json.loads(RESULTS.read_text(encoding="utf-8"))), encoding="utf-8")
    print(PAGE)
