"""`arachne show`: what a patch changes, by layer, old → new, with its evidence."""

from __future__ import annotations

from pathlib import Path

import click

from arachne.cli.options import output_options
from arachne.cli.patching import Plain


@click.command(short_help="Show what a patch changes, with its evidence.")
@click.argument("patch_file", metavar="PATCH", type=click.Path(path_type=Path))
@output_options
def command(patch_file: Path, as_json: bool, quiet: bool, debug: bool) -> None:
    """Show what PATCH changes, by layer, old → new, and what it was accepted with; the file is checked on the way."""
    import json

    from arachne.cli.console import Output
    from arachne.patch import Patch

    patch = Patch.load(patch_file)
    Output(as_json=as_json, quiet=quiet).result(Plain(str(patch)), json.loads(patch.to_json()))
