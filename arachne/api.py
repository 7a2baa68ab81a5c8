"""The functions of `import arachne`: every command of the tool, for model files and model objects alike.

`arachne.localise` and `arachne.scoring` are packages, so the functions behind those two commands are called
`localise_weights` and `measure`. Those that only measure are in `arachne.results.measure`, those that only change
weights in `arachne.patch.commands`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from arachne import engine
from arachne.causes.targets import CauseTargets
from arachne.choose.budget import BREAK_BUDGET
from arachne.cluster.starting import on_cluster
from arachne.data.read import read_data
from arachne.data.run import whole_part
from arachne.data.unlabelled import read_unlabelled
from arachne.errors import NothingWithinBudgetError, UsageError
from arachne.evidence.scan import Scan
from arachne.localise import Localisation, Localiser
from arachne.model.backend import ModelBackend
from arachne.model.registry import load
from arachne.patch.commands import apply, diff, revert
from arachne.results import reopen as reopening
from arachne.results.checkpoint import Checkpoints
from arachne.results.result import RepairResult
from arachne.results.run import OnStep
from arachne.search import Searcher
from arachne.search.state import OnGeneration
from arachne.settings import Settings, as_task, localiser_for, make_settings
from arachne.tasks import Task, rule_in

if TYPE_CHECKING:
    from arachne.bench.compare import Tell
    from arachne.bench.result import Comparison

__all__ = [
    "apply",
    "at_home",
    "compare_searchers",
    "diff",
    "localise_weights",
    "open_repair",
    "repair",
    "revert",
    "scan",
]


def scan(model: Any, data: Any, *, task: str | Task | None = None) -> Scan:
    """Which mistakes does a model make, ranked, and what do they share?

    Args:
        model: A model file, a framework's model object, or a backend.
        data: Whatever `read_data` takes.
        task: How the outputs are read: the name of a task, or one; None decides by the outputs.
    """
    reading = as_task(task)
    return Scan.of(load(model, scores_suffice=True), read_data(data, task=reading), reading)


def localise_weights(
    model: Any,
    data: Any,
    target: str | Sequence[str],
    *,
    localiser: str | Localiser | None = None,
    seed: int = 0,
    task: str | Task | None = None,
) -> Localisation:
    """Which weights are behind a mistake? All of the data is looked at.

    Args:
        model: A model file, a framework's model object, or a backend.
        data: Whatever `read_data` takes.
        target: The mistake, such as `6:0`.
        localiser: `bl`, `gl`, `rs`, the name of a plug-in, or one of your own; when None `bl`, and `contrast` for other
            tasks than a single label.
        seed: What all randomness starts from.
        task: How the outputs are read: the name of a task, or one; None decides by the outputs.
    """
    backend, reading = load(model), as_task(task)
    part = whole_part(backend, read_data(data, task=reading), target, causes=CauseTargets(backend), task=reading)
    chosen = localiser_for(part.task, localiser)
    return chosen.localise(backend, part, rng=np.random.default_rng(seed))


def repair(
    model: Any,
    data: Any,
    target: str | Sequence[str],
    *,
    settings: Settings | None = None,
    faithful: bool = False,
    holdout: Any = None,
    never_break: Any = None,
    keep_as_is: Any = None,
    training: Any = None,
    on_step: OnStep | None = None,
    on_generation: OnGeneration | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    workers: int | None = None,
    cluster: Any = None,
    **changes: Any,
) -> RepairResult:
    """Find a patch for a mistake, and measure it on inputs the search never saw.

    Args:
        model: A model file, a framework's model object, or a backend; it is left as it was.
        data: Whatever `read_data` takes; inputs the model was not trained on.
        target: The mistake, such as `6:0`, `cat:*` or `top:1`; several are repaired at once. A rule such as `rule:not
            2,3,4` stands alone, and its data needs no labels.
        settings: How to repair; `faithful` and the keywords below are the short way to make them.
        faithful: The paper to the letter.
        holdout: Other data for the verdict; half of `data` when None.
        never_break: Inputs that must stay right; whatever `read_data` takes.
        keep_as_is: Inputs without labels that the model should go on reading as it does; whatever `read_unlabelled`
            takes. They count as inputs that are right.
        training: What the model was trained on, for searchers that retrain it; whatever `read_data` takes.
        on_step: Called with the name of each step as it begins.
        on_generation: Called after each generation of the search.
        checkpoint: A folder that keeps what the search has reached, so that a run which ends early can go on.
        resume: Whether to go on from what is in that folder, if anything is.
        workers: How many processes of this machine share the inputs; the patch is the same bytes with any number.
        cluster: The dask cluster that shares them instead: a `Client`, a scheduler's address, or the file it writes.
        **changes: Any attribute of `Settings`: `seed`, `alpha`, `localiser` and `searcher` (also by their names, such
            as `gl` and `de`), `task` (by its name, such as `multilabel`, or one of `arachne.tasks`), `objective`
            (`gap`, or `gap:sex` for a metadata column), `time_limit` in seconds, ...; and of `Budget`: `max_break`,
            `max_drop`, `confidence`, `max_class_drop`, `max_group_drop`.

    Returns:
        The patch, the evidence, and the patched model.

    Raises:
        NothingWithinBudgetError: No candidate keeps the budget; the message describes the best beyond it.
        CheckpointError: The folder holds checkpoints of another repair, of one that was not to be resumed, or damaged
            ones.
    """
    if resume and checkpoint is None:
        raise UsageError("a repair is resumed from its checkpoint: name its folder as checkpoint")
    settings = make_settings(settings, faithful=faithful, **changes)
    settings = replace(settings, task=rule_in(target, settings.task) or settings.task)
    backend = load(model)
    others = {"holdout": holdout, "never_break": never_break, "training": training}
    read = {
        name: None if source is None else read_data(source, memory=settings.memory, task=settings.task)
        for name, source in others.items()
    }
    with on_cluster(backend, workers=workers, cluster=cluster, tell=_inform) as shared, at_home(backend):
        result = engine.repair(
            shared,
            read_data(data, memory=settings.memory, task=settings.task),
            target,
            settings=settings,
            holdout=read["holdout"],
            never_break=read["never_break"],
            keep_as_is=None if keep_as_is is None else read_unlabelled(keep_as_is, memory=settings.memory),
            training=read["training"],
            on_step=on_step,
            on_generation=on_generation,
            checkpoint=None if checkpoint is None else Checkpoints(checkpoint, resume=resume, tell=_warn),
        )
    return replace(result, backend=backend)


def compare_searchers(
    model: Any,
    data: Any,
    target: str | Sequence[str],
    *,
    searchers: Sequence[str | Searcher] | None = None,
    max_break: float = BREAK_BUDGET,
    localiser: str | Localiser | None = None,
    holdout: Any = None,
    training: Any = None,
    tell: Tell | None = None,
    workers: int | None = None,
    cluster: Any = None,
    **changes: Any,
) -> Comparison:
    """Repair one mistake with every searcher, and measure all of them on the same held-out inputs.

    A searcher that cannot run on this model, fails, or finds nothing within the budget gets a row that says so.

    Args:
        model: A model file, a framework's model object, or a backend; it is left as it was.
        data: Whatever `read_data` takes; inputs the model was not trained on.
        target: The mistake, such as `6:0`.
        searchers: Names or objects; when None all of Arachne's own, those that retrain the model only where
            `training` is given.
        max_break: The largest share of inputs that were right and may become wrong.
        localiser: Finds the suspects for all searchers; when None, each uses its own default.
        holdout: Other data for the verdict; half of `data` when None.
        training: The data the model was trained on, for searchers that retrain it.
        tell: Called with each progress line.
        workers: How many local processes share the inputs; the patches are the same with any number.
        cluster: A dask cluster that shares the inputs instead, as for `arachne.repair`.
        **changes: Other attributes of `Settings`, such as `seed`; `alpha` goes to the searchers that use it.

    Raises:
        NothingToRepairError: The model does not make this mistake.
    """
    from arachne.bench.compare import Bench

    task = as_task(changes.get("task"))
    other, trained_on = (None if source is None else read_data(source, task=task) for source in (holdout, training))
    backend, labelled = load(model), read_data(data, task=task)
    with on_cluster(backend, workers=workers, cluster=cluster, tell=tell) as shared:
        bench = Bench(engine.repair, shared, labelled, target, other, trained_on, tell)
        return bench.compare(searchers, max_break=max_break, localiser=localiser, home=backend, **changes)


@contextmanager
def at_home(backend: ModelBackend) -> Iterator[None]:
    """Give a result that an error carries the model of this process; its cluster may be gone when it is looked at."""
    try:
        yield
    except NothingWithinBudgetError as error:
        if error.result is not None:
            error.result = replace(error.result, backend=backend)
        raise


def open_repair(
    folder: str | Path, model: Any, data: Any, *, holdout: Any = None, never_break: Any = None, keep_as_is: Any = None
) -> RepairResult:
    """A repair that was saved with its front, so that another point of it can be chosen.

    Args:
        folder: Where it was saved.
        model: The original model: a file, a framework's model object, or a backend.
        data: The data it was made with; whatever `read_data` takes.
        holdout: The held-out data, if it had its own.
        never_break: The inputs that had to stay right, if there were any.
        keep_as_is: The inputs without labels that had to be read as before, if there were any.

    Raises:
        InputError: The folder holds no repair with a front, or model or data are others than they were.
    """
    more = {"holdout": holdout, "never_break": never_break}
    task = reopening.stored_task(Path(folder))
    read = {name: None if source is None else read_data(source, task=task) for name, source in more.items()}
    kept = None if keep_as_is is None else read_unlabelled(keep_as_is)
    return reopening.open_repair(folder, load(model), read_data(data, task=task), keep_as_is=kept, **read)


def _warn(text: str) -> None:
    logging.getLogger("arachne").warning(text)


def _inform(text: str) -> None:
    logging.getLogger("arachne").log(logging.WARNING if text.startswith("warning") else logging.INFO, text)
