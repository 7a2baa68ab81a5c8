"""RankOne: a change of a dense layer by the outer product of two vectors, and what it does to fitness inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne.model.values import Array
from arachne.scoring.base import ignore_overflow
from arachne.scoring.low_rank_tail import scores_along
from arachne.search.base import Problem
from arachne.search.state import Candidate
from arachne.weights.edit import LowRankEdit
from arachne.weights.selection import Selection


@dataclass(frozen=True, eq=False)
class RankOne:
    """A change of one dense layer.

    Attributes:
        layer: The layer.
        left: What its outputs change by, float32 `(out,)`, for each unit along `right`.
        right: float32 `(n,)`.
        along: How far what enters the layer goes along `right`, float32, one number for each fitness input.
    """

    layer: str
    left: Array
    right: Array
    along: Array

    @property
    def key(self) -> tuple[str, str]:
        """Layer and parameter."""
        return self.layer, "weight"

    def scores(self, problem: Problem, rows: Array) -> Array:
        """Return class scores `(rows, classes)` of some fitness inputs with the change in the layer."""
        tail = problem.tail
        with ignore_overflow():
            if tail is not None and self.layer in tail:
                along, left = self.along[rows, None], self.left[:, None]
                return scores_along(problem.backend, tail, self.layer, along, left, rows)
            return self._over_layer(problem).scorer.scores(self._values(problem, self.edit(problem)), rows)

    def edit(self, problem: Problem) -> LowRankEdit:
        """Return the change as an edit of the model."""
        storage = problem.backend.info(self.layer).parameters["weight"].storage
        return LowRankEdit(*self.key, self.left[:, None], self.right[:, None], storage)

    def candidate(self, problem: Problem, name: str, held_back: Array) -> Candidate:
        """Return the change as a candidate of a search of this name, with its deficits."""
        scores, edit = self.scores(problem, np.arange(len(problem.fitness_inputs))), self.edit(problem)
        suspects, values = self._over_layer(problem).suspects, self._values(problem, edit)
        deficits = problem.fitness_inputs.deficits_by_term(scores)
        return Candidate(suspects, values, deficits, name, held_back, edit)

    def _over_layer(self, problem: Problem) -> Problem:
        return problem.with_selection(f"whole {self.layer}", lambda: Selection.whole(problem.backend, [self.key]))

    def _values(self, problem: Problem, edit: LowRankEdit) -> Array:
        before = np.asarray(problem.backend.read_weights(self.layer)["weight"])
        return np.asarray(edit.add(before), np.float64).ravel()
