"""`arachne compare`: every searcher side by side on one mistake, on inputs that none of them saw."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arachne.cli.border import PluginName, harmless_option
from arachne.cli.config import ConfiguredCommand, again, going_on
from arachne.cli.options import SHARE
from arachne.cli.outputs import OUT_FOLDER, folder_for, is_resuming, resume_option
from arachne.cli.plugin_flags import plugin_option
from arachne.cli.plugin_options import Chosen, given_options
from arachne.cli.running import cache_option, mistake_options, split_options, take_sources
from arachne.cli.task_flags import TaskChoice
from arachne.plugins.table import LOCALISERS, SEARCHERS, TASKS

if TYPE_CHECKING:
    from arachne.localise import Localiser
    from arachne.search import Searcher
    from arachne.tasks import Task


@click.command(cls=ConfiguredCommand, short_help="Compare searchers on one mistake.")
@mistake_options
@click.option("-o", "--out", type=OUT_FOLDER, help="Folder for the page and compare.json.")
@resume_option
@harmless_option("--search", "searchers", type=PluginName(SEARCHERS), multiple=True, metavar="NAME",
              help=f"A searcher: {', '.join(SEARCHERS.names())}. Repeatable; quick ones when left out.")  # fmt: skip
@harmless_option("--localiser", type=PluginName(LOCALISERS), metavar="NAME",
              help=f"For all: {', '.join(LOCALISERS.names())}; contrast, bl for de, when left out.")  # fmt: skip
@harmless_option("--max-break", type=SHARE, default="0.5%", show_default=True,
              help="Break at most this share of what is right: 0.5% or 0.005.")  # fmt: skip
@split_options
@plugin_option("searcher", "localiser", "task")
@cache_option
@click.pass_context
def command(
    context: click.Context,
    /,
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
    from arachne.cli.signals import Stopping
    from arachne.report.comparison import ComparisonTable
    from arachne.tasks import rule_in

    output, model, data, machines = take_sources(context, arguments)
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
    page = None if out is None else out / "compare.html"
    output.say("nothing was written; -o FOLDER keeps the page" if page is None else f"open {page} in a browser")


def _make_chosen(
    names: Sequence[str], arguments: dict[str, Any]
) -> tuple[list[str | Searcher], str | Localiser | None, Task | None]:
    """Make the searchers, the localiser and the task; each takes the given options that it declares."""
    from arachne.settings import make_localiser, make_searcher

    named, words = arguments.pop("localiser"), arguments.pop("plugin_options")
    searchers = [Chosen.of(SEARCHERS, name) for name in dict.fromkeys(SEARCHERS.canonical(name) for name in names)]
    localisers, task = [] if named is None else [Chosen.of(LOCALISERS, named)], TaskChoice.taken_from(arguments)
    given = given_options(words, [*searchers, *localisers, *task.plugins], [SEARCHERS, LOCALISERS, TASKS])
    made = [make_searcher(one.name, **given[one]) if given[one] else one.name for one in searchers]
    finders = [make_localiser(one.name, **given[one]) if given[one] else one.name for one in localisers]
    return made, finders[0] if finders else None, task.make(given)
