"""`arachne report`: the page of a repair again, from the folder it was saved to, or its card for a hub of models."""

from __future__ import annotations

from pathlib import Path

import click

from arachne.cli.options import output_options
from arachne.cli.outputs import OUT_FILE, Command
from arachne.errors import UsageError


@click.command(cls=Command, short_help="Make the page of a repair again.")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("-o", "--out", type=OUT_FILE, help="Where to; report.html in the folder when left out.")
@click.option("--hub-card", type=OUT_FILE, help="Write the card with Hugging Face metadata to this file instead.")
@click.option(
    "--hub", "entries", multiple=True, metavar="KEY=VALUE", help="Metadata of that card: license=mit, ... Repeatable."
)
@output_options
def command(
    folder: Path,
    out: Path | None,
    hub_card: Path | None,
    entries: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    debug: bool,
) -> None:
    """Make the page of the repair in FOLDER: one file that needs no model, no data and no network."""
    from arachne.cli.console import Output
    from arachne.files import atomic_write, environment_faults
    from arachne.manifest import read_manifest, write_manifest
    from arachne.report.folder import PAGE, card_for_hub, page_again
    from arachne.result_folder import CHECKPOINTS
    from arachne.working_folder import working_folder

    output = Output(as_json=as_json, quiet=quiet)
    if hub_card is not None:
        if out is not None:
            raise UsageError("--hub-card writes the card and --out the page; give one of them")
        card = card_for_hub(folder, entries).encode()
        atomic_write(hub_card, card)
        output.result(f"wrote '{hub_card}'", {"card": str(hub_card), "bytes": len(card)})
        return
    if entries:
        raise UsageError("--hub goes with --hub-card FILE")
    path = folder / PAGE if out is None else out
    html = page_again(folder).encode()
    with environment_faults(path), working_folder(folder.resolve(), wait=True, kept=(CHECKPOINTS,)):
        atomic_write(path, html)
        if out is None and read_manifest(folder) is not None:
            write_manifest(folder)
    output.result(f"wrote '{path}'", {"page": str(path), "bytes": len(html)})
