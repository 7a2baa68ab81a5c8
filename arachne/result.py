"""What a repair hands back: the patch, the patched model, and the evidence, in memory and as files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from arachne.backend import ModelBackend
from arachne.data.split import Split
from arachne.evidence import Doubtful, Evidence, Gate, compare, score
from arachne.files import atomic_write, environment_faults
from arachne.localise import Localisation
from arachne.patch import Patch
from arachne.report.json import dumps
from arachne.report.objects import doubtful_objects, gate_objects, patch_evidence, result_object
from arachne.report.terminal import EvidenceTable, as_text
from arachne.search import SearchResult
from arachne.settings import Settings
from arachne.values import Array, Inputs


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
            evidence = compare(self.split, score(reopen(path), self.split))
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
