"""From mistakes to causes: propose on one half of the data, confirm on the other, explain each error once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from arachne.backend import ModelBackend
from arachne.causes.base import Finder
from arachne.causes.cases import Cases
from arachne.causes.judging import Slice, able_to_show, judge, mostly_read_as
from arachne.causes.rule import Rule
from arachne.data.labelled import LabelledData
from arachne.data.strata import divide
from arachne.lazy import is_lazy
from arachne.plugins import FINDERS
from arachne.values import Array

LEVEL = 0.01
"""The corrected p-value below which a rule goes on, on either half."""

SHARE = 0.5
"""The share of a cause's inputs that is wrong, at least: on both halves."""

SAMPLE = 1000
"""Right inputs that finders look at; errors are looked at all."""

ROOM = 128 << 20
"""Bytes of lazy inputs that causes are looked for among; a cause of one in a hundred shows among far fewer."""

FEWEST = 1000
"""Lazy inputs that causes are looked for among, at least."""

SPREAD = 3.0
"""Over how many true classes a cause's errors spread, at least; over half as many as all inputs where that is less.

Inputs of one class that look alike are often of one thing (thirty pictures of one traffic sign). What they share is a
cause once it is met in other classes as well; groups by metadata and clusters of activations need not pass this.
"""

ALIKE = 0.03
"""Of rules whose numbers of explained errors differ by less than this share, the simplest is told."""


SAME = 0.01
"""Of equally simple rules whose numbers differ by less than this share, the one of the first finder is told."""


@dataclass(frozen=True)
class Found:
    """A rule that holds on both halves of the data.

    Attributes:
        finder: Who proposed it.
        rule: Whether an input has the cause.
        members: Row numbers of the errors it explains `(k,)`.
        slice: What its inputs look like among all inputs that no earlier cause has.
        p: On the half that no finder saw, corrected for the rules that were tested there.
    """

    finder: str
    rule: Rule
    members: Array
    slice: Slice
    p: float


@dataclass(eq=False)
class _Candidate:
    finder: str
    rule: Rule
    tests: int
    read_as: int | None = None
    belongs: dict[str, Array] = field(default_factory=dict)

    def worth(self, halves: dict[str, Cases], taken: dict[str, Array]) -> int:
        """Errors it explains, less the right inputs it would have called wrong."""
        worth = 0
        for name, half in halves.items():
            inside = self.belongs[name] & ~taken[name]
            if not self.rule.asks_model:
                inside &= able_to_show(half, self.read_as)
            worth += int((inside & half.wrong).sum()) - int((inside & ~half.wrong).sum())
        return worth


def every_finder() -> tuple[Finder, ...]:
    """All finders there are, with their defaults: ours first."""
    names = [*FINDERS.ours, *FINDERS.third_party()]
    return tuple(FINDERS.get(name)() for name in names)


def find_rules(
    backend: ModelBackend | None,
    data: LabelledData,
    predictions: Array,
    *,
    finders: Sequence[Finder] | None = None,
    seed: int = 0,
) -> tuple[Found, ...]:
    """What the mistakes share: rules that hold on a half of the data that was not used to find them.

    Args:
        backend: The model; None leaves out finders that look inside it.
        data: Labelled inputs.
        predictions: What the model makes of them `(n,)`.
        finders: Who looks; all there are when None.
        seed: What all randomness starts from.
    """
    whole = Cases.of(data, predictions, backend)
    if not whole.wrong.any() or whole.wrong.all():
        return ()
    if is_lazy(data.inputs):
        rows = looked_at(data, seed)
        few = whole.take(rows).held()
        found = find_rules(backend, few.whole, few.predicted, finders=finders, seed=seed)
        return found if len(rows) == len(data) else _everywhere(found, whole)
    rng = np.random.default_rng(seed)
    outcomes = whole.labels * (int(whole.predictions.max()) + 1) + whole.predictions
    in_search = divide(outcomes, 0.5, rng=rng)
    halves = {"search": whole.take(in_search), "confirm": whole.take(~in_search)}
    sample = _sample(halves["search"], rng)
    candidates: list[_Candidate] = []
    chosen = every_finder() if finders is None else finders
    for finder in chosen:
        proposals = finder.find(sample, rng=rng)
        # Each finder has an equal part of the level and shares it among its own tests.
        tests = max(1, proposals.tests) * len(chosen)
        candidates += [_Candidate(finder.name, rule, tests) for rule in proposals.rules if _promising(rule, sample)]
    return _explained(candidates, whole, halves)


def looked_at(data: LabelledData, seed: int = 0) -> Array:
    """The rows causes are looked for among: all, or of lazy data as many as `ROOM` holds, drawn by chance."""
    if not is_lazy(data.inputs):
        return np.arange(len(data))
    most = max(FEWEST, ROOM * len(data) // max(1, data.nbytes))
    if len(data) <= most:
        return np.arange(len(data))
    return np.sort(np.random.default_rng(seed).choice(len(data), most, replace=False))


def _everywhere(found: Sequence[Found], whole: Cases) -> tuple[Found, ...]:
    """Rules found on some of the data, with what they explain in all of it."""
    taken = np.zeros(len(whole), dtype=bool)
    told = []
    for one in found:
        belongs = one.rule.among(whole) & ~taken
        read_as = mostly_read_as(belongs, whole)
        judged = judge(one.rule, belongs[~taken], whole.take(~taken), read_as)
        told.append(replace(one, members=np.flatnonzero(belongs & whole.wrong), slice=judged))
        taken |= belongs
    return tuple(told)


def _sample(cases: Cases, rng: np.random.Generator) -> Cases:
    right = np.flatnonzero(~cases.wrong)
    if len(right) > SAMPLE:
        right = rng.choice(right, SAMPLE, replace=False)
    return cases.take(np.sort(np.concatenate([np.flatnonzero(cases.wrong), right])))


def _promising(rule: Rule, sample: Cases) -> bool:
    """Whether it is worth looking at a rule on more inputs: odds are about the same in the sample."""
    belongs = rule.holds(sample)
    return judge(rule, belongs, sample, mostly_read_as(belongs, sample)).odds_ratio >= rule.least_odds / 2


def _explained(candidates: list[_Candidate], whole: Cases, halves: dict[str, Cases]) -> tuple[Found, ...]:
    """Choose rules one after the other: the one that explains most of the errors that are left, simplest first."""
    left = [one for one in candidates if _holds(one, halves["search"], one.tests, "search", None) is not None]
    confirmed = max(1, len(left))
    taken = {name: np.zeros(len(half), dtype=bool) for name, half in halves.items()}
    found: list[Found] = []
    while left:
        standing = []
        for one in left:
            if _holds(one, halves["search"], one.tests, "search", taken["search"]) is None:
                continue
            held = _holds(one, halves["confirm"], confirmed, "confirm", taken["confirm"])
            if held is not None:
                standing.append((one, held))
        if not standing:
            break
        chosen, held = _simplest(standing, halves, taken)
        members = [half.rows[chosen.belongs[name] & half.wrong & ~taken[name]] for name, half in halves.items()]
        both = np.zeros(len(whole), dtype=bool)
        seen = np.zeros(len(whole), dtype=bool)
        for name, half in halves.items():
            both[half.rows] = chosen.belongs[name] & ~taken[name]
            seen[half.rows] = ~taken[name]
        whole_slice = judge(chosen.rule, both[seen], whole.take(seen), chosen.read_as)
        rows = np.sort(np.concatenate(members))
        found.append(Found(chosen.finder, chosen.rule, rows, whole_slice, min(1.0, held.p * confirmed)))
        for name in halves:
            taken[name] |= chosen.belongs[name]
        left = [one for one, _ in standing if one is not chosen]
    return tuple(found)


def _holds(one: _Candidate, half: Cases, tests: int, name: str, taken: Array | None) -> Slice | None:
    """What a rule's inputs look like on a half without inputs that are explained; None where that is too little."""
    if name not in one.belongs:
        one.belongs[name] = one.rule.holds(half)
        if name == "search":
            one.read_as = mostly_read_as(one.belongs[name], half)
    belongs = one.belongs[name]
    if taken is not None and taken.any():
        half, belongs = half.take(~taken), belongs[~taken]
    found = judge(one.rule, belongs, half, one.read_as)
    good = found.share >= SHARE and found.odds_ratio >= one.rule.least_odds and found.p * tests < LEVEL
    return found if good and (one.rule.within_class or _spread(belongs, half, one.read_as)) else None


def _spread(belongs: Array, cases: Cases, read_as: int | None) -> bool:
    """Whether the errors that belong come from several true classes."""
    able = able_to_show(cases, read_as)
    usual = _effective(cases.labels[able])
    return _effective(cases.labels[belongs & cases.wrong]) >= min(SPREAD, usual / 2)


def _effective(labels: Array) -> float:
    """How many classes labels spread over: as many equally frequent ones would give the same chance of a pair alike."""
    shares = np.bincount(labels) / max(1, len(labels))
    return float(1 / max(1e-9, (shares**2).sum()))


def _simplest(
    standing: list[tuple[_Candidate, Slice]], halves: dict[str, Cases], taken: dict[str, Array]
) -> tuple[_Candidate, Slice]:
    """Of the rules that explain about as much as the best, the one that asks for least; then the one that fits best."""
    # A rule about inputs says what to look for in the world; one about activations only where the model sees it.
    standing = [one for one in standing if not one[0].rule.asks_model] or standing
    worths = [one.worth(halves, taken) for one, _ in standing]
    near = [position for position, worth in enumerate(worths) if worth >= max(worths) * (1 - ALIKE)]
    fewest = min(standing[position][0].rule.conditions for position in near)
    simple = [position for position in near if standing[position][0].rule.conditions == fewest]
    most = max(worths[position] for position in simple)
    # Finders stand in the order of how plain their rules are.
    return standing[next(position for position in simple if worths[position] >= most * (1 - SAME))]
