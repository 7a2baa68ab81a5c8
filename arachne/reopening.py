"""A repair's folder opened again: the same model, the same data, and the front, ready for another choice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from arachne.backend import ModelBackend
from arachne.data.labelled import LabelledData
from arachne.data.resplit import split_by_rows
from arachne.errors import DataError, InputError, ModelError, UsageError
from arachne.evidence import doubtful_labels, measure
from arachne.files import read_object, sha256_of
from arachne.front_file import FRONT, PARTS, StoredFront, read_front
from arachne.localise import Localisation
from arachne.patch import Patch
from arachne.reading import foreign
from arachne.report.folder import PAGE_DATA, read_page
from arachne.result import RepairResult
from arachne.search.budget import Budget
from arachne.search.choose import Choice
from arachne.search.standing import found_by_search
from arachne.settings import Settings, objective_from
from arachne.suspects import Suspects

RESULT = "result.json"


def stored_result(folder: Path) -> dict[str, Any]:
    """What `result.json` of a repair's folder holds.

    Raises:
        InputError: The folder has none, or something else under its name.
    """
    found = read_object(folder / RESULT, "result")
    if found.get("command") != "repair":
        raise InputError(f"'{folder / RESULT}' is not the result of a repair")
    return found


def stored_front(folder: Path) -> tuple[StoredFront, Choice]:
    """The front of a repair's folder, and the choice that was made there.

    Raises:
        InputError: No result, or one without a front: it was repaired without a budget.
    """
    told = stored_result(folder)
    if not (folder / FRONT).exists():
        raise InputError(
            f"'{folder}' holds a repair without a budget, which leaves one patch and no front to choose from"
        )
    front = read_front(folder / FRONT)
    with _stored(folder):
        budgets, by = told.get("budgets", {}), told.get("chosen_by", {})
        objective = objective_from(told.get("provenance", {}))
        rule, why = str(by.get("rule", "")), str(by.get("why", ""))
        choice = Choice(front.search.chosen, Budget.from_json(budgets), rule, why, objective=objective)
    return front, choice


@contextmanager
def _stored(folder: Path) -> Iterator[None]:
    """Whatever does not fit in what a folder tells is the folder's fault, not that of the call."""
    try:
        with foreign(f"the repair in '{folder}'", InputError):
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
) -> RepairResult:
    """A saved repair with its front, as it was when it had been made.

    Args:
        folder: Where it was saved.
        backend: The original model.
        data: The data it was made with.
        holdout: The held-out data, if it had its own.
        never_break: The inputs that had to stay right, if there were any.

    Raises:
        InputError: The folder holds no repair with a front, or model or data are others than they were.
    """
    folder = Path(folder)
    told = stored_result(folder)
    front, choice = stored_front(folder)
    patch = Patch.load(folder / "patch.json")
    _check_model(backend, patch)
    given = {"data": data, "holdout": holdout, "never_break": never_break}
    for name, labelled in given.items():
        _check_data(name, labelled, patch.provenance.get(name))
    with _stored(folder):
        rows = {part: front.rows(part) for part in PARTS}
        targets = [str(target) for target in patch.provenance["target"]]
        split = split_by_rows(backend, data, targets, rows, holdout=holdout, never_break=never_break)
        split = replace(split, objective=choice.objective)
        addresses = max((candidate.addresses for candidate in front.search.front), key=len)
        where = told.get("localised", {})
        localisation = Localisation(
            str(where.get("method", "")),
            Suspects.of(backend, addresses),
            (),
            int(where.get("front", len(addresses))),
            int(where.get("candidates", len(addresses))),
        )
        alpha = float(told.get("provenance", {}).get("settings", {}).get("alpha", 10.0))
        settings = Settings(seed=int(told["seed"]), alpha=alpha, budget=choice.budget, objective=choice.objective)
        seconds = {str(step): float(took) for step, took in told.get("seconds", {}).items()}
    return RepairResult(
        backend=backend,
        split=split,
        localisation=localisation,
        search=front.search,
        patch=patch,
        evidence=measure(
            backend, patch, split, budget=choice.budget.max_break, patches_compared=found_by_search(front.points)
        ),
        settings=settings,
        seconds=seconds,
        doubtful=doubtful_labels(split.seen),
        points=front.points,
        choice=choice,
        kept=_kept(folder),
    )


def _kept(folder: Path) -> dict[str, Any]:
    """What the page shows of the localisation, which is not done again."""
    return {"localisation": read_page(folder).get("localisation")} if (folder / PAGE_DATA).is_file() else {}


def _check_model(backend: ModelBackend, patch: Patch) -> None:
    source = backend.describe().source
    if patch.base.sha256 is None or source is None or not Path(source).is_file():
        return  # an object: the patch itself checks the tensors it changes
    known = None if backend.pinned is None else backend.pinned.sha256(Path(source))
    now = known or sha256_of(source)
    if now != patch.base.sha256:
        raise ModelError(
            f"'{source}' is not the model that was repaired: its sha256 is {now}, expected {patch.base.sha256}"
        )


def _check_data(name: str, data: LabelledData | None, told: Any) -> None:
    what = {"data": "data", "holdout": "held-out data", "never_break": "never-break inputs"}[name]
    if told is None:
        if data is not None:
            raise DataError(f"the repair was made without {what} of its own")
        return
    if data is None:
        raise DataError(f"the repair had {what} ('{told['name']}'), which are needed to measure another point")
    now = data.sha256()
    if now != told["sha256"]:
        wanted = told["sha256"]
        raise DataError(
            f"'{data.source}' is not the {what} the repair was made with: its sha256 is {now}, expected {wanted}"
        )
