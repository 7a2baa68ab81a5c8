"""Retraining: the common base of Apricot, MODE and DeepFault, which retrain the whole model.

Each has preparation steps, then trains all weights in slices of a few batches. After each slice the model is scored on
the fitness inputs; the best model so far is the result. Training uses the framework's optimiser (`ModelBackend.fit`),
and the model runs in evaluation mode: without dropout, and with fixed statistics of batch normalisation.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from arachne.adapting.plain_fit import plain_fit
from arachne.data.labelled import LabelledData
from arachne.errors import UsageError
from arachne.model.backend import ModelBackend
from arachne.model.cut import temporary_weights
from arachne.model.fitting import OPTIMISERS, Plan
from arachne.model.values import Array, Inputs, Weights, read, take
from arachne.plugins.options import option
from arachne.scoring.plain import forward_with_weights
from arachne.search.base import Searcher
from arachne.search.problem import Problem
from arachne.search.state import Candidate, Generation, SearchResult, SearchState

SLICE_BATCHES = 20
"""Training batches between two scorings."""


@dataclass(frozen=True, kw_only=True)
class Retraining(Searcher):
    """Trains every weight of every layer, and returns the best model on the way.

    Attributes:
        epochs: The number of passes over the training set.
        no_gain: It ends after this many batches without a better fitness.
        train_batch: Inputs per training step.
        train_rate: The learning rate.
        optimiser: The framework's optimiser.
        trainable_weights: The largest number of weights it trains; each is an entry of the patch.
    """

    LOCALISER = "all"
    USES_TRAINING = True
    NEEDS_SINGLE_LABEL = True
    SLICE_BATCHES: ClassVar[int] = SLICE_BATCHES

    epochs: int = option(5, "Passes over the inputs that a rival retrains on.", least=1)
    no_gain: int = option(100, "Stop after this many batches without gain.", least=1)
    train_batch: int = option(64, "Inputs per training step.", least=1)
    train_rate: float = option(1e-4, "Learning rate of a rival's training.", least=1e-12)
    optimiser: str = option("adam", "The framework's optimiser.", choices=OPTIMISERS)
    trainable_weights: int = option(5_000_000, "Weights that a rival trains at most.", least=1)

    @property
    def preparations(self) -> int:
        """The number of preparation steps before the retraining."""
        return 1

    @abstractmethod
    def prepare(
        self, problem: Problem, arrays: dict[str, Array], number: int, *, rng: np.random.Generator
    ) -> dict[str, Array]:
        """Run preparation step `number`; return the state's arrays with its results added."""

    @abstractmethod
    def training_set(self, problem: Problem, arrays: dict[str, Array]) -> tuple[Inputs, Array]:
        """Return the inputs to retrain on and their labels `(n,)`, after all preparation steps."""

    def adjust(self, problem: Problem, arrays: dict[str, Array], current: Array) -> Array:
        """Return the weights that the next slice starts from, `(k,)`."""
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
        """Run a preparation step, or train one slice and score the model."""
        number = int(state.values["prepared"] or 0)
        if number >= self.preparations:
            return self._slice(problem, state)
        arrays = self.prepare(problem, dict(state.arrays), number, rng=rng)
        last = state.history[-1]
        return replace(
            state,
            arrays=arrays,
            values={**state.values, "prepared": number + 1},
            history=(*state.history, replace(last, number=last.number + 1)),
        )

    def _slice(self, problem: Problem, state: SearchState) -> SearchState:
        arrays, plain = dict(state.arrays), state.values
        number, seed = int(plain["slice"] or 0), int(plain["seed"] or 0)
        inputs, labels = self.training_set(problem, arrays)
        per_epoch = -(-len(labels) // (self.train_batch * self.SLICE_BATCHES))
        rows = self._rows(len(labels), number, per_epoch, seed)
        plan = self.plan(seed + number)
        start = problem.round_to_storage(self.adjust(problem, arrays, arrays["current"]))
        arrays["current"] = to_vector(problem, train(problem, start, read(take(inputs, rows)), labels[rows], plan))
        scores = scores_with(problem, arrays["current"], problem.fitness_inputs.padded)[: len(problem.fitness_inputs)]
        deficits = problem.fitness_inputs.deficits_by_term(scores)
        last, idle = state.history[-1], int(plain["idle"] or 0) + plan.steps(len(rows))
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
        return SearchState(arrays, {**plain, "slice": number + 1, "idle": idle}, (*state.history, at), stopped)

    def _rows(self, n: int, number: int, per_epoch: int, seed: int) -> Array:
        """Return the rows of a slice; every epoch shuffles all rows anew."""
        epoch, at = divmod(number, per_epoch)
        size = self.train_batch * self.SLICE_BATCHES
        return np.random.default_rng([seed, epoch]).permutation(n)[at * size : (at + 1) * size]

    def result(self, problem: Problem, state: SearchState) -> SearchResult:
        best = Candidate(problem.suspects, state.arrays["best"], state.arrays["deficits"], self.name)
        return problem.result(state, best, original=state.arrays["original"])

    def plan(self, seed: int, epochs: int = 1) -> Plan:
        """Return the plan by which the framework trains."""
        return Plan(
            epochs=epochs, batch=self.train_batch, rate=self.train_rate, optimiser=self.optimiser, seed=seed % 2**31
        )


def check_whole(problem: Problem, searcher: str) -> None:
    """Check that the suspects are all weights of the model.

    Raises:
        UsageError: Some are missing.
    """
    slices = {(slice_.layer, slice_.parameter): slice_.numbers for slice_ in problem.suspects.slices}
    for layer, parameter in problem.backend.resolve_parameters(None):
        own = slices.get((layer, parameter), slice(0, 0))
        if own.stop - own.start != problem.backend.info(layer).parameters[parameter].size:
            raise UsageError(
                f"the search '{searcher}' trains every weight of the model, and the localiser left out some of "
                f"'{layer}.{parameter}'; leave the localiser and its options out"
            )


def to_vector(problem: Problem, weights: Weights) -> Array:
    """Flatten whole parameters into a candidate vector, float64 `(k,)`."""
    found = [weights[slice_.layer, slice_.parameter].ravel() for slice_ in problem.suspects.slices]
    return np.concatenate(found).astype(np.float64)


def to_parameters(problem: Problem, values: Array) -> Weights:
    """Reshape a candidate vector `(k,)` into whole parameters."""
    return {
        (slice_.layer, slice_.parameter): values[slice_.numbers].reshape(
            problem.backend.info(slice_.layer).parameters[slice_.parameter].shape
        )
        for slice_ in problem.suspects.slices
    }


def scores_with(problem: Problem, values: Array, inputs: Inputs) -> Array:
    """Return class scores `(n, classes)` of the model with these weights `(k,)`."""
    return forward_with_weights(problem.backend, to_parameters(problem, values), inputs)


def train(problem: Problem, values: Array, inputs: Inputs, labels: Array, plan: Plan) -> Weights:
    """Train from these weights `(k,)`, with the framework's training loop if it has one."""
    with temporary_weights(problem.backend, to_parameters(problem, values)):
        if problem.backend.SUPPORTS_FIT:
            return problem.backend.fit(inputs, labels, plan)
        return plain_fit(problem.backend, inputs, labels, plan)


def _counts(problem: Problem, scores: Array) -> tuple[int, int]:
    """Count repaired and broken inputs."""
    outcome = problem.fitness_inputs.outcome(problem.fitness_inputs.wrong_by_term(scores))
    return outcome.repaired, outcome.broken
