"""`arachne revert`: take a patch out of a model file again."""

from __future__ import annotations

from pathlib import Path

import click

from arachne.cli.options import output_options
from arachne.cli.outputs import Command
from arachne.cli.patching import COPY_FILE, map_option, mapping_of, sentence_of, value_of


@click.command(cls=Command, short_help="Take a patch out of a model file again.")
@click.argument("patch_file", metavar="PATCH", type=click.Path(path_type=Path))
@click.argument("model_file", metavar="MODEL", type=click.Path(path_type=Path))
@click.option("-o", "--out", required=True, type=COPY_FILE, help="Where the restored copy goes.")
@map_option
@output_options
def command(patch_file: Path, model_file: Path, out: Path, mapping: tuple[str, ...]) -> None:
    """Write a copy of the patched MODEL with the old weights, bit for bit."""
    from arachne.cli.console import Output
    from arachne.patch.commands import revert

    done = revert(patch_file, model_file, out, mapping=mapping_of(mapping))
    if done is None:
        raise TypeError("a file was given, so a file is written")
    Output().result(sentence_of("revert", model_file, done), value_of("revert", done))
