"""The whole flow in five stages: split, localise, search, choose, measure. `repair` is that sentence in code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from arachne.choose.budget import Budget, Choice
from arachne.choose.outlook import Outlook
from arachne.choose.select import select_point
from arachne.data.labelled import LabelledData
from arachne.data.split import Split
from arachne.evidence import Evidence, LabelNoise
from arachne.evidence.connections import describe_connections
from arachne.evidence.forecast import Forecast, forecast
from arachne.evidence.gates import Gate
from arachne.localise import Localisation
from arachne.model.backend import ModelBackend, restoring_weights
from arachne.model.lazy import is_lazy
from arachne.model.memory import memory_faults, peak_memory
from arachne.patch import Patch
from arachne.results.checkpoint import Checkpoints, run_fields
from arachne.results.divide import MIN_SEARCH_MEMORY, divide, take_rule
from arachne.results.finalise import add_smaller_steps, build_patch, minimise_choice
from arachne.results.kept_passes import confirm_held_out
from arachne.results.provenance import RawInputs, Sources, make_provenance
from arachne.results.result import RepairResult
from arachne.results.run import OnStep, Run
from arachne.scoring.cut import Cuts
from arachne.scoring.evaluators import make_evaluator
from arachne.scoring.threads import one_thread
from arachne.search import Pool, Problem, SearchResult
from arachne.search.build import build_problem
from arachne.search.measured import MeasuredCandidate, measure_front, with_held_out
from arachne.search.rounds import another_round
from arachne.search.state import Candidate, OnGeneration, SearchState
from arachne.settings import Settings

LAZY_SHARE = 4
"""With lazy data, arrays kept between candidates take at most this fraction (1 / LAZY_SHARE) of the memory limit."""


@one_thread()
def repair(
    backend: ModelBackend,
    data: LabelledData,
    target: str | Sequence[str],
    *,
    settings: Settings | None = None,
    holdout: LabelledData | None = None,
    never_break: LabelledData | None = None,
    keep_as_is: LabelledData | None = None,
    training: LabelledData | None = None,
    raw: RawInputs | None = None,
    on_step: OnStep | None = None,
    on_doubtful: Callable[[LabelNoise], None] | None = None,
    on_generation: OnGeneration | None = None,
    on_note: Callable[[str], None] | None = None,
    checkpoint: Checkpoints | None = None,
    gates: Sequence[Gate] = (),
) -> RepairResult:
    """Find a patch for a mistake, and measure it on inputs the search never saw.

    Args:
        backend: The model; it has its own weights again afterwards, whatever happens.
        data: Labelled inputs the model was not trained on, with labels as the task has them.
        target: The mistake, such as `6:0`.
        settings: How to repair.
        holdout: Other data for the verdict; half of `data` when None.
        never_break: Inputs that must stay right, where the original model gets them right.
        keep_as_is: Inputs without labels that the model should go on reading as it does: they count as inputs that are
            right, half of them held out.
        training: What the model was trained on, for searchers that retrain it.
        raw: Gives the inputs before preprocessing and their labels, for advice when the model is near chance.
        on_step: Called with the name of each stage as it begins.
        on_doubtful: Called before the search, with the negatives whose labels look wrong, if there are any.
        on_generation: Called after each generation of the search.
        on_note: Called with a sentence when something is done otherwise than asked (in smaller batches, for example),
            with what an experiment says of a cause, and with the forecast.
        checkpoint: Stores what the search has reached, and what an earlier run of the same repair had reached.
        gates: Conditions on the evidence that must not hold.

    Raises:
        NothingWithinBudgetError: No candidate keeps the budget; its `result` is what was found all the same.
        CheckpointError: There is a checkpoint that cannot be resumed.
        UsageError: The searcher cannot run on this model, or not without training data.
    """
    settings, data, holdout = take_rule(settings or Settings(), target, data, holdout)
    settings = settings.resolve(backend, training=training, never_break=never_break)
    sources = Sources(data, target, holdout, never_break, training, raw, keep_as_is)
    run = Run(
        settings.seed,
        time_limit=settings.time_limit,
        checkpoint=checkpoint,
        on_step=on_step,
        on_generation=on_generation,
        on_note=on_note,
    )
    divided = divide(run, backend, sources, settings, gates, on_doubtful)
    split, sources, settings = divided.split, divided.sources, divided.settings
    provenance = make_provenance(backend, sources, split, settings)
    run.resume(run_fields(backend, split, provenance))
    with run.flush_on_exit(), run.resuming_passes_of(backend), memory_faults():
        localisation = localise(run, backend, split, settings)
        problem, found, expected = search(run, backend, split, localisation, sources, settings)
        chosen = choose_candidate(run, problem, found, settings)
        settings = replace(settings, budget=chosen.budget)
        provenance = {**provenance, "settings": settings.to_json()}
        split = replace(split, held_out=confirm_held_out(backend, split.held_out))
        problem = replace(problem, split=split)
        found, patch, evidence, points = measure(run, problem, chosen, provenance)
        problem.forget()
    result = RepairResult(backend, split, localisation, found, patch, evidence, settings, run.seconds, divided.doubtful)
    connection = describe_connections(backend, patch, split.seen.data)
    result = replace(result, forecast=expected, experiments=divided.experiments, connection=connection)
    return replace(
        result, gates=tuple(gates), points=points, choice=chosen.choice, peak_memory=peak_memory()
    ).within_budget()


def localise(run: Run, backend: ModelBackend, split: Split, settings: Settings) -> Localisation:
    """Find the weights behind the mistake, or take them from the run that is resumed."""
    with run.stage("localise"):
        found = None if run.checkpoint is None else run.checkpoint.localisation(backend, run.rng)
        if found is None:
            work = partial(settings.known_localiser.localise, backend, split.seen, rng=run.rng)
            found = run.fit_memory(backend, work, keep="localise")
        if run.checkpoint is not None:
            run.checkpoint.keep_localisation(found, run.rng)
    return found


def search(
    run: Run, backend: ModelBackend, split: Split, localisation: Localisation, sources: Sources, settings: Settings
) -> tuple[Problem, SearchResult, Forecast | None]:
    """Search new values for the weights, from the beginning or from where an earlier run had got to.

    Returns:
        The problem, what was found, and the forecast.
    """
    suspects, allowed = localisation.suspects, settings.known_localiser.layer_filter
    with run.stage("search"), restoring_weights(backend, suspects.parameters):
        share = LAZY_SHARE if is_lazy(sources.data.inputs) else 1
        memory = max(MIN_SEARCH_MEMORY, settings.memory // share)
        evaluate = partial(make_evaluator, settings.evaluator, memory=memory)
        others = settings.budget is not None and not settings.budget.limits_breaks
        problem = build_problem(
            backend, split, suspects, settings.alpha, evaluate, sources.training, allowed, others=others
        )
        state = run.resumed_state()
        outlook = begin_outlook(run, problem, settings, state)
        on_state = outlook.after(run.on_state(state))
        found = settings.searcher.search(problem, rng=run.rng, state=state, on_state=on_state, stop=run.stop_reason)
        problem.forget_fits()
        front = [one if one.made_by else replace(one, made_by=settings.searcher.name) for one in found.front]
        found = replace(found, front=tuple(front))
        if settings.budget is not None and len(found.front) == 1:
            found = add_smaller_steps(problem, found)
    return problem, found, outlook.forecast


def begin_outlook(run: Run, problem: Problem, settings: Settings, state: SearchState | None) -> Outlook:
    """Begin to watch a search for its forecast; one without quick members is forecast at once."""
    outlook = Outlook(problem, settings.searcher, run.note)
    if state is not None:
        outlook.look(state)
    if not isinstance(settings.searcher, Pool):
        outlook.forecast = forecast(problem.backend, problem.split.seen)
        if outlook.forecast is not None:
            run.note(outlook.forecast.sentence)
    return outlook


@dataclass(frozen=True, eq=False)
class ChosenFront:
    """A front with the choice made on it.

    Attributes:
        found: How the search went, with its front.
        budget: What the choice had to keep; None where a search handed back one candidate and nobody set a budget.
        points: What each candidate of the front does; empty without a budget.
        choice: Which candidate was taken, and why; None without a budget.
    """

    found: SearchResult
    budget: Budget | None = None
    points: tuple[MeasuredCandidate, ...] = ()
    choice: Choice | None = None


def choose_candidate(run: Run, problem: Problem, found: SearchResult, settings: Settings) -> ChosenFront:
    """Measure the front, choose the best candidate within the budget, minimise it, and search on from it if asked."""
    budget = settings.budget or (Budget() if len(found.front) > 1 else None)
    if budget is None:
        return ChosenFront(found)
    pick = partial(select_point, budget=budget, names=problem.split.class_names, objective=problem.split.objective)
    with run.stage("choose"):
        points = _measure_front(problem, found.front)
        choice = pick(points)
        found, points = minimise_choice(problem, found, points, choice)
    for number in range(2, settings.rounds + 1):
        with run.stage(f"round {number}"), restoring_weights(problem.backend, problem.suspects.parameters):
            more = search_again(run, problem, found, choice, number, settings)
            points = (*points, *_measure_front(problem, more))
            found = replace(found, front=(*found.front, *more))
            before, choice = choice, pick(points)
        if choice.index == before.index:
            break
    return ChosenFront(found, budget, points, choice)


def search_again(
    run: Run, problem: Problem, found: SearchResult, choice: Choice, number: int, settings: Settings
) -> tuple[Candidate, ...]:
    """Search for candidates on top of the chosen one; none where nothing was chosen or time is up."""
    if choice.index is None or run.stop_reason() is not None:
        return ()
    return another_round(
        problem,
        found.front[choice.index],
        number,
        localiser=settings.known_localiser,
        searcher=settings.searcher,
        alpha=settings.alpha,
        rng=run.rng,
        stop=run.stop_reason,
    )


def measure(
    run: Run, problem: Problem, chosen: ChosenFront, provenance: dict[str, Any]
) -> tuple[SearchResult, Patch, Evidence, tuple[MeasuredCandidate, ...]]:
    """Build the chosen patch, and measure it and the front on inputs that no earlier stage has used."""
    backend, split = problem.backend, problem.split
    with run.stage("measure"):
        held_out = Cuts(backend, split.held_out.data.inputs)
        cuts = {split.seen: problem.cuts, split.held_out: held_out}
        points = with_held_out(backend, split, chosen.points, held_out)
        found, patch, evidence = build_patch(backend, split, chosen.found, chosen.choice, provenance, points, cuts)
    return found, patch, evidence, points


def _measure_front(problem: Problem, front: Sequence[Candidate]) -> tuple[MeasuredCandidate, ...]:
    rows = np.zeros(0, np.int64) if problem.rows is None else problem.rows
    return measure_front(problem.backend, problem.split, front, rows, problem.cuts)
