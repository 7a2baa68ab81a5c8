"""The result of a repair: the patch, the patched model and the evidence, in memory and as files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from arachne.causes import Experiment
from arachne.causes.targets import describe_targets
from arachne.choose.budget import NOT_GIVEN, Budget, Choice
from arachne.choose.select import select_point
from arachne.choose.simplest import simplest_as_good
from arachne.data.grouping import with_objective
from arachne.data.split import Split
from arachne.errors import ModelError, NothingWithinBudgetError, UsageError
from arachne.evidence import Evidence, Gate, LabelNoise, SplitScores, compare, score
from arachne.evidence.connections import describe_connections, name_connections
from arachne.evidence.forecast import Forecast
from arachne.evidence.grade import NOTHING_WITHIN
from arachne.fairness import Objective
from arachne.io.files import atomic_write
from arachne.io.identity import FileIdentity
from arachne.io.output_paths import remove
from arachne.localise import Localisation
from arachne.model.backend import ModelBackend
from arachne.model.values import Array, Inputs
from arachne.patch import Patch
from arachne.report.direction_objects import direction_objects
from arachne.report.front import choice_objects
from arachne.report.json import clean, dumps
from arachne.report.next_steps import Given, next_steps
from arachne.report.notebook import result_html
from arachne.report.objects import doubtful_objects, gate_objects, outlook_objects, patch_evidence, result_object
from arachne.report.terminal import EvidenceTable, as_text
from arachne.results.finalise import build_patch
from arachne.results.folder import ResultFolder, reserve_folder
from arachne.results.front_file import FRONT, StoredFront, write_front
from arachne.scoring.plain import forward_with
from arachne.search import SearchResult
from arachne.search.measured import MeasuredCandidate
from arachne.settings import Settings, make_objective
from arachne.tasks import decide
from arachne.text import Brief, pluralise


@dataclass(frozen=True, eq=False)
class PatchedModel(Brief):
    """A model with a patch; the model itself keeps its weights."""

    backend: ModelBackend
    patch: Patch

    def forward(self, inputs: Inputs) -> Array:
        """Class scores `(n, classes)` of the patched model."""
        return forward_with(self.backend, self.patch.apply_temporarily(self.backend), inputs)

    def predict(self, inputs: Inputs) -> Array:
        """Predicted classes `(n,)` of the patched model."""
        return decide(self.forward(inputs))

    def save(self, path: str | Path) -> None:
        """Write the patched model in the format the model came in.

        Raises:
            ModelError: The model's file holds something else by now than it did; nothing is left behind.
        """
        identity = self.backend.file_identity or FileIdentity({})
        identity.check()
        with self.patch.apply_temporarily(self.backend):
            self.backend.save(Path(path))
        try:
            identity.check()
        except ModelError:
            remove(Path(path).absolute())
            raise


@dataclass(frozen=True, eq=False)
class RepairResult(Brief):
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
        points: The front the patch was chosen from, with what each point does; empty where there was no choice.
        choice: Which of them was taken, and why.
        kept: Sections of the page that an earlier run has made.
        forecast: The share that was said to be within reach before the search; None if nothing could be said.
        experiments: Experiments with the causes that were to be repaired, on seen inputs, by target.
        connection: The few pixels, columns or words that all changed weights are connected to, in words; None if they
            are spread out.
        peak_memory: The most bytes that the process had held at once when the repair ended; None if nobody counted.
        notes: Sentences about what `save` had to leave out, such as a page that could not be drawn.
    """

    backend: ModelBackend
    split: Split
    localisation: Localisation
    search: SearchResult
    patch: Patch
    evidence: Evidence
    settings: Settings
    seconds: Mapping[str, float]
    doubtful: LabelNoise
    gates: tuple[Gate, ...] = ()
    points: tuple[MeasuredCandidate, ...] = ()
    choice: Choice | None = None
    kept: Mapping[str, Any] = field(default_factory=dict)
    forecast: Forecast | None = None
    experiments: Mapping[str, Experiment] = field(default_factory=dict)
    connection: str | None = None
    peak_memory: int | None = None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The evidence as a table of plain text."""
        return as_text(EvidenceTable(self.evidence, self.patch, self.connection))

    @property
    def headline(self) -> str:
        """The evidence's headline, and how many weights changed."""
        return f"{self.evidence.headline}, {pluralise(len(self.patch), 'weight')} changed"

    @property
    def model(self) -> PatchedModel:
        """The patched model."""
        return PatchedModel(self.backend, self.patch)

    def choose(
        self,
        *,
        max_break: float | None = None,
        confidence: float | None = None,
        max_class_drop: Mapping[str, float] | None = None,
        max_group_drop: Mapping[str, float] | None = None,
        max_drop: float | None = None,
        objective: str | Objective | None = None,
    ) -> RepairResult:
        """Choose another point of the front, without a new search.

        Args:
            max_break: The largest share of inputs that were right and may become wrong; 0.5 % when None, and no limit
                where `max_drop` is given.
            confidence: How sure to be of that, where the repair was made with a confidence.
            max_class_drop: By class, how far its accuracy may fall.
            max_group_drop: By group, how far its accuracy may fall.
            max_drop: How far the accuracy on all inputs but the negatives may fall.
            objective: What to make fairer between groups; the repair's own when None.

        Raises:
            UsageError: The repair left no front, or no inputs for a guarantee.
            NothingWithinBudgetError: No point keeps the budget.
        """
        breaks = NOT_GIVEN if max_break is None else max_break
        budget = Budget(breaks, confidence, max_class_drop or {}, max_group_drop or {}, max_drop)
        if not self.points:
            raise UsageError("this repair left no front to choose from: it was made without a budget")
        if confidence is not None and not len(self.split.choose):
            raise UsageError("the search saw all inputs it could, so none are left for a guarantee; repair with one")
        wanted = make_objective(objective) if isinstance(objective, str) else objective
        split = self.split if wanted is None else with_objective(self.split, wanted)
        choice = select_point(self.points, budget, split.class_names, split.objective)
        settings = replace(self.settings, budget=budget, objective=split.objective)
        provenance = {**self.patch.provenance}
        changed = {name: settings.to_json()[name] for name in ("budget", "objective")}
        provenance["settings"] = {**provenance.get("settings", {}), **changed}
        search, patch, evidence = build_patch(self.backend, split, self.search, choice, provenance, self.points)
        chosen = replace(self, split=split, search=search, patch=patch, evidence=evidence, settings=settings)
        connection = describe_connections(self.backend, patch, split.seen.data)
        chosen = replace(chosen, choice=choice, connection=connection)
        return chosen.within_budget()

    def within_budget(self) -> RepairResult:
        """This result, with a note where something simpler would have done as well; an error if nothing does.

        Raises:
            NothingWithinBudgetError: No point keeps the budget.
        """
        if self.choice is not None and self.choice.index is None:
            raise NothingWithinBudgetError(f"{NOTHING_WITHIN}: {self.choice.why}", result=self)
        if self.choice is None:
            return self
        note = simplest_as_good(self.points, self.choice, self.split.class_names)
        return replace(self, evidence=replace(self.evidence, simpler=note))

    def _repr_html_(self) -> str:
        """The result as HTML for a notebook."""
        return result_html(self.evidence, self.patch, self.split.held_out)

    def page(
        self,
        command: str | None = None,
        *,
        given: Given | None = None,
        folder: Path | None = None,
        maps: bool = True,
    ) -> dict[str, Any]:
        """The content of the page, as plain values.

        Args:
            command: What to type to get the same again.
            given: What that says of model and data, for commands that go on from here.
            folder: Where the repair's files are.
            maps: Whether maps of what the model looks at are drawn.
        """
        from arachne.report.page import page_object
        from arachne.report.saliency import saliency_objects

        held_out = self.split.held_out
        page = page_object(
            self.to_json(),
            self.evidence,
            held_out,
            patch=self.patch,
            layers=self.backend.layers,
            localisation=self.localisation,
            search=self.search,
            seen=self.split.seen,
            doubtful=self.doubtful,
            front=self.points,
            choice=self.choice,
            saliency=saliency_objects(self.backend, self.patch, held_out, self.evidence.held_out) if maps else (),
            command=command,
            model=self.backend.describe().source,
            connections=name_connections(self.backend, self.patch, self.split.seen.data),
            directions=direction_objects(self.backend, self.patch, self.split.seen.data, self.split.class_names),
        )
        if given is not None and folder is not None:
            page["next"] = self.next_steps(given, folder)
        return page | dict(self.kept)

    def next_steps(self, given: Given, folder: Path) -> list[dict[str, str]]:
        """Sentences about what to do next, each with its command, the most useful first; arguments as for `page`."""
        words = any(info.kind == "embedding" for info in self.backend.layers)
        return next_steps(self.to_json(), given, str(folder), front=bool(self.points), words=words)

    def report(self, path: str | Path) -> None:
        """Write the page: one file that needs nothing else."""
        from arachne.report.html import render

        atomic_write(Path(path), render(self.page()).encode())

    def save(
        self,
        folder: str | Path | ResultFolder,
        *,
        replace: bool = False,
        reopen: Callable[[Path], ModelBackend] | None = None,
        command: str | None = None,
        given: Given | None = None,
        sources: Mapping[str, Any] | None = None,
    ) -> RepairResult:
        """Write the patch, the patched model, the result and the reports into a folder, all or nothing.

        The page comes last. What cannot be drawn is left out, and `notes` of what is returned say so.

        Args:
            folder: Where to: nothing is there yet, or an empty folder, or an earlier result.
            replace: Whether an earlier result may be replaced.
            reopen: Opens the saved model. The evidence is then measured again on it, and what is written and returned
                rests on the file, not on what was in memory.
            command: What to type to get the same again.
            given: What that says of model and data.
            sources: Where model and data came from, for choosing another point of the front later.

        Raises:
            UsageError: Something is there that may not be replaced.
            ModelError: The saved model gets a never-break input wrong, or the model's file is not what it was when it
                was opened; nothing is written.
        """
        described = self.backend.describe()
        private = [] if described.source is None else [Path(described.source)]
        with reserve_folder(folder, replace=replace, private=private) as target:
            result = self._save_and_measure(target.draft, reopen)
            result._write(target.draft)
            notes = result._write_rest(target, command, given, sources)
            target.publish()
        return dataclasses.replace(result, notes=tuple(notes))

    def _save_and_measure(self, folder: Path, reopen: Callable[[Path], ModelBackend] | None) -> RepairResult:
        """Write the patched model, and measure the written file."""
        from arachne.report.folder import check_names

        path = folder / f"model{self.backend.suffix}"
        check_names(self.backend.describe(), path.name)
        self.model.save(path)
        if reopen is None:
            return self
        evidence = self._measure_again(score(reopen(path), self.split))
        if evidence.never_break is not None and evidence.never_break.broken:
            wrong = pluralise(evidence.never_break.broken, "never-break input")
            raise ModelError(f"the saved model gets {wrong} wrong that the one in memory has right; nothing is written")
        return replace(self, evidence=evidence, patch=self.patch.with_evidence(patch_evidence(evidence)))

    def _write(self, folder: Path) -> None:
        """Write the essential files beside the model: the patch and the result."""
        self.patch.save(folder / "patch.json")
        atomic_write(folder / "result.json", (dumps(self.to_json()) + "\n").encode())

    def _write_rest(
        self, target: ResultFolder, command: str | None, given: Given | None, sources: Mapping[str, Any] | None
    ) -> list[str]:
        """Write the front, the card, the history and the page; return a sentence for each that failed."""
        from arachne.report.folder import going_on_without, write_extras, write_page

        notes: list[str] = []
        if self.points:
            with going_on_without("the front could not be written", notes.append, "there is nothing to choose from"):
                front = StoredFront(self.points, self.search, self.split.class_names, sources or self._sources())
                write_front(target.draft / FRONT, front)
        described = self.backend.describe()
        write_extras(
            target.draft, clean(self.to_json()), self.patch, self.search, described, command=command, tell=notes.append
        )
        for maps in (True, False):
            what = "the page could not be drawn" + (" with maps of what the model looks at" if maps else "")
            with going_on_without(what, notes.append):
                page = self.page(command, given=given, folder=target.named, maps=maps)
                write_page(target.draft, page, named=target.named, tell=notes.append)
                break
        return notes

    def _sources(self) -> dict[str, Any]:
        """Where model and data came from, as far as they tell."""
        provenance = self.patch.provenance
        names = {name: (provenance.get(name) or {}).get("name") for name in ("data", "holdout", "never_break")}
        data = {"data": names.pop("data")}
        return {"model": {"model_file": self.backend.describe().source}, "data": data, **names}

    def _measure_again(self, scores: SplitScores) -> Evidence:
        """Make the evidence anew from the scores of the saved model."""
        before = self.evidence
        evidence = compare(self.split, scores, budget=before.budget, patches_compared=before.patches_compared)
        return replace(
            evidence,
            simpler=before.simpler,
            class_limits=before.class_limits,
            group_limits=before.group_limits,
            max_drop=before.max_drop,
            repaired_in_trials=before.repaired_in_trials,
        )

    def to_json(self) -> dict[str, Any]:
        """The object that is written to `result.json`."""
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
                **({} if self.peak_memory is None else {"peak_memory": self.peak_memory}),
                "localised": {
                    "method": self.localisation.method,
                    "weights": len(self.localisation.suspects),
                    "front": self.localisation.front,
                    "candidates": self.localisation.n_candidates,
                },
                "doubtful": doubtful_objects(self.doubtful),
                **outlook_objects(self.forecast, self.experiments, self.split.copies),
                "causes": describe_targets(self.split.seen, self.experiments),
                **({} if self.connection is None else {"connection": self.connection}),
                "gates": gate_objects([gate.check(self.evidence) for gate in self.gates]),
                **choice_objects(
                    self.points, self.choice, self.evidence.never_break, self.patch.provenance.get("never_break")
                ),
                "provenance": dict(self.patch.provenance),
            },
        )
