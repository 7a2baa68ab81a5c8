"""`arachne backends`: which frameworks' models can be repaired here?"""

from __future__ import annotations

import click

from arachne.cli.options import output_options
from arachne.cli.outputs import Command


@click.command(cls=Command, short_help="List the frameworks whose models can be repaired.")
@output_options
def command(as_json: bool, quiet: bool, debug: bool) -> None:
    """List every backend, whether its framework is installed, and how to get it if not."""
    from rich.table import Table
    from rich.text import Text

    from arachne import registry
    from arachne.cli.console import Output

    states = registry.states()
    table = Table("backend", "files", "state", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for state in states:
        # As text: rich would take the square brackets of an extra for markup.
        table.add_row(state.name, " ".join(state.suffixes), Text(state.version or state.problem or ""))
    value = {
        "schema": "arachne.backends/1",
        "backends": [
            {
                "name": state.name,
                "available": state.available,
                "version": state.version,
                "files": list(state.suffixes),
                "problem": state.problem,
            }
            for state in states
        ],
    }
    Output(as_json=as_json, quiet=quiet).result(table, value)
