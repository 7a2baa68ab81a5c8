"""`arachne stack`: several patches as one, or a stack without one of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from arachne.cli.options import output_options
from arachne.cli.outputs import Command
from arachne.cli.patching import PATCH_FILE

if TYPE_CHECKING:
    from arachne.patch import Patch


@click.command(cls=Command, short_help="Put patches together, or take one out again.")
@click.argument("patch_files", metavar="PATCH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--without", multiple=True, type=click.Path(path_type=Path), help="A patch to take out. Repeatable.")
@click.option("-o", "--out", required=True, type=PATCH_FILE, help="Where the stack goes.")
@output_options
def command(patch_files: tuple[Path, ...], without: tuple[Path, ...], out: Path) -> None:
    """Put patches of one model together, in this order, and take others out of what that gives.

    Weights that two patches want to have different values are a conflict, unless the later one was made on the result
    of the earlier one.
    """
    import json
    import shlex

    from arachne.cli.console import Output
    from arachne.errors import PatchError
    from arachne.patch import Patch
    from arachne.report.patch_text import headline

    stack = Patch.load(patch_files[0])
    for path in patch_files[1:]:
        stack = _add(stack, Patch.load(path), path)
    for path in without:
        try:
            stack = stack.minus(Patch.load(path))
        except PatchError as error:
            raise PatchError(f"cannot take out '{path}': {error}") from error
    stack.save(out)
    output = Output()
    output.say(f"wrote '{out}'; its evidence has to be measured anew: arachne evaluate MODEL --data … --patch {out}")
    output.result(
        f"{headline(stack.changes)}; to see them: arachne show {shlex.quote(str(out))}", json.loads(stack.to_json())
    )


def _add(stack: Patch, patch: Patch, path: Path) -> Patch:
    from arachne.errors import PatchError

    try:
        return stack.compose(patch)
    except PatchError as error:
        raise PatchError(f"cannot add '{path}': {error}") from error
