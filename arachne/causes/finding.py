"""Find the causes of mistakes: propose rules on one half of the data, confirm on the other, explain each error once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from arachne.causes.base import Finder
from arachne.causes.cases import Cases
from arachne.causes.judging import Slice, can_show_fault, dominant_prediction, judge
from arachne.causes.rule import Rule
from arachne.causes.rules import Both, Colour, Columns, Missing, OfClass, Token, Values
from arachne.data.labelled import LabelledData
from arachne.data.strata import divide
from arachne.model.backend import ModelBackend
from arachne.model.lazy import is_lazy
from arachne.model.values import Array
from arachne.plugins.table import FINDERS

SIGNIFICANCE = {"search": 0.05, "confirm": 0.01}
"""The corrected p-value below which a rule is accepted, on the half it was found in and on the other."""

MIN_WRONG_SHARE = 0.5
"""The least share of a cause's inputs that is wrong, on both halves."""

MAX_RIGHT_INPUTS = 1000
"""The most right inputs that finders look at; they see all errors."""

MAX_LAZY_BYTES = 128 << 20
"""The most bytes of lazy inputs that are searched; a cause of one input in a hundred needs far fewer."""

MIN_LAZY_INPUTS = 1000
"""The fewest lazy inputs that are searched."""

MIN_CLASS_SPREAD = 3.0
"""The fewest true classes a cause's errors spread over, or half of those all inputs spread over if that is less.

Inputs of one class that look alike often show one thing (thirty pictures of one traffic sign). A property they share
counts as a cause once it occurs in other classes as well; metadata groups and clusters of activations are exempt.
"""

MAX_CLASSES_ALONE = 3
"""The most classes whose inputs are searched alone, those of most errors first."""

COMMON_ELSEWHERE = 2.0
"""A mark may be a cause within a class if other classes have it about as often: no more than this many times apart."""

EXACT_RULES = (Values, Missing, Token, Colour, Columns)
"""Kinds of rules that may be a cause within one class. Look-alikes differ in ranges of values, and in nothing exact."""

NEARLY_AS_GOOD = 0.03
"""Of rules whose numbers of explained errors differ by less than this share, the simplest is reported."""

TIE = 0.01
"""Of equally simple rules whose numbers differ by less than this share, that of the first finder is reported."""


@dataclass(frozen=True)
class ConfirmedRule:
    """A rule that holds on both halves of the data.

    Attributes:
        finder: The finder that proposed it.
        rule: Tells whether an input has the cause.
        members: Row numbers of the errors it explains `(k,)`.
        slice: Counts of its inputs among all inputs that no earlier cause has.
        p: The p-value on the half that no finder saw, corrected for the rules that were tested there.
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
        """Return the errors it explains, less the right inputs it would have called wrong."""
        worth = 0
        for name, half in halves.items():
            inside = self.belongs[name] & ~taken[name]
            if not self.rule.asks_model:
                inside &= can_show_fault(half, self.read_as)
            worth += int((inside & half.wrong).sum()) - int((inside & ~half.wrong).sum())
        return worth


def all_finders() -> tuple[Finder, ...]:
    """Make every finder with its default options, Arachne's own first."""
    names = [*FINDERS.ours, *FINDERS.third_party()]
    return tuple(FINDERS.get(name)() for name in names)


def find_rules(
    backend: ModelBackend | None,
    data: LabelledData,
    predictions: Array,
    *,
    finders: Sequence[Finder] | None = None,
    seed: int = 0,
) -> tuple[ConfirmedRule, ...]:
    """Find rules that mistakes share, confirmed on a half of the data that was not used to find them.

    Args:
        backend: The model; None leaves out finders that look inside it.
        data: Labelled inputs.
        predictions: The predicted class of each input `(n,)`.
        finders: The finders to use; all when None.
        seed: The seed of all randomness.
    """
    whole = Cases.of(data, predictions, backend)
    if not whole.wrong.any() or whole.wrong.all():
        return ()
    if is_lazy(data.inputs):
        rows = searched_rows(data, seed)
        sample = whole.take(rows).in_memory()
        found = find_rules(backend, sample.whole, sample.all_predictions, finders=finders, seed=seed)
        return found if len(rows) == len(data) else _apply_to_all(found, whole)
    rng = np.random.default_rng(seed)
    outcomes = whole.labels * (int(whole.predictions.max()) + 1) + whole.predictions
    in_search = divide(outcomes, 0.5, rng=rng)
    halves = {"search": whole.take(in_search), "confirm": whole.take(~in_search)}
    sample = _sample(halves["search"], rng)
    candidates: list[_Candidate] = []
    finders = all_finders() if finders is None else finders
    for finder in finders:
        proposals = finder.find(sample, rng=rng)
        # Each finder has an equal part of the level and shares it among its own tests.
        tests = max(1, proposals.tests) * len(finders)
        candidates += [_Candidate(finder.name, rule, tests) for rule in proposals.rules if _is_promising(rule, sample)]
    candidates += _propose_within_classes(finders, sample, np.random.default_rng([seed, 1]))
    return _select_rules(candidates, whole, halves)


def _propose_within_classes(finders: Sequence[Finder], sample: Cases, rng: np.random.Generator) -> Iterator[_Candidate]:
    """Propose rules for inputs of one true class: a mark may do harm there, and none in other classes that have it."""
    own = [finder for finder in finders if finder.SEARCHES_CLASSES]
    labels, errors = np.unique(sample.labels[sample.wrong], return_counts=True)
    order = np.argsort(-errors, kind="stable")[:MAX_CLASSES_ALONE]
    for label, finder in product(labels[order].tolist(), own):
        alone = sample.take(sample.labels == label)
        if alone.wrong.all() or alone.wrong.sum() < finder.fewest:
            continue
        proposals = finder.find(alone, rng=rng)
        tests = max(1, proposals.tests) * len(finders) * MAX_CLASSES_ALONE
        for rule in proposals.rules:
            narrowed = Both((rule, OfClass(label)))
            if (
                isinstance(rule, EXACT_RULES)
                and _is_promising(narrowed, sample)
                and _occurs_elsewhere(narrowed, sample)
            ):
                yield _Candidate(finder.name, narrowed, tests)


def _occurs_elsewhere(rule: Both, sample: Cases) -> bool:
    """Whether other classes have the mark of a rule within a class about as often; else it is a look of the class."""
    marked, own = rule.rules[0].holds(sample), rule.rules[-1].holds(sample)
    if own.all():
        return False
    inside, outside = float(marked[own].mean()), float(marked[~own].mean())
    return inside <= COMMON_ELSEWHERE * outside and outside <= COMMON_ELSEWHERE * inside


def searched_rows(data: LabelledData, seed: int = 0) -> Array:
    """Return the rows that are searched: all, or of lazy data a random sample of at most `MAX_LAZY_BYTES`."""
    if not is_lazy(data.inputs):
        return np.arange(len(data))
    most = max(MIN_LAZY_INPUTS, MAX_LAZY_BYTES * len(data) // max(1, data.nbytes))
    if len(data) <= most:
        return np.arange(len(data))
    return np.sort(np.random.default_rng(seed).choice(len(data), most, replace=False))


def _apply_to_all(found: Sequence[ConfirmedRule], whole: Cases) -> tuple[ConfirmedRule, ...]:
    """Apply rules that were found on some of the data to all of it."""
    taken = np.zeros(len(whole), dtype=bool)
    everywhere = []
    for one in found:
        belongs = one.rule.match(whole) & ~taken
        read_as = dominant_prediction(belongs, whole)
        judged = judge(one.rule, belongs[~taken], whole.take(~taken), read_as)
        everywhere.append(replace(one, members=np.flatnonzero(belongs & whole.wrong), slice=judged))
        taken |= belongs
    return tuple(everywhere)


def _sample(cases: Cases, rng: np.random.Generator) -> Cases:
    right = np.flatnonzero(~cases.wrong)
    if len(right) > MAX_RIGHT_INPUTS:
        right = rng.choice(right, MAX_RIGHT_INPUTS, replace=False)
    return cases.take(np.sort(np.concatenate([np.flatnonzero(cases.wrong), right])))


def _is_promising(rule: Rule, sample: Cases) -> bool:
    """Whether a rule is worth testing on more inputs: its odds in the sample are at least half of the least odds."""
    belongs = rule.holds(sample)
    return judge(rule, belongs, sample, dominant_prediction(belongs, sample)).odds_ratio >= rule.least_odds / 2


def _select_rules(candidates: list[_Candidate], whole: Cases, halves: dict[str, Cases]) -> tuple[ConfirmedRule, ...]:
    """Select rules one after the other: each time the simplest that explains most of the remaining errors."""
    left = [one for one in candidates if _judge_half(one, halves["search"], one.tests, "search", None) is not None]
    confirmed = max(1, len(left))
    taken = {name: np.zeros(len(half), dtype=bool) for name, half in halves.items()}
    found: list[ConfirmedRule] = []
    while left:
        valid = []
        for one in left:
            if _judge_half(one, halves["search"], one.tests, "search", taken["search"]) is None:
                continue
            confirmation = _judge_half(one, halves["confirm"], confirmed, "confirm", taken["confirm"])
            if confirmation is not None:
                valid.append((one, confirmation))
        if not valid:
            break
        chosen, confirmation = _simplest(valid, halves, taken)
        members = [half.rows[chosen.belongs[name] & half.wrong & ~taken[name]] for name, half in halves.items()]
        both = np.zeros(len(whole), dtype=bool)
        seen = np.zeros(len(whole), dtype=bool)
        for name, half in halves.items():
            both[half.rows] = chosen.belongs[name] & ~taken[name]
            seen[half.rows] = ~taken[name]
        whole_slice = judge(chosen.rule, both[seen], whole.take(seen), chosen.read_as)
        rows = np.sort(np.concatenate(members))
        found.append(ConfirmedRule(chosen.finder, chosen.rule, rows, whole_slice, min(1.0, confirmation.p * confirmed)))
        for name in halves:
            taken[name] |= chosen.belongs[name]
        left = [one for one, _ in valid if one is not chosen]
    return tuple(found)


def _judge_half(one: _Candidate, half: Cases, tests: int, name: str, taken: Array | None) -> Slice | None:
    """Judge a rule on the inputs of a half that are not explained yet; None if it does not hold there."""
    if name not in one.belongs:
        one.belongs[name] = one.rule.holds(half)
        if name == "search":
            one.read_as = dominant_prediction(one.belongs[name], half)
    belongs = one.belongs[name]
    if taken is not None and taken.any():
        half, belongs = half.take(~taken), belongs[~taken]
    found = judge(one.rule, belongs, half, one.read_as)
    good = (
        found.share >= MIN_WRONG_SHARE
        and found.odds_ratio >= one.rule.least_odds
        and found.p * tests < SIGNIFICANCE[name]
    )
    return found if good and (one.rule.within_class or _spans_classes(belongs, half, one.read_as)) else None


def _spans_classes(belongs: Array, cases: Cases, read_as: int | None) -> bool:
    """Whether the errors of a rule come from several true classes."""
    able = can_show_fault(cases, read_as)
    usual = _effective_classes(cases.labels[able])
    return _effective_classes(cases.labels[belongs & cases.wrong]) >= min(MIN_CLASS_SPREAD, usual / 2)


def _effective_classes(labels: Array) -> float:
    """Return the effective number of classes, `1 / sum(share ** 2)`."""
    shares = np.bincount(labels) / max(1, len(labels))
    return float(1 / max(1e-9, (shares**2).sum()))


def _simplest(
    valid: list[tuple[_Candidate, Slice]], halves: dict[str, Cases], taken: dict[str, Array]
) -> tuple[_Candidate, Slice]:
    """Of the rules that explain about as much as the best, return the one with fewest conditions."""
    # A rule about inputs says what to look for in the world; one about activations only where the model sees it.
    valid = [one for one in valid if not one[0].rule.asks_model] or valid
    worths = [one.worth(halves, taken) for one, _ in valid]
    near = [position for position, worth in enumerate(worths) if worth >= max(worths) * (1 - NEARLY_AS_GOOD)]
    fewest = min(valid[position][0].rule.conditions for position in near)
    simple = [position for position in near if valid[position][0].rule.conditions == fewest]
    most = max(worths[position] for position in simple)
    # Finders are listed in the order of how plain their rules are.
    return valid[next(position for position in simple if worths[position] >= most * (1 - TIE))]
