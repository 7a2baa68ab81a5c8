"""`arachne evaluate`: how good is the model, and what does a patch do to it?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arachne.cli.config import ConfiguredCommand, again
from arachne.cli.gating import gate_options, pass_gates, read_gates
from arachne.cli.options import DataChoice, ModelChoice, data_options, model_options, output_options
from arachne.errors import UsageError

if TYPE_CHECKING:
    from arachne.backend import ModelBackend
    from arachne.cli.console import Output
    from arachne.data.labelled import LabelledData
    from arachne.patch import Patch


@click.command(cls=ConfiguredCommand, short_help="Measure a model, or what a patch does to it.")
@model_options
@data_options
@click.option("--target", "targets", multiple=True, help="The mistake; the patch's own when left out.")
@click.option("--patch", "patch_file", type=click.Path(path_type=Path), help="The patch to measure.")
@click.option(
    "--against", type=click.Path(path_type=Path), help="Also where the model ended up: does the patch survive?"
)
@click.option("--quantise", type=click.Choice(["int8", "fp16"]), help="Also in a quantised copy (onnxruntime's).")
@click.option("--unlabelled", metavar="SOURCE", help="Inputs without labels: how many predictions flip, and which.")
@click.option("--report", "page", type=click.Path(path_type=Path), help="Write the page to this file.")
@gate_options
@output_options
@click.pass_context
def command(
    context: click.Context,
    /,
    as_json: bool,
    quiet: bool,
    debug: bool,
    targets: tuple[str, ...],
    patch_file: Path | None,
    against: Path | None,
    quantise: str | None,
    unlabelled: str | None,
    page: Path | None,
    conditions: tuple[str, ...],
    junit: Path | None,
    **arguments: Any,
) -> None:
    """Measure MODEL on labelled inputs, as it is or with a patch; the file is only read."""
    from arachne.api import Scan, measure_part
    from arachne.cli.console import Output
    from arachne.patch import Patch
    from arachne.report.json import gate_objects, result_object
    from arachne.report.terminal import EvidenceTable, ScanTable

    output = Output(as_json=as_json, quiet=quiet)
    model, data = ModelChoice.taken_from(arguments), DataChoice.taken_from(arguments)
    gates = read_gates(conditions, junit)
    if unlabelled is not None and patch_file is None:
        raise UsageError("--unlabelled tells what a patch changes; give one with --patch")
    if (against or quantise) and patch_file is None:
        raise UsageError("--against and --quantise tell whether a patch survives; give one with --patch")
    backend = model.load()
    patch = None if patch_file is None else Patch.load(patch_file)
    part, evidence = measure_part(backend, data.read(backend), target=targets or None, patch=patch)
    results = [gate.check(evidence) for gate in gates]
    value = result_object(
        evidence,
        command="evaluate",
        seed=None if patch is None else patch.provenance.get("seed"),
        backend=backend.NAME,
        weights=0 if patch is None else len(patch),
        more={"gates": gate_objects(results)},
    )
    if unlabelled is not None and patch is not None:
        value["unlabelled"] = tell_flips(output, backend, patch, unlabelled, data)
    if patch is not None and (against or quantise):
        value["survival"] = tell_survival(output, model, data.read(backend), patch, targets, against, quantise)
    if patch is None:  # nothing is compared, so there is nothing to judge
        found = Scan(part.data, part.predictions, len(evidence.held_out.classes))
        output.result(ScanTable(found.faults, found.accuracy, len(part), found.wildcards), value)
    else:
        output.result(EvidenceTable(evidence, patch), value)
    if page is not None:
        from arachne.files import atomic_write
        from arachne.report.html import render
        from arachne.report.page import page_object

        shown = page_object(value, evidence, part, patch=patch, layers=backend.layers, command=again(context))
        atomic_write(page, render(shown).encode())
        output.say(f"wrote '{page}'")
    pass_gates(output, results, evidence, junit)


def tell_survival(
    output: Output,
    model: ModelChoice,
    data: LabelledData,
    patch: Patch,
    targets: tuple[str, ...],
    against: Path | None,
    quantise: str | None,
) -> list[dict[str, Any]]:
    """Whether the repair survives in another model and in a quantised copy: a sentence and numbers for each."""
    from arachne.api import survival
    from arachne.report.json import part_object

    told = []
    for other, kind in ((against, None), (None, quantise)):
        if other is None and kind is None:
            continue
        source = model.file if kind else model.load()
        found = survival(source, data, patch, against=other, quantise=kind, target=targets or None)
        output.answer(f"{found.sentence} ({found.note})")
        told.append(
            {
                "where": found.where,
                "survived": found.survived,
                "sentence": found.sentence,
                "note": found.note,
                "verdict": found.there.verdict.word,
                "kept": found.kept.count,
                "repaired": found.kept.total,
                "held_out": part_object(found.there.held_out),
            }
        )
    return told


def tell_flips(output: Output, backend: ModelBackend, patch: Patch, source: str, data: DataChoice) -> dict[str, Any]:
    """How many predictions a patch flips on inputs without labels: a sentence, the kinds, and examples."""
    from arachne.data.unlabelled import read_unlabelled
    from arachne.evidence import Flips
    from arachne.evidence.verdict import percent
    from arachne.patch import for_model
    from arachne.report.json import flips_object

    traffic = read_unlabelled(source, preprocess=data.preprocess)
    before = backend.forward(traffic.inputs)
    with for_model(patch, backend).applied(backend):
        flips = Flips.measure(before, backend.forward(traffic.inputs))
    low, high = flips.rate.interval
    output.answer(
        f"{len(flips):,} of {flips.inputs:,} predictions flip on '{source}': {percent(flips.rate.value)} "
        f"(95 %: {percent(low)} – {percent(high)})"
    )
    names = backend.class_names or tuple(str(label) for label in range(before.shape[1]))
    for old, new, count in flips.pairs[:10]:
        output.answer(f"  {names[old]} → {names[new]}: {count:,}")
    columns = (flips.rows, flips.before, flips.after, flips.confidence_after)
    for row, old, new, sure in zip(*(column[:5].tolist() for column in columns), strict=True):
        name = f"row {row}" if traffic.names is None else traffic.names[row]
        output.answer(f"  such as {name}: {names[old]} → {names[new]}, {percent(sure)} sure")
    return flips_object(flips)
