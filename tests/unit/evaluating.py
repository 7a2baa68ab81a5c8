"""Two evaluators on one search: what the tests of the fast evaluator compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from arachne.model.backend import Cut, ModelBackend, Weights
from arachne.model.values import Address, Array, Inputs, LayerInfo
from arachne.scoring.evaluators import Evaluator, FastEvaluator, FitnessInputs, OutcomeCounts, PlainEvaluator
from arachne.scoring.fitness import UNIT
from arachne.search import DifferentialEvolution, Problem, SearchResult
from arachne.testing import ReferenceBackend
from arachne.weights.selection import Selection


class Recording(Evaluator):
    """Hands everything on, and keeps which trials were accepted, generation by generation."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.inner = evaluator
        self.fitness_inputs, self.suspects, self.backend = (
            evaluator.fitness_inputs,
            evaluator.suspects,
            evaluator.backend,
        )
        self.accepted: list[list[bool]] = []

    def evaluate(self, trials: Array, limits: Array | None = None) -> Array:
        return self.inner.evaluate(trials, limits)

    def compare_with_parents(self, trials: Array, parents: Array, limits: Array | None) -> Array:
        deficits = self.inner.compare_with_parents(trials, parents, limits)
        if limits is not None:
            self.accepted.append((deficits.sum(axis=1) <= limits).tolist())
        return deficits

    def outcome(self, trial: Array) -> OutcomeCounts:
        return self.inner.outcome(trial)

    def scores(self, trial: Array) -> Array:
        return self.inner.scores(trial)


def search(evaluator: Evaluator, *, seed: int = 0, **settings: Any) -> tuple[SearchResult, list[list[bool]]]:
    """A whole search, and the trials it accepted."""
    recording = Recording(evaluator)
    nothing: Any = None  # a split is not used
    problem = Problem(evaluator.backend, nothing, evaluator.suspects, evaluator.fitness_inputs, lambda *_: recording)
    result = DifferentialEvolution(**settings).search(problem, rng=np.random.default_rng(seed))
    return result, recording.accepted


def assert_same_search(first: Evaluator, second: Evaluator, *, seed: int = 0, **settings: Any) -> None:
    """Both evaluators lead a search to accept the same trials and to end in the same place."""
    one, accepted = search(first, seed=seed, **settings)
    other, also_accepted = search(second, seed=seed, **settings)
    assert also_accepted == accepted
    assert np.array_equal(other.values, one.values)
    assert np.array_equal(other.deficits, one.deficits)
    assert other.history == one.history


def fitness_inputs_of(
    backend: ModelBackend, inputs: Inputs, n: int, *, alpha: float = 10.0, seed: int = 0
) -> FitnessInputs:
    """Inputs of which nine tenths have the class the model says, and the others another one."""
    rng = np.random.default_rng(seed)
    scores = backend.forward(inputs)
    labels = np.argmax(scores, axis=1)
    negative = np.sort(rng.choice(n, size=max(1, n // 10), replace=False))
    labels[negative] = (labels[negative] + rng.integers(1, scores.shape[1], size=len(negative))) % scores.shape[1]
    terms = np.zeros(n, np.int64)
    terms[negative] = 1
    return FitnessInputs.around(
        inputs, labels, np.where(terms == 1, alpha, 1.0), terms, ("positives", "target"), ("positive", "negative")
    )


def some_suspects(backend: ModelBackend, layers: Sequence[str], k: int, *, seed: int = 0) -> Selection:
    """`k` random weights of some layers, biases among them, and the first weight of each layer."""
    rng = np.random.default_rng(seed)
    places = [
        Address(layer, parameter, tuple(int(i) for i in index))
        for layer in layers
        for parameter, values in backend.get_weights(layer).items()
        for index in np.ndindex(values.shape)
    ]
    firsts = [next(place for place in places if place.layer == layer) for layer in layers]
    chosen = [places[number] for number in rng.choice(len(places), size=min(k, len(places)), replace=False)]
    return Selection.of(backend, [*firsts, *chosen])


class Silent(ReferenceBackend):
    """Tells nothing about what follows a layer."""

    @property
    def layers(self) -> tuple[LayerInfo, ...]:
        return tuple(
            LayerInfo(info.name, info.kind, info.parameters, info.geometry, info.uses) for info in super().layers
        )


class Plainest(Silent):
    """Has no cut of its own either."""

    def _cut(self, inputs: Inputs, layers: Sequence[str]) -> Any:
        return ModelBackend._cut(self, inputs, layers)


class Lying(ReferenceBackend):
    """Says that tanh follows its layers, whatever does."""

    @property
    def layers(self) -> tuple[LayerInfo, ...]:
        return tuple(
            LayerInfo(info.name, info.kind, info.parameters, info.geometry, info.uses, info.followed_by and ("tanh",))
            for info in super().layers
        )


class Rounding(Silent):
    """Its cut is right up to rounding only, and rounds differently each time."""

    def _cut(self, inputs: Inputs, layers: Sequence[str]) -> Any:
        return _Shaking(super()._cut(inputs, layers))


class _Shaking(Cut):
    def __init__(self, cut: Cut) -> None:
        super().__init__(cut.layer, cut.layers.values())
        self._cut = cut
        self._rng = np.random.default_rng(0)

    def outputs(self, rows: Array | None = None) -> Array:
        return self._cut.outputs(rows)

    def _scores_from_outputs(self, outputs: Array, rows: Array | None) -> Array:
        return self._shake(self._cut.scores_from_outputs(outputs, rows))

    def _scores_with(self, weights: Weights, rows: Array | None) -> Array:
        return self._shake(self._cut.scores_with(weights, rows))

    def _shake(self, scores: Array) -> Array:
        noise = self._rng.uniform(-1e-6, 1e-6, scores.shape) * np.abs(scores).max(axis=1, keepdims=True, initial=0)
        return np.asarray(scores + noise, np.float32)


def units(deficit: float) -> int:
    """A deficit in units."""
    return round(deficit * UNIT)


def assert_same_about_overflow(plain: PlainEvaluator, fast: FastEvaluator, values: Sequence[float]) -> None:
    """Candidates of nothing but such values get the plain evaluator's decisions, and its deficits."""
    trials = np.stack([np.full(len(plain.suspects), value) for value in values])
    parents = np.tile(plain.suspects.values, (len(trials), 1))
    with np.errstate(all="ignore"):
        expected, limits = plain.evaluate(trials), plain.evaluate(parents).sum(axis=1)
        found = fast.compare_with_parents(trials, parents, limits)
        assert np.array_equal(found.sum(axis=1) <= limits, expected.sum(axis=1) <= limits)
        assert np.array_equal(fast.evaluate(trials), expected)
