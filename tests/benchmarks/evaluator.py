"""How much faster the fast evaluator is than the plain one, and where the time of a whole repair goes.

    python -m tests.benchmarks.evaluator                  all subjects on torch
    python -m tests.benchmarks.evaluator --backend onnx   the same networks, exported
    python -m tests.benchmarks.evaluator --only "FM MLP" --generations 100
    python -m tests.benchmarks.evaluator --curve          cost against the number of positives

A row is one search with the fast evaluator. The plain evaluator's time is the least of a few full passes; its decisions
are checked on some trials of every generation. Ratios are per candidate and leave out what both evaluators do once;
`ready` tells what the fast one does once.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from arachne.backend import ModelBackend
from arachne.data.labelled import LabelledData
from arachne.data.split import Part
from arachne.data.targets import parse_targets
from arachne.evaluate import FastEvaluator, PlainEvaluator, Stake
from arachne.localise import Bidirectional, Suspects
from arachne.search import DifferentialEvolution, Problem
from arachne.values import Array
from tests.benchmarks.subjects import SUBJECTS, Subject, made

SUSPECTS = 8
HEADER = (
    f"{'subject':<20} {'touched':<12} {'route':<17} {'plain ms':>9} {'fast ms':>8} {'ratio':>8} {'ready s':>8} "
    f"{'seen':>6} {'plainly':>8} {'checked':>8}"
)


class Watched(FastEvaluator):
    """Takes its own time, and checks some of its decisions against the plain evaluator's."""

    checks = 1
    seconds = 0.0
    candidates = 0
    checked = 0
    wrong = 0

    def challenge(self, trials: Array, parents: Array, limits: Array | None) -> Array:
        start = time.perf_counter()
        deficits = super().challenge(trials, parents, limits)
        self.seconds += time.perf_counter() - start
        self.candidates += len(trials)
        if limits is not None:
            wins = deficits.sum(axis=1) <= limits
            # Winners first: most others are rejected by far.
            for number in np.argsort(~wins, kind="stable")[: self.checks]:
                plain = self.plain.evaluate(np.stack([trials[number], parents[number]])).sum(axis=1)
                self.checked += 1
                self.wrong += int((plain[0] <= plain[1]) != wins[number])
        return deficits

    @property
    def plain(self) -> PlainEvaluator:
        return PlainEvaluator(self.backend, self.stake, self.suspects)


def torch_backend(module: Any, data: LabelledData) -> ModelBackend:
    from arachne_torch import TorchBackend

    return TorchBackend.load(module)


def onnx_backend(module: Any, data: LabelledData) -> ModelBackend:
    from arachne_onnx import OnnxBackend

    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        example = torch.from_numpy(np.asarray(data.inputs)[:2])
        torch.onnx.export(module, (example,), path, dynamic_shapes=({0: torch.export.Dim("n")},), verbose=False)
        return OnnxBackend.load(path)


BACKENDS: dict[str, Callable[[Any, LabelledData], ModelBackend]] = {"torch": torch_backend, "onnx": onnx_backend}


def part_of(backend: ModelBackend, data: LabelledData) -> Part:
    """All of the data, with whatever is wrong about class 1 to repair."""
    predictions = backend.predict(data.inputs)
    targets = parse_targets("1:*", data, predictions, 10)
    return Part(data, np.arange(len(data)), predictions, targets)


def measure(backend: ModelBackend, subject: Subject, data: LabelledData, touched: str, args: Any) -> None:
    """One row of the table."""
    part = part_of(backend, data)
    stake = Stake.of(part, part.terms(10.0))
    layers = real_names(backend, subject.touched[touched])
    suspects = localised(backend, part, layers)
    start = time.perf_counter()
    fast = Watched(backend, stake, suspects)
    ready = time.perf_counter() - start
    fast.checks = args.checks
    problem: Any = Problem(backend, None, suspects, fast)  # type: ignore[arg-type]  # no split is looked at
    search = DifferentialEvolution(generations=args.generations, patience=args.generations, start=args.start)
    result = search.search(problem, rng=np.random.default_rng(0))
    plain = min(timed(lambda: fast.plain.evaluate(suspects.values[None])) for _ in range(3))
    each = fast.seconds / fast.candidates
    seen = fast.looked_at / (len(stake.labels) * fast.candidates)
    verdict = f"{fast.checked - fast.wrong}/{fast.checked}"
    print(
        f"{subject.name:<20} {touched:<12} {fast.route.name:<17} {1e3 * plain:9.2f} {1e3 * each:8.3f} "
        f"{plain / each:7.0f}× {ready:8.2f} {seen:6.1%} {fast.plain_evaluations:8d} {verdict:>8}"
        + ("" if fast.truth.by_cut else "   full passes where rounding decides"),
        flush=True,
    )
    if args.verbose:
        last = result.history[-1]
        print(
            f"    {len(stake.labels)} inputs, {len(suspects)} suspects, {sum(h.replaced for h in result.history[1:])}"
            f" accepted of {last.evaluations}, repaired {last.repaired}, broken {last.broken}; {result.stopped}"
        )


def real_names(backend: ModelBackend, layers: tuple[str, ...]) -> list[str]:
    """The layers' names in the backend; an export puts its own text around them."""
    names = [info.name for info in backend.layers]
    return [
        next(n for n in names if n == layer or layer in n.replace("/", ".").split(".") or n.endswith(layer))
        for layer in layers
    ]


def localised(backend: ModelBackend, part: Part, layers: list[str]) -> Suspects:
    """As many weights of every layer as BL ranks first there."""
    found = [
        address
        for layer in layers
        for address in Bidirectional(include=[layer], count=SUSPECTS // len(layers))
        .localise(backend, part, rng=np.random.default_rng(0))
        .suspects.addresses
    ]
    return Suspects.of(backend, found)


def timed(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def curve(args: Any) -> None:
    """Cost of a generation against the number of inputs, FM MLP, last layer."""
    print(f"{'inputs':>8} {'plain ms':>9} {'fast ms':>8} {'ratio':>7}   per candidate")
    subject = SUBJECTS[0]
    for n in (1000, 5000, 20000, 60000):
        module, data = made(subject, n)
        backend = BACKENDS[args.backend](module, data)
        part = part_of(backend, data)
        stake = Stake.of(part, part.terms(10.0))
        suspects = localised(backend, part, real_names(backend, subject.touched["last"]))
        fast = Watched(backend, stake, suspects)
        fast.checks = 0
        problem: Any = Problem(backend, None, suspects, fast)  # type: ignore[arg-type]  # no split is looked at
        search = DifferentialEvolution(generations=args.generations, patience=args.generations, start=args.start)
        search.search(problem, rng=np.random.default_rng(0))
        plain = min(timed(lambda: fast.plain.evaluate(suspects.values[None])) for _ in range(3))  # noqa: B023
        each = fast.seconds / fast.candidates
        print(f"{len(stake.labels):8d} {1e3 * plain:9.2f} {1e3 * each:8.4f} {plain / each:6.0f}×", flush=True)


def whole(args: Any) -> None:
    """A whole repair of the FM MLP, step by step."""
    from arachne.engine import repair
    from arachne.settings import Settings

    module, data = made(SUBJECTS[0], 10000)
    backend = BACKENDS[args.backend](module, data)
    forward = min(timed(lambda: backend.forward(data.inputs)) for _ in range(3))
    searcher = DifferentialEvolution(generations=100, patience=100)
    steps = repair(backend, data, "1:*", settings=Settings(searcher=searcher)).seconds
    print(f"whole repair, {len(data) // 2} inputs seen, 100 generations; one forward pass of all takes {forward:.3f} s")
    for step, seconds in steps.items():
        print(f"    {step:<12} {seconds:7.3f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=sorted(BACKENDS), default="torch")
    parser.add_argument("--only", help="one subject")
    parser.add_argument("--touched", help="one set of layers")
    parser.add_argument("--inputs", type=int, help="fewer or more inputs than the subject has")
    parser.add_argument("--generations", type=int, default=30)
    parser.add_argument("--checks", type=int, default=1, help="decisions checked plainly in each generation")
    parser.add_argument("--start", default="gaussian")
    parser.add_argument("--curve", action="store_true")
    parser.add_argument("--repair", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    if args.curve or args.repair:
        return curve(args) if args.curve else whole(args)
    print(HEADER, flush=True)
    for subject in SUBJECTS:
        if args.only in (None, subject.name):
            module, data = made(subject, args.inputs)
            backend = BACKENDS[args.backend](module, data)
            part = part_of(backend, data)
            print(f"{subject.name}: {len(part)} inputs, {len(part.positives)} right, {len(part.negatives)} negatives")
            for touched in subject.touched:
                if args.touched in (None, touched):
                    measure(backend, subject, data, touched, args)
    return None


if __name__ == "__main__":
    main()
