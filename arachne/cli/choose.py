"""`arachne choose`: another point of a repair's front, without a new search."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import click

from arachne.cli.budgeting import (
    budget_from,
    choice_options,
    keep_option,
    never_break_option,
    report_nothing_within,
    sources_of,
    tell_never_break,
)
from arachne.cli.config import ConfiguredCommand, again
from arachne.cli.options import DataChoice, ModelChoice, model_options, optional_data_options, output_options
from arachne.cli.outputs import OUT_FOLDER, folder_for
from arachne.cli.plugin_flags import objective_flags, pop_objective
from arachne.cli.running import cache_option, keep_passes
from arachne.errors import InputError, UsageError

if TYPE_CHECKING:
    from arachne.choose.budget import Budget
    from arachne.cli.console import Output
    from arachne.fairness import Objective


@click.command(cls=ConfiguredCommand, short_help="Take another point of a repair's front, without a new search.")
@click.argument("folder", type=click.Path(path_type=Path))
@model_options
@optional_data_options
@click.option("--holdout", help="The held-out inputs of the repair, where they have moved.")
@choice_options
@never_break_option
@keep_option
@objective_flags
@click.option("-o", "--out", type=OUT_FOLDER, help="Folder for the new patch, model and result.")
@cache_option
@output_options
@click.pass_context
def command(
    context: click.Context,
    /,
    folder: Path,
    out: Path | None,
    holdout: str | None,
    never_break: str | None,
    keep_as_is: str | None,
    **arguments: Any,
) -> None:
    """Take another point of the front that `repair -o FOLDER` has kept; without -o, list the points.

    MODEL and data are those of the repair; give them again where they have moved, or lie outside the folder you are
    in. They are checked by their sha256.
    """
    from arachne.cli.console import Output

    output = Output()
    keep_passes(context, arguments)
    budget, (objective, _) = budget_from(arguments), pop_objective(arguments)
    if out is None:
        list_points(output, folder, budget, objective)
        return
    from arachne.report.terminal import EvidenceTable
    from arachne.results.reopen import open_repair, stored_front, stored_task

    front, earlier = stored_front(folder)
    model, data, others = chosen_sources(
        arguments, front.sources, holdout=holdout, never_break=never_break, keep_as_is=keep_as_is
    )
    with folder_for(out, model.file, data.data, *others.values()) as target:
        backend = model.load()
        task = stored_task(folder)
        read = {
            name: None if source is None else data.read(backend, source, task=task)
            for name, source in others.items()
            if name != "keep_as_is"
        }
        kept = data.read_kept(others["keep_as_is"])
        repaired = open_repair(folder, backend, data.read(backend, task=task), keep_as_is=kept, **read)
        wanted = budget or earlier.budget
        with report_nothing_within(output):
            result = repaired.choose(
                max_break=wanted.max_break,
                max_drop=wanted.max_drop,
                confidence=wanted.confidence,
                max_class_drop=wanted.max_class_drop,
                max_group_drop=wanted.max_group_drop,
                objective=objective,
            )
        sources = sources_of(model, data, **others)
        result = result.save(target or out, reopen=model.load, command=again(context), sources=sources)
    if result.choice is not None:
        output.say(f"{result.choice.rule}; {result.choice.why}")
    if result.patch.digest == repaired.patch.digest:
        output.say(f"it is the patch of '{folder}' again: of what was found, no other is taken within this budget")
    if result.split.never_break is not None:
        tell_never_break(output, result.split.never_break)
    for note in result.notes:
        output.say(f"note: {note}")
    output.result(EvidenceTable(result.evidence, result.patch, result.connection), result.to_json())
    output.tell_written(out)


def list_points(output: Output, folder: Path, budget: Budget | None, objective: Objective | None) -> None:
    """Show every point, and which one a budget would take; neither model nor data are needed."""
    from arachne.choose.select import select_point
    from arachne.data.grouping import with_column
    from arachne.report.front import FRONT_SCHEMA, FrontTable, choice_objects
    from arachne.results.reopen import stored_front

    front, choice = stored_front(folder)
    if objective is not None:
        known = None if choice.objective is None else choice.objective.group_column
        objective = replace(objective, group_column=objective.group_column or known)
        objective = with_column(objective, (), front.points[0].seen.baseline.columns)
    if budget is not None or objective is not None:
        wanted = objective or choice.objective
        choice = select_point(front.points, budget or choice.budget, front.class_names, wanted)
    output.result(
        FrontTable(front.points, choice), {"schema": FRONT_SCHEMA, **choice_objects(front.points, choice, None)}
    )


def chosen_sources(
    arguments: dict[str, Any], kept: Mapping[str, Any], **others: str | None
) -> tuple[ModelChoice, DataChoice, dict[str, str | None]]:
    """Model and data as the command line says, or else where the repair had them.

    Raises:
        UsageError: What the repair had is code, which runs only when the user names it again.
    """
    model = {name: arguments.pop(name) for name in ModelChoice.__dataclass_fields__}
    if model["model_file"] is None and model["factory"] is None:
        earlier = {name: value for name, value in _object(kept.get("model")).items() if value is not None}
        if earlier.get("factory"):
            raise UsageError(f"the model was made by '{earlier['factory']}'; give it again with --model and --weights")
        if not earlier.get("model_file"):
            raise UsageError("the repair does not tell which file its model came from; give MODEL behind the folder")
        if ":" in str(earlier["model_file"]) and not Path(str(earlier["model_file"])).exists():
            raise UsageError(f"the model was made by '{earlier['model_file']}'; give it again behind the folder")
        model |= {name: str(earlier[name]) for name in ("model_file", "backend", "device", "output") if name in earlier}
        model["model_file"] = plain_file(str(earlier["model_file"]), "model", "behind the folder")
        feeds = earlier.get("feeds")
        model["feeds"] = model["feeds"] or tuple(map(str, feeds if isinstance(feeds, (list, tuple)) else ()))
    data = {name: arguments.pop(name) for name in DataChoice.__dataclass_fields__}
    earlier = _object(kept.get("data"))
    if data["preprocess"] is None and ":" in str(earlier.get("preprocess") or ""):
        raise UsageError(f"the data was prepared by '{earlier['preprocess']}'; give it again with --preprocess")
    stored = {name: _text(earlier.get(name)) for name, value in data.items() if value is None}
    for name in ("data", "classes"):
        if stored.get(name) is not None and not (name == "classes" and "," in str(stored[name])):
            stored[name] = plain_file(str(stored[name]), name, f"with --{name}")
    data |= stored
    if data["data"] is None:
        raise UsageError("the repair does not tell which file its data came from; give it with --data")
    found = {}
    for name, source in others.items():
        known = _text(kept.get(name))
        if source is None and known is not None:
            source = plain_file(known, name.replace("_", "-"), f"with --{name.replace('_', '-')}")
        found[name] = source
    return ModelChoice.taken_from(model), DataChoice(**data), found


def plain_file(name: str, what: str, where: str) -> str:
    """A name that a folder of results tells, if it is plainly that of something in or below the working folder.

    Args:
        name: The name.
        what: What it should be, as the message calls it.
        where: How to give it again.

    Raises:
        InputError: It is absolute, leads outside or through a link, stands for several files, or is not there.
    """
    path = PurePath(name)
    leads_out = path.is_absolute() or path.drive or ".." in path.parts
    if leads_out or not path.parts or set("*?[]\0") & set(name) or ("," in name and not os.path.lexists(name)):
        raise InputError(
            f"the repair tells '{name}' as its {what}, and only a plain name in this folder is taken from it; "
            f"give it again {where}"
        )
    for parent in [Path(name), *Path(name).parents]:
        if os.path.islink(parent):
            raise InputError(f"the repair's {what} '{name}' leads through the link '{parent}'; give it again {where}")
    if not os.path.lexists(name):
        raise InputError(f"the repair's {what} '{name}' is not here; give it again {where}")
    return name


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
