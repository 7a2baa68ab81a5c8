"""Measure a patch, or another model, on all of some data; nothing is searched and nothing written."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from arachne.causes.targets import CauseTargets
from arachne.choose.budget import BREAK_BUDGET
from arachne.data.grouping import objective_for_part
from arachne.data.keeping import attach_kept
from arachne.data.part import Part
from arachne.data.read import read_data
from arachne.data.run import RunModel, whole_part
from arachne.data.seen import ALL, HELD_OUT, PARTLY_SEEN, find_seen
from arachne.data.unlabelled import read_unlabelled
from arachne.errors import InputError, PatchError, UsageError
from arachne.evidence import Evidence, Flips
from arachne.evidence.evidence import predict_patched, tabulate
from arachne.evidence.measure_part import measure_part
from arachne.evidence.survival import Scores, Survival, count_still_repaired, scores_there
from arachne.fairness import Objective
from arachne.model.backend import ModelBackend
from arachne.model.lazy import is_plain
from arachne.model.registry import load, name_for_file, weight_file
from arachne.model.sharding import join_rows, read_shards
from arachne.model.values import Array, Inputs
from arachne.patch import Patch, apply_to, for_model
from arachne.patch.recorded import recorded_faults
from arachne.results.kept_passes import confirm_held_out
from arachne.results.result import PatchedModel
from arachne.scoring.predicted import verify_scores
from arachne.settings import as_task, make_objective, objective_from, task_from
from arachne.tasks import SINGLE_LABEL, Task, rule_in


@dataclass(frozen=True, eq=False)
class Measured:
    """A model with and without a patch on all of some data: the scores that the numbers come from.

    Attributes:
        part: The inputs the verdict comes from, and the scores without the patch; those the repair has not seen, where
            these can be told from the rest.
        after: The raw outputs with it `(n, ...)`.
        basis: What these inputs are to the repair.
        seen: The inputs it has seen, where they were told apart.
        seen_after: The raw outputs with the patch on those `(m, ...)`.
        objective: What was to become fairer between groups.
        budget: The largest break rate the patch was allowed.
        max_drop: How far the accuracy on all inputs but the negatives was allowed to fall; None without a limit.
    """

    part: Part
    after: Array
    basis: str = ALL
    seen: Part | None = None
    seen_after: Array | None = None
    objective: Objective | None = None
    budget: float = BREAK_BUDGET
    max_drop: float | None = None

    @classmethod
    def of(
        cls, part: Part, run: Callable[[Part], Array], patch: Patch, confirm: Callable[[Part], Part] = lambda part: part
    ) -> Measured:
        """Compute scores on the data, without inputs that the repair has seen, unless it has seen all of them.

        Args:
            part: All of the data.
            run: Returns the raw outputs of a part with the patch.
            patch: The patch.
            confirm: Returns the part that the verdict comes from, with outputs that were not kept from before.
        """
        objective = objective_from(patch.provenance)
        if objective is not None and objective.group_column not in part.data.columns:
            objective = None  # data without the groups can still tell what was repaired
        budget, drop = _budget_of(patch), _read_share(patch, "max_drop")
        found = find_seen(patch.provenance, part.data)
        if found.rows is None or found.basis != PARTLY_SEEN:
            part = confirm(part)
            return cls(part, run(part), found.basis, objective=objective, budget=budget, max_drop=drop)
        seen, others = part.take(np.flatnonzero(found.rows)), confirm(part.take(np.flatnonzero(~found.rows)))
        return cls(others, run(others), HELD_OUT, seen, run(seen), objective, budget, drop)

    @cached_property
    def evidence(self) -> Evidence:
        """The evidence for the patch."""
        seen = None
        if self.seen is not None and self.seen_after is not None:
            seen = measure_part(self.seen, self.seen.read(self.seen_after).scores, self.objective)
        held_out = measure_part(self.part, self.part.read(self.after).scores, self.objective)
        figures = tabulate(self.part, self.after)
        return Evidence(held_out, seen, budget=self.budget, basis=self.basis, figures=figures, max_drop=self.max_drop)


def _budget_of(patch: Patch) -> float:
    """Return the break rate that the patch was accepted within; the default if it does not say."""
    budget = _read_share(patch, "budget")
    return BREAK_BUDGET if budget is None else budget


def _read_share(patch: Patch, name: str) -> float | None:
    """Return a share that the patch's evidence holds; None if it holds none."""
    share = patch.evidence.get(name)
    if not isinstance(share, (int, float)) or isinstance(share, bool) or not 0 <= share <= 1:
        return None
    return float(share)


def measure(
    model: Any,
    data: Any,
    *,
    target: str | Sequence[str] | None = None,
    patch: Patch | str | Path | None = None,
    objective: str | Objective | None = None,
    task: str | Task | None = None,
    keep_as_is: Any = None,
) -> Evidence:
    """Measure the effect of a patch on a model, on some data.

    Args:
        model: The model without the patch.
        data: Whatever `read_data` takes; what the repair behind the patch has seen of it is measured by itself.
        target: The mistake; the patch's own when None, every mistake when there is no patch either.
        patch: The patch, or its file; None measures the model as it is.
        objective: What to tell about groups, such as `gap:sex`; the patch's own when None.
        task: How the outputs are read: the name of a task, or one; the patch's own when None.
        keep_as_is: Inputs without labels that should be read as before; whatever `read_unlabelled` takes.
    """
    backend = load(model)
    patch = Patch.load(patch) if isinstance(patch, (str, Path)) else patch
    part = part_of(backend, data, target, patch, as_task(task), keep_as_is)
    return measure_scores(backend, part, patch, objective).evidence


def measure_scores(
    backend: ModelBackend, part: Part, patch: Patch | None = None, objective: str | Objective | None = None
) -> Measured:
    """Run a patched model over a part that `part_of` made, and keep the scores that the evidence comes from.

    What the verdict comes from is run anew, where the part came from a kept pass.
    """
    wanted = make_objective(objective) if isinstance(objective, str) else objective
    wanted = None if wanted is None else objective_for_part(wanted, part)
    if patch is None:
        return Measured(part, part.outputs, objective=wanted)
    run = partial(_run_patched, backend, for_model(patch, backend))
    found = Measured.of(part, run, patch, partial(confirm_held_out, backend))
    return found if wanted is None else replace(found, objective=wanted)


def _run_patched(backend: ModelBackend, patch: Patch, part: Part) -> Array:
    """Return the raw outputs `(n, ...)` of a part with a patch that fits the model."""
    expected = predict_patched(backend, part, patch)
    if expected is None:
        return PatchedModel(backend, patch).forward(part.data.inputs)
    with patch.apply_temporarily(backend):
        return verify_scores(backend, part, expected)


def part_of(
    backend: ModelBackend,
    data: Any,
    target: str | Sequence[str] | None,
    patch: Patch | None = None,
    task: Task | None = None,
    keep_as_is: Any = None,
    run: RunModel | None = None,
    tell: Callable[[str], None] = lambda sentence: None,
) -> Part:
    """All of the data with the outputs of the model without the patch.

    Arguments as for `measure`, what runs the model, and what is told which target is meant where none is given.
    """
    task = task_from(patch.provenance) if task is None and patch is not None else task
    task = rule_in(target or (), task) or task
    labelled = read_data(data, task=task)
    if keep_as_is is not None:
        labelled, _ = attach_kept(labelled, None, read_unlabelled(keep_as_is))
    causes = CauseTargets(backend, None if patch is None else patch.provenance.get("causes"))
    if target is not None or patch is None:
        return whole_part(backend, labelled, "*:*" if target is None else target, causes=causes, run=run, task=task)
    try:
        wanted, rules = recorded_faults(patch.provenance)
        causes = CauseTargets(backend, rules)
        part = whole_part(backend, labelled, wanted or "*:*", causes=causes, run=run, task=task)
        tell(f"target: {', '.join(wanted) or '*:*'}, as the patch {'records' if wanted else 'records none'}")
    except (UsageError, InputError) as error:
        if "stack" not in patch.provenance:
            if isinstance(error, InputError):
                raise
            raise PatchError(f"the target of the patch does not fit: {error}") from error
        part = whole_part(backend, labelled, "*:*", run=run, task=task)
        tell(f"target: *:*, as the targets of the stacked patches do not fit ({error})")
    return part


def compare(
    model: Any, other: Any, data: Any, *, target: str | Sequence[str] = "*:*", task: str | Task | None = None
) -> Evidence:
    """Compare two models on some data, such as a model and its patched or converted copy.

    Args:
        model: The model before.
        other: The model after; any framework.
        data: Whatever `read_data` takes.
        target: The mistake the second model should make less often.
        task: How the outputs are read: the name of a task, or one; None decides by the outputs.
    """
    before, after = load(model), load(other)
    part = part_of(before, data, target, task=as_task(task))
    return Measured(part, after.forward(part.data.inputs)).evidence


def measure_survival(
    model: Any,
    data: Any,
    patch: Patch | str | Path,
    *,
    against: Any = None,
    quantise: str | None = None,
    target: str | Sequence[str] | None = None,
) -> Survival:
    """Does a repair survive export, conversion or quantisation?

    Args:
        model: The model the patch is for; for `quantise` its file.
        data: Whatever `read_data` takes; inputs the repair has seen are left out if others remain.
        patch: The patch, or its file.
        against: The model where it ends up, with the patch or without.
        quantise: `int8` or `fp16`, in place of `against`: a quantised copy of the model.
        target: The mistake; the patch's own when None.

    Raises:
        UsageError: Neither or both of `against` and `quantise` are given, or `quantise` without a file.
    """
    if (against is None) == (quantise is None):
        raise UsageError("a repair survives in another model or in a quantised copy: give one of the two")
    patch = Patch.load(patch) if isinstance(patch, (str, Path)) else patch
    backend = load(model)
    here = measure_scores(backend, part_of(backend, data, target or None, patch), patch)
    if quantise is not None:
        return survival_quantised(here, backend, patch, model, quantise)
    return survival_against(here, patch, against)


def survival_against(here: Measured, patch: Patch, against: Any) -> Survival:
    """Measure whether a repair survives in another model; `here` is its measurement in the model it is for."""
    where = str(against) if isinstance(against, (str, Path)) else "the other model"
    return _survival(here, where, *scores_there(patch, load(against)))


def survival_quantised(here: Measured, backend: ModelBackend, patch: Patch, file: Any, kind: str) -> Survival:
    """Does a repair survive in a quantised copy of the model's file?

    Args:
        here: What the patch does to the model it is for.
        backend: That model.
        patch: The patch.
        file: The model's file.
        kind: `int8` or `fp16`.

    Raises:
        UsageError: `file` is no path.
    """
    if not isinstance(file, (str, Path)):
        raise UsageError("only a model file can be quantised; give its path")
    with tempfile.TemporaryDirectory(prefix="arachne-") as folder:
        patched = Path(folder) / Path(file).name
        apply_to(patch, weight_file(file), patched, backend=name_for_file(file), reopen=weight_file)
        pair = backend.quantise(Path(file), kind), backend.quantise(patched, kind)
    return _survival(here, kind, *pair, f"both models were quantised to {kind}")


def flips(model: Any, inputs: Any, patch: Patch | str | Path, *, preprocess: str | None = None) -> Flips:
    """Which predictions does a patch change on inputs that nobody has labelled, such as real traffic?

    Args:
        model: The model without the patch.
        inputs: An array or a mapping of arrays, a folder of pictures or `.npy` files, an npz, npy, csv or parquet file;
            labels among them are left out.
        patch: The patch, or its file.
        preprocess: What to do with the inputs, as in `scale=1/255 layout=nchw`.

    Raises:
        UsageError: The patch's task has several decisions in an input.
    """
    backend = load(model)
    patch = Patch.load(patch) if isinstance(patch, (str, Path)) else patch
    task = task_from(patch.provenance) or SINGLE_LABEL
    if not task.ONE_LABEL:
        raise UsageError(
            f"flipped predictions are counted where each input has one label, and the patch's task is '{task.name}'; "
            "measure it on labelled inputs"
        )
    found = read_unlabelled(inputs, preprocess=preprocess).inputs
    before, after = backend.forward(found), PatchedModel(backend, for_model(patch, backend)).forward(found)
    if not task.SINGLE:
        labels = task.label_as_decided(before)
        before, after = task.read(before, labels).scores, task.read(after, labels).scores
    return Flips.measure(before, after)


def _survival(here: Measured, where: str, without: Scores | None, with_patch: Scores, note: str) -> Survival:
    """Compare a patch's effect here and elsewhere; without scores there, with the model here."""
    inputs = here.part.data.inputs
    part = here.part if without is None else replace(here.part, outputs=_run_scores(without, inputs))
    there = Measured(part, _run_scores(with_patch, inputs), here.basis)
    return Survival(
        where, here.evidence, there.evidence, count_still_repaired(here.part, here.after, there.after), note
    )


def _run_scores(run: Scores, inputs: Inputs) -> Array:
    """Scores by something that may take plain arrays only, as a quantised copy does."""
    return run(inputs) if is_plain(inputs) else join_rows([run(piece) for _, piece in read_shards(inputs)])
