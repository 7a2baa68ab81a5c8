"""What `import arachne` offers: every command of the tool as a function, for model files and model objects alike.

`arachne.localise` and `arachne.evaluate` are packages, so the functions behind those two commands are called
`localise_weights` and `measure`; all that only measures is in `measuring.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from arachne import engine, reopening
from arachne.backend import ModelBackend
from arachne.causes.targets import CauseTargets
from arachne.checkpoint import Checkpoints
from arachne.cluster.starting import on_cluster
from arachne.data.readers import read_data
from arachne.data.split import checked_scores, whole_part, with_model_names
from arachne.engine import OnStep
from arachne.errors import InputError, NothingWithinBudgetError, UsageError
from arachne.evidence.scan import Scan
from arachne.localise import Localisation, Localiser
from arachne.patch import AppliedPatch, Patch, apply_to, for_model, revert_from
from arachne.patch import diff as files_diff
from arachne.patch.memory import base_of
from arachne.plugins import LOCALISERS
from arachne.registry import load, name_for_file, weight_file
from arachne.result import RepairResult
from arachne.search.state import OnGeneration
from arachne.settings import Settings, make_settings


def scan(model: Any, data: Any) -> Scan:
    """Which mistakes does a model make, ranked, and what do they share?

    Args:
        model: A model file, a framework's model object, or a backend.
        data: Whatever `read_data` takes.
    """
    backend = load(model)
    labelled = with_model_names(backend, read_data(data))
    scores = checked_scores(backend, labelled)
    return Scan(labelled, np.argmax(scores, axis=1), scores.shape[1], backend, scores)


def localise_weights(
    model: Any, data: Any, target: str | Sequence[str], *, localiser: str | Localiser = "bl", seed: int = 0
) -> Localisation:
    """Which weights are behind a mistake? All of the data is looked at.

    Args:
        model: A model file, a framework's model object, or a backend.
        data: Whatever `read_data` takes.
        target: The mistake, such as `6:0`.
        localiser: `bl`, `gl`, `rs`, the name of a plug-in, or one of your own.
        seed: What all randomness starts from.
    """
    backend = load(model)
    chosen = LOCALISERS.get(localiser)() if isinstance(localiser, str) else localiser
    part = whole_part(backend, read_data(data), target, causes=CauseTargets(backend))
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
        target: The mistake, such as `6:0`, `cat:*` or `top:1`; several are repaired at once.
        settings: How to repair; `faithful` and the keywords below are the short way to make them.
        faithful: The paper to the letter.
        holdout: Other data for the verdict; half of `data` when None.
        never_break: Inputs that must stay right; whatever `read_data` takes.
        training: What the model was trained on, for searchers that retrain it; whatever `read_data` takes.
        on_step: Called with the name of each step as it begins.
        on_generation: Called after each generation of the search.
        checkpoint: A folder that keeps what the search has reached, so that a run which ends early can go on.
        resume: Whether to go on from what is in that folder, if anything is.
        workers: How many processes of this machine share the inputs; the patch is the same bytes with any number.
        cluster: The dask cluster that shares them instead: a `Client`, a scheduler's address, or the file it writes.
        **changes: Any attribute of `Settings`: `seed`, `alpha`, `localiser` and `searcher` (also by their names, such
            as `gl` and `de`), `objective` (`gap`, or `gap:sex` for a metadata column), `time_limit` in seconds, ...;
            and of `Budget`: `max_break`, `confidence`, `max_class_drop`, `max_group_drop`.

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
    backend = load(model)
    with on_cluster(backend, workers=workers, cluster=cluster, tell=_inform) as shared, at_home(backend):
        result = engine.repair(
            shared,
            read_data(data, memory=settings.memory),
            target,
            settings=settings,
            holdout=None if holdout is None else read_data(holdout, memory=settings.memory),
            never_break=None if never_break is None else read_data(never_break, memory=settings.memory),
            training=None if training is None else read_data(training, memory=settings.memory),
            on_step=on_step,
            on_generation=on_generation,
            checkpoint=None if checkpoint is None else Checkpoints(checkpoint, resume=resume, tell=_warn),
        )
    return replace(result, backend=backend)


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
    folder: str | Path, model: Any, data: Any, *, holdout: Any = None, never_break: Any = None
) -> RepairResult:
    """A repair that was saved with its front, so that another point of it can be chosen.

    Args:
        folder: Where it was saved.
        model: The original model: a file, a framework's model object, or a backend.
        data: The data it was made with; whatever `read_data` takes.
        holdout: The held-out data, if it had its own.
        never_break: The inputs that had to stay right, if there were any.

    Raises:
        InputError: The folder holds no repair with a front, or model or data are others than they were.
    """
    more = {"holdout": holdout, "never_break": never_break}
    read = {name: None if source is None else read_data(source) for name, source in more.items()}
    return reopening.open_repair(folder, load(model), read_data(data), **read)


def apply(
    patch: Patch | str | Path,
    model: Any,
    output: str | Path | None = None,
    *,
    mapping: Mapping[str, str] | None = None,
    check: Callable[[Path], None] | None = None,
    named: bool = False,
) -> AppliedPatch | None:
    """Put a patch into a model: a file is copied to `output`, a model object is changed in place.

    Args:
        patch: The patch, or its file.
        model: The model it was made for, or the same one in another framework.
        output: Where the patched copy of a file goes.
        mapping: Which layer of the model is meant, by the patch's layer, where content does not tell.
        check: Called with the finished copy of a file before it is put into its place, which an error prevents.
        named: Whether the copy of a file notes in its metadata which patch it carries; ONNX files can.

    Raises:
        PatchError: The patch was made for another model; nothing is changed or written.
        ModelError: The copy is to note the patch, and its format has no place for that.
    """
    patch = Patch.load(patch) if isinstance(patch, (str, Path)) else patch
    if not isinstance(model, (str, Path)):
        backend = load(model)
        for_model(patch, backend, mapping=mapping).apply(backend)
        return None
    name, target = name_for_file(model), _given(output, model)
    file = weight_file(model)
    return apply_to(patch, file, target, backend=name, mapping=mapping, reopen=weight_file, check=check, named=named)


def revert(
    patch: Patch | str | Path,
    model: Any,
    output: str | Path | None = None,
    *,
    mapping: Mapping[str, str] | None = None,
) -> AppliedPatch | None:
    """Take a patch out of a model again, bit for bit: a file is copied to `output`, an object changed in place.

    Arguments as for `apply`.

    Raises:
        PatchError: The model does not carry the patch; nothing is changed or written.
    """
    patch = Patch.load(patch) if isinstance(patch, (str, Path)) else patch
    if not isinstance(model, (str, Path)):
        backend = load(model)
        for_model(patch, backend, mapping=mapping, reverting=True).revert(backend)
        return None
    name, target = name_for_file(model), _given(output, model)
    return revert_from(patch, weight_file(model), target, backend=name, mapping=mapping, reopen=weight_file)


def diff(first: str | Path, second: str | Path, *, mapping: Mapping[str, str] | None = None) -> Patch:
    """The patch that gives the model in one file the weights of that in another, perhaps of another framework.

    Raises:
        PatchError: They are not two models of one network, or layers cannot be told apart.
    """
    files = weight_file(first), weight_file(second)
    return files_diff(*files, mapping=mapping, backend=name_for_file(first), content=_content(first))


def _content(path: str | Path) -> str | None:
    """The tensors of a model file in one number, as a repair of it would say; None where the file needs code."""
    try:
        return base_of(load(path)).content
    except InputError:
        return None


def _warn(text: str) -> None:
    logging.getLogger("arachne").warning(text)


def _inform(text: str) -> None:
    logging.getLogger("arachne").log(logging.WARNING if text.startswith("warning") else logging.INFO, text)


def _given(output: str | Path | None, model: str | Path) -> Path:
    if output is None:
        raise UsageError("a model file is never changed: give the path the changed copy goes to")
    endings = [Path(path).suffix.lower().replace(".pth", ".pt") for path in (model, output)]
    if endings[0] != endings[1] and not Path(output).is_dir():
        raise UsageError(f"a copy is of the same kind as the model: its name must end in {endings[0]}, got '{output}'")
    return Path(output)
