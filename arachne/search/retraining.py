"""Rivals that retrain the whole model: what Apricot, MODE and DeepFault have in common.

Each prepares something first, then trains all weights in slices of a few batches. After each slice the model is
measured on the inputs that the fitness counts; the best one so far is handed back. Training goes through the
framework's own optimiser (`ModelBackend.fit`), and the model runs as in use: nothing is dropped out, and the statistics
of batch normalisation stay.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from arachne.backend import ModelBackend
from arachne.cuts import standing
from arachne.data.labelled import LabelledData
from arachne.errors import UsageError
from arachne.fitting import OPTIMISERS, Plan
from arachne.options import option
from arachne.plain_fit import plain_fit
from arachne.search.base import Problem, Searcher
from arachne.search.state import Candidate, Generation, SearchResult, SearchState
from arachne.values import Array, Inputs, Weights, read, take

SLICE = 20
"""Batches between two measurements."""


@dataclass(frozen=True, kw_only=True)
class Retraining(Searcher):
    """Trains every weight of every layer, and hands back the best model that it came upon.

    Attributes:
        epochs: How often it goes through the inputs it retrains on.
        no_gain: After how many batches without a better fitness it ends.
        train_batch: Inputs per training step.
        train_rate: The learning rate.
        optimiser: The framework's optimiser.
        trainable_weights: How many weights it trains at most; each is an entry of the patch.
    """

    LOCALISER = "all"
    USES_TRAINING = True
    SLICE: ClassVar[int] = SLICE

    epochs: int = option(5, "Passes over the inputs that a rival retrains on.", least=1)
    no_gain: int = option(100, "Stop after this many batches without gain.", least=1)
    train_batch: int = option(64, "Inputs per training step.", least=1)
    train_rate: float = option(1e-4, "Learning rate of a rival's training.", least=1e-12)
    optimiser: str = option("adam", "The framework's optimiser.", choices=OPTIMISERS)
    trainable_weights: int = option(5_000_000, "Weights that a rival trains at most.", least=1)

    @property
    def preparations(self) -> int:
        """How many steps come before the retraining."""
        return 1

    @abstractmethod
    def prepared(
        self, problem: Problem, arrays: dict[str, Array], number: int, *, rng: np.random.Generator
    ) -> dict[str, Array]:
        """What the preparation `number` adds to the arrays of the state."""

    @abstractmethod
    def material(self, problem: Problem, arrays: dict[str, Array]) -> tuple[Inputs, Array]:
        """The inputs to retrain on and their labels `(n,)`, once everything is prepared."""

    def adjusted(self, problem: Problem, arrays: dict[str, Array], current: Array) -> Array:
        """The weights that the next slice starts from, `(k,)`."""
        return current

    def refusal(self, backend: ModelBackend, training: LabelledData | None) -> str | None:
        weights = sum(shape.size for info in backend.layers for shape in info.parameters.values())
        if weights > self.trainable_weights:
            return (
                f"the search '{self.name}' changes all {weights:,} weights of the model, and at most "
                f"{self.trainable_weights:,} may be trained; allow more, or take a search that changes fewer"
            )
        return super().refusal(backend, training)

    def begin(self, problem: Problem, *, rng: np.random.Generator) -> SearchState:
        check_whole(problem, self.name)
        values = problem.suspects.values
        scores = scores_with(problem, values, problem.fitness_inputs.padded)[: len(problem.fitness_inputs)]
        deficits = problem.fitness_inputs.deficits_by_term(scores)
        arrays = {"current": values, "best": values, "deficits": deficits, "original": deficits}
        at = Generation(0, problem.fitness(deficits), *_counts(problem, scores), 1, 0)
        seed = int(rng.integers(2**31))
        return SearchState(arrays, {"prepared": 0, "slice": 0, "idle": 0, "seed": seed}, (at,))

    def step(self, problem: Problem, state: SearchState, *, rng: np.random.Generator) -> SearchState:
        """Prepare, or train one slice and measure."""
        number = int(state.values["prepared"] or 0)
        if number >= self.preparations:
            return self._slice(problem, state)
        arrays = self.prepared(problem, dict(state.arrays), number, rng=rng)
        last = state.history[-1]
        return replace(
            state,
            arrays=arrays,
            values={**state.values, "prepared": number + 1},
            history=(*state.history, replace(last, number=last.number + 1)),
        )

    def _slice(self, problem: Problem, state: SearchState) -> SearchState:
        arrays, told = dict(state.arrays), state.values
        number, seed = int(told["slice"] or 0), int(told["seed"] or 0)
        inputs, labels = self.material(problem, arrays)
        per_epoch = -(-len(labels) // (self.train_batch * self.SLICE))
        rows = self._rows(len(labels), number, per_epoch, seed)
        plan = self.plan(seed + number)
        start = problem.stored(self.adjusted(problem, arrays, arrays["current"]))
        arrays["current"] = flat(problem, trained(problem, start, read(take(inputs, rows)), labels[rows], plan))
        scores = scores_with(problem, arrays["current"], problem.fitness_inputs.padded)[: len(problem.fitness_inputs)]
        deficits = problem.fitness_inputs.deficits_by_term(scores)
        last, idle = state.history[-1], int(told["idle"] or 0) + plan.steps(len(rows))
        at = replace(last, number=last.number + 1, evaluations=last.evaluations + 1, replaced=0)
        stopped = None
        if not np.isfinite(arrays["current"]).all():
            stopped = "training diverged: its weights are no numbers any more"
        elif deficits.sum() < arrays["deficits"].sum():
            arrays |= {"best": arrays["current"], "deficits": deficits}
            repaired, broken = _counts(problem, scores)
            at = replace(at, fitness=problem.fitness(deficits), repaired=repaired, broken=broken, replaced=1)
            idle = 0
        if stopped is None and idle >= self.no_gain:
            stopped = f"no gain for {idle} batches"
        elif stopped is None and number + 1 >= self.epochs * per_epoch:
            stopped = f"all {self.epochs} epochs are done"
        return SearchState(arrays, {**told, "slice": number + 1, "idle": idle}, (*state.history, at), stopped)

    def _rows(self, n: int, number: int, per_epoch: int, seed: int) -> Array:
        """The rows of a slice: every epoch goes through all of them in an order of its own."""
        epoch, at = divmod(number, per_epoch)
        size = self.train_batch * self.SLICE
        return np.random.default_rng([seed, epoch]).permutation(n)[at * size : (at + 1) * size]

    def result(self, problem: Problem, state: SearchState) -> SearchResult:
        best = Candidate(problem.suspects.addresses, state.arrays["best"], state.arrays["deficits"], self.name)
        return problem.result(state, best, original=state.arrays["original"])

    def plan(self, seed: int, epochs: int = 1) -> Plan:
        """How the framework trains."""
        return Plan(
            epochs=epochs, batch=self.train_batch, rate=self.train_rate, optimiser=self.optimiser, seed=seed % 2**31
        )


def check_whole(problem: Problem, searcher: str) -> None:
    """Refuse suspects that are not all weights of the model.

    Raises:
        UsageError: Some are missing.
    """
    places = {(place.layer, place.parameter): place.numbers for place in problem.suspects.places}
    for layer, parameter in problem.backend.chosen(None):
        own = places.get((layer, parameter), slice(0, 0))
        if own.stop - own.start != problem.backend.info(layer).parameters[parameter].size:
            raise UsageError(
                f"the search '{searcher}' trains every weight of the model, and the localiser left out some of "
                f"'{layer}.{parameter}'; leave the localiser and its options out"
            )


def flat(problem: Problem, weights: Weights) -> Array:
    """Whole parameters as a candidate vector, float64 `(k,)`."""
    found = [weights[place.layer, place.parameter].ravel() for place in problem.suspects.places]
    return np.concatenate(found).astype(np.float64)


def shaped(problem: Problem, values: Array) -> Weights:
    """A candidate vector `(k,)` as whole parameters."""
    return {
        (place.layer, place.parameter): values[place.numbers].reshape(
            problem.backend.info(place.layer).parameters[place.parameter].shape
        )
        for place in problem.suspects.places
    }


def scores_with(problem: Problem, values: Array, inputs: Inputs) -> Array:
    """Class scores `(n, classes)` of inputs in the model with these weights `(k,)`."""
    with standing(problem.backend, shaped(problem, values)), np.errstate(over="ignore", invalid="ignore"):
        return problem.backend.forward(inputs)


def trained(problem: Problem, values: Array, inputs: Inputs, labels: Array, plan: Plan) -> Weights:
    """What training from these weights `(k,)` on reaches: by the framework, or by gradient steps where it has none."""
    with standing(problem.backend, shaped(problem, values)):
        if problem.backend.SUPPORTS_FIT:
            return problem.backend.fit(inputs, labels, plan)
        return plain_fit(problem.backend, inputs, labels, plan)


def _counts(problem: Problem, scores: Array) -> tuple[int, int]:
    """Repaired and broken."""
    outcome = problem.fitness_inputs.outcome(problem.fitness_inputs.wrong_by_term(scores))
    return outcome.repaired, outcome.broken
