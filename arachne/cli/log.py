"""`arachne log`: which patches does a model file carry?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arachne.cli.options import output_options
from arachne.cli.outputs import Command

if TYPE_CHECKING:
    from arachne.patch import Patch


@click.command(cls=Command, short_help="List which patches a model file carries.")
@click.argument("model_file", metavar="MODEL", type=click.Path(path_type=Path))
@click.option("--patches", multiple=True, required=True, metavar="PATH", type=click.Path(path_type=Path),
              help="A folder of patches, or one patch. Repeatable.")  # fmt: skip
@output_options
def command(model_file: Path, patches: tuple[Path, ...]) -> None:
    """Say for each patch whether MODEL carries it: wholly, in part, changed since, or not at all."""
    from rich.table import Table

    from arachne.cli.console import Output
    from arachne.model.registry import weight_file
    from arachne.patch.history import CHANGED_SINCE, patch_state
    from arachne.patch.transfer import derived_for

    output = Output()
    file = weight_file(model_file)
    table = Table("patch", "state", "weights", "target", box=None, pad_edge=False)
    rows: list[dict[str, Any]] = []
    for path, patch in _find_patches(patches, output):
        found = patch_state(derived_for(patch, model_file) or patch, file)
        target = patch.provenance.get("target", "")
        shown = ", ".join(target) if isinstance(target, list) else str(target)
        state = "carried; others changed since" if found.state == CHANGED_SINCE else found.state
        table.add_row(str(path), state, f"{found.weights} of {found.of}", shown)
        rows.append({"patch": str(path), "state": found.state, "weights": found.weights, "of": found.of,
                     "target": target, "digest": patch.digest})  # fmt: skip
    output.result(table, {"schema": "arachne.log/1", "model": str(model_file), "patches": rows})


def _find_patches(paths: tuple[Path, ...], output: Any) -> list[tuple[Path, Patch]]:
    """Every patch in these files and folders; other files in a folder are skipped, and named."""
    from arachne.errors import PatchError
    from arachne.patch import Patch

    found = []
    for path in paths:
        if not path.is_dir():
            found.append((path, Patch.load(path)))
            continue
        for file in sorted(path.rglob("*.json")):
            try:
                found.append((file, Patch.load(file)))
            except PatchError as error:
                if file.name not in ("result.json", "report.json", "manifest.json"):  # a repair leaves them beside it
                    output.say(f"skipped {error}")
    if not found:
        raise PatchError(f"no patch in {', '.join(repr(str(path)) for path in paths)}")
    return found
