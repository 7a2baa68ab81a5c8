"""The whole flow: inputs, backend, localise, search, patch, evidence. `repair` is that sentence in code."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from arachne.backend import ModelBackend, restored
from arachne.data.chance import check_accuracy
from arachne.data.labelled import LabelledData
from arachne.data.split import Split, split_by_outcome
from arachne.evaluate import Stake, make_evaluator
from arachne.evidence import Doubtful, Evidence, Gate, compare, doubtful_labels, measure, score
from arachne.files import atomic_write, environment_faults
from arachne.localise import Bidirectional, Localisation, Localiser
from arachne.patch import Patch
from arachne.report.json import doubtful_objects, dumps, gate_objects, patch_evidence, result_object
from arachne.report.terminal import EvidenceTable, as_text
from arachne.search import DifferentialEvolution, Problem, Searcher, SearchResult
from arachne.search.base import OnGeneration
from arachne.values import Array, Inputs

MIN_WEIGHTS = 5
"""With fewer suspects than this the search has too little to trade with, and the next fronts are added."""

OnStep = Callable[[str], None]
RawInputs = Callable[[], tuple[Inputs, Array]]


@dataclass(frozen=True)
class Settings:
    """How to repair; the defaults are ours, `Settings.faithful()` is the paper to the letter.

    Attributes:
        alpha: How much a negative counts against a positive.
        seed: What all randomness starts from.
        localiser: Finds the suspects.
        searcher: Finds their new values.
        evaluator: `fast`, or `plain` for the reference; both accept the same candidates.
        choose: Share of the seen part kept for choosing between patches.
        drop_overlap: Whether held-out inputs that are also in the data are dropped rather than refused.
        group_by: A metadata column whose values stay on one side of the split.
        accept_near_chance: Whether to go on with a model that is hardly better than guessing.
    """

    alpha: float = 10.0
    seed: int = 0
    localiser: Localiser = field(default_factory=lambda: Bidirectional(min_weights=MIN_WEIGHTS))
    searcher: Searcher = field(default_factory=DifferentialEvolution)
    evaluator: str = "fast"
    choose: float = 0.0
    drop_overlap: bool = False
    group_by: str | None = None
    accept_near_chance: bool = False

    @classmethod
    def faithful(cls, **changes: Any) -> Settings:
        """BL's first front, its Gaussians, no clipping, no widening, no inner split."""
        paper = {"localiser": Bidirectional(), "searcher": DifferentialEvolution.faithful()}
        return cls(**{**paper, **changes})

    def to_json(self) -> dict[str, Any]:
        """What goes into provenance: names and plain values."""
        return {
            "alpha": self.alpha,
            "localiser": {"name": self.localiser.name, **vars(self.localiser)},
            "searcher": {"name": self.searcher.name, **vars(self.searcher)},
            "choose": self.choose,
            "group_by": self.group_by,
        }


@dataclass(frozen=True, eq=False)
class PatchedModel:
    """A model with a patch; the model itself keeps its weights."""

    backend: ModelBackend
    patch: Patch

    def forward(self, inputs: Inputs) -> Array:
        """Class scores `(n, classes)` of the patched model."""
        with self.patch.applied(self.backend):
            return self.backend.forward(inputs)

    def predict(self, inputs: Inputs) -> Array:
        """Predicted classes `(n,)` of the patched model."""
        return np.asarray(np.argmax(self.forward(inputs), axis=1))

    def save(self, path: str | Path) -> None:
        """Write the patched model in the format the model came in."""
        with self.patch.applied(self.backend):
            self.backend.save(Path(path))


@dataclass(frozen=True, eq=False)
class RepairResult:
    """A patch, the evidence for it, and how it was found.

    Attributes:
        backend: The model as it was.
        split: The parts of the data.
        localisation: The suspects and their scores.
        search: How the search went.
        patch: The weights it changed.
        evidence: What that did.
        settings: How it was asked to repair.
        seconds: Time by step.
        doubtful: Negatives whose labels look wrong.
        gates: Conditions on the evidence that must not hold.
    """

    backend: ModelBackend
    split: Split
    localisation: Localisation
    search: SearchResult
    patch: Patch
    evidence: Evidence
    settings: Settings
    seconds: Mapping[str, float]
    doubtful: Doubtful
    gates: tuple[Gate, ...] = ()

    def __str__(self) -> str:
        """The evidence as a table of plain text."""
        return as_text(EvidenceTable(self.evidence, self.patch))

    @property
    def model(self) -> PatchedModel:
        """The patched model."""
        return PatchedModel(self.backend, self.patch)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from arachne.report.notebook import result_html

        return result_html(self.evidence, self.patch, self.split.held_out)

    def page(self, command: str | None = None) -> dict[str, Any]:
        """What the page shows, as plain values; `command` is what to type to get the same again."""
        from arachne.report.page import page_object

        return page_object(
            self.to_json(),
            self.evidence,
            self.split.held_out,
            patch=self.patch,
            layers=self.backend.layers,
            localisation=self.localisation,
            search=self.search,
            seen=self.split.seen,
            doubtful=self.doubtful,
            command=command,
        )

    def report(self, path: str | Path) -> None:
        """Write the page: one file that needs nothing else."""
        from arachne.report.html import render

        atomic_write(Path(path), render(self.page()).encode())

    def save(
        self,
        folder: str | Path,
        *,
        reopen: Callable[[Path], ModelBackend] | None = None,
        command: str | None = None,
    ) -> RepairResult:
        """Write the patch, the patched model, the result and what people read of it into a folder.

        Args:
            folder: Where to; it is made if need be.
            reopen: Opens the saved model. The evidence is then measured again on it, and what is written and returned
                rests on the file, not on what was in memory.
            command: What to type to get the same again.
        """
        from arachne.report.folder import write_report

        folder = Path(folder)
        with environment_faults(folder):
            folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"model{self.backend.suffix}"
        self.model.save(path)
        result = self
        if reopen is not None:
            evidence = compare(self.split, score(self.backend, self.split), score(reopen(path), self.split))
            result = replace(self, evidence=evidence, patch=self.patch.with_evidence(patch_evidence(evidence)))
        result.patch.save(folder / "patch.json")
        atomic_write(folder / "result.json", (dumps(result.to_json()) + "\n").encode())
        write_report(folder, result.page(command), result.patch, result.search, self.backend.describe())
        return result

    def to_json(self) -> dict[str, Any]:
        """What `result.json` holds."""
        return result_object(
            self.evidence,
            command="repair",
            seed=self.settings.seed,
            backend=self.backend.NAME,
            weights=len(self.patch),
            generations=self.search.generations,
            seconds=self.seconds,
            more={
                "stopped": self.search.stopped,
                "localised": {
                    "method": self.localisation.method,
                    "weights": len(self.localisation.suspects),
                    "front": self.localisation.front,
                    "candidates": self.localisation.n_candidates,
                },
                "doubtful": doubtful_objects(self.doubtful),
                "gates": gate_objects([gate.check(self.evidence) for gate in self.gates]),
                "provenance": dict(self.patch.provenance),
            },
        )


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
        doubtful = doubtful_labels(split.seen, backend.forward(split.seen.data.inputs))
    if on_doubtful is not None and len(doubtful):
        on_doubtful(doubtful)
    with clock.step("localise"):
        localisation = settings.localiser.localise(backend, split.seen, rng=rng)
    suspects = localisation.suspects
    with clock.step("search"), restored(backend, suspects.parameters):
        stake = Stake.of(split.seen, split.seen.terms(settings.alpha))
        evaluator = make_evaluator(settings.evaluator, backend, stake, suspects)
        problem = Problem(backend, split, suspects, evaluator)
        found = settings.searcher.search(problem, rng=rng, on_generation=on_generation)
    with clock.step("measure"):
        patch = Patch.between(
            backend, found.addresses, found.values, provenance=provenance(backend, data, split, settings)
        )
        evidence = measure(backend, patch, split)
    patch = patch.with_evidence(patch_evidence(evidence))
    return RepairResult(backend, split, localisation, found, patch, evidence, settings, clock.seconds, doubtful)


def provenance(backend: ModelBackend, data: LabelledData, split: Split, settings: Settings) -> dict[str, Any]:
    """How a patch came about: enough to make it again."""
    return {
        "target": [str(target) for target in split.targets],
        "seed": settings.seed,
        "settings": settings.to_json(),
        "data": {"name": data.source, "sha256": data.sha256(), "inputs": len(data)},
        "versions": {
            "arachne": version("arachne-repair"),
            "numpy": np.__version__,
            "pymoo": version("pymoo"),
            "framework": backend.describe().framework,
            "python": platform.python_version(),
        },
    }


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
