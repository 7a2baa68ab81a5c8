"""`arachne choose`: another point of a repair's front, without a new search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arachne.cli.budgeting import (
    budget_from,
    choice_options,
    never_break_option,
    nothing_within_told,
    sources_of,
    tell_never_break,
)
from arachne.cli.config import ConfiguredCommand, again
from arachne.cli.options import DataChoice, ModelChoice, model_options, optional_data_options, output_options
from arachne.cli.outputs import OUT_FOLDER, folder_for
from arachne.cli.plugin_flags import objective_flags, taken_objective
from arachne.errors import UsageError

if TYPE_CHECKING:
    from arachne.cli.console import Output
    from arachne.fairness import Objective
    from arachne.search.budget import Budget


@click.command(cls=ConfiguredCommand, short_help="Take another point of a repair's front, without a new search.")
@click.argument("folder", type=click.Path(path_type=Path))
@model_options
@optional_data_options
@click.option("--holdout", help="The held-out inputs of the repair, where they have moved.")
@choice_options
@never_break_option
@objective_flags
@click.option("-o", "--out", type=OUT_FOLDER, help="Folder for the new patch, model and result.")
@output_options
@click.pass_context
def command(
    context: click.Context,
    /,
    folder: Path,
    out: Path | None,
    holdout: str | None,
    never_break: str | None,
    as_json: bool,
    quiet: bool,
    debug: bool,
    **arguments: Any,
) -> None:
    """Take another point of the front that `repair -o FOLDER` has kept; without -o, list the points.

    MODEL and data are those of the repair; give them again only where they have moved. They are checked by their
    sha256.
    """
    from arachne.cli.console import Output

    output = Output(as_json=as_json, quiet=quiet)
    budget, objective = budget_from(arguments), taken_objective(context, arguments)
    if out is None:
        list_points(output, folder, budget, objective)
        return
    from arachne.reopening import open_repair, stored_front
    from arachne.report.terminal import EvidenceTable

    front, earlier = stored_front(folder)
    model, data, others = chosen_sources(arguments, front.sources, holdout=holdout, never_break=never_break)
    with folder_for(out, model.file, data.data, *others.values()) as place:
        backend = model.load()
        read = {name: None if source is None else data.read(backend, source) for name, source in others.items()}
        repaired = open_repair(folder, backend, data.read(backend), **read)
        wanted = budget or earlier.budget
        with nothing_within_told(output):
            result = repaired.choose(
                max_break=wanted.max_break,
                confidence=wanted.confidence,
                max_class_drop=wanted.max_class_drop,
                max_group_drop=wanted.max_group_drop,
                objective=objective,
            )
        sources = sources_of(model, data, **others)
        result = result.save(place or out, reopen=model.load, command=again(context), sources=sources)
    if result.choice is not None:
        output.say(f"{result.choice.rule}; {result.choice.why}")
    if result.split.never_break is not None:
        tell_never_break(output, result.split.never_break)
    output.result(EvidenceTable(result.evidence, result.patch), result.to_json())
    output.say(f"wrote {', '.join(sorted(path.name for path in out.iterdir()))} to '{out}'")


def list_points(output: Output, folder: Path, budget: Budget | None, objective: Objective | None) -> None:
    """Show every point, and which one a budget would take; neither model nor data are needed."""
    from arachne.data.grouping import with_column
    from arachne.reopening import stored_front
    from arachne.report.front import FRONT_SCHEMA, FrontTable, choice_objects
    from arachne.search.choose import choose

    front, choice = stored_front(folder)
    if objective is not None:
        known = None if choice.objective is None else choice.objective.group_column
        objective = replace(objective, group_column=objective.group_column or known)
        objective = with_column(objective, (), front.points[0].seen.baseline.columns)
    if budget is not None or objective is not None:
        wanted = objective or choice.objective
        choice = choose(front.points, budget or choice.budget, front.class_names, wanted)
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
        feeds = earlier.get("feeds")
        model["feeds"] = model["feeds"] or tuple(map(str, feeds if isinstance(feeds, (list, tuple)) else ()))
    data = {name: arguments.pop(name) for name in DataChoice.__dataclass_fields__}
    earlier = _object(kept.get("data"))
    if data["preprocess"] is None and ":" in str(earlier.get("preprocess") or ""):
        raise UsageError(f"the data was prepared by '{earlier['preprocess']}'; give it again with --preprocess")
    data = {name: _text(earlier.get(name)) if value is None else value for name, value in data.items()}
    if data["data"] is None:
        raise UsageError("the repair does not tell which file its data came from; give it with --data")
    found = {name: source if source is not None else _text(kept.get(name)) for name, source in others.items()}
    return ModelChoice.taken_from(model), DataChoice(**data), found


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
