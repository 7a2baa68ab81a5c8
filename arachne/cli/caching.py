"""`--no-cache`: whether passes of the original model are kept for the next command."""

from __future__ import annotations

from typing import Any

import click

from arachne.cli.border import harmless_option

cache_option = harmless_option(
    "--no-cache", is_flag=True, help="Neither look up nor keep what MODEL gave for these inputs (`arachne cache`)."
)


def keep_passes(context: click.Context, arguments: dict[str, Any]) -> None:
    """Keep passes until the command ends, unless it was told otherwise."""
    from arachne.results.kept_passes import keeping_passes

    if not arguments.pop("no_cache"):
        context.with_resource(keeping_passes())
