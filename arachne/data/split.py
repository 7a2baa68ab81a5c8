"""Split the data: seen by the repair, reserved for choosing between candidates, held out for the verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Protocol, Self

import numpy as np

from arachne.data.chance import advice, compare_preprocessings
from arachne.data.classes import check_names
from arachne.data.keeping import label_kept
from arachne.data.labelled import LabelledData
from arachne.data.strata import divide
from arachne.data.targets import Target, parse_targets
from arachne.errors import DataError, ModelError, NothingToRepairError, UsageError, did_you_mean
from arachne.fairness.base import Objective
from arachne.model.values import Array, Inputs
from arachne.tasks import SINGLE_LABEL, DecisionRows, Decisions, Task, default_task
from arachne.text import are, pluralise

if TYPE_CHECKING:
    from arachne.model.backend import LossGradient, ModelBackend, Trace, Weights

DUPLICATES = "duplicates"
"""A value of `group_by`: inputs of the same content are one group."""

Causes = Callable[[str | Target | Sequence[str | Target], LabelledData, Array], Sequence[str | Target]]
"""Resolves `cause:` targets, from the targets, the data and the model's predictions."""


class ActivationCache(Protocol):
    """Activations cached from a pass of the original model over some inputs."""

    def take(self, rows: Array) -> Self:
        """Select rows."""

    def trace(self, rows: Array, layers: Sequence[str]) -> Trace | None:
        """Trace some inputs like `ModelBackend.trace`; None if too little is cached."""

    def weight_gradients(
        self, rows: Array, loss_gradient: LossGradient, parameters: Sequence[tuple[str, str]]
    ) -> Weights | None:
        """Compute gradients for some inputs like `ModelBackend.weight_gradients`; None if too little is cached."""


Run = Callable[[Inputs], tuple[Array, ActivationCache | None]]
"""Runs the original model: returns class scores `(n, classes)`, and the activations it cached."""

MAX_POSITIVES = 20_000
"""Positives that a search is given where inputs have several decisions; the evidence counts all of them."""

TermKind = Literal["positive", "negative", "never_break"]
"""Decisions that are right and should stay right, decisions to repair, decisions that must not become wrong."""


@dataclass(frozen=True, eq=False)
class Term:
    """A term of the fitness: some rows of a part with one weight, to repair or to keep right."""

    name: str
    rows: Array
    weight: float
    kind: TermKind


@dataclass(frozen=True, eq=False)
class Part:
    """Some rows of the user's data with the original model's outputs.

    Parts are selected by inputs, but labels, predictions, positives, negatives and targets are per decision `(m,)`.
    With one label for each input, decisions are inputs.

    Attributes:
        data: The inputs and labels, `n` of them.
        rows: Their row numbers in the user's data `(n,)`.
        outputs: The original model's raw outputs `(n, ...)`, class scores `(n, classes)` with one label for each input.
            The original model runs once over each input, and all its numbers derive from these.
        targets: The faults to repair.
        cached_activations: Activations of that pass, which need not be computed again; None if there are none.
        task: Reads outputs as decisions.
    """

    data: LabelledData
    rows: Array
    outputs: Array
    targets: tuple[Target, ...]
    cached_activations: ActivationCache | None = None
    task: Task = SINGLE_LABEL

    def __post_init__(self) -> None:
        if len(self.outputs) != len(self.data) or (self.task.SINGLE and self.outputs.ndim != 2):
            raise DataError(
                f"expected scores of shape ({len(self.data)}, classes), one row per input, got {self.outputs.shape}"
            )

    def __len__(self) -> int:
        return len(self.data)

    @cached_property
    def decisions(self) -> Decisions:
        """The decisions of the original model."""
        return self.read(self.outputs)

    def read(self, outputs: Array) -> Decisions:
        """Read a model's raw outputs `(n, ...)` of the part's inputs as decisions."""
        return self.task.read(outputs, self.data.labels)

    @property
    def scores(self) -> Array:
        """The original model's class scores of every decision `(m, classes)`."""
        return self.decisions.scores

    @property
    def labels(self) -> Array:
        """The true class of every decision `(m,)`."""
        return self.decisions.labels

    @property
    def decision_rows(self) -> Array:
        """The row number in the user's data of every decision's input `(m,)`."""
        return self.rows if self.task.SINGLE else self.rows[self.decisions.inputs]

    def by_decision(self, values: Array) -> Array:
        """Return the value of each decision's input `(m,)`, from one value for each input `(n,)`."""
        return values if self.task.SINGLE else values[self.decisions.inputs]

    @cached_property
    def repeated_inputs(self) -> Array | None:
        """The input of each decision, `(m,)`, where one has several; None where no input has more than one."""
        inputs = self.decisions.inputs
        return None if self.task.SINGLE or len(np.unique(inputs)) == len(inputs) else inputs

    def choose_decisions(self, numbers: Array) -> DecisionRows:
        """Return some decisions of the part, by number, to be read from other outputs of its inputs."""
        return DecisionRows(self.task, self.data.labels, self.decisions.inputs, numbers)

    @property
    def n_classes(self) -> int:
        """How many classes a decision is between."""
        return int(self.scores.shape[1])

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        """The name of every class that decisions are between, or its number as text; `classes_of` numbers them."""
        return self.task.name_classes(self.data.class_names, self.task.n_names(self.outputs))

    def classes_of(self, columns: Array, rows: Array | None = None) -> Array:
        """Return the number of a class among `class_names` for each decision, from its column of the scores `(m,)`.

        Args:
            columns: A column of each decision's scores: its label, or a prediction.
            rows: The decisions these are of; all of the part when None.
        """
        first = self.decisions.first
        return columns if first is None else columns + (first if rows is None else first[rows])

    @cached_property
    def label_classes(self) -> Array:
        """The number of every decision's true class among `class_names`, `(m,)`."""
        return self.classes_of(self.labels)

    @cached_property
    def prediction_classes(self) -> Array:
        """The number of the original model's class among `class_names` for every decision, `(m,)`."""
        return self.classes_of(self.predictions)

    @cached_property
    def predictions(self) -> Array:
        """The class of the original model for each decision `(m,)`; the first of several equal scores wins."""
        return self.task.decide(self.scores)

    @cached_property
    def right(self) -> Array:
        """Which decisions of the original model are right, bool `(m,)`."""
        return self.task.correct(self.scores, self.labels)

    @cached_property
    def positives(self) -> Array:
        """Numbers of the decisions that are right."""
        return np.flatnonzero(self.right)

    @cached_property
    def negatives(self) -> Array:
        """Numbers of the decisions that show any target."""
        shown = np.zeros(len(self.decisions), dtype=bool)
        for target in self.targets:
            shown |= self.shows(target)
        return np.flatnonzero(shown)

    def take(self, positions: Array) -> Part:
        """Select inputs of the part by position."""
        cached = None if self.cached_activations is None else self.cached_activations.take(positions)
        rows, outputs = self.rows[positions], self.outputs[positions]
        return Part(self.data.take(positions), rows, outputs, self.targets, cached, self.task)

    def sample_decisions(self, numbers: Array, most: int) -> Array:
        """Return some of these decisions, ascending and the same in every run; with one label for each input, all."""
        if self.task.SINGLE or len(numbers) <= most:
            return numbers
        return np.sort(np.random.default_rng(0).choice(numbers, most, replace=False))

    @cached_property
    def kept_decisions(self) -> Array | None:
        """Which decisions must stay as the model made them, bool `(m,)`; None if there are none."""
        return None if self.data.kept is None else self.by_decision(self.data.kept)

    @property
    def labelled_part(self) -> Part:
        """The inputs that somebody has labelled."""
        return self if self.data.kept is None else self.take(np.flatnonzero(~self.data.kept))

    def shows(self, target: Target, predictions: Array | None = None) -> Array:
        """Return which decisions show a target, bool `(m,)`; those that are only kept as they are never do.

        Args:
            target: The target.
            predictions: Other classes than the original model's, by their numbers among `class_names`.
        """
        predictions = self.prediction_classes if predictions is None else predictions
        shown = target.shows(self.label_classes, predictions, self.decision_rows)
        return shown if self.kept_decisions is None else shown & ~self.kept_decisions

    def terms(self, alpha: float) -> tuple[Term, ...]:
        """Return the terms of the fitness: the positives, then every target's negatives with `alpha` times the weight.

        A row that shows two targets counts for the first. Of very many positives, as pixels are, a sample is taken.
        """
        terms = [Term("positives", self.sample_decisions(self.positives, MAX_POSITIVES), 1.0, "positive")]
        taken = np.zeros(len(self.decisions), dtype=bool)
        for target in self.targets:
            shown = self.shows(target) & ~taken
            taken |= shown
            terms.append(Term(target.text, np.flatnonzero(shown), alpha * target.weight, "negative"))
        return tuple(terms)


@dataclass(frozen=True, eq=False)
class Split:
    """The three parts, and the targets they were made for.

    Attributes:
        seen: The inputs the repair works on.
        choose: The inputs reserved for comparing candidates; may be empty.
        held_out: The inputs the verdict comes from.
        targets: The faults to repair.
        never_break: Inputs of the user's choice; those the original model gets right must stay right.
        objective: The fairness objective, with its column.
    """

    seen: Part
    choose: Part
    held_out: Part
    targets: tuple[Target, ...]
    never_break: Part | None = None
    objective: Objective | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        """Every part of the data: held out, seen, reserved for choosing, and never to break if there is one."""
        never_break = () if self.never_break is None else (self.never_break,)
        return (self.held_out, self.seen, self.choose, *never_break)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The name of every class of the model, or its number as text."""
        return self.seen.class_names


def split_by_outcome(
    backend: ModelBackend,
    data: LabelledData,
    target: str | Target | Sequence[str | Target],
    *,
    rng: np.random.Generator,
    holdout: LabelledData | None = None,
    choose: float = 0.0,
    drop_overlap: bool = False,
    group_by: str | Array | None = None,
    causes: Causes | None = None,
    run: Run | None = None,
    task: Task | None = SINGLE_LABEL,
) -> Split:
    """Divide the data into a part that the repair sees and a part for the verdict.

    Halves are stratified by (label, prediction), as in the paper; the same generator state gives the same halves.

    Args:
        backend: The original model.
        data: The user's data.
        target: The faults to repair.
        rng: The source of randomness.
        holdout: Other data for the verdict; all of `data` is then seen.
        choose: Share of the seen part taken out for choosing between candidates.
        drop_overlap: Whether inputs of `holdout` that are also in `data` are dropped rather than refused.
        group_by: A metadata column, one value per input `(n,)`, or `duplicates`: inputs with the same value stay on
            one side.
        causes: Resolves targets such as `cause:1`.
        run: Runs the original model; `backend.forward` when None.
        task: Reads the model's outputs; None finds out which one does.

    Raises:
        NothingToRepairError: No seen input shows a target.
        DataError: The data has no inputs, or labels the model does not have, or the holdout overlaps with it.
    """
    if not 0 <= choose < 1:
        raise UsageError(f"expected a share from 0 to below 1 for choosing, got {choose:g}")
    whole = whole_part(backend, data, target, causes=causes, run=run, task=task)
    groups = None if group_by is None else groups_of(whole.data, group_by)
    if holdout is None:
        in_seen = divide(_outcomes(whole), 0.5, rng=rng, groups=groups)
        seen, held_out = whole.rows[in_seen], whole.take(whole.rows[~in_seen])
    else:
        held_out = _holdout(backend, whole, with_model_names(backend, holdout), drop_overlap, run)
        seen = whole.rows
    in_choose = np.zeros(len(seen), dtype=bool)
    if choose > 0:
        part_groups = None if groups is None else groups[seen]
        in_choose = ~divide(_outcomes(whole)[seen], 1 - choose, rng=rng, groups=part_groups)
    split = Split(whole.take(seen[~in_choose]), whole.take(seen[in_choose]), held_out, whole.targets)
    if not len(split.seen.negatives):
        raise NothingToRepairError(_nothing_message(whole, holdout is not None))
    return split


def never_break_part(
    backend: ModelBackend, data: LabelledData, *, run: Run | None = None, task: Task = SINGLE_LABEL
) -> Part:
    """Make the part of inputs that must not become wrong; this runs the original model over them.

    Raises:
        DataError: The model gets none of them right, so none can stay right.
    """
    part = run_part(backend, with_model_names(backend, data), run, task)
    if not len(part.positives):
        raise DataError(f"the model gets none of the {len(part)} never-break inputs right, so none can be kept right")
    return part


def whole_part(
    backend: ModelBackend,
    data: LabelledData,
    target: str | Target | Sequence[str | Target],
    *,
    causes: Causes | None = None,
    run: Run | None = None,
    task: Task | None = SINGLE_LABEL,
) -> Part:
    """Make one part of all of the data; this runs the original model over it."""
    part = run_part(backend, with_model_names(backend, data), run, task)
    if causes is not None and part.task.SINGLE:
        target = causes(target, part.data, part.predictions)
    names = None if part.task.SINGLE else part.class_names
    found = parse_targets(
        target,
        part.data,
        part.prediction_classes,
        len(part.class_names),
        part.label_classes,
        class_names=names,
        task=part.task,
    )
    return replace(part, targets=found)


def run_part(
    backend: ModelBackend, data: LabelledData, run: Run | None = None, task: Task | None = SINGLE_LABEL
) -> Part:
    """Make a part of data without targets; this runs the original model over it, checked by `run_checked`."""
    outputs, cached, found = run_checked(backend, data, run, task)
    data = label_kept(data, outputs, found)
    labels = found.prepare_labels(data.labels, outputs, data.inputs)
    data = data if labels is data.labels else replace(data, labels=labels)
    return Part(data, np.arange(len(data)), outputs, (), cached if found.SINGLE else None, found)


def with_model_names(backend: ModelBackend, data: LabelledData) -> LabelledData:
    """Give the data the model's class names, unless the user gave some, and renumber labels by name if it has its own.

    Raises:
        DataError: The model does not have a class of the data.
    """
    if backend.class_names is None or not (data.class_names is None or data.names_assumed):
        return data
    names = tuple(backend.class_names)
    if data.class_names is None:
        return replace(data, class_names=names)
    for name in data.class_names:
        if name not in names:
            raise DataError(f"the model has no class '{name}'{did_you_mean(name, names)}")
    numbers = np.array([names.index(name) for name in data.class_names])
    return replace(data, labels=numbers[data.labels], class_names=names, names_assumed=False)


def checked_scores(backend: ModelBackend, data: LabelledData) -> Array:
    """Return the model's class scores `(n, classes)`, checked by `run_checked`."""
    return run_checked(backend, data)[0]


def run_checked(
    backend: ModelBackend, data: LabelledData, run: Run | None = None, task: Task | None = SINGLE_LABEL
) -> tuple[Array, ActivationCache | None, Task]:
    """Run the model, and check that its scores are numbers and that the labels fit its classes.

    Returns:
        The raw outputs, what was cached on the way, and the task that reads them: the default one where none is given.

    Raises:
        DataError: There are no inputs, a label has no class, or there is not one name for each class.
        ModelError: Scores are NaN.
    """
    if not len(data):
        raise DataError("the data has no inputs")
    outputs, cached = _run_model(backend, data, run)
    unknown = np.flatnonzero(np.isnan(outputs).reshape(len(outputs), -1).any(axis=1))
    if len(unknown):
        raise ModelError(
            f"the model's scores are not numbers (NaN) for {pluralise(len(unknown), 'input')}, first row {unknown[0]}"
        )
    given = data.labels if data.kept is None else data.labels[~data.kept]
    task = (default_task(outputs, given) if task is None else task).resolve(outputs, data.class_names)
    if task.SINGLE and backend.separate_outputs:
        raise ModelError(
            "the model ends in a sigmoid for each class, so it marks several classes at once, not one", argument="task"
        )
    n_names = task.n_names(outputs)
    if data.class_names is not None:
        check_names(data.class_names, n_names, assumed=data.names_assumed)
    if data.names_assumed and backend.class_names not in (None, data.class_names):
        raise DataError(
            "the model's class names are in another order than the data's; give them in order", argument="classes"
        )
    task.check(outputs, label_kept(data, outputs, task).labels)
    return outputs, cached, task


def _run_model(backend: ModelBackend, data: LabelledData, run: Run | None) -> tuple[Array, ActivationCache | None]:
    try:
        return (backend.forward(data.inputs), None) if run is None else run(data.inputs)
    except DataError as error:
        if data.labels.ndim != 1:  # preprocessings are compared by one label for each input
            raise
        trials = compare_preprocessings(backend, data.inputs, data.labels)
        if all(trial.accuracy is None for trial in trials):
            raise
        best = trials[0]
        hint = f"{error}; the preprocessing '{best.text}' makes them fit, with an accuracy of {best.accuracy:.1%}"
        message, table = advice(trials, hint)
        raise DataError(message, argument="preprocess", below=table) from error


def groups_of(data: LabelledData, group_by: str | Array) -> Array:
    """Number the group of each input, int64 `(n,)`.

    Args:
        data: The data.
        group_by: A metadata column, one value per input, or `duplicates`.
    """
    values: Array
    if not isinstance(group_by, str):
        values = np.asarray(group_by)
    elif group_by in data.columns:
        values = data.columns[group_by]
    elif group_by == DUPLICATES:
        values = np.array([digest.hex() for digest in data.hashes])
    else:
        choices = did_you_mean(group_by, [*data.columns, DUPLICATES])
        raise UsageError(f"no metadata column named '{group_by}' to group by{choices}")
    if values.shape != (len(data),):
        raise DataError(f"expected one group per input, {len(data)} in all, got an array of shape {values.shape}")
    return np.unique(values.astype(str), return_inverse=True)[1].astype(np.int64)


def overlap(data: LabelledData, holdout: LabelledData) -> Array:
    """Find the rows of the holdout whose inputs are also in the data, by content."""
    known = set(data.hashes)
    return np.flatnonzero([digest in known for digest in holdout.hashes])


def _outcomes(part: Part) -> Array:
    """Return the stratum of each input `(n,)`: label and prediction of its first wrong decision, else of its first."""
    labels, predictions = part.label_classes, part.prediction_classes.astype(np.int64)
    outcomes: Array = labels * (predictions.max(initial=0) + 1) + predictions
    if part.kept_decisions is not None:
        outcomes = 2 * outcomes + part.kept_decisions
    if part.task.SINGLE:
        return outcomes
    found = np.full(len(part), -1, np.int64)
    order = np.lexsort((np.arange(len(labels)), part.right))[::-1]  # the last write wins
    found[part.decisions.inputs[order]] = outcomes[order]
    return found


def _holdout(backend: ModelBackend, whole: Part, holdout: LabelledData, drop_overlap: bool, run: Run | None) -> Part:
    shared = overlap(whole.data, holdout)
    rows = np.arange(len(holdout))
    if len(shared):
        if not drop_overlap:
            first = ", ".join(map(str, shared[:5].tolist())) + (", …" if len(shared) > 5 else "")
            raise DataError(
                f"{len(shared)} of {len(holdout)} held-out inputs {are(len(shared))} also in the data (held-out rows "
                f"{first}) and cannot show whether the repair generalises; drop them or hold out others"
            )
        rows = np.setdiff1d(rows, shared)
        if not len(rows):
            raise DataError(f"all {len(holdout)} held-out inputs are also in the data, so none is left to judge by")
    targets = tuple(target.for_other_data(holdout) for target in whole.targets)
    part = replace(run_part(backend, holdout, run, whole.task), targets=targets)
    return part.take(rows) if len(shared) else part


def _nothing_message(whole: Part, all_seen: bool) -> str:
    texts = ", ".join(f"'{target.text}'" for target in whole.targets)
    if not len(whole.negatives) and not whole.task.NEEDS_LABELS:
        return f"no negative inputs: all {len(whole.labelled_part)} inputs keep {texts}, so there is nothing to repair"
    if len(whole.positives) == len(whole.decisions):
        return (
            f"no negative inputs: the model classifies all {len(whole)} inputs correctly, so there is nothing to repair"
        )
    if not len(whole.negatives) or all_seen:
        return f"no negative inputs: none of {len(whole)} inputs shows {texts}, so there is nothing to repair"
    return (
        f"no negative inputs seen: all inputs that show {texts}, {len(whole.negatives)} of {len(whole)}, are "
        "outside the part the repair sees; give more data"
    )
