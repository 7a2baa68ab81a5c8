"""The options of every command that runs a model on data: model, data, how outputs are read, and who computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from arachne.cli.border import harmless_option
from arachne.cli.options import (
    DataChoice,
    ModelChoice,
    data_options,
    model_options,
    optional_data_options,
    options,
    output_options,
    target_option,
)
from arachne.cli.task_flags import task_options
from arachne.cluster.limits import max_workers
from arachne.errors import UsageError

if TYPE_CHECKING:
    from arachne.cli.console import Output
    from arachne.model.backend import ModelBackend

cluster_options = options(
    click.option("--workers", type=int, metavar="N", help="Share the inputs among N processes; same result."),
    click.option(
        "--cluster",
        metavar="ADDRESS",
        help="Share them with a dask cluster: tcp:// or tls:// of its scheduler, or the file it writes.",
    ),
)
cache_option = harmless_option(
    "--no-cache", is_flag=True, help="Neither use nor keep outputs of MODEL from another command (`arachne cache`)."
)
seed_option = harmless_option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Same seed, same result."
)
split_options = options(
    click.option("--holdout", help="Other labelled inputs for the verdict; half of --data when left out."),
    click.option("--training", metavar="SOURCE", help="What MODEL was trained on, read as --data is, to retrain it."),
    click.option(
        "--drop-overlap", is_flag=True, help="Drop held-out inputs that are also in --data instead of refusing."
    ),
    click.option("--group-by", metavar="COLUMN", help="Keep inputs with the same value on one side of the split."),
    seed_option,
    harmless_option(
        "--alpha",
        type=float,
        show_default="10",
        help="How much an input with the mistake counts against a right one, in searches that use it.",
    ),
    click.option(
        "--accept-near-chance",
        is_flag=True,
        help="Go on although the model is hardly better than guessing, or reads classes as each other.",
    ),
)
"""How data is split and searched, for commands that repair."""

looking_options = options(model_options, optional_data_options, task_options, cluster_options, output_options)
mistake_options = options(model_options, data_options, task_options, target_option, cluster_options, output_options)


@dataclass(frozen=True)
class ClusterChoice:
    """The options of the command line about who computes."""

    workers: int | None
    cluster: str | None

    @classmethod
    def taken_from(cls, arguments: dict[str, Any]) -> ClusterChoice:
        """Take the options out of a command's arguments.

        Raises:
            UsageError: Both are given, or no worker, or more than `max_workers`.
        """
        choice = cls(**{name: arguments.pop(name) for name in cls.__dataclass_fields__})
        if choice.workers is not None and choice.cluster is not None:
            raise UsageError("--workers starts a cluster on this machine, --cluster joins another; give one of them")
        if choice.workers is not None and not 1 <= choice.workers <= max_workers():
            raise UsageError(
                f"--workers takes a number from 1 to {max_workers()} on this machine, got {choice.workers}; leave it "
                "out to compute in this process"
            )
        return choice

    def share(self, context: click.Context, backend: ModelBackend, output: Output) -> ModelBackend:
        """The model as it is, or run by a cluster until the command ends."""
        if self.workers is None and self.cluster is None:
            return backend
        from arachne.cluster.starting import on_cluster

        return context.with_resource(on_cluster(backend, workers=self.workers, cluster=self.cluster, tell=output.say))


def keep_passes(context: click.Context, arguments: dict[str, Any]) -> None:
    """Keep passes until the command ends, unless `--no-cache` is given or the command lacks it."""
    from arachne.results.kept_passes import keeping_passes

    if not arguments.pop("no_cache", True):
        context.with_resource(keeping_passes())


def take_sources(
    context: click.Context, arguments: dict[str, Any]
) -> tuple[Output, ModelChoice, DataChoice, ClusterChoice]:
    """Take the options about output, model, data and machines out of a command's arguments, and keep passes."""
    from arachne.cli.console import Output

    keep_passes(context, arguments)
    model, data = ModelChoice.taken_from(arguments), DataChoice.taken_from(arguments)
    return Output(), model, data, ClusterChoice.taken_from(arguments)
