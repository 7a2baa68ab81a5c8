"""`arachne show`: what a patch changes, by layer, old → new, with its evidence."""

from __future__ import annotations

from pathlib import Path

import click

from arachne.cli.options import output_options
from arachne.cli.outputs import Command
from arachne.errors import UsageError, did_you_mean


@click.command(cls=Command, short_help="Show what a patch changes, with its evidence.")
@click.argument("patch_file", metavar="PATCH", type=click.Path(path_type=Path))
@click.option("--layer", metavar="NAME", help="Only this layer's weights.")
@click.option("--all", "everything", is_flag=True, help="Every weight; the 40 largest changes when left out.")
@output_options
def command(patch_file: Path, layer: str | None, everything: bool) -> None:
    """Show what PATCH changes, by layer, old → new, and the evidence it was accepted with; this also checks the file.

    A long patch is summed up by layer and row (of a convolution: channel) before its values. --json prints all of it.
    """
    import json

    from arachne.cli.console import Output
    from arachne.patch import Patch
    from arachne.report.patch_rows import MAX_LISTED_WEIGHTS
    from arachne.report.patch_text import as_text

    patch = Patch.load(patch_file)
    layers = list(dict.fromkeys(change.tensor.layer for change in patch.changes))
    if layer is not None and layer not in layers:
        raise UsageError(f"the patch changes nothing in a layer '{layer}'" + did_you_mean(layer, layers))
    text = as_text(patch, most=None if everything else MAX_LISTED_WEIGHTS, layer=layer, hint="; --all shows every one")
    Output().result(text, json.loads(patch.to_json()))
