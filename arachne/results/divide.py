"""The first stage of a repair: run the model over the data once, split it, and settle what depends on the split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from arachne.causes import Experiment
from arachne.causes.targets import CauseTargets, try_targets
from arachne.choose.budget import Budget
from arachne.choose.select import explain_missing
from arachne.data.chance import check_accuracy
from arachne.data.class_order import check_class_order
from arachne.data.grouping import groups_by_column, with_objective
from arachne.data.health import examine
from arachne.data.keeping import without_labels
from arachne.data.labelled import LabelledData
from arachne.data.preflight import check_first
from arachne.data.run import RunModel, never_break_part, run_part
from arachne.data.split import Split, overlap, split_by_outcome
from arachne.data.training import check_training
from arachne.errors import DataError
from arachne.evidence import LabelNoise, find_label_noise
from arachne.evidence.gates import Gate
from arachne.localise.sparing import spare_layers
from arachne.model.backend import ModelBackend
from arachne.model.lazy import is_lazy
from arachne.model.memory import memory_faults, return_large_arrays
from arachne.model.sharding import SHARD
from arachne.model.values import Inputs, count, count_bytes
from arachne.results.kept_passes import run_or_find
from arachne.results.provenance import Sources
from arachne.results.run import Run
from arachne.scoring.outcome import Baseline
from arachne.scoring.tail_cache import run_and_keep
from arachne.search import Norms, Pool
from arachne.settings import Settings
from arachne.tasks import RuleTask, rule_in
from arachne.text import pluralise, size_text

MAX_COPIES = 200
"""The most planted copies of a cause that a search repairs. They help where few errors were seen; four times as many as
the errors themselves are more than they can stand for."""

MIN_SEARCH_MEMORY = 32 << 20
"""Bytes a search may always keep between candidates; with less, most of it is made again for every candidate."""


@dataclass(frozen=True, eq=False)
class Divided:
    """The data of a repair, split, with everything that was settled on the way.

    Attributes:
        split: The parts of the data.
        sources: Where they come from, with the training inputs that may be used.
        settings: The settings, with localiser, objective and task decided.
        doubtful: Negatives whose labels look wrong.
        experiments: Experiments with the causes that are to be repaired, by target.
    """

    split: Split
    sources: Sources
    settings: Settings
    doubtful: LabelNoise
    experiments: Mapping[str, Experiment]


def take_rule(
    settings: Settings, target: str | Sequence[str], data: LabelledData, holdout: LabelledData | None
) -> tuple[Settings, LabelledData, LabelledData | None]:
    """Take the task from a target that is a rule, which leaves the data without labels."""
    rule = rule_in(target, settings.task)
    if rule is None:
        return settings, data, holdout
    return replace(settings, task=rule), without_labels(data), None if holdout is None else without_labels(holdout)


def divide(
    run: Run,
    backend: ModelBackend,
    sources: Sources,
    settings: Settings,
    gates: Sequence[Gate] = (),
    on_doubtful: Callable[[LabelNoise], None] | None = None,
) -> Divided:
    """Split the data, and settle the localiser, the objective, the task and the copies of causes; see `repair`."""
    limit_memory(backend, sources.data.inputs, settings.memory, run.note)
    with memory_faults():
        check_first(backend, sources.data, sources.target, settings.task)
    split, sources, doubtful = split_data(run, backend, sources, settings)
    if split.seen.task.SINGLE:
        for gate in gates:
            gate.check_class(split.class_names)
    localiser, note = spare_layers(backend, split.seen, settings.known_localiser)
    if note is not None:
        run.note(note)
    if on_doubtful is not None and len(doubtful):
        on_doubtful(doubtful)
    experiments = try_cause_targets(run, backend, split)
    if isinstance(settings.searcher, Pool) and settings.searcher.copies:
        split = with_copies(run, backend, split, experiments)
    settings = replace(settings, localiser=localiser, objective=split.objective).with_task(split.seen.task)
    return Divided(split, sources, settings, doubtful, experiments)


def split_data(
    run: Run, backend: ModelBackend, sources: Sources, settings: Settings
) -> tuple[Split, Sources, LabelNoise]:
    """Run the model over the data once, and split it into seen, kept for choosing and held out.

    Returns:
        The split, the sources with the training inputs that may be used, and negatives whose labels look wrong.
    """
    single = settings.task is None or settings.task.SINGLE
    forward = partial(run_or_find, backend) if settings.searcher.LOOKS_AT_TAIL and single else None
    with run.stage("split"):
        work = partial(
            split_by_outcome,
            backend,
            sources.joined_data[0],
            sources.target,
            rng=run.rng,
            holdout=sources.joined_data[1],
            choose=settings.choose_share,
            drop_overlap=settings.drop_overlap,
            group_by=settings.group_by,
            causes=CauseTargets(backend),
            run=forward,
            task=settings.task,
        )
        split = run.fit_memory(backend, work)
        split = with_constraints(backend, split, settings.budget, sources.never_break, forward)
        split = with_objective(split, settings.objective)
        labelled = split.seen.labelled_part
        if not settings.accept_near_chance and labelled.task.NEEDS_LABELS:
            check_class_order(labelled)
            known = (labelled.labels, labelled.scores) if labelled.task.SINGLE else (None, None)
            health = examine(backend, labelled.data.inputs, *known)
            split = replace(split, health=health)
            if not (health.mendable and isinstance(settings.searcher, Norms)):
                check_accuracy(backend, labelled, raw=sources.raw, signs=health.sentences)
            for sentence in health.sentences:
                run.note(f"warning: {sentence}")
        tell_breaches(split, run.note)
        doubtful = find_label_noise(labelled)
        if sources.training is not None:
            training = check_training(backend, sources.training, split, drop_overlap=settings.drop_overlap)
            sources = replace(sources, training=training)
    return split, sources, doubtful


def tell_breaches(split: Split, tell: Callable[[str], None]) -> None:
    """Tell how many inputs to keep as they are break the rule that is to be kept, which holds the fault in place."""
    task = split.seen.task
    if not isinstance(task, RuleTask):
        return
    kept = [part.data.labels[part.data.kept] for part in split.parts if part.data.kept is not None]
    labels = np.concatenate(kept) if kept else np.zeros(0, np.int64)
    breaches = int((~np.isin(labels, task.allowed)).sum())
    if breaches:
        tell(
            f"note: {breaches:,} of {len(labels):,} inputs to keep as they are break the rule themselves, and are kept "
            "so; leave them out if the rule is for them too"
        )


def try_cause_targets(run: Run, backend: ModelBackend, split: Split) -> dict[str, Experiment]:
    """Try the causes to repair by experiment, on seen inputs only."""
    experiments = try_targets(backend, split.seen)
    for text, tried in experiments.items():
        run.note(f"{text}: {tried.sentence}")
    return experiments


def with_copies(run: Run, backend: ModelBackend, split: Split, experiments: Mapping[str, Experiment]) -> Split:
    """Add copies of right inputs that fail with a confirmed cause planted, for a search to repair too."""
    found = {}
    for target in split.targets:
        tried = experiments.get(target.text)
        if tried is None or tried.verdict != "confirmed" or tried.failing is None or not len(tried.failing.rows):
            continue
        taken = np.arange(min(len(tried.failing.rows), MAX_COPIES))
        part = run_part(backend, tried.failing.data.take(taken), partial(run_and_keep, backend), split.seen.task)
        found[target.text] = replace(part, rows=split.seen.rows[tried.failing.rows[taken]])
        run.note(
            f"{target.text}: {pluralise(len(part), 'planted copy', 'planted copies')} that fail will be repaired too"
        )
    return replace(split, copies=found)


def limit_memory(backend: ModelBackend, inputs: Inputs, allowed: int, tell: Callable[[str], None]) -> None:
    """Hold a model to the bytes that may be kept, and say at once where a repair takes more than these."""
    backend.memory = allowed
    if allowed < MIN_SEARCH_MEMORY:
        least = size_text(MIN_SEARCH_MEMORY)
        tell(f"memory: a search keeps up to {least} between candidates, more than the {size_text(allowed)} allowed")
    if is_lazy(inputs):
        return_large_arrays()
        rows = min(SHARD, count(inputs))
        size = count_bytes(inputs) * rows // max(1, count(inputs))
        if size > allowed:
            tell(
                f"memory: gradients are summed over {rows:,} inputs at a time, which take {size_text(size)}, more than "
                f"the {size_text(allowed)} allowed"
            )


def with_constraints(
    backend: ModelBackend,
    split: Split,
    budget: Budget | None,
    never_break: LabelledData | None,
    run: RunModel | None = None,
) -> Split:
    """Add the inputs that must stay right to a split, and refuse a budget that can never be kept.

    A search sees the never-break inputs, so those that are also kept for choosing are taken out there.

    Raises:
        UsageError: The budget names a class the model does not have, or a group that the data does not have.
        DataError: There are too few inputs for the guarantee it asks for, or none of `never_break` is right.
    """
    if never_break is not None:
        guarded = never_break_part(backend, never_break, run=run, task=split.seen.task)
        unseen = np.setdiff1d(np.arange(len(split.choose)), overlap(guarded.data, split.choose.data))
        split = replace(split, never_break=guarded, choose=split.choose.take(unseen))
    if budget is not None:
        budget.class_limits(split.class_names)
        budget.group_limits(groups_by_column(split.seen.data))
        missing = explain_missing(budget, Baseline.of(split.choose))
        if missing is not None:
            raise DataError(missing)
    return split
