"""`arachne apply`: put a patch into a copy of a model file."""

from __future__ import annotations

from pathlib import Path

import click

from arachne.cli.options import output_options
from arachne.cli.patching import change_file


@click.command(short_help="Put a patch into a copy of a model file.")
@click.argument("patch_file", metavar="PATCH", type=click.Path(path_type=Path))
@click.argument("model_file", metavar="MODEL", type=click.Path(path_type=Path))
@click.option("-o", "--out", required=True, type=click.Path(path_type=Path), help="Where the patched copy goes.")
@output_options
def command(patch_file: Path, model_file: Path, out: Path, as_json: bool, quiet: bool, debug: bool) -> None:
    """Write a copy of MODEL with PATCH in it, after checking that it is the model the patch was made for."""
    change_file("apply", patch_file, model_file, out, as_json=as_json, quiet=quiet)
