"""Facts may come from anywhere, and be added up over parts of the inputs: the decisions stay the plain evaluator's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from arachne.model.lazy import MEMORY
from arachne.model.values import Array
from arachne.scoring.evaluators import FastEvaluator, OutcomeCounts, PlainEvaluator
from arachne.scoring.fast.bounds import LAST_WAVE
from arachne.scoring.fast.decide import DecidingEvaluator
from arachne.scoring.fast.deficits import Bounds, DeficitSource, ExactDeficits
from arachne.scoring.fast.local import LocalDeficits
from arachne.testing import Network, ReferenceBackend, convnet, mlp, random_inputs
from tests.unit.evaluating import assert_same_search, fitness_inputs_of, some_suspects

SUBJECTS = {
    "dense tail": (mlp([20, 30, 5], seed=3), ["fc1", "fc2"]),
    "cut": (convnet(seed=3), ["conv1", "fc1"]),
}


def plain_of(network: Network, layers: list[str], n: int) -> PlainEvaluator:
    backend = ReferenceBackend(network)
    fitness_inputs = fitness_inputs_of(backend, random_inputs(network, n), n)
    return PlainEvaluator(backend, fitness_inputs, some_suspects(backend, layers, 5))


def decide_by_parts(plain: PlainEvaluator, parts: int) -> DecidingEvaluator:
    """An evaluator that decides from the facts about parts of the inputs."""
    inputs = plain.fitness_inputs
    shards = [inputs.take(rows) for rows in np.array_split(np.arange(len(inputs)), parts)]
    source = Sums([LocalDeficits(plain.backend, shard, plain.suspects, MEMORY) for shard in shards])
    return DecidingEvaluator(plain.backend, inputs, plain.suspects, source)


def some_trials(plain: PlainEvaluator, n: int) -> Array:
    noise = np.random.default_rng(0).standard_normal((n, len(plain.suspects)))
    return (plain.suspects.values + 0.5 * noise).astype(np.float32).astype(np.float64)


class Sums(DeficitSource):
    """Deficits over all inputs, as sums over parts of them. The inputs are those of the parts, one after another.

    Args:
        parts: The sources of each part; all for the same suspects and the same terms.
    """

    def __init__(self, parts: Sequence[DeficitSource]) -> None:
        self._parts = tuple(parts)

    @property
    def revision(self) -> int:
        return sum(part.revision for part in self._parts)

    def bounds(self, trials: Array, ceilings: Array | None) -> Bounds:
        # No deficit is negative, so a candidate above its ceiling on one part alone is above it on all inputs.
        found = [part.bounds(trials, ceilings) for part in self._parts]
        return Bounds(
            deficits=np.sum([part.deficits for part in found], axis=0),
            low=np.sum([part.low for part in found], axis=0),
            high=np.sum([part.high for part in found], axis=0),
            complete=np.all([part.complete for part in found], axis=0),
        )

    def exact(self, trial: Array) -> ExactDeficits:
        found = [part.exact(trial) for part in self._parts]
        return ExactDeficits(
            np.sum([part.deficits for part in found], axis=0), np.sum([part.wrong for part in found], axis=0)
        )

    def scores(self, trial: Array) -> Array:
        return np.concatenate([part.scores(trial) for part in self._parts])

    def next_generation(self) -> None:
        for part in self._parts:
            part.next_generation()


class Vague(DeficitSource):
    """Knows next to nothing in advance: bounds that hold, and say nothing."""

    def __init__(self, plain: PlainEvaluator) -> None:
        self._plain = plain
        self.asked = 0
        self.seen = 0

    @property
    def revision(self) -> int:
        return 0

    def bounds(self, trials: Array, ceilings: Array | None) -> Bounds:
        n, terms = len(trials), self._plain.fitness_inputs.n_terms
        most = np.full(n, np.iinfo(np.int64).max // 4)
        self.seen += n
        return Bounds(np.ones((n, terms), np.int64), np.zeros(n, np.int64), most, np.ones(n, bool))

    def exact(self, trial: Array) -> ExactDeficits:
        self.asked += 1
        scores = self.scores(trial)
        inputs = self._plain.fitness_inputs
        return ExactDeficits(inputs.deficits_by_term(scores), inputs.wrong_by_term(scores))

    def scores(self, trial: Array) -> Array:
        return self._plain.scores(trial)


class Revised(Vague):
    """Takes back all bounds whenever it gives exact facts."""

    @property
    def revision(self) -> int:
        return self.asked


@pytest.mark.parametrize("parts", [2, 3])
@pytest.mark.parametrize("subject", SUBJECTS)
def test_facts_added_up_over_parts_of_the_inputs_give_the_plain_decisions(subject: str, parts: int) -> None:
    plain = plain_of(*SUBJECTS[subject], n=192 * parts)
    assert_same_search(plain, decide_by_parts(plain, parts), population=12, generations=12)


def test_summed_bounds_enclose_the_plain_totals_in_whole_numbers() -> None:
    plain = plain_of(*SUBJECTS["dense tail"], n=384)
    rows = np.arange(384)
    parts = [
        LocalDeficits(plain.backend, plain.fitness_inputs.take(half), plain.suspects, MEMORY)
        for half in (rows[:100], rows[100:])
    ]
    trials = some_trials(plain, 30)
    found = Sums(parts).bounds(trials, None)
    totals = plain.evaluate(trials).sum(axis=1)
    assert found.low.dtype == found.high.dtype == found.deficits.dtype == np.int64
    assert found.complete.all()
    assert ((found.low <= totals) & (totals <= found.high)).all()
    assert np.array_equal(found.low, sum(part.bounds(trials, None).low for part in parts))


def test_candidate_given_up_on_one_part_is_given_up_on_all() -> None:
    plain = plain_of(*SUBJECTS["dense tail"], n=384)
    trials = some_trials(plain, 30)
    ceilings = np.full(30, int(np.median(plain.evaluate(trials).sum(axis=1))) // 4)
    rows = np.array_split(np.arange(384), 2)
    parts = [LocalDeficits(plain.backend, plain.fitness_inputs.take(half), plain.suspects, MEMORY) for half in rows]
    found = Sums(parts).bounds(trials, ceilings)
    assert not found.complete.all()
    assert (found.low[~found.complete] > ceilings[~found.complete]).all()


def test_scores_are_those_of_the_parts_one_after_another() -> None:
    plain = plain_of(*SUBJECTS["dense tail"], n=384)
    trial = some_trials(plain, 1)[0]
    assert np.allclose(decide_by_parts(plain, 3).scores(trial), plain.scores(trial), atol=1e-5)


@pytest.mark.parametrize("kind", [Vague, Revised])
def test_decisions_are_right_whatever_the_bounds_say_as_long_as_they_hold(kind: type[Vague]) -> None:
    plain = plain_of(*SUBJECTS["dense tail"], n=100)
    decider = DecidingEvaluator(plain.backend, plain.fitness_inputs, plain.suspects, kind(plain))
    assert_same_search(plain, decider, population=8, generations=8)


def test_bounds_that_no_longer_hold_are_asked_for_again_and_exact_facts_are_not() -> None:
    plain = plain_of(*SUBJECTS["dense tail"], n=100)
    trials = some_trials(plain, 6)
    source = Revised(plain)
    decider = DecidingEvaluator(plain.backend, plain.fitness_inputs, plain.suspects, source)
    limits = decider.compare_with_parents(trials, trials, None).sum(
        axis=1
    )  # a first population of vague bounds: all are asked about
    assert source.asked == 6
    before = source.seen
    decider.compare_with_parents(trials[::-1].copy(), trials, limits)
    assert source.asked == 6
    assert source.seen == before + 6  # the trials; what is known of the parents is exact and still holds


def test_outcome_counts_negatives_positives_and_never_break_inputs_each_by_themselves() -> None:
    plain = plain_of(*SUBJECTS["dense tail"], n=90)
    labels = np.argmax(plain.scores(plain.suspects.values), axis=1)
    terms = np.arange(90) % 3
    inputs = replace(
        plain.fitness_inputs,
        labels=np.where(np.arange(90) % 2 == 0, labels, (labels + 1) % 5),  # every second input is wrong
        terms=terms,
        names=("kept safe", "target", "positives"),
        kinds=("never_break", "negative", "positive"),
    )
    rest = plain.backend, inputs, plain.suspects
    for evaluator in (PlainEvaluator(*rest), FastEvaluator(*rest)):
        assert evaluator.outcome(plain.suspects.values) == OutcomeCounts(repaired=15, broken=15, broken_never_break=15)
    for trial in some_trials(plain, 5):
        assert FastEvaluator(*rest).outcome(trial) == PlainEvaluator(*rest).outcome(trial)


def test_terms_without_inputs_count_nothing() -> None:
    plain = plain_of(*SUBJECTS["dense tail"], n=90)
    only_positives = plain.fitness_inputs.take(np.flatnonzero(plain.fitness_inputs.terms == 0))
    evaluator = PlainEvaluator(plain.backend, only_positives, plain.suspects)
    assert evaluator.outcome(plain.suspects.values) == OutcomeCounts(0, 0, 0)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_waves_give_the_bounds_of_one_pass_and_look_at_no_input_twice(subject: str) -> None:
    plain = plain_of(*SUBJECTS[subject], 900)
    trials, none = some_trials(plain, 8), np.full(8, np.iinfo(np.int64).max // 4)
    whole, parted, late = (LocalDeficits(plain.backend, plain.fitness_inputs, plain.suspects, MEMORY) for _ in range(3))
    expected = whole.bounds(trials, none)
    for wave in range(2):
        first = parted.bounds(trials, none, wave)
        assert not first.complete.any()
        assert (first.low <= expected.low).all()
    some = np.array([6, 1, 2])
    for found in (parted.bounds(trials[some], none[some], LAST_WAVE), late.bounds(trials[some], none[some], LAST_WAVE)):
        assert found.complete.all()
        assert (np.abs(found.deficits - expected.deficits[some]) <= 2).all()
        assert (np.abs(found.high - expected.high[some]) <= 2 * plain.fitness_inputs.n_terms).all()
    assert parted.looked_at < whole.looked_at
    assert late.looked_at == 3 * 900
