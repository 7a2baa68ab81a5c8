"""`arachne report`: the page of a repair again, from the folder the repair has made."""

from __future__ import annotations

from pathlib import Path

import click

from arachne.cli.options import output_options
from arachne.cli.outputs import OUT_FILE, Command


@click.command(cls=Command, short_help="Make the page of a repair again.")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("-o", "--out", type=OUT_FILE, help="Where to; report.html in the folder when left out.")
@output_options
def command(folder: Path, out: Path | None, as_json: bool, quiet: bool, debug: bool) -> None:
    """Make the page of the repair in FOLDER: one file that needs no model, no data and no network."""
    from arachne.cli.console import Output
    from arachne.cli.patching import Plain
    from arachne.files import atomic_write, environment_faults
    from arachne.manifest import read_manifest, write_manifest
    from arachne.report.folder import PAGE, page_again
    from arachne.result_folder import CHECKPOINTS
    from arachne.working_folder import working_folder

    path = folder / PAGE if out is None else out
    html = page_again(folder).encode()
    with environment_faults(path), working_folder(folder.resolve(), wait=True, kept=(CHECKPOINTS,)):
        atomic_write(path, html)
        if out is None and read_manifest(folder) is not None:
            write_manifest(folder)
    Output(as_json=as_json, quiet=quiet).result(Plain(f"wrote '{path}'"), {"page": str(path), "bytes": len(html)})
