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
    from arachne.errors import PatchError
    from arachne.patch.commands import revert

    try:
        done = revert(patch_file, model_file, out, mapping=mapping_of(mapping))
    except PatchError as error:
        advice = _advise(patch_file, model_file)
        if advice is None:
            raise
        raise PatchError(f"{error.sentence}; {advice}", argument=error.argument, below=error.below) from error
    if done is None:
        raise TypeError("a file was given, so a file is written")
    Output().result(sentence_of("revert", model_file, done), value_of("revert", done))


def _advise(patch_file: Path, model_file: Path) -> str | None:
    """Say how to take out a patch that is not the last one in a model; None if the model does not carry it."""
    import shlex

    from arachne.model.registry import weight_file
    from arachne.patch import Patch
    from arachne.patch.history import CHANGED_SINCE, PARTLY, patch_state
    from arachne.patch.transfer import derived_for

    patch = Patch.load(patch_file)
    state = patch_state(derived_for(patch, model_file) or patch, weight_file(model_file)).state
    if state not in (CHANGED_SINCE, PARTLY):
        return None
    without = f"arachne stack STACK --without {shlex.quote(str(patch_file))} -o REST"
    return (
        "the model was changed further: revert first what was applied later; of a stack that was applied as one, "
        f"revert the whole, and apply what is left of it by: {without}"
    )
