"""`arachne compare`: every searcher side by side on one mistake, on inputs that none of them saw."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arachne.cli.border import PluginName, harmless_option
from arachne.cli.caching import cache_option, keep_passes
from arachne.cli.clustering import ClusterChoice, cluster_options
from arachne.cli.config import ConfiguredCommand, again, going_on
from arachne.cli.options import (
    SHARE,
    DataChoice,
    ModelChoice,
    data_options,
    model_options,
    output_options,
    target_option,
)
from arachne.cli.outputs import OUT_FOLDER, folder_for, is_resuming, resume_option
from arachne.cli.plugin_flags import plugin_option
from arachne.cli.plugin_options import Chosen, given_options
from arachne.cli.task_flags import TaskChoice, task_options
from arachne.plugins.table import LOCALISERS, SEARCHERS, TASKS

if TYPE_CHECKING:
    from arachne.localise import Localiser
    from arachne.search import Searcher
    from arachne.tasks import Task


@click.command(cls=ConfiguredCommand, short_help="Compare searchers on one mistake.")
@model_options
@data_options
@task_options
@target_option
@click.option("-o", "--out", type=OUT_FOLDER, help="Folder for the page and compare.json.")
@resume_option
@harmless_option("--search", "searchers", type=PluginName(SEARCHERS), multiple=True, metavar="NAME",
              help=f"A searcher: {', '.join(SEARCHERS.names())}. Repeatable; quick ones when left out.")  # fmt: skip
@harmless_option("--localiser", type=PluginName(LOCALISERS), metavar="NAME",
              help=f"For all: {', '.join(LOCALISERS.names())}; contrast, bl for de, when left out.")  # fmt: skip
@harmless_option("--max-break", type=SHARE, default="0.5%", show_default=True,
              help="Break at most this share of what is right: 0.5% or 0.005.")  # fmt: skip
@click.option("--holdout", help="Other labelled inputs for the verdict; half of --data when left out.")
@click.option(
    "--training", metavar="SOURCE", help="What MODEL was trained on, read as --data is: adds those that retrain."
)
@click.option("--drop-overlap", is_flag=True, help="Drop held-out inputs that are also in --data instead of refusing.")
@click.option("--group-by", metavar="COLUMN", help="Keep inputs with the same value on one side of the split.")
@harmless_option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Same seed, same split and patches."
)
@harmless_option(
    "--alpha",
    type=float,
    show_default="10",
    help="What a negative counts against a positive, for searches that use it.",
)
@click.option("--accept-near-chance", is_flag=True, help="Go on although the model is hardly better than guessing.")
@plugin_option("searcher", "localiser", "task")
@cluster_options
@cache_option
@output_options
@click.pass_context
def command(
    context: click.Context,
    /,
    as_json: bool,
    quiet: bool,
    debug: bool,
    targets: tuple[str, ...],
    out: Path | None,
    searchers: tuple[str, ...],
    max_break: float,
    holdout: str | None,
    training: str | None,
    **arguments: Any,
) -> None:
    """Repair a mistake of MODEL with several searchers and show them side by side, on inputs that none of them saw.

    Those that take seconds run by themselves, slower ones when --search names them. All have the same split, seed and
    budget. One that fails, or finds nothing within the budget, has a row saying so.
    """
    from arachne import engine
    from arachne.bench.checkpoints import BenchCheckpoints
    from arachne.bench.compare import Bench, usual_searchers
    from arachne.cli.console import Output
    from arachne.cli.signals import Stopping
    from arachne.report.comparison import ComparisonTable
    from arachne.tasks import rule_in

    output = Output(as_json=as_json, quiet=quiet)
    model, data = ModelChoice.taken_from(arguments), DataChoice.taken_from(arguments)
    machines = ClusterChoice.taken_from(arguments)
    keep_passes(context, arguments)
    chosen, localiser, task = _make_chosen(searchers or usual_searchers(training is not None), arguments)
    task = rule_in(targets, task) or task
    if arguments["alpha"] is None:
        del arguments["alpha"]
    stopping = context.with_resource(Stopping(output.say, lambda: going_on(context)))
    with folder_for(out, model.file, data.data, holdout, training) as folder:
        checkpoints = (
            None if folder is None else BenchCheckpoints(folder.checkpoints, resume=is_resuming(), tell=output.say)
        )
        with stopping.keeping(checkpoints):
            backend = model.load()
            bench = Bench(
                engine.repair,
                machines.share(context, backend, output),
                data.read(backend, task=task, tell=output.say),
                targets,
                holdout=None if holdout is None else data.read(backend, holdout, task=task),
                training=None if training is None else data.read(backend, training, task=task),
                tell=output.say,
                checkpoints=checkpoints,
            )
            more = {**arguments, "task": task}
            comparison = bench.compare(chosen, max_break=max_break, localiser=localiser, home=backend, **more)
            if folder is not None:
                for note in comparison.save(folder, command=again(context)):
                    output.say(f"note: {note}")
    value = comparison.to_json()
    output.result(ComparisonTable(value), value)
    written = "nothing was written; -o FOLDER keeps the page" if out is None else f"wrote the page to '{out}'"
    output.say(written)


def _make_chosen(
    names: Sequence[str], arguments: dict[str, Any]
) -> tuple[list[str | Searcher], str | Localiser | None, Task | None]:
    """The searchers, the localiser and the task asked for, each with those of the given options that it has."""
    from arachne.settings import make_localiser, make_searcher

    named, words = arguments.pop("localiser"), arguments.pop("plugin_options")
    searchers = [Chosen.of(SEARCHERS, name) for name in dict.fromkeys(SEARCHERS.canonical(name) for name in names)]
    localisers, task = [] if named is None else [Chosen.of(LOCALISERS, named)], TaskChoice.taken_from(arguments)
    given = given_options(words, [*searchers, *localisers, *task.plugins], [SEARCHERS, LOCALISERS, TASKS])
    made = [make_searcher(one.name, **given[one]) if given[one] else one.name for one in searchers]
    finders = [make_localiser(one.name, **given[one]) if given[one] else one.name for one in localisers]
    return made, finders[0] if finders else None, task.make(given)
