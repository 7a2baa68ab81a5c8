"""`arachne scan`: which mistakes does the model make?"""

from __future__ import annotations

from typing import Any

import click

from arachne.cli.config import ConfiguredCommand
from arachne.cli.options import DataChoice, ModelChoice, data_options, model_options, output_options


@click.command(cls=ConfiguredCommand, short_help="List the mistakes a model makes.")
@model_options
@data_options
@click.option("--layers", is_flag=True, help="List the layers and what can be repaired instead.")
@output_options
def command(as_json: bool, quiet: bool, debug: bool, layers: bool, **arguments: Any) -> None:
    """List the mistakes MODEL makes, the most frequent first; each target is what `arachne repair` takes."""
    from arachne.api import scan
    from arachne.cli.console import Output
    from arachne.report.json import scan_object
    from arachne.report.terminal import ScanTable

    output = Output(as_json=as_json, quiet=quiet)
    model, data = ModelChoice.taken_from(arguments), DataChoice.taken_from(arguments)
    backend = model.load()
    found = scan(backend, data.read(backend))
    output.result(
        ScanTable(found.faults, found.accuracy, len(found.data), found.wildcards),
        scan_object(
            found.faults,
            accuracy=found.accuracy,
            inputs=len(found.data),
            backend=backend.NAME,
            wildcards=found.wildcards,
        ),
    )
