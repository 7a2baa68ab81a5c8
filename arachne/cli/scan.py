"""`arachne scan`: which mistakes does the model make?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from arachne.cli.config import ConfiguredCommand
from arachne.cli.options import DataChoice, ModelChoice, model_options, optional_data_options, output_options
from arachne.errors import UsageError

if TYPE_CHECKING:
    from arachne.cli.console import Output


@click.command(cls=ConfiguredCommand, short_help="List the mistakes a model makes.")
@model_options
@optional_data_options
@click.option("--layers", is_flag=True, help="List the layers and what can be repaired instead; --data is optional.")
@output_options
def command(as_json: bool, quiet: bool, debug: bool, layers: bool, **arguments: Any) -> None:
    """List the mistakes MODEL makes, the most frequent first; each target is what `arachne repair` takes."""
    from arachne.api import scan
    from arachne.cli.console import Output
    from arachne.data.class_order import other_order
    from arachne.report.objects import scan_object
    from arachne.report.terminal import ScanTable

    output = Output(as_json=as_json, quiet=quiet)
    model, data = ModelChoice.taken_from(arguments), DataChoice.taken_from(arguments)
    if layers:
        _list_layers(model, data, output)
        return
    if data.data is None:
        raise UsageError("give --data: labelled inputs whose mistakes are listed, or --layers to list layers")
    backend = model.load()
    found = scan(backend, data.read(backend, tell=output.say))
    order = other_order(found.data.labels, found.predictions, found.n_classes)
    if order is not None:
        output.say(f"note: {order.told(found.data)}")
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


def _list_layers(model: ModelChoice, data: DataChoice, output: Output) -> None:
    """With data the model is run on a few inputs: only a run tells the order of the layers and what is unused."""
    from arachne.report.layers import LayersTable, layers_object
    from arachne.values import take

    backend = model.load()
    if data.data is not None:
        backend.forward(take(data.read(backend).inputs, slice(0, 4)))
    table = LayersTable.of(backend, executed=data.data is not None)
    output.result(table, layers_object(table, backend=backend.NAME))
