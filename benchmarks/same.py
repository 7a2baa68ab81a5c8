"""Whole searches with both evaluators: the same generations, the same patch?

    python -m benchmarks.same                     the benchmark's subjects on all backends, about ten minutes
    python -m benchmarks.same --backend torch     on one

Every search is run twice, with few inputs and a small population, because the plain evaluator takes its time. What each
generation did (fitness, repaired, broken, replaced members) and the values found must be equal to the last bit.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import numpy as np
import torch

from arachne.data.run import whole_part
from arachne.scoring.evaluator import Evaluator
from arachne.scoring.evaluators import FastEvaluator, FitnessInputs, PlainEvaluator
from arachne.search import DifferentialEvolution, Problem
from benchmarks.evaluator import localise_layers, real_names
from benchmarks.ported import BACKENDS
from benchmarks.subjects import SUBJECTS, make_subject

INPUTS = {"FM MLP": 2000, "ResNet-18, 64×64": 60}
"""How many inputs, 400 for all others."""


def run_search(evaluator: Evaluator) -> tuple[list[Any], bytes]:
    """Return what a search did, generation by generation, and what it found."""
    nothing: Any = None  # no split is looked at
    problem = Problem(evaluator.backend, nothing, evaluator.suspects, evaluator.fitness_inputs, lambda *_: evaluator)
    search = DifferentialEvolution(population=12, generations=12, patience=12)
    result = search.search(problem, rng=np.random.default_rng(1))
    history = [(g.fitness, g.repaired, g.broken, g.replaced) for g in result.history]
    return history, result.values.tobytes()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", action="append", choices=sorted(BACKENDS), help="one backend; may be repeated")
    parser.add_argument("--only", help="one subject")
    args = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    torch.set_num_threads(1)
    different = 0
    for subject in SUBJECTS:
        if args.only not in (None, subject.name):
            continue
        module, data = make_subject(subject, INPUTS.get(subject.name, 400))
        for name in args.backend or BACKENDS:
            backend, ported = BACKENDS[name](module, data)
            part = whole_part(backend, ported, subject.target)
            fitness_inputs = FitnessInputs.of(part, part.terms(10.0))
            for touched, layers in subject.touched.items():
                names = real_names(backend, layers)
                if names is None:
                    continue
                suspects = localise_layers(backend, part, names)
                fast = FastEvaluator(backend, fitness_inputs, suspects)
                same = run_search(PlainEvaluator(backend, fitness_inputs, suspects)) == run_search(fast)
                different += not same
                verdict = "the same" if same else "DIFFERENT"
                print(f"{subject.name:<20} {touched:<12} {name:<6} {fast.source.route.name:<21} {verdict}", flush=True)
    raise SystemExit(1 if different else 0)


if __name__ == "__main__":
    main()
