"""Make docs/on-paper.md of what tests/benchmarks/cluster.py has measured.

python -m tests.benchmarks.cluster --out tests/benchmarks/results/cluster.json
python scripts/make_on_paper.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "tests" / "benchmarks" / "results" / "cluster.json"
PAGE = ROOT / "docs" / "on-paper.md"

SHARD = 1024
INPUTS = 10**8
MACHINES = (50, 500)
POPULATION, GENERATIONS = 100, 100
QUESTIONS_EACH = 4
"""Questions per worker and wave, when each is about many shards."""

TEXT = """# On paper: a hundred million inputs

What a repair by many machines costs, from what was measured on a small one. `python -m tests.benchmarks.cluster`
measures, `scripts/make_on_paper.py` makes this page of the numbers it keeps. The subject is a convolutional network on
Fashion-MNIST (3.3 million weights) with suspects in its middle convolution: every candidate runs half of the network.

## Measured

{n:,} seen inputs, {workers} workers with one thread each on {processors} processors, which others used too
(load {load:.0f}): so the times that count here are processor times. By the clock, on that machine, two workers were
{clocks} as fast as one process.

| | differential evolution | keep |
|---|---|---|
| one process, processor time | {de[alone]:.1f} s | {keep[alone]:.1f} s |
| two workers: the slower one of each round, and the asking process | {de[critical]:.1f} s | {keep[critical]:.1f} s |
| **as fast as one process** | **{de[ratio]:.2f} ×** | **{keep[ratio]:.2f} ×** |
| the same values found | {de[same]} | {keep[same]} |
| processor time per input and candidate (or gradient step) | {de[each]:.1f} µs | {keep[each]:.1f} µs |
| questions per generation | {de[questions]:.1f} | {keep[questions]:.1f} |
| bytes per question, there and back | {de[bytes]:,.0f} | {keep[bytes]:,.0f} |
| bytes per generation | {de[traffic]:,.0f} | {keep[traffic]:,.0f} |

Two workers on two processors should be 1.6 × faster than one process on one. **In this run they were not**: together
they took {de[working]:.1f} s (differential evolution) and {keep[working]:.1f} s (keep) of processor time for the work
that one process does in {de[alone]:.1f} s and {keep[alone]:.1f} s, and other programs kept both processors busy.

A round in which nothing is computed takes {round:.1f} ms, and each further question in it {question:.2f} ms: that is
dask's scheduler, one process. Early abandoning is in the cost per input and candidate: most candidates are given up
after a share of their inputs.

## The model, and whether it holds

    time = Σ over rounds (round + questions · question + slowest worker) + what the asking process computes

Workers that answer after the times that were recorded, put into this sum, should take as long as the real run with two
workers took by the clock:

| | predicted | taken | off by |
|---|---|---|---|
| differential evolution | {de[predicted]:.1f} s | {de[taken]:.1f} s | {de[off]:.0%} |
| keep | {keep[predicted]:.1f} s | {keep[taken]:.1f} s | {keep[off]:.0%} |

## {inputs:,} inputs

{shards:,} shards of {shard:,} inputs, {population} candidates, one generation of differential evolution:

| machines | computing | scheduler and bytes, {few} pieces per machine | the same with a question per shard |
|---|---|---|---|
{rows}

{generations} generations take {days}. One machine alone would compute for {alone:.0f} days.

## Where the scheduler becomes the limit

The scheduler needs {question:.2f} ms for each question, whoever computes; a shard takes its worker
{per_shard:.0f} ms per generation, in {per:.1f} rounds. With a question per shard, more than about
**{limit:.0f} machines** of one thread have nothing left to gain: the scheduler hands out shards no faster. So
differential evolution asks about runs of whole shards, {few} for each worker: what candidates cost are whole numbers,
so the pieces cannot be seen in the result. Then computing and scheduler take equally long at about
{few_limit:,.0f} machines. Predictions and gradients are asked for shard by shard; a repair needs few passes of these.
What one would do beyond that, in this order:

1. Sum gradients, and count predictions, over runs of shards inside an answer, shard by shard as now.
2. Search on fewer inputs. All negatives, and a sample of the positives large enough for the budget's guarantee: with
   0.5 % allowed and 95 % confidence that is thousands, not a hundred million. The verdict still uses all held-out
   inputs.
3. Several schedulers, each with a part of the shards, and one process that adds up what they say: whole numbers add up
   in any order, and sums of gradients in the order of the shards.

Not in this model: reading the data ({size:.0f} GB as single-precision pictures of this size; each worker reads its own
shards once per search, if they fit its memory), machines that fail, and networks slower than this machine's loopback.
"""


def page(found: dict[str, Any]) -> str:
    """The page that these numbers make."""
    searches = {one["search"]: one for one in found["searches"]}
    de, keep = told(searches["de"]), told(searches["keep"])
    question, rounds = found["overhead"]["question"], found["overhead"]["round"]
    shards = -(-INPUTS // SHARD)
    per = searches["de"]["shared"]["rounds"] / max(1, searches["de"]["generations"])
    per_shard = SHARD * POPULATION * de["each"] / 1e6
    rows, days = [], []
    for machines in MACHINES:
        computing = INPUTS * POPULATION * de["each"] / 1e6 / machines
        asking = shards * per * question
        few = per * (QUESTIONS_EACH * machines * question + rounds)
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
        load=found["load"] or 0,
        clocks=", ".join(f"{one['ratio']['clock']:.2f} × ({name})" for name, one in searches.items()),
        de=de,
        keep=keep,
        round=1e3 * rounds,
        question=1e3 * question,
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
        limit=per_shard / (per * question),
        few_limit=(INPUTS * POPULATION * de["each"] / 1e6 / (QUESTIONS_EACH * per * question)) ** 0.5,
        size=INPUTS * 784 * 4 / 1e9,
    )


def told(one: dict[str, Any]) -> dict[str, Any]:
    """What the page says of one search."""
    shared, questions = one["shared"], max(1, one["shared"]["questions"])
    pairs = max(1, one["evaluations"]) * one["inputs"]
    traffic = shared["sent"] + shared["received"]
    return {
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
