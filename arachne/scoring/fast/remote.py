"""RemoteDeficits: sums over shards of the inputs on other machines, where candidates are dropped in waves.

A few hard inputs show that a candidate loses. So in the first wave each shard takes all candidates through its first
run of inputs, as many as usually bring them to their ceilings. Most candidates' sums over the shards are above their
ceilings then. The others continue, each shard with all that is left of the ceiling: through the next run, twice as
long, while a run takes longer than a call and candidates are dropped; otherwise to the end. No deficit is negative, so
a candidate dropped that way is above its ceiling on all inputs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from arachne.model.backend import ModelBackend
from arachne.model.remote import CachedBuild, RemoteExecutor
from arachne.model.sharding import interleave_groups, shards
from arachne.model.values import Array, Inputs, count
from arachne.scoring.fast.bounds import LAST_WAVE
from arachne.scoring.fast.deficits import Bounds, DeficitSource, ExactDeficits
from arachne.scoring.fast.local import LocalDeficits
from arachne.scoring.fitness import FitnessInputs
from arachne.weights.selection import Selection

PIECES_PER_WORKER, MIN_SHARDS_PER_PIECE = 4, 4
"""Pieces per worker, so that a lost worker's load spreads over several others; a piece has at least so many shards."""

MIN_WAVE_SECONDS = 0.02
"""If a run of inputs takes longer than this (s), candidates are dropped in between before the next run."""

BandState = tuple[float, int, float, int]
"""The learnt numbers of an error band."""


class RemoteDeficits(DeficitSource):
    """Deficits over shards on other machines, added up.

    Args:
        remote: Runs the work on the shards.
        fitness_inputs: The inputs that count.
        suspects: The weights candidates change.
        memory: The bytes that each worker may keep between candidates.
    """

    def __init__(self, remote: RemoteExecutor, fitness_inputs: FitnessInputs, suspects: Selection, memory: int) -> None:
        parts = runs_of_shards(count(fitness_inputs.padded), remote.workers)
        self._order = interleave_groups(fitness_inputs.terms)
        inputs = fitness_inputs if len(parts) == 1 else fitness_inputs.take(self._order)
        each = memory // -(-len(parts) // max(1, remote.workers))
        arguments = [
            (inputs.labels[own], inputs.weights[own], inputs.terms[own], inputs.names, inputs.kinds, suspects, each)
            for own in parts
        ]
        build = CachedBuild(build_deficits, arguments, _cache_key(inputs, suspects))
        self._pieces = remote.shard_calls(inputs.padded, parts, build)
        self._sizes = np.array([len(inputs.labels[own]) for own in parts], np.float64)
        self._costs = self._sizes / 1e9
        self._bands: dict[int, BandState] = {}
        self._states: dict[int, tuple[str, int]] = {}
        self._revision = 0
        self._renew = False
        self._slowest = 0.0
        self.waves: list[int] = []
        """The number of pairs of candidate and shard in each wave."""

    @property
    def revision(self) -> int:
        return self._revision

    def bounds(self, trials: Array, ceilings: Array | None) -> Bounds:
        renew, self._renew = self._renew, False
        numbers = range(len(self._sizes))
        if ceilings is None:
            return _sum_bounds(self._wave(dict.fromkeys(numbers, (trials, None, None, renew))))
        shares, wave = self._costs / self._costs.sum(), 0
        found = self._wave({number: (trials, np.ceil(shares[number] * ceilings), wave, renew) for number in numbers})
        left = len(trials)
        while left:
            low = np.sum([part.low for part in found.values()], axis=0)
            going = {number: np.flatnonzero(~part.complete & (low <= ceilings)) for number, part in found.items()}
            left, before = max(map(len, going.values())), left
            settled = left == before < len(trials)
            wave = LAST_WAVE if settled or wave == LAST_WAVE or self._slowest < MIN_WAVE_SECONDS else wave + 1
            asked = {
                number: (trials[which], (ceilings - low + found[number].low)[which], wave, False)
                for number, which in going.items()
                if len(which)
            }
            for number, part in self._wave(asked).items():
                found[number] = _with_bounds(found[number], going[number], part)
        summed = _sum_bounds(found)
        if summed.complete.any():
            self._costs += [float(part.low[summed.complete].sum()) for part in found.values()]
        return summed

    def _wave(self, asked: Mapping[int, tuple[Any, ...]]) -> dict[int, Bounds]:
        """Compute bounds of candidates on some shards, by their numbers."""
        if asked:
            self.waves.append(sum(len(own[0]) for own in asked.values()))
        return dict(zip(asked, self._ask(bounds_of, asked), strict=True))

    def exact(self, trial: Array) -> ExactDeficits:
        found = self._ask(exact_of, dict.fromkeys(range(len(self._sizes)), (trial,)))
        return ExactDeficits(
            np.sum([part.deficits for part in found], axis=0), np.sum([part.wrong for part in found], axis=0)
        )

    def scores(self, trial: Array) -> Array:
        found = self._ask(scores_of, dict.fromkeys(range(len(self._sizes)), (trial,)))
        scores = np.concatenate(found)
        scores[self._order] = scores.copy()
        return scores

    def next_generation(self) -> None:
        self._renew = True

    def _ask(self, work: Callable[..., Any], arguments: Mapping[int, tuple[Any, ...]]) -> list[Any]:
        """Call some shards, and record their bands: a shard that moves to another worker starts with its last band."""
        if not arguments:
            return []
        calls = {number: (*own, self._bands.get(number)) for number, own in arguments.items()}
        values, answers = [], self._pieces(work, calls)
        self._slowest = max(answer.seconds for answer in answers)
        for number, answer in zip(calls, answers, strict=True):
            value, revision, band = answer.value
            state = answer.build_id, revision
            if self._states.get(number, state) != state:
                self._revision += 1
            self._states[number], self._bands[number] = state, band
            values.append(value)
        return values


def runs_of_shards(n: int, workers: int) -> list[slice]:
    """Divide `n` inputs into pieces of whole shards, a few for each worker.

    Deficits are whole numbers, so the pieces affect only the speed: in a longer piece more candidates are dropped
    early, and there are fewer calls.
    """
    whole = shards(n)
    several = min(PIECES_PER_WORKER * workers, len(whole) // MIN_SHARDS_PER_PIECE)
    runs = np.array_split(np.arange(len(whole)), min(len(whole), max(1, workers, several)))
    return [slice(whole[run[0]].start, whole[run[-1]].stop) for run in runs]


def _with_bounds(found: Bounds, which: Array, more: Bounds) -> Bounds:
    """Replace the bounds of some candidates."""
    columns = []
    for name in ("deficits", "low", "high", "complete"):
        column = getattr(found, name).copy()
        column[which] = getattr(more, name)
        columns.append(column)
    return Bounds(*columns)


def _sum_bounds(found: Mapping[int, Bounds]) -> Bounds:
    return Bounds(
        deficits=np.sum([part.deficits for part in found.values()], axis=0),
        low=np.sum([part.low for part in found.values()], axis=0),
        high=np.sum([part.high for part in found.values()], axis=0),
        complete=np.all([part.complete for part in found.values()], axis=0),
    )


def _cache_key(inputs: FitnessInputs, suspects: Selection) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for array in (inputs.labels, inputs.weights, inputs.terms, suspects.values):
        digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(repr((inputs.names, inputs.kinds, suspects.digest)).encode())
    return f"deficits {digest.hexdigest()}"


def build_deficits(
    backend: ModelBackend,
    padded: Inputs,
    rows: slice,
    labels: Array,
    weights: Array,
    terms: Array,
    names: tuple[str, ...],
    kinds: tuple[Any, ...],
    suspects: Selection,
    memory: int,
) -> LocalDeficits:
    """Build the deficits of one shard, on its worker."""
    return LocalDeficits(backend, FitnessInputs(padded, labels, weights, terms, names, kinds), suspects, memory)


def bounds_of(
    source: LocalDeficits, trials: Array, ceilings: Array | None, wave: int | None, renew: bool, band: BandState | None
) -> tuple[Bounds, int, BandState]:
    """Compute bounds of candidates over one shard; return them with its revision and band."""
    _widen_band(source, band)
    if renew:
        source.next_generation()
    found = source.bounds(trials, None if ceilings is None else ceilings.astype(np.int64), wave)
    return Bounds(found.deficits, found.low, found.high, found.complete), source.revision, _band_state(source)


def exact_of(source: LocalDeficits, trial: Array, band: BandState | None) -> tuple[ExactDeficits, int, BandState]:
    """Compute exact deficits of a candidate over one shard; return them with its revision and band."""
    _widen_band(source, band)
    return source.exact(trial), source.revision, _band_state(source)


def scores_of(source: LocalDeficits, trial: Array, band: BandState | None) -> tuple[Array, int, BandState]:
    """Compute a candidate's scores over one shard; return them with its revision and band."""
    return source.scores(trial), source.revision, _band_state(source)


def _band_state(source: LocalDeficits) -> BandState:
    band = source.band
    return band.seen, band.compared, band.seen_share, band.sums


def _widen_band(source: LocalDeficits, band: BandState | None) -> None:
    """Widen the band to the one that the shard had on its last worker."""
    if band is not None:
        own = source.band
        own.seen, own.seen_share = max(own.seen, band[0]), max(own.seen_share, band[2])
