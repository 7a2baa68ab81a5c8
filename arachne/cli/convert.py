"""`arachne convert`: write a model as ONNX, and show that it gives the same scores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arachne.cli.options import DataChoice, ModelChoice, model_options, output_options
from arachne.cli.outputs import OUT_FILE, Command

if TYPE_CHECKING:
    from arachne.model.backend import ModelBackend
    from arachne.model.values import Inputs

COMPARED_INPUTS = 64
TOLERANCE = 1e-3
"""How far log-probabilities of the two models may differ."""


@click.command(cls=Command, short_help="Write a model as ONNX.")
@model_options
@click.option("-o", "--out", required=True, type=OUT_FILE, help="Where the ONNX file goes.")
@click.option("--data", help="Inputs to follow through the model and to compare scores on; else random ones.")
@click.option("--preprocess", metavar="STEPS", help="What is done to the data before the model sees it.")
@click.option("--opset", default=18, show_default=True, type=click.IntRange(18), help="Version of ONNX' operators.")
@output_options
def command(
    out: Path,
    data: str | None,
    preprocess: str | None,
    opset: int,
    **arguments: Any,
) -> None:
    """Write MODEL as ONNX to OUT, after comparing the scores of both on the same inputs."""
    from arachne.cli.console import Output
    from arachne.errors import UsageError
    from arachne.model.values import count, take

    if out.suffix.lower() != ".onnx":
        raise UsageError(f"'{out.name}' is no ONNX file; its name must end in .onnx")
    output = Output()
    chosen = ModelChoice.taken_from(arguments)
    if chosen.file is not None and Path(chosen.file).suffix.lower() == ".onnx":
        raise UsageError(f"'{chosen.file}' is an ONNX file already")
    model = chosen.load()
    given = (
        None if data is None else take(DataChoice(data, None, preprocess).read(model).inputs, slice(0, COMPARED_INPUTS))
    )
    output.step("exporting")
    inputs, difference, same = _write(model, out, opset, given)
    value = {
        "schema": "arachne.convert/1",
        "output": str(out),
        "opset": opset,
        "inputs": count(inputs),
        "random_inputs": given is None,
        "largest_difference": difference,
        "same_predictions": same,
    }
    kind = "random inputs" if given is None else "inputs"
    output.result(
        f"wrote '{out}' (opset {opset}): on {count(inputs)} {kind} it predicts the same class {same} times, "
        f"log-probabilities differ by {difference:.1e} at most",
        value,
    )


def _write(model: ModelBackend, out: Path, opset: int, given: Inputs | None) -> tuple[Inputs, float, int]:
    """Export beside the destination, compare, and only then put the file in its place.

    Returns:
        The inputs both were compared on, how far the scores differ at most, and how many predictions are the same.

    Raises:
        ModelError: The export gives other scores.
    """
    import numpy as np

    from arachne.errors import ModelError
    from arachne.io.files import atomic_draft
    from arachne.model.registry import load
    from arachne.model.values import Array
    from arachne.tasks import decide

    def log_probabilities(scores: Array) -> Array:
        shifted = scores.astype(np.float64) - scores.max(axis=1, keepdims=True)
        found: Array = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        return found

    with atomic_draft(out) as draft:
        model.export_onnx(draft, inputs=given, opset=opset)
        inputs = model.example_inputs(COMPARED_INPUTS) if given is None else given
        ours, theirs = log_probabilities(model.forward(inputs)), log_probabilities(load(draft).forward(inputs))
        difference = float(np.abs(ours - theirs).max())
        if not difference <= TOLERANCE:
            raise ModelError(f"the export gives other scores than the model: they differ by {difference:.2g}")
    return inputs, difference, int((decide(ours) == decide(theirs)).sum())
