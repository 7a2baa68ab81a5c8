"""`arachne revert`: take a patch out of a model file again."""

from __future__ import annotations

from pathlib import Path

import click

from arachne.cli.options import output_options
from arachne.cli.patching import change_file


@click.command(short_help="Take a patch out of a model file again.")
@click.argument("patch_file", metavar="PATCH", type=click.Path(path_type=Path))
@click.argument("model_file", metavar="MODEL", type=click.Path(path_type=Path))
@click.option("-o", "--out", required=True, type=click.Path(path_type=Path), help="Where the restored copy goes.")
@output_options
def command(patch_file: Path, model_file: Path, out: Path, as_json: bool, quiet: bool, debug: bool) -> None:
    """Write a copy of the patched MODEL with the old weights, bit for bit."""
    change_file("revert", patch_file, model_file, out, as_json=as_json, quiet=quiet)
