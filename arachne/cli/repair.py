"""`arachne repair`: repair a mistake, and show what that did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arachne.cli.border import harmless_option
from arachne.cli.budgeting import (
    budget_from,
    budget_options,
    report_nothing_within,
    sources_of,
    tell_large,
    tell_never_break,
)
from arachne.cli.config import ConfiguredCommand, again, given_sources, going_on
from arachne.cli.gates import gate_options, pass_gates, read_gates
from arachne.cli.options import DURATION, DataChoice, ModelChoice
from arachne.cli.outputs import OUT_FOLDER, folder_for, is_resuming, resume_option
from arachne.cli.plugin_flags import (
    chosen_objective,
    make_chosen_objective,
    objective_option,
    pop_layers,
    search_options,
)
from arachne.cli.plugin_options import Chosen, given_options
from arachne.cli.running import ClusterChoice, cache_option, mistake_options, split_options, take_sources
from arachne.cli.task_flags import TaskChoice
from arachne.cli.tracking import track_option
from arachne.errors import UsageError
from arachne.plugins.table import LOCALISERS, SEARCHERS
from arachne.text import pluralise

if TYPE_CHECKING:
    from arachne.cli.console import Output
    from arachne.data.labelled import LabelledData
    from arachne.evidence import Gate
    from arachne.model.backend import ModelBackend
    from arachne.results.checkpoint import Checkpoints
    from arachne.results.result import RepairResult
    from arachne.search.state import OnGeneration
    from arachne.settings import Settings


@click.command(cls=ConfiguredCommand, short_help="Repair a mistake and show what that did.")
@mistake_options
@click.option("-o", "--out", type=OUT_FOLDER, help="Folder for the patch, the model and the result.")
@resume_option
@split_options
@harmless_option("--faithful", is_flag=True, help="Repair as the paper does, to the letter.")
@budget_options
@objective_option
@search_options
@cache_option
@harmless_option(
    "--time-limit", type=DURATION, help="End the search after this time and take the best so far: 60s, 2min, 90."
)
@harmless_option(
    "--rounds",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="How often to search, each time for what is still wrong; a later round is kept only if it is better.",
)
@track_option
@gate_options
@click.pass_context
def command(
    context: click.Context,
    /,
    targets: tuple[str, ...],
    out: Path | None,
    holdout: str | None,
    never_break: str | None,
    keep_as_is: str | None,
    training: str | None,
    conditions: tuple[str, ...],
    junit: Path | None,
    tracks: tuple[str, ...],
    **arguments: Any,
) -> None:
    """Repair a mistake of MODEL: find the weights behind it, look for new values, and measure what that did."""
    from arachne.choose.budget import Budget
    from arachne.cli.signals import Stopping
    from arachne.evidence.grade import OVERRUN, REDUCED, REMOVED, WORSE
    from arachne.report.terminal import EvidenceTable
    from arachne.report.tracks import Tracks
    from arachne.results.checkpoint import Checkpoints
    from arachne.tasks import rule_in

    output, model, data, machines = take_sources(context, arguments)
    settings = replace(settings_from(arguments), memory=data.memory)
    settings = replace(settings, task=rule_in(targets, settings.task) or settings.task)
    several = never_break is not None or settings.objective is not None or settings.rounds > 1
    if several and settings.budget is None:
        settings = replace(settings, budget=Budget())
    tell_large(output, settings.budget)
    gates = read_gates(conditions, junit)
    stopping = context.with_resource(Stopping(output.say, lambda: going_on(context)))
    with Tracks(tracks, parameters=_tracking_facts(targets, settings, model, data), tell=output.say) as tracked:
        with folder_for(out, model.file, data.data, holdout, never_break, keep_as_is, training) as folder:
            checkpoint = (
                None if folder is None else Checkpoints(folder.checkpoints, resume=is_resuming(), tell=output.say)
            )
            with stopping.keeping(checkpoint):
                others = {"holdout": holdout, "never_break": never_break, "training": training}
                backend = open_backend(context, output, model, machines)
                kept = data.read_kept(keep_as_is)
                result = _run_repair(output, backend, data, targets, settings, others, kept, checkpoint, tracked, gates)
                if folder is not None:
                    sources = sources_of(model, data, holdout=holdout, never_break=never_break, keep_as_is=keep_as_is)
                    result = result.save(
                        folder, reopen=model.load, command=again(context), given=given_sources(context), sources=sources
                    )
        tracked.finish(result.evidence, out)
    if any(text.strip().startswith("top:") for text in targets):
        output.say(f"target {', '.join(targets)}: {', '.join(map(str, result.split.targets))}")
    tell(output, result)
    for note in result.notes:
        output.say(f"note: {note}")
    output.result(EvidenceTable(result.evidence, result.patch, result.connection), result.to_json())
    verdict = result.evidence.verdict
    costly = verdict.word == WORSE or verdict.limit_state == OVERRUN
    if costly and result.choice is not None:
        output.say("hint: a smaller --max-break breaks less, and may repair less")
    elif costly and settings.searcher.uses_alpha and settings.alpha > 1:
        output.say(f"hint: an --alpha below {settings.alpha:g} breaks less, and may repair less")
    if verdict.word not in (REDUCED, REMOVED) or (_is_weak(result) and out is not None and not costly):
        for step in result.next_steps(given_sources(context), out or Path("fix"))[: 2 if out is not None else 1]:
            output.say(f"next: {step['sentence'][0].lower()}{step['sentence'][1:]}:\n  {step['command']}")
    output.tell_written(out)
    pass_gates(output, [gate.check(result.evidence) for gate in gates], result.evidence, junit)


def _is_weak(result: RepairResult) -> bool:
    """Tell whether more than half of the fault is left."""
    held_out = result.evidence.held_out
    return 2 * held_out.target_errors_after > held_out.target_errors_before


def open_backend(context: click.Context, output: Output, model: ModelChoice, machines: ClusterChoice) -> ModelBackend:
    """Open the model, and let a cluster run it if one is asked for."""
    from arachne.report.folder import check_names

    backend = model.load()
    check_names(backend.describe(), f"model{backend.suffix}")
    return machines.share(context, backend, output)


class _Heading:
    """Names the model once the target is understood: nothing looks begun before."""

    def __init__(self, output: Output, backend: ModelBackend) -> None:
        about = backend.describe()
        self._output = output
        self._lines = [f"model: {about.source or about.format} ({about.framework}, {about.device})"]

    def say(self, text: str) -> None:
        """Print a line below the heading."""
        self._print()
        self._output.say(text)

    def step(self, name: str) -> None:
        """Name a step; the first one, `split`, reads the target."""
        if name != "split":
            self._print()
        self._output.step("run the model" if name == "split" else name)

    def _print(self) -> None:
        while self._lines:
            self._output.say(self._lines.pop())


def _run_repair(
    output: Output,
    backend: ModelBackend,
    data: DataChoice,
    targets: tuple[str, ...],
    settings: Settings,
    others: dict[str, str | None],
    kept: LabelledData | None,
    checkpoint: Checkpoints | None,
    tracked: OnGeneration,
    gates: Sequence[Gate],
) -> RepairResult:
    """Open the data, and repair; `others` are the further sources by name, `kept` the inputs to keep as they are."""
    from arachne import engine
    from arachne.report.records import together

    task, most = settings.task, settings.searcher.most_generations
    heading = _Heading(output, backend)
    with output.progress("read the data", most) as on_generation, report_nothing_within(output):
        labelled = data.read(backend, task=task, tell=output.say)
        read = {
            name: None if source is None else data.read(backend, source, task=task) for name, source in others.items()
        }
        return engine.repair(
            backend,
            labelled,
            targets,
            settings=settings,
            **read,
            keep_as_is=kept,
            raw=lambda: data.raw(backend, task),
            on_step=heading.step,
            on_doubtful=lambda doubtful: heading.say(f"note: {doubtful}"),
            on_generation=together(on_generation, tracked),
            on_note=heading.say,
            checkpoint=checkpoint,
            gates=gates,
        )


def _tracking_facts(
    targets: tuple[str, ...], settings: Settings, model: ModelChoice, data: DataChoice
) -> dict[str, Any]:
    """Facts that a tracked run is recorded with, so that runs can be told apart."""
    return {
        "target": ", ".join(targets),
        "model": str(model.file or model.factory),
        "data": str(data.data),
        "searcher": settings.searcher.name,
        "seed": settings.seed,
    }


def settings_from(arguments: dict[str, Any]) -> Settings:
    """The settings a command line asks for."""
    from arachne.settings import make_localiser, make_searcher, make_settings

    faithful, budget = bool(arguments.pop("faithful")), budget_from(arguments)
    objective_text, named = arguments.pop("objective"), arguments.pop("localiser")
    if faithful:
        check_faithful(budget=budget, objective=objective_text, rounds=None if arguments["rounds"] == 1 else True)
    searcher = Chosen.of(SEARCHERS, arguments.pop("search") or ("de" if faithful else "auto"))
    localiser = Chosen.of(LOCALISERS, named or SEARCHERS.get(searcher.name).LOCALISER)
    objective, task = chosen_objective(objective_text), TaskChoice.taken_from(arguments)
    given = given_options(arguments.pop("plugin_options"), [searcher, localiser, *objective, *task.plugins])
    of_localiser = given[localiser] | pop_layers(arguments)
    chosen = named is not None or faithful or bool(of_localiser)
    if arguments["alpha"] is None:
        del arguments["alpha"]
    return make_settings(
        localiser=make_localiser(localiser.name, faithful=faithful, **of_localiser) if chosen else None,
        searcher=make_searcher(searcher.name, faithful=faithful, **given[searcher]),
        budget=budget,
        objective=make_chosen_objective(objective_text, given[objective[0]] if objective else {}),
        task=task.make(given),
        **arguments,
    )


def check_faithful(**others: Any) -> None:
    """Refuse what the paper's repair does not have.

    Raises:
        UsageError: One of these is given.
    """
    for name, value in others.items():
        if value is not None:
            raise UsageError(f"--faithful is the paper to the letter, which knows no {name}; leave out one of them")


def tell(output: Output, result: RepairResult) -> None:
    """Print what happened on the way, for people."""
    from arachne.results.run import TIME_LIMIT
    from arachne.search.measured import count_found

    seen, found = result.split.seen, result.localisation
    copies = sum(map(len, result.split.copies.values()))
    planted = f" and {pluralise(copies, 'copy', 'copies')} of right inputs with the cause planted" if copies else ""
    output.say(
        f"seen: {pluralise(len(seen.negatives), 'negative')}{planted}, {pluralise(len(seen.positives), 'positive')}; "
        f"held out: {len(result.split.held_out.negatives):,} and {len(result.split.held_out.positives):,}"
    )
    widened = f", widened from a front of {found.front}" if found.beyond_front else ""
    steps = [f"localised {len(found.suspects):,} of {found.n_candidates:,} weights"]
    output.detail(f"{steps[0]} ({found.method}{widened})")
    output.detail(f"searched {pluralise(result.search.generations, 'step')} ({result.search.stopped})")
    if result.choice is not None:
        output.detail(f"chose by: {result.choice.rule}; {result.choice.why}")
        chosen = None if result.choice.index is None else result.points[result.choice.index]
        steps.append(f"found {pluralise(count_found(result.points), 'patch', 'patches')}")
        if chosen is not None:
            before = chosen.minimised_from
            enough = f"{chosen.weights:,} {'suffices' if chosen.weights == 1 else 'suffice'}"
            fewer = "" if before in (None, chosen.weights) else f", of which {enough}"
            steps.append(f"took one of {pluralise(before or chosen.weights, 'weight')}{fewer}")
    if TIME_LIMIT in result.search.stopped:
        steps.append("the time limit ended the search, and a longer one may find more")
    output.say("; ".join(steps))
    if result.choice is not None and result.choice.budget.confidence is not None:
        output.say(f"guaranteed on inputs kept from the search, {result.choice.budget}: {result.choice.why}")
    if result.split.never_break is not None:
        tell_never_break(output, result.split.never_break)
    output.detail("seconds: " + ", ".join(f"{step} {seconds:.1f}" for step, seconds in result.seconds.items()))
