"""`--workers` and `--cluster`: who computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from arachne.cli.options import options
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
