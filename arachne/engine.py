"""The whole flow: inputs, backend, localise, search, patch, evidence. `repair` is that sentence in code."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np

from arachne.backend import ModelBackend, restored
from arachne.data.chance import check_accuracy
from arachne.data.labelled import LabelledData
from arachne.data.split import Split, split_by_outcome
from arachne.evaluate import FitnessInputs, make_evaluator
from arachne.evidence import Doubtful, doubtful_labels, measure
from arachne.patch import Patch
from arachne.report.objects import patch_evidence
from arachne.result import RepairResult
from arachne.search import Problem
from arachne.search.state import OnGeneration, each_generation
from arachne.settings import Settings
from arachne.values import Array, Inputs

OnStep = Callable[[str], None]
RawInputs = Callable[[], tuple[Inputs, Array]]


def repair(
    backend: ModelBackend,
    data: LabelledData,
    target: str | Sequence[str],
    *,
    settings: Settings | None = None,
    holdout: LabelledData | None = None,
    raw: RawInputs | None = None,
    on_step: OnStep | None = None,
    on_doubtful: Callable[[Doubtful], None] | None = None,
    on_generation: OnGeneration | None = None,
) -> RepairResult:
    """Find a patch for a mistake, and measure it on inputs the search never saw.

    Args:
        backend: The model; it has its own weights again afterwards, whatever happens.
        data: Labelled inputs the model was not trained on.
        target: The mistake, such as `6:0`.
        settings: How to repair.
        holdout: Other data for the verdict; half of `data` when None.
        raw: Gives the inputs before preprocessing and their labels, for advice when the model is near chance.
        on_step: Called with the name of each step as it begins.
        on_doubtful: Called before the repair starts, with the negatives whose labels look wrong, if there are any.
        on_generation: Called after each generation of the search.
    """
    settings = settings or Settings()
    clock = Stopwatch(on_step)
    rng = np.random.default_rng(settings.seed)
    with clock.step("split"):
        split = split_by_outcome(
            backend,
            data,
            target,
            rng=rng,
            holdout=holdout,
            choose=settings.choose,
            drop_overlap=settings.drop_overlap,
            group_by=settings.group_by,
        )
        if not settings.accept_near_chance:
            check_accuracy(backend, split.seen, raw=raw)
        doubtful = doubtful_labels(split.seen)
    if on_doubtful is not None and len(doubtful):
        on_doubtful(doubtful)
    with clock.step("localise"):
        localisation = settings.localiser.localise(backend, split.seen, rng=rng)
    suspects = localisation.suspects
    with clock.step("search"), restored(backend, suspects.parameters):
        counted = FitnessInputs.of(split.seen, split.seen.terms(settings.alpha))
        evaluate = partial(make_evaluator, settings.evaluator, memory=settings.memory)
        problem = Problem(backend, split, suspects, counted, evaluate)
        on_state = None if on_generation is None else each_generation(on_generation)
        found = settings.searcher.search(problem, rng=rng, on_state=on_state)
    with clock.step("measure"):
        patch = Patch.between(
            backend, found.addresses, found.values, provenance=provenance(backend, data, split, settings, holdout)
        )
        evidence = measure(backend, patch, split)
    patch = patch.with_evidence(patch_evidence(evidence))
    return RepairResult(backend, split, localisation, found, patch, evidence, settings, clock.seconds, doubtful)


def provenance(
    backend: ModelBackend, data: LabelledData, split: Split, settings: Settings, holdout: LabelledData | None = None
) -> dict[str, Any]:
    """How a patch came about: enough to make it again."""
    judged: dict[str, Any] | None = None
    if holdout is not None:
        judged = {**_identified(holdout), "dropped": len(holdout) - len(split.held_out)}
    return {
        "target": [str(target) for target in split.targets],
        "seed": settings.seed,
        "settings": settings.to_json(),
        "data": _identified(data),
        "holdout": judged,
        "versions": {
            "arachne": version("arachne-repair"),
            "numpy": np.__version__,
            "pymoo": version("pymoo"),
            "framework": backend.describe().framework,
            "python": platform.python_version(),
        },
    }


def _identified(data: LabelledData) -> dict[str, Any]:
    return {"name": data.source, "sha256": data.sha256(), "inputs": len(data)}


class Stopwatch:
    """Times the steps of a run and tells when each begins."""

    def __init__(self, on_step: OnStep | None = None) -> None:
        self._on_step = on_step
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time one step."""
        if self._on_step is not None:
            self._on_step(name)
        start = time.perf_counter()
        yield
        self.seconds[name] = round(time.perf_counter() - start, 4)
