"""Open a repair's folder again, with its model, data and front, to choose another point."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from arachne.causes.targets import CauseTargets
from arachne.choose.budget import Budget, Choice
from arachne.data.keeping import attach_kept
from arachne.data.labelled import LabelledData, number_alike
from arachne.data.resplit import split_by_rows
from arachne.errors import DataError, InputError, ModelError, UsageError
from arachne.evidence import find_label_noise, measure
from arachne.io.files import sha256_of
from arachne.io.readers import check_no_link, read_object
from arachne.io.reading import parse_errors_as
from arachne.localise import Localisation
from arachne.model.backend import ModelBackend
from arachne.patch import Patch
from arachne.report.folder import PAGE_DATA, page_again, read_page
from arachne.results.finalise import with_limits
from arachne.results.front_file import FRONT, PARTS, StoredFront, read_front
from arachne.results.kept_passes import confirm_held_out, run_or_find
from arachne.results.result import RepairResult
from arachne.search.measured import count_found
from arachne.settings import Settings, objective_from, task_from
from arachne.tasks import Task

RESULT = "result.json"


def stored_result(folder: Path) -> dict[str, Any]:
    """Read `result.json` from a repair's folder.

    Raises:
        InputError: The folder has none, or something else under its name.
    """
    found = read_object(folder / RESULT, "result")
    if found.get("command") != "repair":
        raise InputError(f"'{folder / RESULT}' is not the result of a repair")
    return found


def stored_task(folder: Path) -> Task | None:
    """The task of the repair in a folder; None if it is the default one.

    Raises:
        InputError: The folder holds no repair, or its task is not installed here.
    """
    with _folder_errors(folder):
        return task_from(stored_result(folder).get("provenance", {}))


def stored_front(folder: Path) -> tuple[StoredFront, Choice]:
    """The front of a repair's folder, and the choice that was made there.

    Raises:
        InputError: No result, or one without a front: it was repaired without a budget.
    """
    stored = stored_result(folder)
    if not (folder / FRONT).exists():
        raise InputError(
            f"'{folder}' holds a repair without a budget, which leaves one patch and no front to choose from"
        )
    front = read_front(check_no_link(folder / FRONT, "front"))
    with _folder_errors(folder):
        budgets, by = stored.get("budgets", {}), stored.get("chosen_by", {})
        objective = objective_from(stored.get("provenance", {}))
        rule, why = str(by.get("rule", "")), str(by.get("why", ""))
        choice = Choice(front.search.chosen, Budget.from_json(budgets), rule, why, objective=objective)
    return front, choice


@contextmanager
def _folder_errors(folder: Path) -> Iterator[None]:
    """Blame errors in the block on the folder's content, not on the call."""
    try:
        with parse_errors_as(f"the repair in '{folder}'", InputError):
            yield
    except UsageError as error:
        raise InputError(f"the repair in '{folder}' does not fit: {error}") from error


def open_repair(
    folder: str | Path,
    backend: ModelBackend,
    data: LabelledData,
    *,
    holdout: LabelledData | None = None,
    never_break: LabelledData | None = None,
    keep_as_is: LabelledData | None = None,
) -> RepairResult:
    """A saved repair with its front, as it was when it had been made.

    Args:
        folder: Where it was saved.
        backend: The original model.
        data: The data it was made with.
        holdout: The held-out data, if it had its own.
        never_break: The inputs that had to stay right, if there were any.
        keep_as_is: The inputs without labels that had to be read as before, if there were any.

    Raises:
        InputError: The folder holds no repair with a front, or model or data are others than they were.
    """
    folder = Path(folder)
    stored = stored_result(folder)
    front, choice = stored_front(folder)
    check_no_link(folder / "patch.safetensors", "values of the patch")
    patch = Patch.load(check_no_link(folder / "patch.json", "patch"))
    _check_model(backend, patch)
    holdout, never_break = number_alike(data, holdout), number_alike(data, never_break)
    given = {"data": data, "holdout": holdout, "never_break": never_break, "keep_as_is": keep_as_is}
    for name, labelled in given.items():
        _check_data(name, labelled, patch.provenance.get(name))
    data, holdout = attach_kept(data, holdout, keep_as_is)
    with _folder_errors(folder):
        rows = {part: front.rows(part) for part in PARTS}
        targets = [str(target) for target in patch.provenance["target"]]
        causes, task = CauseTargets(backend, patch.provenance.get("causes")), task_from(patch.provenance)
        others = {"holdout": holdout, "never_break": never_break}
        run = partial(run_or_find, backend) if task is None or task.SINGLE else None
        split = split_by_rows(backend, data, targets, rows, **others, causes=causes, task=task, run=run)
        held_out = confirm_held_out(backend, split.held_out)
        split = replace(split, objective=choice.objective, held_out=held_out)
        front = front.read(backend)
        selection = max((candidate.selection for candidate in front.search.front), key=len)
        where = stored.get("localised", {})
        localisation = Localisation(
            str(where.get("method", "")),
            selection,
            (),
            int(where.get("front", len(selection))),
            int(where.get("candidates", len(selection))),
        )
        settings = Settings(
            seed=int(stored["seed"]), budget=choice.budget, objective=choice.objective, task=split.seen.task
        )
        seconds = {str(step): float(took) for step, took in stored.get("seconds", {}).items()}
    return RepairResult(
        backend=backend,
        split=split,
        localisation=localisation,
        search=front.search,
        patch=patch,
        evidence=with_limits(
            measure(backend, patch, split, budget=choice.budget.max_break, patches_compared=count_found(front.points)),
            choice.budget,
            split,
        ),
        settings=settings,
        seconds=seconds,
        doubtful=find_label_noise(split.seen),
        points=front.points,
        choice=choice,
        kept=_page_localisation(folder),
    )


def _page_localisation(folder: Path) -> dict[str, Any]:
    """The localisation from the folder's page, which is not computed again; empty if the page cannot be drawn."""
    if not (folder / PAGE_DATA).is_file():
        return {}
    try:
        page_again(folder)
    except InputError:
        return {}
    return {"localisation": read_page(folder).get("localisation")}


def _check_model(backend: ModelBackend, patch: Patch) -> None:
    source = backend.describe().source
    if patch.base.sha256 is None or source is None or not Path(source).is_file():
        return  # an object: the patch itself checks the tensors it changes
    known = None if backend.file_identity is None else backend.file_identity.sha256(Path(source))
    now = known or sha256_of(source)
    if now != patch.base.sha256:
        raise ModelError(
            f"'{source}' is not the model that was repaired: its sha256 is {now}, expected {patch.base.sha256}"
        )


def _check_data(name: str, data: LabelledData | None, recorded: Any) -> None:
    what = {
        "data": "data",
        "holdout": "held-out data",
        "never_break": "never-break inputs",
        "keep_as_is": "inputs to keep as they are",
    }[name]
    if recorded is None:
        if data is not None:
            raise DataError(f"the repair was made without {what} of its own")
        return
    if data is None:
        raise DataError(f"the repair had {what} ('{recorded['name']}'), which are needed to measure another point")
    now = data.sha256()
    if now != recorded["sha256"]:
        wanted = recorded["sha256"]
        raise DataError(
            f"'{data.source}' is not the {what} the repair was made with: its sha256 is {now}, expected {wanted}"
        )
