"""What every candidate of a front does to each part of the data: which inputs are right with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from arachne.backend import ModelBackend, restored
from arachne.data.split import Part, Split
from arachne.evidence.statistics import Rate
from arachne.fairness import Grouped, Objective
from arachne.search.dense_tunable import make_tunable
from arachne.search.state import Candidate
from arachne.search.tail_inputs import tail_of
from arachne.search.tunable import Cuts
from arachne.suspects import Suspects
from arachne.values import Array, Weights


@dataclass(frozen=True, eq=False)
class Baseline:
    """What the original model makes of some inputs; all arrays `(n,)`.

    Attributes:
        rows: Their row numbers in the user's data.
        labels: Their true classes.
        right: Which of them it gets right: the positives.
        negative: Which of them show the fault.
        columns: Their metadata, by column.
    """

    rows: Array
    labels: Array
    right: Array
    negative: Array
    columns: Mapping[str, Array] = field(default_factory=dict)

    @classmethod
    def of(cls, part: Part) -> Baseline:
        """That of a part."""
        negative = np.zeros(len(part), bool)
        negative[part.negatives] = True
        right = part.data.labels == part.predictions
        return cls(part.rows, part.data.labels, right, negative, part.data.columns)

    def __len__(self) -> int:
        return len(self.labels)

    def by(self, column: str) -> Grouped:
        """The inputs' groups by a metadata column."""
        if column not in self._grouped:
            self._grouped[column] = Grouped.by(self.columns[column], self.labels, int(self.labels.max(initial=0)) + 1)
        return self._grouped[column]

    @cached_property
    def _grouped(self) -> dict[str, Grouped]:
        return {}


@dataclass(frozen=True, eq=False)
class Standing:
    """What a candidate does to some inputs: `right` tells which are right with it, bool `(n,)`."""

    baseline: Baseline
    right: Array

    @property
    def repair(self) -> Rate:
        """Negatives that are right now."""
        negative = self.baseline.negative
        return Rate(int((negative & self.right).sum()), int(negative.sum()))

    @property
    def breakage(self) -> Rate:
        """Positives that are wrong now."""
        was = self.baseline.right
        return Rate(int((was & ~self.right).sum()), int(was.sum()))

    def class_drops(self, n_classes: int) -> Array:
        """By how much the accuracy of each class falls, `(classes,)`; 0 for classes without inputs."""
        labels = self.baseline.labels
        total = np.bincount(labels, minlength=n_classes)
        lost = np.bincount(labels[self.baseline.right], minlength=n_classes)
        lost = lost - np.bincount(labels[self.right], minlength=n_classes)
        return np.asarray(lost / np.maximum(total, 1))

    def group_drops(self, column: str) -> dict[str, float]:
        """By how much the accuracy of each group of a metadata column falls."""
        grouped = self.baseline.by(column)
        lost = (grouped.right(self.baseline.right) - grouped.right(self.right)).sum(axis=1)
        return dict(zip(grouped.names, (lost / np.maximum(grouped.totals.sum(axis=1), 1)).tolist(), strict=True))

    def cost(self, objective: Objective) -> float:
        """What an objective says of it; smaller is better."""
        grouped = self.baseline.by(str(objective.group_column))
        return float(objective.cost(grouped.right(self.right), grouped.totals))

    def gain(self, objective: Objective) -> float:
        """By how much it is fairer than the original model."""
        return Standing(self.baseline, self.baseline.right).cost(objective) - self.cost(objective)


@dataclass(frozen=True, eq=False)
class Point:
    """A candidate of a front, and what it does.

    Attributes:
        candidate: The candidate.
        weights: How many weights it changes.
        size: How far, the Euclidean length of the change.
        seen: What it does to the seen inputs.
        choose: To those that were kept for choosing, where there are any.
        out_of_fold: To the seen inputs, each judged with a sibling that was fitted without it. Errors off the target,
            which no search looks at, are judged with the candidate itself.
        never_broken: How many never-break inputs it gets wrong.
        held_out: What it does to the held-out inputs; measured after the choice, which never looks at it.
        minimised_from: How many weights it changed before those it can do without were dropped; None if none were.
        minimised_for: The budget it was minimised within. Its counts out of fold are those of the larger patch, which
            is in the front, too; smaller budgets do not trust them.
    """

    candidate: Candidate
    weights: int
    size: float
    seen: Standing
    choose: Standing | None = None
    out_of_fold: Standing | None = None
    never_broken: int = 0
    held_out: Standing | None = None
    minimised_from: int | None = None
    minimised_for: float | None = None

    @property
    def searched(self) -> Standing:
        """The fairest thing that can be said from inputs the search had."""
        return self.out_of_fold or self.seen

    @property
    def judged(self) -> Standing:
        """What candidates are compared on."""
        return self.out_of_fold or self.choose or self.seen

    @property
    def judged_on(self) -> str:
        """The same in words."""
        if self.out_of_fold is not None:
            return "out of fold"
        return "on inputs kept for choosing and on seen ones" if self.choose is not None else "on seen inputs"


def found_by_search(points: Sequence[Point]) -> int:
    """How many points of a front a search has found: all but minimised ones, which stand beside what they came from."""
    return sum(point.minimised_from is None for point in points)


def measure_front(
    backend: ModelBackend, split: Split, front: Sequence[Candidate], folded: Array, cuts: Cuts | None = None
) -> tuple[Point, ...]:
    """What every candidate does to all parts but `held_out`.

    Args:
        backend: The model; it keeps its weights.
        split: The parts.
        front: The candidates.
        folded: The rows of the seen part that `Candidate.held_back` begins with.
        cuts: Cuts for the inputs of the seen part, if there are any.
    """
    on = _Front(backend, front)
    baseline = Baseline.of(split.seen)
    seen, choose = on.right(split.seen, cuts), on.right(split.choose)
    never_broken = [0] * len(front) if split.never_break is None else on.broken_in_full(split.never_break)
    points = []
    for number, candidate in enumerate(front):
        change = on.change(number)
        points.append(
            Point(
                candidate=candidate,
                weights=int(np.count_nonzero(change)),
                size=float(np.linalg.norm(change)),
                seen=Standing(baseline, seen[number]),
                choose=Standing(Baseline.of(split.choose), choose[number]) if len(split.choose) else None,
                out_of_fold=_out_of_fold(candidate, baseline, folded, seen[number]),
                never_broken=never_broken[number],
            )
        )
    return tuple(points)


def with_held_out(
    backend: ModelBackend, split: Split, points: Sequence[Point], cuts: Cuts | None = None
) -> tuple[Point, ...]:
    """The same points with what they do to the held-out inputs, for showing; call it when the choice is made."""
    if not points:
        return ()
    right = _Front(backend, [point.candidate for point in points]).right(split.held_out, cuts)
    baseline = Baseline.of(split.held_out)
    return tuple(replace(point, held_out=Standing(baseline, own)) for point, own in zip(points, right, strict=True))


def _out_of_fold(candidate: Candidate, baseline: Baseline, folded: Array, seen: Array) -> Standing | None:
    if candidate.held_back is None:
        return None
    right = seen.copy()
    right[folded] = candidate.held_back[: len(folded)]
    return Standing(baseline, right)


class _Front:
    """Candidates by the weights they change: those of one search share what has to be computed only once."""

    def __init__(self, backend: ModelBackend, front: Sequence[Candidate]) -> None:
        self._backend = backend
        known: dict[int, tuple[Suspects, list[int]]] = {}  # by identity: thousands of addresses are slow to compare
        self._suspects: list[Suspects] = []
        self._values: list[Array] = []
        self._by_weights: dict[int, list[int]] = {}
        for number, candidate in enumerate(front):
            if id(candidate.addresses) not in known:
                suspects = Suspects.of(backend, candidate.addresses)
                place = {address: at for at, address in enumerate(candidate.addresses)}
                known[id(candidate.addresses)] = suspects, [place[address] for address in suspects.addresses]
            suspects, order = known[id(candidate.addresses)]
            self._suspects.append(suspects)
            self._values.append(candidate.values[order])
            self._by_weights.setdefault(id(candidate.addresses), []).append(number)

    def __len__(self) -> int:
        return len(self._values)

    def change(self, number: int) -> Array:
        """How far a candidate moves each of its weights, `(k,)`."""
        return np.asarray(self._values[number] - self._suspects[number].values)

    def right(self, part: Part, cuts: Cuts | None = None) -> Array:
        """Which inputs of a part are right with each candidate, bool `(candidates, n)`."""
        found = np.zeros((len(self), len(part)), bool)
        rows = np.arange(len(part))
        tail = tail_of(self._backend, part) if len(part) else None
        shared = cuts or Cuts(self._backend, part.data.inputs), None
        for members in self._by_weights.values() if len(part) else ():
            suspects = self._suspects[members[0]]
            inputs = part.data.inputs
            tunable = make_tunable(self._backend, inputs, suspects, tail, shared) if len(suspects) else None
            for member in members:
                with np.errstate(over="ignore", invalid="ignore"):  # a candidate that overflows simply loses
                    scores = part.scores if tunable is None else tunable.scores(self._values[member], rows)
                found[member] = _is_right(scores, part.data.labels)
        return found

    def broken_in_full(self, part: Part) -> list[int]:
        """How many positives of a part each candidate breaks, by full passes, exactly as the evidence has it."""
        return [self._broken(member, part) for member in range(len(self))]

    def _broken(self, member: int, part: Part) -> int:
        weights = self._weights(member)
        with restored(self._backend, weights), np.errstate(over="ignore", invalid="ignore"):
            for (layer, parameter), values in weights.items():
                self._backend.set_weights(layer, parameter, values)
            right = _is_right(self._backend.forward(part.data.inputs), part.data.labels)
        return int((~right[part.positives]).sum())

    def _weights(self, member: int) -> Weights:
        """The whole parameters a candidate changes, with its values in them."""
        weights = {}
        for place in self._suspects[member].places:
            values = self._backend.get_weights(place.layer)[place.parameter].copy()
            values[place.index] = self._values[member][place.numbers]
            weights[place.layer, place.parameter] = values
        return weights


def _is_right(scores: Array, labels: Array) -> Array:
    """Scores that are not numbers are never right."""
    return np.asarray((np.argmax(scores, axis=1) == labels) & ~np.isnan(scores).any(axis=1))
