"""`arachne compare`: every searcher side by side on one mistake, on inputs that none of them saw."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arachne.cli.clustering import ClusterChoice, cluster_options
from arachne.cli.config import ConfiguredCommand, again
from arachne.cli.options import (
    SHARE,
    DataChoice,
    ModelChoice,
    data_options,
    model_options,
    output_options,
    target_option,
)
from arachne.cli.outputs import OUT_FOLDER, folder_for
from arachne.cli.plugin_flags import given_options, option_flags
from arachne.plugins import LOCALISERS, SEARCHERS

if TYPE_CHECKING:
    from arachne.search import Searcher


@click.command(cls=ConfiguredCommand, short_help="Compare every searcher on one mistake.")
@model_options
@data_options
@target_option
@click.option("-o", "--out", type=OUT_FOLDER, help="Folder for the page and compare.json.")
@click.option("--search", "searchers", multiple=True, metavar="NAME",
              help=f"A searcher: {', '.join(SEARCHERS.names())}. Repeatable; Arachne's own when left out.")  # fmt: skip
@click.option("--localiser", metavar="NAME",
              help=f"For all: {', '.join(LOCALISERS.names())}; contrast, bl for de, when left out.")  # fmt: skip
@click.option("--max-break", type=SHARE, default="0.5%", show_default=True,
              help="Break at most this share of what is right: 0.5% or 0.005.")  # fmt: skip
@click.option("--holdout", help="Other labelled inputs for the verdict; half of --data when left out.")
@click.option(
    "--training", metavar="SOURCE", help="What MODEL was trained on, read as --data is: adds those that retrain."
)
@click.option("--drop-overlap", is_flag=True, help="Drop held-out inputs that are also in --data instead of refusing.")
@click.option("--group-by", metavar="COLUMN", help="Keep inputs with the same value on one side of the split.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Same seed, same split and patches.")
@click.option("--alpha", type=float, default=10.0, show_default=True, help="What a negative counts against a positive.")
@click.option("--accept-near-chance", is_flag=True, help="Go on although the model is hardly better than guessing.")
@option_flags(SEARCHERS)
@cluster_options
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
    """Repair a mistake of MODEL with every searcher and show them side by side, on inputs that none of them saw.

    All have the same split, seed and budget. One that fails, or finds nothing within the budget, has a row saying so.
    """
    from arachne.cli.console import Output
    from arachne.comparing import compare_searchers, usual_searchers
    from arachne.report.comparison import ComparisonTable

    output = Output(as_json=as_json, quiet=quiet)
    model, data = ModelChoice.taken_from(arguments), DataChoice.taken_from(arguments)
    machines = ClusterChoice.taken_from(arguments)
    chosen = _chosen(context, searchers or usual_searchers(training is not None), arguments)
    with folder_for(out, model.file, data.data, holdout, training) as folder:
        backend = model.load()
        comparison = compare_searchers(
            backend,
            data.read(backend, tell=output.say),
            targets,
            searchers=chosen,
            max_break=max_break,
            holdout=None if holdout is None else data.read(backend, holdout),
            training=None if training is None else data.read(backend, training),
            tell=output.say,
            workers=machines.workers,
            cluster=machines.cluster,
            **arguments,
        )
        if folder is not None:
            comparison.save(folder, command=again(context))
    told = comparison.to_json()
    output.result(ComparisonTable(told), told)
    written = "nothing was written; -o FOLDER keeps the page" if out is None else f"wrote the page to '{out}'"
    output.say(written)


def _chosen(context: click.Context, names: Sequence[str], arguments: dict[str, Any]) -> list[str | Searcher]:
    """The searchers asked for, each with those of the given options that it has."""
    from arachne.settings import make_searcher

    wanted = list(dict.fromkeys(names))
    given = given_options(context, SEARCHERS, arguments, wanted)
    return [make_searcher(name, **given[name]) if given[name] else name for name in wanted]
