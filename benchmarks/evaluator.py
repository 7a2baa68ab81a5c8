"""How much faster the fast evaluator is than the plain one, and where the time of a whole repair goes.

    python -m benchmarks.evaluator                    all subjects on all backends, about twenty minutes
    python -m benchmarks.evaluator --quick            fewer inputs and candidates, some minutes
    python -m benchmarks.evaluator --backend onnx --only "FM MLP" --touched last
    python -m benchmarks.evaluator --curve            cost against the number of positives
    python -m benchmarks.evaluator --repair           a whole repair, step by step
    python -m benchmarks.evaluator --threads          the same with one processor and with all

A row is one search with the fast evaluator. Where a candidate is slow there are fewer inputs and a smaller population,
so that the search gets somewhere in its seconds. The plain evaluator's time is the least of a few full passes; some
decisions are checked against it. Ratios are per candidate and leave out what both evaluators do once; `ready` tells
what the fast one does once. Both sides run on one processor, and times are that processor's, so that other programs on
the machine hardly count.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from arachne.data.part import Part
from arachne.data.run import whole_part
from arachne.localise import Bidirectional
from arachne.model.backend import ModelBackend
from arachne.model.values import Array
from arachne.scoring.evaluators import FastEvaluator, FitnessInputs, PlainEvaluator
from arachne.search import DifferentialEvolution, Generation, Problem
from arachne.search.state import each_generation
from arachne.weights.selection import Selection
from benchmarks.ported import BACKENDS
from benchmarks.subjects import SUBJECTS, Subject, make_subject

SUSPECTS = 8

SLOW = 10e-3
"""Where a candidate takes longer than these seconds to judge on all inputs, a search gets on too slowly."""

FEWER = 4
"""Then one input in this many is used."""

LONGER = 8
"""And the search may take this many times the row's seconds."""

POPULATION = 20
"""The size of such a population."""

CHECKED = 0.3
"""Checks of decisions may take this share of a row's seconds, and are always at least two."""

clock = time.process_time

HEADER = (
    f"{'subject':<20} {'touched':<12} {'backend':<8} {'route':<21} {'plain ms':>9} {'fast ms':>8} {'ratio':>8} "
    f"{'ready s':>8} {'inputs':>7} {'cands':>6} {'seen':>6} {'plainly':>8} {'checked':>8}"
)


class EnoughError(Exception):
    """The row's seconds are over."""


class Watched(FastEvaluator):
    """Takes its own time, and checks some of its decisions against the plain evaluator's."""

    seconds = 0.0
    candidates = 0
    checked = 0
    wrong = 0
    checking = 0.0
    budget = np.inf
    met_before = 0

    def compare_with_parents(self, trials: Array, parents: Array, limits: Array | None) -> Array:
        start = clock()
        deficits = super().compare_with_parents(trials, parents, limits)
        self.seconds += clock() - start
        self.candidates += len(trials)
        if limits is not None and (self.checked < 2 or self.checking < CHECKED * self.seconds):
            self._check(trials, parents, deficits.sum(axis=1) <= limits)
        return deficits

    def _check(self, trials: Array, parents: Array, wins: Array) -> None:
        start = clock()
        # A winner, where there is one: most others are rejected by far.
        number = int(np.argmax(wins))
        plain = self.plain.evaluate(np.stack([trials[number], parents[number]])).sum(axis=1)
        self.checked += 1
        self.wrong += int((plain[0] <= plain[1]) != wins[number])
        self.checking += clock() - start

    @property
    def plain(self) -> PlainEvaluator:
        return PlainEvaluator(self.backend, self.fitness_inputs, self.suspects)


def measure(name: str, backend: ModelBackend, part: Part, subject: Subject, touched: str, args: Any) -> None:
    """One row of the table."""
    fitness_inputs = FitnessInputs.of(part, part.terms(10.0))
    layers = real_names(backend, subject.touched[touched])
    if layers is None:
        print(f"{subject.name:<20} {touched:<12} {name:<8} not reached by this backend", flush=True)
        return
    suspects = localise_layers(backend, part, layers)
    fast, ready = make_watched(backend, fitness_inputs, suspects)
    if seconds_of(lambda: fast.source.bounds(suspects.values[None], None)) > SLOW:
        fast, ready = make_watched(backend, fewer(fitness_inputs), suspects)
        fast.budget = LONGER * args.seconds
        run_search(fast, args, POPULATION)
    else:
        fast.budget = args.seconds
        run_search(fast, args, args.population)
    n = len(fast.fitness_inputs.labels)
    plain = min(seconds_of(lambda: fast.plain.evaluate(suspects.values[None])) for _ in range(3))
    each = fast.seconds / fast.candidates
    seen = (fast.source.looked_at - fast.met_before) / (n * fast.candidates)
    cells = [
        f"{subject.name:<20} {touched:<12} {name:<8} {fast.source.route.name:<21} {1e3 * plain:9.2f} {1e3 * each:8.3f}",
        f"{plain / each:7.0f}×" if plain > 10 * each else f"{plain / each:7.1f}×",
        f"{ready:8.2f} {n:7d} {fast.candidates:6d} {seen:6.1%}",
        f"{fast.source.plain_evaluations:8d} {f'{fast.checked - fast.wrong}/{fast.checked}':>8}",
        "" if fast.source.reference.by_cut else "  full passes where rounding decides",
    ]
    print(" ".join(cells), flush=True)


def make_watched(backend: ModelBackend, fitness_inputs: FitnessInputs, suspects: Selection) -> tuple[Watched, float]:
    """An evaluator, and how long it took to get ready."""
    start = clock()
    fast = Watched(backend, fitness_inputs, suspects)
    ready = clock() - start
    fast.source.bounds(suspects.values[None], None)  # the first time takes longer than any other
    return fast, ready


def fewer(fitness_inputs: FitnessInputs) -> FitnessInputs:
    """Some of the inputs, of all terms."""
    rows = np.arange(0, len(fitness_inputs.labels), FEWER)
    return fitness_inputs.take(rows)


def run_search(fast: Watched, args: Any, population: int) -> None:
    """A search, as long as its seconds last."""

    def on_generation(generation: Generation) -> None:
        if fast.seconds > fast.budget and generation.number > 1:
            raise EnoughError

    fast.met_before = fast.source.looked_at
    nothing: Any = None  # no split is looked at
    problem = Problem(fast.backend, nothing, fast.suspects, fast.fitness_inputs, lambda *_: fast)
    search = DifferentialEvolution(
        population=population, generations=args.generations, patience=args.generations, start=args.start
    )
    with contextlib.suppress(EnoughError):
        search.search(problem, rng=np.random.default_rng(0), on_state=each_generation(on_generation))


def real_names(backend: ModelBackend, layers: tuple[str, ...]) -> list[str] | None:
    """The layers' names in the backend; an export puts its own text around them."""
    names = {
        info.name.replace("/", ".").replace("-", ".").removeprefix("layer.").removesuffix(".l0"): info.name
        for info in backend.layers
    }
    found = [next((names[n] for n in names if n == layer or n.endswith(f".{layer}")), None) for layer in layers]
    return None if None in found else [name for name in found if name is not None]


def localise_layers(backend: ModelBackend, part: Part, layers: list[str]) -> Selection:
    """As many weights of every layer as BL ranks first there."""
    found = [
        address
        for layer in layers
        for address in Bidirectional(include=(layer,), count=SUSPECTS // len(layers))
        .localise(backend, part, rng=np.random.default_rng(0))
        .suspects.addresses
    ]
    return Selection.of(backend, found)


def seconds_of(run: Callable[[], Any]) -> float:
    start = clock()
    run()
    return clock() - start


def table(args: Any) -> None:
    """All rows."""
    print(HEADER, flush=True)
    for subject in SUBJECTS:
        if args.only in (None, subject.name):
            few = max(200, subject.inputs // 5) if args.quick else None
            module, data = make_subject(subject, args.inputs or few)
            for name in args.backend or BACKENDS:
                backend, ported = BACKENDS[name](module, data)
                part = whole_part(backend, ported, subject.target)
                counts = f"{len(part.positives)} positives, {len(part.negatives)} negatives"
                print(f"{subject.name} on {name}: {counts}, target {part.targets[0].text}", flush=True)
                for touched in subject.touched:
                    if args.touched in (None, touched):
                        measure(name, backend, part, subject, touched, args)


def curve(args: Any) -> None:
    """Cost of a candidate against the number of inputs, FM MLP, last layer."""
    print(f"{'positives':>9} {'plain ms':>9} {'fast ms':>8} {'ratio':>7}   per candidate")
    subject = SUBJECTS[0]
    for n in (1000, 5000, 20000, 60000):
        module, data = make_subject(subject, n)
        backend, data = BACKENDS[(args.backend or ["torch"])[0]](module, data)
        part = whole_part(backend, data, subject.target)
        fitness_inputs = FitnessInputs.of(part, part.terms(10.0))
        suspects = localise_layers(backend, part, real_names(backend, subject.touched["last"]) or [])
        fast = Watched(backend, fitness_inputs, suspects)
        run_search(fast, args, args.population)
        plain = min(seconds_of(lambda: fast.plain.evaluate(suspects.values[None])) for _ in range(3))  # noqa: B023
        each = fast.seconds / fast.candidates
        print(f"{len(part.positives):9d} {1e3 * plain:9.2f} {1e3 * each:8.4f} {plain / each:6.0f}×", flush=True)


def whole(args: Any) -> None:
    """A whole repair of the FM MLP, step by step, the least of three."""
    from arachne.engine import repair
    from arachne.settings import Settings

    module, data = make_subject(SUBJECTS[0], 10000)
    for name in args.backend or BACKENDS:
        backend, ported = BACKENDS[name](module, data)
        forward = min(seconds_of(lambda: backend.forward(ported.inputs)) for _ in range(3))  # noqa: B023
        settings = Settings(searcher=DifferentialEvolution(generations=100, patience=100))
        runs: list[tuple[float, Any]] = []
        for _ in range(3):
            start = clock()
            result = repair(backend, ported, SUBJECTS[0].target, settings=settings)
            runs.append((clock() - start, result.seconds))
        total, steps = min(runs, key=lambda run: run[0])
        split = ", ".join(f"{step} {seconds:.2f}" for step, seconds in steps.items())
        print(
            f"{name:<6} {len(ported) // 2} inputs seen, 100 generations: {total:.2f} s of the processor, one forward "
            f"pass of all inputs {forward:.2f} s; by the clock: {split}",
            flush=True,
        )


def threads(args: Any) -> None:
    """Measure the gain of a second processor: plain passes and cuts of the convnet, by the clock."""
    module, data = make_subject(SUBJECTS[1], 500)
    available = sorted(os.sched_getaffinity(0))
    for processors in ([available[0]], available):
        os.sched_setaffinity(0, processors)
        torch.set_num_threads(len(processors))
        backend, ported = BACKENDS[(args.backend or ["torch"])[0]](module, data)
        part = whole_part(backend, ported, SUBJECTS[1].target)
        suspects = localise_layers(backend, part, real_names(backend, ("3",)) or [])
        plain = PlainEvaluator(backend, FitnessInputs.of(part, part.terms(10.0)), suspects)
        least = np.inf
        for _ in range(5):
            start = time.perf_counter()
            plain.evaluate(suspects.values[None])
            least = min(least, time.perf_counter() - start)
        print(
            f"{len(processors)} processors: a full pass of {len(ported)} inputs takes {1e3 * least:.0f} ms", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", action="append", choices=sorted(BACKENDS), help="one backend; may be repeated")
    parser.add_argument("--only", help="one subject")
    parser.add_argument("--touched", help="one set of layers")
    parser.add_argument("--inputs", type=int, help="fewer or more inputs than the subject has")
    parser.add_argument("--population", type=int, default=100)
    parser.add_argument("--generations", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=None, help="how long a row's search may take, 5 by default")
    parser.add_argument("--start", default="auto")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--curve", action="store_true")
    parser.add_argument("--repair", action="store_true")
    parser.add_argument("--threads", action="store_true")
    args = parser.parse_args()
    args.seconds = args.seconds or (1.5 if args.quick else 5.0)
    if args.threads:
        return threads(args)
    if hasattr(os, "sched_setaffinity"):  # onnxruntime and TensorFlow count the processors they may use
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    torch.set_num_threads(1)
    return curve(args) if args.curve else whole(args) if args.repair else table(args)


if __name__ == "__main__":
    main()
