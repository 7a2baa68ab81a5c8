"""The whole flow: inputs, backend, localise, search, patch, evidence. `repair` is that sentence in code."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np

from arachne.backend import ModelBackend, restored
from arachne.causes.targets import CauseTargets, rules_of
from arachne.checkpoint import Checkpoints, Saved, run_fields
from arachne.chosen import smaller, take, with_shrunk
from arachne.data.chance import check_accuracy
from arachne.data.class_order import check_class_order
from arachne.data.grouping import groups_by_column, with_objective
from arachne.data.labelled import LabelledData
from arachne.data.seen import told_seen
from arachne.data.split import Run, Split, never_break_part, overlap, split_by_outcome
from arachne.data.training import training_beside
from arachne.errors import DataError, UsageError
from arachne.evaluate import make_evaluator
from arachne.evidence import Doubtful, doubtful_labels
from arachne.lazy import is_lazy
from arachne.localise import Localisation
from arachne.memory import in_batches_that_fit, memory_faults
from arachne.result import RepairResult
from arachne.search import Problem, SearchResult, SearchState
from arachne.search.budget import Budget
from arachne.search.choose import Choice, choose, too_few
from arachne.search.posing import posed
from arachne.search.rounds import another_round
from arachne.search.standing import Point, measure_front, with_held_out
from arachne.search.state import Candidate, OnGeneration, each_generation
from arachne.search.tail_inputs import run_and_keep
from arachne.search.tunable import Cuts
from arachne.settings import Settings
from arachne.values import Array, Inputs

LAZY_SHARE = 4
"""With lazy data, what is kept between candidates takes one part of this many of what may be held."""

OnStep = Callable[[str], None]
RawInputs = Callable[[], tuple[Inputs, Array]]


def repair(
    backend: ModelBackend,
    data: LabelledData,
    target: str | Sequence[str],
    *,
    settings: Settings | None = None,
    holdout: LabelledData | None = None,
    never_break: LabelledData | None = None,
    training: LabelledData | None = None,
    raw: RawInputs | None = None,
    on_step: OnStep | None = None,
    on_doubtful: Callable[[Doubtful], None] | None = None,
    on_generation: OnGeneration | None = None,
    on_note: Callable[[str], None] | None = None,
    checkpoint: Checkpoints | None = None,
) -> RepairResult:
    """Find a patch for a mistake, and measure it on inputs the search never saw.

    Args:
        backend: The model; it has its own weights again afterwards, whatever happens.
        data: Labelled inputs the model was not trained on.
        target: The mistake, such as `6:0`.
        settings: How to repair.
        holdout: Other data for the verdict; half of `data` when None.
        never_break: Inputs that must stay right, where the original model gets them right.
        training: What the model was trained on, for searchers that retrain it.
        raw: Gives the inputs before preprocessing and their labels, for advice when the model is near chance.
        on_step: Called with the name of each step as it begins.
        on_doubtful: Called before the repair starts, with the negatives whose labels look wrong, if there are any.
        on_generation: Called after each generation of the search.
        on_note: Called with a sentence when something is done otherwise than asked: in smaller batches, for example.
        checkpoint: Keeps what the search has reached, and what an earlier run of the same repair had reached.

    Raises:
        NothingWithinBudgetError: No candidate keeps the budget; its `result` is what was found all the same.
        CheckpointError: There is a checkpoint that cannot be gone on from.
        UsageError: The searcher cannot run on this model, or not without training data.
    """
    settings = settings or Settings()
    refusal = settings.searcher.refusal(backend, training)
    if refusal is not None:
        missing = settings.searcher.NEEDS_TRAINING and training is None
        raise UsageError(refusal, argument="training" if missing else None)
    settings = replace(settings, localiser=settings.finder(backend))
    if (never_break is not None or settings.objective is not None or settings.rounds > 1) and settings.budget is None:
        settings = replace(settings, budget=Budget())
    clock = Stopwatch(on_step)
    rng = np.random.default_rng(settings.seed)
    run = partial(run_and_keep, backend) if settings.searcher.LOOKS_AT_TAIL else None
    with clock.step("split"):
        work = partial(
            split_by_outcome,
            backend,
            data,
            target,
            rng=rng,
            holdout=holdout,
            choose=settings.choose_share,
            drop_overlap=settings.drop_overlap,
            group_by=settings.group_by,
            causes=CauseTargets(backend),
            run=run,
        )
        split = in_batches_that_fit(backend, work, rng=rng, tell=on_note)
        split = with_constraints(backend, split, settings.budget, never_break, run)
        split = with_objective(split, settings.objective)
        settings = replace(settings, objective=split.objective)
        if not settings.accept_near_chance:
            check_class_order(split.seen)
            check_accuracy(backend, split.seen, raw=raw)
        doubtful = doubtful_labels(split.seen)
        if training is not None:
            training = training_beside(backend, training, split, drop_overlap=settings.drop_overlap)
    if on_doubtful is not None and len(doubtful):
        on_doubtful(doubtful)
    told = provenance(backend, data, split, settings, holdout, never_break, training)
    resumed = None if checkpoint is None else checkpoint.open(run_fields(backend, split, told))
    if checkpoint is not None:
        checkpoint.seconds = clock.so_far
    if resumed is not None:
        clock.earlier(resumed.seconds)
    with nullcontext() if checkpoint is None else checkpoint.guarded(), memory_faults():
        with clock.step("localise"):
            localisation = localised(backend, split, settings, checkpoint, on_note, rng=rng)
        suspects = localisation.suspects
        with clock.step("search"), restored(backend, suspects.parameters):
            share = LAZY_SHARE if is_lazy(data.inputs) else 1
            evaluate = partial(make_evaluator, settings.evaluator, memory=settings.memory // share)
            problem, rows = posed(backend, split, suspects, settings.alpha, evaluate, training)
            stop = None if settings.time_limit is None else partial(clock.over, settings.time_limit)
            found = searched(problem, settings, resumed, checkpoint, on_generation, stop, rng=rng)
            if settings.budget is not None and len(found.front) == 1:
                found = with_shrunk(problem, found)
        if settings.budget is None and len(found.front) > 1:
            settings = replace(settings, budget=Budget())
        points: tuple[Point, ...] = ()
        choice: Choice | None = None
        if settings.budget is not None:
            with clock.step("choose"):
                points = measure_front(backend, split, found.front, rows, problem.cuts)
                choice = choose(points, settings.budget, split.class_names, split.objective)
                found, points = smaller(problem, found, points, choice)
            for number in range(2, settings.rounds + 1):
                with clock.step(f"round {number}"), restored(backend, suspects.parameters):
                    more = next_round(problem, found, choice, number, settings, stop, rng=rng)
                    points = (*points, *measure_front(backend, split, more, rows, problem.cuts))
                    found = replace(found, front=(*found.front, *more))
                    before, choice = choice, choose(points, settings.budget, split.class_names, split.objective)
                if choice.index == before.index:
                    break
        with clock.step("measure"):
            told = {**told, "settings": settings.to_json()}
            held_out = Cuts(backend, split.held_out.data.inputs)
            cuts = {split.seen: problem.cuts, split.held_out: held_out}
            points = with_held_out(backend, split, points, held_out)
            found, patch, evidence = take(backend, split, found, choice, told, points, cuts)
    result = RepairResult(backend, split, localisation, found, patch, evidence, settings, clock.seconds, doubtful)
    return replace(result, points=points, choice=choice).within_budget()


def localised(
    backend: ModelBackend,
    split: Split,
    settings: Settings,
    checkpoint: Checkpoints | None,
    on_note: Callable[[str], None] | None,
    *,
    rng: np.random.Generator,
) -> Localisation:
    """The weights behind the mistake: found now, or by the run that is resumed."""
    found = None if checkpoint is None else checkpoint.localisation(backend, rng)
    if found is None:
        work = partial(settings.finder(backend).localise, backend, split.seen, rng=rng)
        found = in_batches_that_fit(backend, work, rng=rng, tell=on_note)
    if checkpoint is not None:
        checkpoint.localised(found, rng)
    return found


def searched(
    problem: Problem,
    settings: Settings,
    resumed: Saved | None,
    checkpoint: Checkpoints | None,
    on_generation: OnGeneration | None,
    stop: Callable[[], str | None] | None,
    *,
    rng: np.random.Generator,
) -> SearchResult:
    """What the search finds, from the beginning or from where an earlier run had got to."""
    state = None if resumed is None else resumed.state
    if resumed is not None:
        rng.bit_generator.state = resumed.random
    tell = None
    if on_generation is not None:
        tell = each_generation(on_generation, 0 if state is None else len(state.history))

    def on_state(state: SearchState) -> None:
        if checkpoint is not None:
            checkpoint.at(state, rng)
        if tell is not None:
            tell(state)

    found = settings.searcher.search(problem, rng=rng, state=state, on_state=on_state, stop=stop)
    return named(found, settings.searcher.name)


def next_round(
    problem: Problem,
    found: SearchResult,
    choice: Choice,
    number: int,
    settings: Settings,
    stop: Callable[[], str | None] | None,
    *,
    rng: np.random.Generator,
) -> tuple[Candidate, ...]:
    """What another round finds on top of what was chosen; nothing where nothing was, or time is up."""
    if choice.index is None or (stop is not None and stop() is not None):
        return ()
    localiser, searcher = settings.finder(problem.backend), settings.searcher
    taken, alpha = found.front[choice.index], settings.alpha
    return another_round(
        problem, taken, number, localiser=localiser, searcher=searcher, alpha=alpha, rng=rng, stop=stop
    )


def with_constraints(
    backend: ModelBackend,
    split: Split,
    budget: Budget | None,
    never_break: LabelledData | None,
    run: Run | None = None,
) -> Split:
    """The split with the inputs that must stay right; a budget that can never be kept ends the run here.

    A search sees the never-break inputs, so those that were kept for choosing as well are taken out there.

    Raises:
        UsageError: The budget names a class the model does not have, or a group that the data does not have.
        DataError: There are too few inputs for the guarantee it asks for, or none of `never_break` is right.
    """
    if never_break is not None:
        kept = never_break_part(backend, never_break, run=run)
        unseen = np.setdiff1d(np.arange(len(split.choose)), overlap(kept.data, split.choose.data))
        split = replace(split, never_break=kept, choose=split.choose.take(unseen))
    if budget is not None:
        budget.class_limits(split.class_names)
        budget.group_limits(groups_by_column(split.seen.data))
        positives = len(split.choose.positives)
        if positives < budget.fewest_positives:
            raise DataError(too_few(budget, positives))
    return split


def named(found: SearchResult, searcher: str) -> SearchResult:
    """The same with the searcher's name on every candidate that has none."""
    front = tuple(one if one.made_by else replace(one, made_by=searcher) for one in found.front)
    return replace(found, front=front)


def provenance(
    backend: ModelBackend,
    data: LabelledData,
    split: Split,
    settings: Settings,
    holdout: LabelledData | None = None,
    never_break: LabelledData | None = None,
    training: LabelledData | None = None,
) -> dict[str, Any]:
    """How a patch came about: enough to make it again."""
    judged: dict[str, Any] | None = None
    if holdout is not None:
        judged = {**_identified(holdout), "dropped": len(holdout) - len(split.held_out)}
    causes = rules_of(split.targets)
    return {
        "target": [str(target) for target in split.targets],
        **({"causes": causes} if causes else {}),
        "seed": settings.seed,
        "settings": settings.to_json(),
        "data": {**_identified(data), "seen": _seen(data, split, never_break)},
        "holdout": judged,
        **({} if never_break is None else {"never_break": _identified(never_break)}),
        **({} if training is None else {"training": _identified(training)}),
        **({"trusted_code": True} if backend.trusted_code else {}),
        "versions": {
            "arachne": version("arachne-repair"),
            "numpy": np.__version__,
            "pymoo": version("pymoo"),
            "framework": backend.describe().framework,
            "python": platform.python_version(),
        },
    }


def _seen(data: LabelledData, split: Split, never_break: LabelledData | None) -> dict[str, Any]:
    rows = np.concatenate([split.seen.rows, split.choose.rows])
    return told_seen(rows, data, () if never_break is None else [never_break])


def _identified(data: LabelledData) -> dict[str, Any]:
    return {"name": data.source, "sha256": data.sha256(), "inputs": len(data)}


class Stopwatch:
    """Times the steps of a run and tells when each begins."""

    def __init__(self, on_step: OnStep | None = None) -> None:
        self._on_step = on_step
        self._start = time.perf_counter()
        self._now: tuple[str, float] | None = None
        self.seconds: dict[str, float] = {}

    def earlier(self, seconds: Mapping[str, float]) -> None:
        """Add the time that the run which is resumed had taken."""
        self._start -= sum(seconds.values())
        for name, own in seconds.items():
            self.seconds[name] = round(self.seconds.get(name, 0.0) + own, 4)

    def so_far(self) -> dict[str, float]:
        """The time of each step, with that under way as if it ended now."""
        name, start = self._now or ("", 0.0)
        return {**self.seconds, name: self._with(name, start)} if name else dict(self.seconds)

    def over(self, limit: float) -> str | None:
        """Why a search should end now, if more than `limit` seconds have passed."""
        passed = time.perf_counter() - self._start
        return f"the time limit of {limit:g} s was reached" if passed >= limit else None

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time one step."""
        if self._on_step is not None:
            self._on_step(name)
        start = time.perf_counter()
        self._now = name, start
        yield
        self.seconds[name] = self._with(name, start)
        self._now = None

    def _with(self, name: str, start: float) -> float:
        return round(self.seconds.get(name, 0.0) + time.perf_counter() - start, 4)
