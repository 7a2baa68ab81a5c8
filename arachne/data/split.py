"""The parts of the data: seen by the repair, kept for choosing between candidates, held out for the verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Protocol, Self

import numpy as np

from arachne.data.chance import advice, compare_preprocessings
from arachne.data.classes import check_names
from arachne.data.labelled import LabelledData
from arachne.data.strata import divide
from arachne.data.targets import Target, parse_targets
from arachne.errors import DataError, ModelError, NothingToRepairError, UsageError, did_you_mean
from arachne.fairness.base import Objective
from arachne.observing import observe_traces
from arachne.values import Array, Inputs, take
from arachne.wording import are, counted

if TYPE_CHECKING:
    from arachne.backend import ModelBackend, Observer, Pull, Seeds, Trace, Weights

DUPLICATES = "duplicates"
"""As `group_by`: inputs of the same content are one group."""

Causes = Callable[[str | Target | Sequence[str | Target], LabelledData, Array], Sequence[str | Target]]
"""From targets in the user's words, the data and the model's predictions to targets in which causes are looked up."""


class Kept(Protocol):
    """What was kept of a pass of the original model over some inputs, beside its scores."""

    def take(self, rows: Array) -> Self:
        """The same of some of the inputs, by their positions."""

    def trace(self, rows: Array, layers: Sequence[str]) -> Trace | None:
        """As `ModelBackend.trace`, of some of the inputs; None where too little was kept."""

    def weight_gradients(self, rows: Array, pull: Pull, parameters: Sequence[tuple[str, str]]) -> Weights | None:
        """As `ModelBackend.weight_gradients`, of some of the inputs; None where too little was kept."""


Run = Callable[[Inputs], tuple[Array, Kept | None]]
"""Runs the original model: class scores `(n, classes)`, and what else of the pass is kept."""

TermKind = Literal["positive", "negative", "never_break"]
"""Inputs that are right and should stay right, inputs to repair, inputs that must not become wrong."""


@dataclass(frozen=True, eq=False)
class Term:
    """One thing the fitness counts: some rows of a part, each with the same weight, to repair or to keep right."""

    name: str
    rows: Array
    weight: float
    kind: TermKind


@dataclass(frozen=True, eq=False)
class Part:
    """Some rows of the user's data, and what the original model makes of them.

    Attributes:
        data: The inputs and labels, `n` of them.
        rows: Their row numbers in the user's data `(n,)`.
        scores: The original model's class scores `(n, classes)`. The original model runs over each input once, and
            everything that is said about it derives from these.
        targets: The faults to repair.
        kept: What else was kept of that pass, so that nobody has to run it again; None if nothing was.
    """

    data: LabelledData
    rows: Array
    scores: Array
    targets: tuple[Target, ...]
    kept: Kept | None = None

    def __post_init__(self) -> None:
        if self.scores.ndim != 2 or len(self.scores) != len(self.data):
            raise DataError(
                f"expected scores of shape ({len(self.data)}, classes), one row per input, got {self.scores.shape}"
            )

    def __len__(self) -> int:
        return len(self.data)

    @property
    def n_classes(self) -> int:
        """How many classes the model has."""
        return int(self.scores.shape[1])

    @cached_property
    def predictions(self) -> Array:
        """The class the original model predicts for each input `(n,)`; the first of several equal scores wins."""
        return np.asarray(np.argmax(self.scores, axis=1))

    @cached_property
    def positives(self) -> Array:
        """Rows of the part that are classified correctly."""
        return np.flatnonzero(self.data.labels == self.predictions)

    @cached_property
    def negatives(self) -> Array:
        """Rows of the part that show any target."""
        shown = np.zeros(len(self), dtype=bool)
        for target in self.targets:
            shown |= self.shows(target)
        return np.flatnonzero(shown)

    def take(self, positions: Array) -> Part:
        """Some inputs of the part, by their positions in it."""
        kept = None if self.kept is None else self.kept.take(positions)
        return Part(self.data.take(positions), self.rows[positions], self.scores[positions], self.targets, kept)

    def trace(self, backend: ModelBackend, rows: Array, layers: Sequence[str]) -> Trace:
        """Some inputs' pass through the original model, from what was kept of it where that is enough."""
        found = None if self.kept is None else self.kept.trace(rows, layers)
        return found or backend.trace(take(self.data.inputs, rows), layers)

    def observe(
        self, backend: ModelBackend, rows: Array, layers: Sequence[str], observer: Observer, seeds: Seeds | None = None
    ) -> None:
        """Show what flows through layers of the original model, from what was kept of its pass where that is enough."""
        kept = self.kept
        if kept is None or kept.trace(rows[:1], layers) is None:
            backend.observe(take(self.data.inputs, rows), layers, observer, seeds)
        else:
            observe_traces(lambda some: self.trace(backend, rows[some], layers), len(rows), observer, seeds)

    def weight_gradients(
        self, backend: ModelBackend, rows: Array, pull: Pull, parameters: Sequence[tuple[str, str]]
    ) -> Weights:
        """Gradients of a loss over some inputs in the original model, from what was kept where that is enough."""
        found = None if self.kept is None else self.kept.weight_gradients(rows, pull, parameters)
        return found or backend.weight_gradients(take(self.data.inputs, rows), pull, parameters)

    def shows(self, target: Target) -> Array:
        """Which rows of the part show a target, bool `(n,)`."""
        return target.shows(self.data.labels, self.predictions, self.rows)

    def terms(self, alpha: float) -> tuple[Term, ...]:
        """What the fitness counts: the positives, then every target's negatives, these `alpha` times.

        A row that shows two targets counts for the first.
        """
        terms = [Term("positives", self.positives, 1.0, "positive")]
        taken = np.zeros(len(self), dtype=bool)
        for target in self.targets:
            shown = self.shows(target) & ~taken
            taken |= shown
            terms.append(Term(target.text, np.flatnonzero(shown), alpha * target.weight, "negative"))
        return tuple(terms)


@dataclass(frozen=True, eq=False)
class Split:
    """The three parts, and the targets they were made for.

    Attributes:
        seen: What the repair works on.
        choose: What candidates are compared on, where they are compared on inputs of their own.
        held_out: What the verdict comes from.
        targets: The faults to repair.
        never_break: Inputs of the user's choice; those the original model gets right must stay right.
        objective: What should become fairer between groups, and by which column.
    """

    seen: Part
    choose: Part
    held_out: Part
    targets: tuple[Target, ...]
    never_break: Part | None = None
    objective: Objective | None = None

    @property
    def class_names(self) -> tuple[str, ...]:
        """The name of every class of the model, its number as text where it has none."""
        return tuple(self.seen.data.class_name(label) for label in range(self.seen.n_classes))


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
) -> Split:
    """Divide the data into what the repair sees and what the verdict comes from.

    Halves are stratified by (label, prediction), as in the paper; the same generator state gives the same halves.

    Args:
        backend: The original model.
        data: The user's data.
        target: What to repair.
        rng: Where the random choices come from.
        holdout: Other data for the verdict; all of `data` is then seen.
        choose: Share of the seen part taken out for choosing between candidates.
        drop_overlap: Whether inputs of `holdout` that are also in `data` are dropped rather than refused.
        group_by: A metadata column, one value per input `(n,)`, or `duplicates`: inputs with the same value stay on
            one side.
        causes: Looks up targets such as `cause:1`.
        run: Runs the original model; `backend.forward` when None.

    Raises:
        NothingToRepairError: No seen input shows a target.
        DataError: Data without inputs, labels the model does not have, or a holdout that overlaps.
    """
    if not 0 <= choose < 1:
        raise UsageError(f"expected a share from 0 to below 1 for choosing, got {choose:g}")
    whole = whole_part(backend, data, target, causes=causes, run=run)
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
        raise NothingToRepairError(_nothing(whole, holdout is not None))
    return split


def never_break_part(backend: ModelBackend, data: LabelledData, *, run: Run | None = None) -> Part:
    """Inputs that must not become wrong, and what the original model makes of them.

    Raises:
        DataError: The model gets none of them right, so there is nothing to keep.
    """
    data = with_model_names(backend, data)
    scores, kept = checked_run(backend, data, run)
    part = Part(data, np.arange(len(data)), scores, (), kept)
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
) -> Part:
    """All of the data as one part. This is where the original model runs over it."""
    data = with_model_names(backend, data)
    scores, kept = checked_run(backend, data, run)
    if causes is not None:
        target = causes(target, data, np.argmax(scores, axis=1))
    targets = parse_targets(target, data, np.argmax(scores, axis=1), scores.shape[1])
    return Part(data, np.arange(len(data)), scores, targets, kept)


def with_model_names(backend: ModelBackend, data: LabelledData) -> LabelledData:
    """The data with the model's class names, unless the user gave some; names of the data's own are renumbered.

    Raises:
        DataError: A class of the data that the model does not have.
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
    """The model's class scores `(n, classes)`, checked as `checked_run` does."""
    return checked_run(backend, data)[0]


def checked_run(backend: ModelBackend, data: LabelledData, run: Run | None = None) -> tuple[Array, Kept | None]:
    """One pass of the model; its scores are checked to be numbers for classes that the labels fit.

    Raises:
        DataError: No inputs, a label the model has no class for, or not one name for each class.
        ModelError: Scores that are not numbers.
    """
    if not len(data):
        raise DataError("the data has no inputs")
    scores, kept = _ran(backend, data, run)
    unknown = np.flatnonzero(np.isnan(scores).any(axis=1))
    if len(unknown):
        raise ModelError(
            f"the model's scores are not numbers (NaN) for {counted(len(unknown), 'input')}, first row {unknown[0]}"
        )
    n_classes = scores.shape[1]
    if data.class_names is not None:
        check_names(data.class_names, n_classes, assumed=data.names_assumed)
    if data.names_assumed and backend.class_names not in (None, data.class_names):
        raise DataError(
            "the model's class names are in another order than the data's; give them in order", argument="classes"
        )
    outside = np.flatnonzero((data.labels < 0) | (data.labels >= n_classes))
    if len(outside):
        row = int(outside[0])
        raise DataError(
            f"row {row} has the label {data.labels[row]}, but the model has the classes 0 to {n_classes - 1}"
        )
    return scores, kept


def _ran(backend: ModelBackend, data: LabelledData, run: Run | None) -> tuple[Array, Kept | None]:
    try:
        return (backend.forward(data.inputs), None) if run is None else run(data.inputs)
    except DataError as error:
        trials = compare_preprocessings(backend, data.inputs, data.labels)
        if all(trial.accuracy is None for trial in trials):
            raise
        best = trials[0]
        hint = f"{error}; the preprocessing '{best.text}' makes them fit, with an accuracy of {best.accuracy:.1%}"
        told, table = advice(trials, hint)
        raise DataError(told, argument="preprocess", below=table) from error


def groups_of(data: LabelledData, group_by: str | Array) -> Array:
    """A number for each input's group, int64 `(n,)`.

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
    """Rows of the holdout whose inputs are also in the data, by content."""
    known = set(data.hashes)
    return np.flatnonzero([digest in known for digest in holdout.hashes])


def _outcomes(part: Part) -> Array:
    labels, predictions = part.data.labels, part.predictions.astype(np.int64)
    outcomes: Array = labels * (predictions.max() + 1) + predictions
    return outcomes


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
    targets = tuple(target.elsewhere(holdout) for target in whole.targets)
    scores, kept = checked_run(backend, holdout, run)
    part = Part(holdout, np.arange(len(holdout)), scores, targets, kept)
    return part.take(rows) if len(shared) else part


def _nothing(whole: Part, all_seen: bool) -> str:
    texts = ", ".join(f"'{target.text}'" for target in whole.targets)
    if len(whole.positives) == len(whole):
        return (
            f"no negative inputs: the model classifies all {len(whole)} inputs correctly, so there is nothing to repair"
        )
    if not len(whole.negatives) or all_seen:
        return f"no negative inputs: none of {len(whole)} inputs shows {texts}, so there is nothing to repair"
    return (
        f"no negative inputs seen: all inputs that show {texts}, {len(whole.negatives)} of {len(whole)}, are "
        "outside the part the repair sees; give more data"
    )
