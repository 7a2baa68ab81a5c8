"""`arachne scan`: which mistakes does the model make?"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arachne.cli.border import harmless_option
from arachne.cli.config import ConfiguredCommand, again, given_sources
from arachne.cli.options import DataChoice, ModelChoice
from arachne.cli.outputs import OUT_FILE
from arachne.cli.plugin_flags import plugin_option
from arachne.cli.running import cache_option, looking_options, take_sources
from arachne.cli.task_flags import TaskChoice
from arachne.errors import UsageError

if TYPE_CHECKING:
    from arachne.cli.console import Output
    from arachne.evidence.scan import Scan
    from arachne.model.backend import ModelBackend
    from arachne.report.next_steps import Given


@click.command(cls=ConfiguredCommand, short_help="List the mistakes that a model makes, and what they share.")
@looking_options
@plugin_option("task")
@harmless_option("--causes/--no-causes", default=True, show_default=True, help="Look for what mistakes share.")
@click.option("--page", type=OUT_FILE, help="Write the causes with pictures to this file.")
@click.option("-o", "--out", type=OUT_FILE, help="Write what --json prints to this file.")
@harmless_option("--layers", is_flag=True, help="List the layers and what can be repaired instead; --data is optional.")
@cache_option
@click.pass_context
def command(
    context: click.Context,
    /,
    layers: bool,
    causes: bool,
    page: Path | None,
    out: Path | None,
    **arguments: Any,
) -> None:
    """List the mistakes of MODEL and what they share; the first column is a target for `arachne repair`."""
    from functools import partial

    from arachne.causes.finding import searched_rows
    from arachne.data.class_order import other_order
    from arachne.evidence.scan import Scan
    from arachne.model.lazy import is_lazy
    from arachne.report.folder import going_on_without
    from arachne.report.html import render_scan
    from arachne.report.json import dumps
    from arachne.report.layers import LayersTable
    from arachne.report.objects import scan_object
    from arachne.report.scan_page import scan_page
    from arachne.report.terminal import ScanTable
    from arachne.results.kept_passes import run_or_find

    output, model, data, machines = take_sources(context, arguments)
    task = TaskChoice.taken_from(arguments).make_alone(arguments.pop("plugin_options"))
    if layers:
        _list_layers(model, data, output)
        return
    if data.data is None:
        raise UsageError("give --data: labelled inputs whose mistakes are listed, or --layers to list layers")
    backend = machines.share(context, model.load(scores_suffice=True), output)
    if page is not None and not causes:
        raise UsageError("--page shows causes; leave out --no-causes")
    with output.progress("run the model"):
        labelled = data.read(backend, task=task, tell=output.say)
        found = Scan.of(backend, labelled, task, None if is_lazy(labelled.inputs) else partial(run_or_find, backend))
    order = other_order(found.data.labels, found.predictions, found.n_classes) if found.task.SINGLE else None
    if order is not None:
        output.say(f"note: {order.describe(found.data)}")
    sick, mendable = _examine(found, backend, data) if found.task.SINGLE else ((), False)
    for sentence in sick:
        output.say(f"warning: {sentence}")
    if found.batch_dependent:
        output.say(f"note: {found.batch_dependent}")
    reach = LayersTable.of(backend, executed=True)
    if reach.out_of_reach:
        output.say(f"{reach.reach} (--layers says why)")
    if found.task.no_causes is not None:
        output.say(f"note: {found.task.no_causes}")
    sick = sick or (() if order is None else (order.describe(found.data),))
    if sick and causes:
        output.say("causes are not looked for in a model that looks sick: see to that first")
    shared = None
    if causes and found.task.no_causes is None and not sick:
        with output.progress("look for causes"):
            shared = found.causes
    looked = len(searched_rows(found.data))
    if shared is not None and looked < len(found.data):
        output.say(f"causes were looked for among {looked:,} of the inputs, drawn by chance, and counted in all")
    written = scan_object(found, backend=backend.NAME, causes=shared, health=sick)
    if out is not None:
        _write(out, dumps(written) + "\n", output)
    output.result(ScanTable(found, shared), written)
    if not (shared or sick) and found.forecast is not None:  # of the target that is named below
        output.say(found.forecast.sentence.replace("forecast:", f"forecast for {found.faults[0].target}:"))
    following = None
    if found.faults and backend.only_scores is None and (mendable or not sick):
        following = tell_next(given_sources(context), (shared or found.faults)[0].target, mendable)
    if page is not None:
        drawn = None
        with going_on_without("note: the page could not be drawn", output.say):
            drawn = render_scan(scan_page(found, command=again(context), following=following))
        if drawn is not None:
            _write(page, drawn, output)
    if backend.only_scores is not None:
        output.say(f"note: {backend.only_scores}")
    if page is None and causes and found.task.no_causes is None:
        output.say("--page scan.html shows the inputs behind this")
    if following is not None:
        output.say(following)


def tell_next(given: Given, target: str, mendable: bool = False) -> str:
    """Say how to repair one of a scan's targets, or to estimate statistics again."""
    wanted = ["--target", "*:*", "--search", "norms", "--max-break", "5%"] if mendable else ["--target", target]
    repair = shlex.join(["arachne", "repair", *given.model, *given.data, *wanted, "-o", "fix"])
    what = "estimate the statistics of normalisations again" if mendable else "repair the first of them"
    return f"to {what}:\n  {repair}"


def _examine(found: Scan, backend: ModelBackend, data: DataChoice) -> tuple[tuple[str, ...], bool]:
    """Say what looks sick: inputs that are not read as the model was trained, normalisation, dead layers.

    Returns:
        A sentence for each sign, and whether statistics of normalisations can be estimated again.
    """
    import numpy as np

    from arachne.data.chance import MIN_INPUTS, find_misreading
    from arachne.data.health import examine
    from arachne.data.part import Part

    if found.scores is None or len(found.data) < MIN_INPUTS:
        return (), False
    part = Part(found.data, np.arange(len(found.data)), found.scores, ())
    misread = find_misreading(backend, part, found.accuracy, lambda: data.raw(backend))
    said = () if misread is None else ("\n".join((misread.sentence, *misread.table)),)
    health = examine(backend, found.data.inputs, found.data.labels, found.scores)
    if misread is not None and misread.cured:
        return (*said, *health.sentences), False
    return (*health.sentences, *said), health.mendable


def _write(path: Path, text: str, output: Output) -> None:
    from arachne.io.files import atomic_write

    atomic_write(path, text.encode())
    output.say(f"wrote '{path}'")


def _list_layers(model: ModelChoice, data: DataChoice, output: Output) -> None:
    """With data the model is run on a few inputs: only a run tells the order of the layers and what is unused."""
    from arachne.model.values import take
    from arachne.report.layers import LayersTable, layers_object

    backend = model.load()
    if data.data is not None:
        backend.forward(take(data.read(backend).inputs, slice(0, 4)))
    table = LayersTable.of(backend, executed=data.data is not None)
    output.result(table, layers_object(table, backend=backend.NAME))
