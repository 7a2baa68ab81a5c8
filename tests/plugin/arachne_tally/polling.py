"""A localiser and a searcher by somebody else: the largest weights, and the best of a few random changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne import (
    Address,
    Candidate,
    Generation,
    Localisation,
    Localiser,
    ModelBackend,
    Problem,
    Searcher,
    SearchResult,
    SearchState,
    option,
)
from arachne.data.part import Part
from arachne.localise import Selection


@dataclass(frozen=True, kw_only=True)
class Loudest(Localiser):
    """The weights of the largest size."""

    name = "loudest"

    share: float = option(0.5, "How many of the weights to take.", least=0, most=1)

    def localise(self, backend: ModelBackend, part: Part, *, rng: np.random.Generator) -> Localisation:
        sizes = {
            Address(info.name, name, tuple(map(int, index))): abs(float(value))
            for info, name in self.candidates(backend)
            for index, value in np.ndenumerate(backend.get_weights(info.name)[name])
        }
        count = self.count or max(1, round(self.share * len(sizes)))
        chosen = sorted(sizes, key=lambda address: -sizes[address])[:count]
        return Localisation(self.name, Selection.of(backend, chosen), (), len(chosen), len(sizes))


@dataclass(frozen=True, kw_only=True)
class Polling(Searcher):
    """Asks for a random change of the best patch so far, round by round."""

    name = "polling"

    rounds: int = option(30, "How many changes to ask for.", least=1)
    patience: int = option(20, "Stop after so many rounds without gain.", least=1)
    reach: float = option(0.5, "Size of a change.", least=0)

    @property
    def most_generations(self) -> int:
        return self.rounds

    def begin(self, problem: Problem, *, rng: np.random.Generator) -> SearchState:
        values = problem.suspects.values
        return self._state(problem, values, problem.evaluator.evaluate(values[None])[0], ())

    def step(self, problem: Problem, state: SearchState, *, rng: np.random.Generator) -> SearchState:
        values, deficits = state.arrays["values"], state.arrays["deficits"]
        trial = problem.round_to_storage(values + self.reach * rng.standard_normal(len(values)))
        cost = problem.evaluator.evaluate(trial[None])[0]
        if cost.sum() < deficits.sum():
            values, deficits = trial, cost
        return self._state(problem, values, deficits, state.history)

    def result(self, problem: Problem, state: SearchState) -> SearchResult:
        found = Candidate(problem.suspects, state.arrays["values"], state.arrays["deficits"])
        return problem.result(state, found)

    def _state(
        self,
        problem: Problem,
        values: np.ndarray[tuple[int], np.dtype[np.float64]],
        deficits: np.ndarray[tuple[int], np.dtype[np.int64]],
        history: tuple[Generation, ...],
    ) -> SearchState:
        number = len(history)
        outcome = problem.evaluator.outcome(values)
        at = Generation(number, problem.fitness(deficits), outcome.repaired, outcome.broken, number + 1, 0)
        stopped = "all rounds are over" if number >= self.rounds else None
        return SearchState({"values": values, "deficits": deficits}, {}, (*history, at), stopped)
