"""`arachne evaluate`: how good is the model, and what does a patch do to it?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from arachne.cli.options import DataChoice, ModelChoice, data_options, model_options, output_options


@click.command(short_help="Measure a model, or what a patch does to it.")
@model_options
@data_options
@click.option("--target", "targets", multiple=True, help="The mistake; the patch's own when left out.")
@click.option("--patch", "patch_file", type=click.Path(path_type=Path), help="The patch to measure.")
@output_options
def command(
    as_json: bool, quiet: bool, debug: bool, targets: tuple[str, ...], patch_file: Path | None, **arguments: Any
) -> None:
    """Measure MODEL on labelled inputs, as it is or with a patch; the file is only read."""
    from arachne.api import measure
    from arachne.cli.console import Output
    from arachne.patch import Patch
    from arachne.report.json import result_object
    from arachne.report.terminal import EvidenceTable

    output = Output(as_json=as_json, quiet=quiet)
    model, data = ModelChoice.taken_from(arguments), DataChoice.taken_from(arguments)
    backend = model.load()
    patch = None if patch_file is None else Patch.load(patch_file)
    evidence = measure(backend, data.read(backend), target=targets or None, patch=patch)
    value = result_object(
        evidence,
        command="evaluate",
        seed=None if patch is None else patch.provenance.get("seed"),
        backend=backend.NAME,
        weights=0 if patch is None else len(patch),
    )
    output.result(EvidenceTable(evidence, patch), value)
