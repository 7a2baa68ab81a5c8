"""`arachne cache`: the passes of models that are kept for the next command, and how to be rid of them."""

from __future__ import annotations

import click

from arachne.cli.options import output_options
from arachne.cli.outputs import Command


@click.command(cls=Command, short_help="Show or remove the outputs of models that are kept for the next command.")
@click.option("--clear", is_flag=True, help="Remove them.")
@output_options
def command(clear: bool) -> None:
    """Show how many passes, outputs of a model for all inputs, are kept, and where.

    `scan`, `repair`, `compare`, `choose` and `evaluate` use them. They take 2 GB at most, those that were not used for
    longest are removed first, and only you can read them.
    """
    from arachne.cli.console import Output
    from arachne.errors import EnvironmentFaultError
    from arachne.io.output_paths import environment_faults
    from arachne.results.kept_passes import KeptPasses, passes_folder
    from arachne.text import pluralise, size_text

    folder = passes_folder()
    if folder is None:
        raise EnvironmentFaultError("this user has no home for passes; set XDG_CACHE_HOME to a folder of yours")
    passes = KeptPasses(folder)
    sizes = passes.sizes()
    with environment_faults(folder):
        removed = passes.clear() if clear else 0
    summary = f"{pluralise(len(sizes), 'pass', 'passes')} in '{folder}', {size_text(sum(sizes.values()))}"
    Output().result(
        f"removed {summary}" if clear else summary,
        {
            "schema": "arachne.cache/1",
            "folder": str(folder),
            "passes": len(sizes) - removed,
            "bytes": 0 if clear else sum(sizes.values()),
            "removed": removed,
        },
    )
