"""Facts from elsewhere: every shard of the inputs has its own, and a candidate is given up in waves across them.

A candidate that loses is known to lose after a few hard inputs. So in the first wave each shard takes all candidates
through its first run of inputs, as many as usually bring them to their ceilings. Most candidates' sums over the shards
are above their ceilings then. The others go on from there, each shard with all that is left of the ceiling: through the
next run, twice as long, as long as a run takes longer than asking does and candidates are given up; else to the end. No
deficit is negative, so a candidate given up that way is above its ceiling on all inputs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from arachne.backend import ModelBackend
from arachne.elsewhere import Elsewhere, Making
from arachne.evaluate.fitness import FitnessInputs
from arachne.evaluate.judging.bounds import LAST
from arachne.evaluate.judging.facts import Bounds, ExactFacts, Facts
from arachne.evaluate.judging.local_facts import LocalFacts
from arachne.shards import shards, spread
from arachne.suspects import Suspects
from arachne.values import Array, Inputs, count

PIECES_EACH, LONG = 4, 4
"""Each worker has this many pieces, so that several others take over what one leaves, if they have so many shards."""

WORTH_ASKING = 0.02
"""Seconds: where a run of inputs takes longer, it is worth a question who goes on through the next one."""

Band = tuple[float, int, float, int]
"""What an error band has learnt."""


class SharedFacts(Facts):
    """Facts about shards that are elsewhere, added up.

    Args:
        elsewhere: Where the shards are worked on.
        fitness_inputs: The inputs that count.
        suspects: The weights candidates change.
        memory: Budget of each worker for what is kept between candidates, in bytes.
    """

    def __init__(self, elsewhere: Elsewhere, fitness_inputs: FitnessInputs, suspects: Suspects, memory: int) -> None:
        parts = runs_of_shards(count(fitness_inputs.padded), elsewhere.workers)
        self._order = spread(fitness_inputs.terms)
        inputs = fitness_inputs if len(parts) == 1 else fitness_inputs.take(self._order)
        each = memory // -(-len(parts) // max(1, elsewhere.workers))
        told = [
            (inputs.labels[own], inputs.weights[own], inputs.terms[own], inputs.names, inputs.kinds, suspects, each)
            for own in parts
        ]
        making = Making(facts_of, told, _named(inputs, suspects))
        self._pieces = elsewhere.pieces(inputs.padded, parts, making)
        self._sizes = np.array([len(inputs.labels[own]) for own in parts], np.float64)
        self._costs = self._sizes / 1e9
        self._bands: dict[int, Band] = {}
        self._states: dict[int, tuple[str, int]] = {}
        self._revision = 0
        self._renew = False
        self._slowest = 0.0
        self.waves: list[int] = []
        """How many pairs of candidate and shard each wave asked about."""

    @property
    def revision(self) -> int:
        return self._revision

    def bounds(self, trials: Array, ceilings: Array | None) -> Bounds:
        renew, self._renew = self._renew, False
        numbers = range(len(self._sizes))
        if ceilings is None:
            return _summed(self._wave(dict.fromkeys(numbers, (trials, None, None, renew))))
        shares, wave = self._costs / self._costs.sum(), 0
        found = self._wave({number: (trials, np.ceil(shares[number] * ceilings), wave, renew) for number in numbers})
        left = len(trials)
        while left:
            low = np.sum([part.low for part in found.values()], axis=0)
            going = {number: np.flatnonzero(~part.complete & (low <= ceilings)) for number, part in found.items()}
            left, before = max(map(len, going.values())), left
            settled = left == before < len(trials)
            wave = LAST if settled or wave == LAST or self._slowest < WORTH_ASKING else wave + 1
            asked = {
                number: (trials[which], (ceilings - low + found[number].low)[which], wave, False)
                for number, which in going.items()
                if len(which)
            }
            for number, part in self._wave(asked).items():
                found[number] = _with(found[number], going[number], part)
        summed = _summed(found)
        if summed.complete.any():
            self._costs += [float(part.low[summed.complete].sum()) for part in found.values()]
        return summed

    def _wave(self, asked: Mapping[int, tuple[Any, ...]]) -> dict[int, Bounds]:
        """Bounds of candidates by some shards, by their numbers."""
        if asked:
            self.waves.append(sum(len(own[0]) for own in asked.values()))
        return dict(zip(asked, self._asked(bounds_of, asked), strict=True))

    def exact(self, trial: Array) -> ExactFacts:
        found = self._asked(exact_of, dict.fromkeys(range(len(self._sizes)), (trial,)))
        return ExactFacts(
            np.sum([part.deficits for part in found], axis=0), np.sum([part.wrong for part in found], axis=0)
        )

    def scores(self, trial: Array) -> Array:
        found = self._asked(scores_of, dict.fromkeys(range(len(self._sizes)), (trial,)))
        scores = np.concatenate(found)
        scores[self._order] = scores.copy()
        return scores

    def next_generation(self) -> None:
        self._renew = True

    def _asked(self, work: Callable[..., Any], arguments: Mapping[int, tuple[Any, ...]]) -> list[Any]:
        """Ask shards, and follow what they learn: a shard that moved starts with the band it had."""
        if not arguments:
            return []
        told = {number: (*own, self._bands.get(number)) for number, own in arguments.items()}
        values, answers = [], self._pieces(work, told)
        self._slowest = max(answer.seconds for answer in answers)
        for number, answer in zip(told, answers, strict=True):
            value, revision, band = answer.value
            state = answer.made, revision
            if self._states.get(number, state) != state:
                self._revision += 1
            self._states[number], self._bands[number] = state, band
            values.append(value)
        return values


def runs_of_shards(n: int, workers: int) -> list[slice]:
    """Pieces of `n` inputs that consist of whole shards, a few for each worker.

    What candidates cost are whole numbers, so the pieces decide how fast it is found out and nothing else: in a longer
    one more candidates are given up early, and there are fewer questions.
    """
    whole = shards(n)
    several = min(PIECES_EACH * workers, len(whole) // LONG)
    runs = np.array_split(np.arange(len(whole)), min(len(whole), max(1, workers, several)))
    return [slice(whole[run[0]].start, whole[run[-1]].stop) for run in runs]


def _with(found: Bounds, which: Array, more: Bounds) -> Bounds:
    """The same with other bounds of some candidates."""
    columns = []
    for name in ("deficits", "low", "high", "complete"):
        column = getattr(found, name).copy()
        column[which] = getattr(more, name)
        columns.append(column)
    return Bounds(*columns)


def _summed(found: Mapping[int, Bounds]) -> Bounds:
    return Bounds(
        deficits=np.sum([part.deficits for part in found.values()], axis=0),
        low=np.sum([part.low for part in found.values()], axis=0),
        high=np.sum([part.high for part in found.values()], axis=0),
        complete=np.all([part.complete for part in found.values()], axis=0),
    )


def _named(inputs: FitnessInputs, suspects: Suspects) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for array in (inputs.labels, inputs.weights, inputs.terms, suspects.values):
        digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(repr((inputs.names, inputs.kinds, suspects.addresses)).encode())
    return f"facts {digest.hexdigest()}"


def facts_of(
    backend: ModelBackend,
    padded: Inputs,
    rows: slice,
    labels: Array,
    weights: Array,
    terms: Array,
    names: tuple[str, ...],
    kinds: tuple[Any, ...],
    suspects: Suspects,
    memory: int,
) -> LocalFacts:
    """The facts about one shard, where it is."""
    return LocalFacts(backend, FitnessInputs(padded, labels, weights, terms, names, kinds), suspects, memory)


def bounds_of(
    facts: LocalFacts, trials: Array, ceilings: Array | None, wave: int | None, renew: bool, band: Band | None
) -> tuple[Bounds, int, Band]:
    """Bounds of candidates over one shard, and what it knows of its own errors."""
    _learn(facts, band)
    if renew:
        facts.next_generation()
    found = facts.bounds(trials, None if ceilings is None else ceilings.astype(np.int64), wave)
    return Bounds(found.deficits, found.low, found.high, found.complete), facts.revision, _band(facts)


def exact_of(facts: LocalFacts, trial: Array, band: Band | None) -> tuple[ExactFacts, int, Band]:
    """Exact facts about a candidate over one shard."""
    _learn(facts, band)
    return facts.exact(trial), facts.revision, _band(facts)


def scores_of(facts: LocalFacts, trial: Array, band: Band | None) -> tuple[Array, int, Band]:
    """A candidate's scores of one shard."""
    return facts.scores(trial), facts.revision, _band(facts)


def _band(facts: LocalFacts) -> Band:
    band = facts.band
    return band.seen, band.compared, band.seen_share, band.sums


def _learn(facts: LocalFacts, band: Band | None) -> None:
    """Widen the band to what the shard had learnt elsewhere."""
    if band is not None:
        own = facts.band
        own.seen, own.seen_share = max(own.seen, band[0]), max(own.seen_share, band[2])
