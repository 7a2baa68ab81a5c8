"""`arachne evaluate`: how good is the model, and what does a patch do to it?"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arachne.cli.border import harmless_option
from arachne.cli.budgeting import keep_option
from arachne.cli.config import ConfiguredCommand, again
from arachne.cli.gates import gate_options, pass_gates, read_gates
from arachne.cli.options import DataChoice, ModelChoice
from arachne.cli.outputs import OUT_FILE
from arachne.cli.patching import tell_seen
from arachne.cli.plugin_flags import objective_flags, pop_objective
from arachne.cli.running import cache_option, looking_options, take_sources
from arachne.cli.task_flags import TaskChoice
from arachne.errors import UsageError

if TYPE_CHECKING:
    from arachne.cli.console import Output
    from arachne.evidence import Evidence
    from arachne.model.backend import ModelBackend
    from arachne.patch import Patch
    from arachne.results.measure import Measured

NEED_LABELS = ("--target", "--objective", "--against", "--quantise", "--report", "--fail-if", "--junit", "--keep-as-is")


@click.command(cls=ConfiguredCommand, short_help="Measure a model, or what a patch does to it.")
@looking_options
@click.option("--target", "targets", multiple=True, help="The mistake; the patch's own when left out.")
@click.option("--patch", "patch_file", type=click.Path(path_type=Path), help="The patch to measure.")
@click.option(
    "--against", type=click.Path(path_type=Path), help="An export or other copy: does the repair survive there?"
)
@harmless_option("--quantise", type=click.Choice(["int8", "fp16"]), help="Does the repair survive quantisation?")
@keep_option
@click.option("--unlabelled", metavar="SOURCE", help="Inputs without labels: how many predictions flip, and which.")
@objective_flags
@click.option("--report", "page", type=OUT_FILE, help="Write the page to this file.")
@cache_option
@gate_options
@click.pass_context
def command(
    context: click.Context,
    /,
    targets: tuple[str, ...],
    patch_file: Path | None,
    against: Path | None,
    quantise: str | None,
    unlabelled: str | None,
    keep_as_is: str | None,
    page: Path | None,
    conditions: tuple[str, ...],
    junit: Path | None,
    **arguments: Any,
) -> None:
    """Measure MODEL on labelled inputs, as it is or with a patch; the file is only read.

    With --patch and --unlabelled, --data can be left out: flipped predictions are counted without labels.
    """
    from arachne.evidence.batch_dependence import batch_dependent
    from arachne.evidence.scan import Scan
    from arachne.model.lazy import is_lazy
    from arachne.patch import Patch
    from arachne.report.objects import FLIPS_SCHEMA, gate_objects, result_object
    from arachne.report.terminal import EvidenceTable, ScanTable
    from arachne.results.kept_passes import run_or_find
    from arachne.results.measure import measure_scores, part_of
    from arachne.tasks import rule_in
    from arachne.text import percent, pluralise

    output, model, data, machines = take_sources(context, arguments)
    wanted = TaskChoice.taken_from(arguments)
    gates, (objective, given) = read_gates(conditions, junit), pop_objective(arguments, wanted.plugins)
    if unlabelled is not None and patch_file is None:
        raise UsageError("--unlabelled shows what a patch changes; give one with --patch")
    if (against or quantise) and patch_file is None:
        raise UsageError("--against and --quantise tell whether a patch survives; give one with --patch")
    if data.data is None:
        check_unlabelled_alone(context, unlabelled)
    backend = machines.share(context, model.load(scores_suffice=patch_file is None), output)
    patch = None if patch_file is None else Patch.load(patch_file)
    if data.data is None and patch is not None:
        flips = tell_flips(output, backend, patch, str(unlabelled), data)
        if output.as_json:
            output.result("", {"schema": FLIPS_SCHEMA, "backend": backend.NAME, "weights": len(patch), **flips})
        return
    task = rule_in(targets) or wanted.make(given, patch)
    with output.progress("run the model"):
        labelled = data.read(backend, task=task, tell=output.say)
        anew = is_lazy(labelled.inputs) or bool(gates)
        forward = None if anew else partial(run_or_find, backend)
        kept = data.read_kept(keep_as_is)
        whole = part_of(backend, labelled, targets or None, patch, task, kept, forward, output.say)
        measured = measure_scores(backend, whole, patch, objective)
    part, evidence = measured.part, measured.evidence
    tell_seen(output, evidence)
    unsteady = batch_dependent(backend, part.data, part.scores, part.rows) if part.task.SINGLE else None
    if unsteady:
        output.say(f"note: {unsteady}")
    results = [gate.check(evidence) for gate in gates]
    value = result_object(
        evidence,
        command="evaluate",
        seed=None if patch is None else patch.provenance.get("seed"),
        backend=backend.NAME,
        weights=0 if patch is None else len(patch),
        more={"gates": gate_objects(results), "batch_dependent": unsteady.to_json() if unsteady else []},
    )
    if unlabelled is not None and patch is not None:
        value["unlabelled"] = tell_flips(output, backend, patch, unlabelled, data)
    copies: dict[str, Evidence] = {}
    if patch is not None and (against or quantise):
        copies, value["survival"] = tell_survival(output, measured, model, backend, patch, against, quantise)
    if patch is None:  # nothing is compared, so there is nothing to judge
        found = Scan.of_part(part)
        groups = evidence.held_out.fairness
        if targets:
            counted, showing = evidence.held_out, evidence.held_out.negatives
            output.answer(
                f"target {counted.target.target}: {showing:,} of {pluralise(counted.inputs, counted.noun)} "
                f"{'shows' if showing == 1 else 'show'} it ({percent(showing / max(1, counted.inputs))})"
            )
        output.result(ScanTable(found, groups=groups), value)
    else:
        output.result(EvidenceTable(evidence, patch, copies=copies), value)
    if page is not None:
        from arachne.io.files import atomic_write
        from arachne.patch import for_model
        from arachne.report.folder import going_on_without
        from arachne.report.html import render
        from arachne.report.page import page_object
        from arachne.report.saliency import saliency_objects

        drawn = None
        with going_on_without("note: the page could not be drawn", output.say):
            more: dict[str, Any] = {"command": again(context), "model": backend.describe().source}
            if patch is not None:
                more["saliency"] = saliency_objects(backend, for_model(patch, backend), part, evidence.held_out)
            shown = page_object(value, evidence, part, patch=patch, layers=backend.layers, **more)
            drawn = render(shown).encode()
        if drawn is not None:
            atomic_write(page, drawn)
            output.say(f"wrote '{page}'")
    pass_gates(output, results, evidence, junit)


def check_unlabelled_alone(context: click.Context, unlabelled: str | None) -> None:
    """Refuse options that need labels.

    Raises:
        UsageError: Nothing to measure on, or an option that needs labels.
    """
    if unlabelled is None:
        raise UsageError("give labelled inputs with --data, or inputs without labels with --patch and --unlabelled")
    for parameter in context.command.params:
        option = max(parameter.opts, key=len)
        if option in NEED_LABELS and context.params.get(str(parameter.name)):
            raise UsageError(
                f"{option} needs labels, which --unlabelled does not have; give labelled inputs with --data"
            )


def tell_survival(
    output: Output,
    measured: Measured,
    model: ModelChoice,
    backend: ModelBackend,
    patch: Patch,
    against: Path | None,
    quantise: str | None,
) -> tuple[dict[str, Evidence], list[dict[str, Any]]]:
    """Whether the repair survives in another model and in a quantised copy: evidence by name, and what JSON tells."""
    from arachne.report.part_object import part_object
    from arachne.results.measure import survival_against, survival_quantised

    survivals = [] if against is None else [survival_against(measured, patch, against)]
    if quantise is not None:
        survivals.append(survival_quantised(measured, backend, patch, model.file, quantise))
    rows = []
    for found in survivals:
        output.answer(str(found))
        rows.append(
            {
                "where": found.where,
                "survived": found.survives,
                "sentence": found.sentence,
                "note": found.note,
                "verdict": found.there.verdict.word,
                "heading": found.there.verdict.heading,
                "kept": found.still_repaired.count,
                "repaired": found.still_repaired.total,
                "held_out": part_object(found.there.held_out),
            }
        )
    return {found.where: found.there for found in survivals}, rows


def tell_flips(output: Output, backend: ModelBackend, patch: Patch, source: str, data: DataChoice) -> dict[str, Any]:
    """How many predictions a patch flips on inputs without labels: a sentence, the kinds, and examples."""
    from arachne.data.classes import read_class_names
    from arachne.data.unlabelled import read_unlabelled
    from arachne.report.objects import flips_object
    from arachne.results.measure import flips
    from arachne.text import percent

    traffic = read_unlabelled(source, preprocess=data.preprocess)
    found = flips(backend, traffic, patch)
    output.answer(f"'{source}': {found}")
    names = read_class_names(data.classes or backend.class_names) or ()

    def flip(*labels: int) -> str:
        return " → ".join(names[label] if label < len(names) else str(label) for label in labels)

    for old, new, count in found.pairs[:10]:
        output.answer(f"  {flip(old, new)}: {count:,}")
    columns = (found.rows, found.before, found.after, found.confidence_after)
    for row, old, new, sure in zip(*(column[:5].tolist() for column in columns), strict=True):
        name = f"row {row}" if traffic.names is None else traffic.names[row]
        output.answer(f"  such as {name}: {flip(old, new)}, {percent(sure)} sure")
    return flips_object(found)
