"""`arachne report`: the page of a repair again, from the folder it was saved to, or its card for a hub of models."""

from __future__ import annotations

from pathlib import Path

import click

from arachne.cli.options import output_options
from arachne.cli.outputs import OUT_FILE, Command, is_forced
from arachne.errors import UsageError


@click.command(cls=Command, short_help="Make the page of a repair again.")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("-o", "--out", type=OUT_FILE, help="The page's file; report.html in FOLDER when left out.")
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
) -> None:
    """Make the page of the repair in FOLDER: one file that needs no model, no data and no network."""
    from arachne.cli.console import Output
    from arachne.io.files import atomic_write
    from arachne.io.folder import identity
    from arachne.report.folder import PAGE, card_for_hub, page_again, replace_page

    output = Output()
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
    read_from = None if not folder.is_dir() else identity(folder.stat())
    html = page_again(folder).encode()
    if out is None and read_from is not None:
        replace_page(folder, html, read_from=read_from, force=is_forced())
    else:
        atomic_write(path, html)
    output.result(f"wrote '{path}'", {"page": str(path), "bytes": len(html)})
