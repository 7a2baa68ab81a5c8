"""MeasuredCandidate: a candidate of a front with its outcome on each part of the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from arachne.data.part import Part
from arachne.data.split import Split
from arachne.model.backend import ModelBackend
from arachne.model.values import Array
from arachne.scoring.base import ignore_overflow
from arachne.scoring.cut import Cuts
from arachne.scoring.dense_tail import make_scorer
from arachne.scoring.low_rank import edited_scores
from arachne.scoring.outcome import Baseline, Outcome
from arachne.scoring.plain import forward_with_weights
from arachne.scoring.tail_cache import tail_of
from arachne.search.state import Candidate
from arachne.text import Brief
from arachne.weights.edit import LowRankEdit
from arachne.weights.selection import Selection


@dataclass(frozen=True, eq=False)
class MeasuredCandidate(Brief):
    """A point of a front: a candidate with its outcomes.

    Attributes:
        candidate: The candidate.
        weights: The number of weights it changes.
        size: The Euclidean length of the change.
        seen: Its outcome on the seen inputs.
        choose: Its outcome on the inputs set aside for selecting a point; None if there are none.
        out_of_fold: Its outcome on the seen inputs, each judged with a sibling that was fitted without it. Errors off
            the target, which no search uses, are judged with the candidate itself.
        never_broken: The number of never-break inputs it gets wrong.
        held_out: Its outcome on the held-out inputs, measured after a point was selected without it.
        minimised_from: The number of weights it changed before it was minimised; None if it was not.
        minimised_for: The break rate it was minimised within. Its out-of-fold counts are those of the larger patch,
            which is in the front too, and are valid only for budgets of at least this rate.
    """

    candidate: Candidate
    weights: int
    size: float
    seen: Outcome
    choose: Outcome | None = None
    out_of_fold: Outcome | None = None
    never_broken: int = 0
    held_out: Outcome | None = None
    minimised_from: int | None = None
    minimised_for: float | None = None

    @property
    def search_outcome(self) -> Outcome:
        """The least biased outcome on the seen inputs."""
        return self.out_of_fold or self.seen

    @property
    def selection_outcome(self) -> Outcome:
        """The outcome that candidates are compared by."""
        return self.out_of_fold or self.choose or self.seen

    @property
    def selection_basis(self) -> str:
        """Label for the inputs of `selection_outcome`."""
        if self.out_of_fold is not None:
            return "out of fold"
        return "on inputs kept for choosing and on seen ones" if self.choose is not None else "on seen inputs"


def count_found(points: Sequence[MeasuredCandidate]) -> int:
    """Return the number of candidates from the search, not counting minimised copies."""
    return sum(point.minimised_from is None for point in points)


def measure_front(
    backend: ModelBackend, split: Split, front: Sequence[Candidate], folded: Array, cuts: Cuts | None = None
) -> tuple[MeasuredCandidate, ...]:
    """Measure every candidate on all parts but `held_out`.

    Args:
        backend: The model; its weights are restored.
        split: The parts.
        front: The candidates.
        folded: The rows of the seen part that `Candidate.held_back` begins with.
        cuts: Cuts for the inputs of the seen part; made here when None.
    """
    on = _Front(backend, front)
    baseline = Baseline.of(split.seen)
    seen, choose = on.right(split.seen, cuts), on.right(split.choose)
    never_broken = [0] * len(front) if split.never_break is None else on.count_broken(split.never_break)
    points = []
    for number, candidate in enumerate(front):
        points.append(
            MeasuredCandidate(
                candidate=candidate,
                weights=candidate.changed_weights,
                size=candidate.size,
                seen=Outcome(baseline, seen[number]),
                choose=Outcome(Baseline.of(split.choose), choose[number]) if len(split.choose) else None,
                out_of_fold=_out_of_fold(candidate, baseline, folded, seen[number]),
                never_broken=never_broken[number],
            )
        )
    return tuple(points)


def with_held_out(
    backend: ModelBackend, split: Split, points: Sequence[MeasuredCandidate], cuts: Cuts | None = None
) -> tuple[MeasuredCandidate, ...]:
    """Add the outcome on the held-out inputs, for showing; call it after a point was selected."""
    if not points:
        return ()
    right = _Front(backend, [point.candidate for point in points]).right(split.held_out, cuts)
    baseline = Baseline.of(split.held_out)
    return tuple(replace(point, held_out=Outcome(baseline, own)) for point, own in zip(points, right, strict=True))


def _out_of_fold(candidate: Candidate, baseline: Baseline, folded: Array, seen: Array) -> Outcome | None:
    if candidate.held_back is None:
        return None
    right = seen.copy()
    right[folded] = candidate.held_back[: len(folded)]
    return Outcome(baseline, right)


class _Front:
    """Candidates grouped by the weights they change, so that a group shares one scorer; low-rank ones by layer."""

    def __init__(self, backend: ModelBackend, front: Sequence[Candidate]) -> None:
        self._backend = backend
        self._front = front
        self._by_selection: dict[Selection, list[int]] = {}
        self._edits: dict[int, LowRankEdit] = {}
        for number, candidate in enumerate(front):
            if candidate.edit is not None:
                self._edits[number] = candidate.edit
            else:
                self._by_selection.setdefault(candidate.selection, []).append(number)

    def __len__(self) -> int:
        return len(self._front)

    def right(self, part: Part, cuts: Cuts | None = None) -> Array:
        """Return which inputs of a part each candidate gets right, bool `(candidates, n)`."""
        rows = np.arange(len(part.decisions))
        found = np.zeros((len(self), len(rows)), bool)
        decisions = None if part.task.SINGLE else part.choose_decisions(rows)
        tail = tail_of(self._backend, part) if len(part) and decisions is None else None
        shared = cuts or Cuts(self._backend, part.data.inputs), None
        if len(part) and self._edits:
            edited = edited_scores(self._backend, tail, shared[0], [*self._edits.values()], rows)
            for member, scores in zip(self._edits, edited, strict=True):
                found[member] = part.task.correct(scores, part.labels)
        for suspects, members in self._by_selection.items() if len(part) else ():
            inputs = part.data.inputs
            scorer = make_scorer(self._backend, inputs, suspects, tail, shared, decisions) if len(suspects) else None
            for member in members:
                with ignore_overflow():
                    scores = part.scores if scorer is None else scorer.scores(self._front[member].values, rows)
                found[member] = part.task.correct(scores, part.labels)
        return found

    def count_broken(self, part: Part) -> list[int]:
        """Count the positives of a part that each candidate breaks, by full passes as for the evidence."""
        return [self._count_broken(member, part) for member in range(len(self))]

    def _count_broken(self, member: int, part: Part) -> int:
        weights = self._front[member].whole_parameters(self._backend)
        outputs = forward_with_weights(self._backend, weights, part.data.inputs)
        right = part.task.correct(part.read(outputs).scores, part.labels)
        return int((~right[part.positives]).sum())
