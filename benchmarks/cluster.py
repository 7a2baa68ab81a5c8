"""One process against two workers, what travels, and whether a model of the cost predicts a real run.

    python -m benchmarks.cluster                                 # prints everything
    python -m benchmarks.cluster --search de --out FILE.json     # keeps it too; scripts/make_on_paper.py shows it

The subject is the convnet on Fashion-MNIST, suspects in its middle convolution: differential evolution and keep. One
process and every worker compute with one thread. Times are given twice: by the clock, which tells nothing on a machine
that does other work as well, and by processor time. There the two workers take, question after question asked together,
as long as the slower of them, and what the asking process itself computes is added.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from arachne.cluster.backend import ClusterBackend
from arachne.cluster.questions import Ask
from arachne.cluster.starting import on_cluster
from arachne.cluster.team import MAX_QUESTIONS_PER_TASK
from arachne.data.labelled import LabelledData
from arachne.data.split import split_by_outcome
from arachne.model import registry
from arachne.model.backend import ModelBackend
from arachne.model.remote import Answer
from arachne.model.values import Array
from arachne.scoring.evaluators import MEMORY, make_evaluator
from arachne.search.base import Searcher
from arachne.search.build import build_problem
from arachne.settings import make_localiser, make_searcher
from benchmarks.subjects import SUBJECTS, make_subject

WORKERS = 2
LAYER = "3"


@dataclass
class Round:
    """Questions that were asked together.

    Attributes:
        seconds: What each took by its worker's clock, worker by worker.
        processor: The same in processor time.
        sent: Bytes of the questions.
        received: Bytes of the answers.
        waited: Seconds from asking to having all answers.
    """

    seconds: list[list[float]]
    processor: list[list[float]]
    sent: int
    received: int
    waited: float


@dataclass
class Run:
    """A search.

    Attributes:
        seconds: By the clock.
        processor: Processor time of the asking process.
        before: Seconds from the open model to the first generation: splitting, localising, what is made once.
        generations: How many it took.
        evaluations: How many candidates or gradient steps.
        rounds: What was asked of workers.
        values: What it found.
    """

    seconds: float
    processor: float
    before: float
    generations: int
    evaluations: int
    rounds: list[Round] = field(default_factory=list)
    values: Array = field(default_factory=lambda: np.zeros(0))

    @property
    def critical(self) -> float:
        """Processor time of the asking process and, round by round, of the slower worker."""
        return self.processor + sum(max(map(sum, one.processor), default=0.0) for one in self.rounds)


def watch(backend: ClusterBackend, rounds: list[Round]) -> None:
    """Note what every question takes and weighs."""
    team, ask = backend.team, backend.team.ask

    def ask_and_note(asks: Sequence[Ask]) -> list[Answer]:
        before = replace(team.traffic)
        answers = ask(asks)
        by_worker: dict[str, list[Answer]] = {}
        for answer in answers:
            by_worker.setdefault(answer.worker, []).append(answer)
        rounds.append(
            Round(
                [[one.seconds for one in own] for own in by_worker.values()],
                [[one.processor for one in own] for own in by_worker.values()],
                team.traffic.sent - before.sent,
                team.traffic.received - before.received,
                team.traffic.waited - before.waited,
            )
        )
        return answers

    team.ask = ask_and_note  # type: ignore[method-assign]


def run_search(backend: ModelBackend, data: LabelledData, searcher: Searcher, rounds: list[Round]) -> Run:
    """One search over weights of the middle convolution."""
    opened, rng = time.perf_counter(), np.random.default_rng(0)
    split = split_by_outcome(backend, data, "top:1", rng=rng)
    localiser = make_localiser("rs", count=10, include=(LAYER,))
    suspects = localiser.localise(backend, split.seen, rng=rng).suspects
    problem = build_problem(backend, split, suspects, 10.0, partial(make_evaluator, "fast", memory=MEMORY))
    if searcher.name == "de":
        problem.evaluator.evaluate(suspects.values[None])
    else:
        problem.original_scores  # noqa: B018  # what is made once is made before the clock starts
    rounds.clear()
    began = time.perf_counter(), time.process_time()
    found = searcher.search(problem, rng=rng)
    taken = time.perf_counter() - began[0], time.process_time() - began[1]
    count = found.history[-1].evaluations
    return Run(*taken, began[0] - opened, found.generations, count, list(rounds), found.candidate.values)


def overhead(backend: ClusterBackend, data: LabelledData) -> dict[str, float]:
    """Seconds of a round of one message, and of each further message of as many questions as one holds."""
    taken = {}
    for pieces in (1, WORKERS * MAX_QUESTIONS_PER_TASK, 4 * WORKERS * MAX_QUESTIONS_PER_TASK):
        asked = backend.shard_calls(
            np.asarray(data.inputs), [slice(2 * number, 2 * number + 2) for number in range(pieces)]
        )
        arguments: dict[int, tuple[Any, ...]] = dict.fromkeys(range(pieces), ())
        asked(nothing, arguments)
        times = []
        for _ in range(20):
            began = time.perf_counter()
            asked(nothing, arguments)
            times.append(time.perf_counter() - began)
        taken[pieces] = min(times)
    few, many = taken[WORKERS * MAX_QUESTIONS_PER_TASK], taken[4 * WORKERS * MAX_QUESTIONS_PER_TASK]
    return {"round": taken[1], "message": (many - few) / (3 * WORKERS)}


def nothing(backend: ModelBackend, inputs: Any, rows: slice) -> None:
    """A question that takes no time."""


def predict_seconds(run: Run, cost: dict[str, float]) -> float:
    """Seconds the run should take: workers that answer after the recorded times, and the asking process."""
    waiting = 0.0
    for one in run.rounds:
        messages = sum(-(-len(own) // MAX_QUESTIONS_PER_TASK) for own in one.seconds)
        waiting += cost["round"] + (messages - 1) * cost["message"] + max(map(sum, one.seconds), default=0.0)
    asking = max(0.0, run.seconds - sum(one.waited for one in run.rounds))
    return waiting + asking


def replay(backend: ClusterBackend, data: LabelledData, run: Run) -> float:
    """Seconds the run takes when workers answer after the recorded times, with as many bytes, and compute nothing."""
    each = max(len(own) for one in run.rounds for own in one.seconds)  # neighbours go to the same worker
    pieces = backend.shard_calls(
        np.asarray(data.inputs)[8 * WORKERS * MAX_QUESTIONS_PER_TASK :],
        [slice(2 * at, 2 * at + 2) for at in range(WORKERS * each)],
    )
    pieces(waiting, dict.fromkeys(range(WORKERS * each), (0.0, b"", 0)))
    began = time.perf_counter()
    for one in run.rounds:
        times = {
            worker * each + at: seconds for worker, own in enumerate(one.seconds) for at, seconds in enumerate(own)
        }
        there, back = bytes(one.sent // len(times)), one.received // len(times)
        pieces(waiting, {number: (seconds, there, back) for number, seconds in times.items()})
    asking = max(0.0, run.seconds - sum(one.waited for one in run.rounds))
    return time.perf_counter() - began + asking


def waiting(backend: ModelBackend, inputs: Any, rows: slice, seconds: float, there: bytes, back: int) -> bytes:
    """A question that takes this long, and gives so many bytes."""
    time.sleep(seconds)
    return bytes(back)


def summarise(name: str, alone: Run, shared: Run, inputs: int, cost: dict[str, float]) -> dict[str, Any]:
    """The numbers of one search."""
    questions = sum(len(own) for one in shared.rounds for own in one.seconds)
    working = sum(sum(own) for one in shared.rounds for own in one.processor)
    return {
        "search": name,
        "inputs": inputs,
        "generations": shared.generations,
        "evaluations": shared.evaluations,
        "same": bool(np.array_equal(alone.values, shared.values)),
        "alone": {"seconds": alone.seconds, "processor": alone.processor, "before": alone.before},
        "shared": {
            "seconds": shared.seconds,
            "before": shared.before,
            "asking": shared.processor,
            "working": working,
            "critical": shared.critical,
            "rounds": len(shared.rounds),
            "questions": questions,
            "sent": sum(one.sent for one in shared.rounds),
            "received": sum(one.received for one in shared.rounds),
            "predicted": predict_seconds(shared, cost),
        },
        "ratio": {"clock": alone.seconds / shared.seconds, "processor": alone.processor / shared.critical},
    }


def measure_search(name: str, searcher: Searcher, n: int, folder: Path) -> dict[str, Any]:
    """One search by one process and by two workers, right after each other."""
    source, weights = "benchmarks.subjects:fm_convnet", folder / "convnet.pt"
    module, data = make_subject(next(one for one in SUBJECTS if one.name == "FM convnet"), n)
    torch.save(module.state_dict(), weights)
    alone = run_search(registry.load(source, weights=weights), data, searcher, [])
    load, began = os.getloadavg()[0] if hasattr(os, "getloadavg") else None, time.perf_counter()
    with on_cluster(registry.load(source, weights=weights), workers=WORKERS, tell=print) as shared:
        assert isinstance(shared, ClusterBackend)
        started, cost = time.perf_counter() - began, overhead(shared, data)
        rounds: list[Round] = []
        ask = shared.team.ask
        watch(shared, rounds)
        run = run_search(shared, data, searcher, rounds)
        shared.team.ask = ask  # type: ignore[method-assign]
        found = summarise(name, alone, run, n // 2, cost)
        found["shared"]["replayed"] = replay(shared, data, run)
    return {**found, "load": load, "overhead": {**cost, "start": started}}


def tell(one: dict[str, Any]) -> None:
    """Print the numbers of a search."""
    alone, shared, ratio, cost = one["alone"], one["shared"], one["ratio"], one["overhead"]
    each = (shared["sent"] + shared["received"]) / max(1, one["generations"])
    print(f"{one['search']}, {one['inputs']:,} seen inputs, same values: {one['same']}")
    print(f"  one process {alone['seconds']:.1f} s by the clock, {alone['processor']:.1f} s of processor time")
    print(
        f"  two workers {shared['seconds']:.1f} s by the clock; processor time: together {shared['working']:.1f} s, ",
        end="",
    )
    print(f"the slower of each round {shared['critical']:.1f} s with the asking process's {shared['asking']:.1f} s")
    print(
        f"  as fast as one process: {ratio['clock']:.2f} x by the clock, {ratio['processor']:.2f} x by processor time"
    )
    print(f"  predicted {shared['predicted']:.1f} s, replayed {shared['replayed']:.1f} s; ", end="")
    print(f"a round {1e3 * cost['round']:.1f} ms, a message more {1e3 * cost['message']:.1f} ms; ", end="")
    print(f"{each / 1000:.0f} kB each generation")
    print(f"  before the search {alone['before']:.1f} s, {shared['before']:.1f} s; starting {cost['start']:.1f} s")


def main() -> None:
    """Measure, print, and perhaps keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=8192, help="half of them are seen")
    parser.add_argument("--generations", type=int, default=4)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--search", choices=("de", "keep"), help="one of the two; both when left out")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    searchers = {
        "de": make_searcher("de", generations=given.generations, patience=given.generations),
        "keep": make_searcher("keep", steps=given.steps, folds=2),
    }
    before = json.loads(given.out.read_text(encoding="utf-8")) if given.out is not None and given.out.is_file() else {}
    kept = {one["search"]: one for one in before.get("searches", [])}
    for name in searchers if given.search is None else [given.search]:
        with tempfile.TemporaryDirectory() as folder:
            kept[name] = measure_search(name, searchers[name], given.inputs, Path(folder))
        tell(kept[name])
        if given.out is not None:
            machine = {"python": platform.python_version(), "processors": os.cpu_count()}
            whole = {**before, **machine, "searches": [kept[one] for one in sorted(kept)]}
            given.out.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
