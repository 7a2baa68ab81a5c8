"""The verdict on a repair: one of six words, the share behind it, and what it cost, always with the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arachne.choose.budget import BREAK_BUDGET
from arachne.data.seen import ALL, HELD_OUT, PARTLY_SEEN, SEEN, UNKNOWN
from arachne.evidence.fairness import Fairness
from arachne.evidence.grade import (
    KEPT,
    LIMIT_STATES,
    NOT_SHOWN,
    REDUCED,
    REMOVED,
    TOO_FEW,
    WORSE,
    Counts,
    describe_reduction,
    grade,
)
from arachne.evidence.group_summary import headline
from arachne.evidence.limits import BREAKS, GROUP_DROP, LimitOutcome, break_limit
from arachne.evidence.part_evidence import PartEvidence, TargetEvidence
from arachne.scoring.statistics import fewest_for_level
from arachne.text import Brief, are, p_value, percent, percent_change, pluralise

BASIS_WORDS = {HELD_OUT: "held-out ", SEEN: "seen ", PARTLY_SEEN: "", UNKNOWN: "", ALL: ""}
"""The adjective for the inputs a verdict rests on, by their basis."""

MAX_LISTED_LIMITS = 3
"""With more limits on classes and groups than this, only the ones not kept are described, at most this many."""

LEAST_OF_EACH = 0.5
"""Of several targets, each must have lost at least this share before the fault counts as removed."""


@dataclass(frozen=True)
class Verdict(Brief):
    """The verdict on a repair.

    Attributes:
        word: One of `VERDICTS`.
        sentence: The reason, with numbers.
        heading: The word as a heading, with the share that is gone: `reduced by a third (33.9 %)`.
        balance: The price: inputs fixed and broken, accuracy before and after, and whether the budget was kept.
        limits: Every limit, the budget of broken inputs first, and what became of it.
    """

    word: str
    sentence: str
    heading: str = ""
    balance: str = ""
    limits: tuple[LimitOutcome, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "heading", self.heading or self.word)

    def __str__(self) -> str:
        return ". ".join(filter(None, (f"{self.heading}: {self.sentence}", capitalise(self.balance))))

    @property
    def headline(self) -> str:
        """The heading, and the reason."""
        return f"{self.heading}: {self.sentence}"

    @property
    def limit_state(self) -> str:
        """The state of the worst limit, one of `LIMIT_STATES`."""
        return worst_state(self.limits)


def judge(
    held_out: PartEvidence,
    budget: float = BREAK_BUDGET,
    kind: str = BASIS_WORDS[HELD_OUT],
    limits: Sequence[LimitOutcome] = (),
) -> Verdict:
    """Judge a repair by inputs it has never seen.

    A repair with a fairness objective is judged by the interval of the objective's change.

    Args:
        held_out: The inputs.
        budget: The largest break rate allowed, if it is not among the limits.
        kind: The inputs' adjective in sentences, one of `BASIS_WORDS`.
        limits: What became of every limit.
    """
    limits = tuple(limits) or (break_limit(budget, held_out, None),)
    counts = held_out.counts
    word, sentence = _word(held_out, counts, worst_state(limits)), ""
    if held_out.fairness is not None and word not in (WORSE, TOO_FEW):
        word, sentence = _judge_objective(held_out.fairness, _describe_repair(held_out, kind), kind)
    sentence = sentence or _SENTENCES[word](held_out, counts, kind)
    return Verdict(word, sentence, _heading(word, held_out, counts, limits), _balance(held_out, counts, limits), limits)


def worst_state(limits: Sequence[LimitOutcome]) -> str:
    """Return the state of the worst of some limits; `kept` if there are none."""
    return min((one.state for one in limits), key=LIMIT_STATES.index, default=KEPT)


def capitalise(sentence: str) -> str:
    """Return a sentence with a large first letter."""
    return sentence[:1].upper() + sentence[1:]


def _word(held_out: PartEvidence, counts: Counts, state: str) -> str:
    word = grade(counts, state)
    return REDUCED if word == REMOVED and _left_behind(held_out) is not None else word


def _left_behind(held_out: PartEvidence) -> TargetEvidence | None:
    """Return the first of several targets of which less than half is gone; None if there is none."""
    several = held_out.targets if len(held_out.targets) > 1 else ()
    return next(
        (one for one in several if one.errors_before and one.repaired - one.new < LEAST_OF_EACH * one.errors_before),
        None,
    )


def _judge_objective(fairness: Fairness, repair: str, kind: str) -> tuple[str, str]:
    """Return word and sentence for a repair that was to make groups equal; `repair` says how many were repaired."""
    chance = ", which chance alone could do" if fairness.gain > 0 and not fairness.fairer else ""
    return REDUCED if fairness.fairer else NOT_SHOWN, f"{headline(fairness, kind)}{chance}; {repair}"


def _heading(word: str, held_out: PartEvidence, counts: Counts, limits: Sequence[LimitOutcome]) -> str:
    if word not in (REDUCED, REMOVED):
        return word
    state = worst_state(limits)
    price = "" if state == KEPT else f", {'budget' if _breaks(limits) else 'a limit'} {state}"
    share = counts.reduction.value
    if held_out.fairness is not None:
        fairness = held_out.fairness
        before = 1 - fairness.before.value if fairness.objective.RISES else fairness.before.value
        share = fairness.gain / before if before > 0 else 0.0
    by = f" {describe_reduction(share)} ({percent(share)})" if word == REDUCED else f" ({percent(share)})"
    return f"{word}{by}{price}"


def _breaks(limits: Sequence[LimitOutcome]) -> bool:
    """Return whether the budget of broken inputs is as badly kept as any other limit."""
    return any(one.kind == BREAKS and one.state == worst_state(limits) for one in limits)


def _balance(held_out: PartEvidence, counts: Counts, limits: Sequence[LimitOutcome]) -> str:
    before, after = held_out.accuracy_before, held_out.accuracy_after
    lower = " (lower)" if after < before else ""
    kept, share = held_out.kept, held_out.words.share
    broken = counts.broken if kept is None else counts.broken - kept.count
    price = [f"fixed {counts.total_fixed:,}, broken {broken:,}"]
    if kept is not None:
        price = price if kept.total < counts.positives else [f"fixed {counts.total_fixed:,}"]
        price.append(f"{kept.count:,} of {kept.total:,} kept decisions changed")
    price.append(f"{share} {percent_change(before, after)}{lower}")
    whole, drops = ([one for one in limits if (one.kind == GROUP_DROP) is narrow] for narrow in (False, True))
    return "; ".join((*price, *(one.sentence for one in whole), *_describe_drops(drops)))


def _describe_drops(limits: Sequence[LimitOutcome]) -> list[str]:
    """Describe limits on classes and groups: each one if they are few, else only the ones not kept."""
    if len(limits) <= MAX_LISTED_LIMITS:
        return [one.sentence for one in limits]
    missed = sorted((one for one in limits if one.state != KEPT), key=lambda one: LIMIT_STATES.index(one.state))
    more = [f"and {len(missed) - MAX_LISTED_LIMITS} more overrun"] if len(missed) > MAX_LISTED_LIMITS else []
    kept = f"{len(limits) - len(missed)} of {len(limits)} limits on classes and groups kept"
    return [kept, *(one.sentence for one in missed[:MAX_LISTED_LIMITS]), *more]


def _worse(held_out: PartEvidence, counts: Counts, kind: str) -> str:
    before, after = percent(held_out.accuracy_before), percent(held_out.accuracy_after)
    fixed = counts.total_fixed
    if held_out.kept is not None or not held_out.words.classes:
        broken = f"{counts.broken:,} of {counts.positives:,} broke or changed, {fixed:,} were fixed"
        return f"more decisions broke than were fixed ({p_value(held_out.mcnemar_p)}): {broken}"
    start = (
        f"accuracy fell from {before} to {after} ({p_value(held_out.mcnemar_p)}): "
        f"{counts.broken:,} of {pluralise(counts.positives, held_out.noun)} that were right broke, "
        f"{fixed:,} that {'was' if fixed == 1 else 'were'} wrong {are(fixed)} right now"
    )
    return start if not held_out.negatives else f"{start}; {_describe_repair(held_out, kind)}"


def _describe_repair(held_out: PartEvidence, kind: str) -> str:
    repaired, words = held_out.repaired, held_out.words
    now = words.repaired[repaired != 1]
    return f"{repaired:,} of {held_out.negatives:,} {kind}{held_out.noun}s that {words.showed} {now}"


def _describe_new(held_out: PartEvidence, new: int) -> str:
    words = held_out.words
    if not new:
        return f"no other {held_out.noun} {words.shows_it[0]}"
    return f"{pluralise(new, 'other')} {words.shows_it[new != 1]} only now"


def _describe_shown(held_out: PartEvidence, counts: Counts, kind: str) -> str:
    low, high = counts.reduction.interval
    chance = p_value(counts.shown_p)
    start = (
        f"{_describe_repair(held_out, kind)} and {_describe_new(held_out, counts.new)}: "
        f"{percent(low)} to {percent(high)} {held_out.words.gone} with 95 % confidence ({chance})"
    )
    absent = [one.target for one in held_out.targets if not one.errors_before and len(held_out.targets) > 1]
    end = f"; no {kind}{held_out.noun} showed {', '.join(absent)}, of which nothing is known" if absent else ""
    left = _left_behind(held_out)
    if left is None:
        return start + end
    return f"{start}; of {left.target} alone {left.repaired:,} of {left.errors_before:,} are right now{end}"


def _too_few(held_out: PartEvidence, counts: Counts, kind: str) -> str:
    negatives, repaired = counts.negatives, counts.repaired
    end = f"at least {fewest_for_level()} are needed before any result could be told from chance"
    words = held_out.words
    if negatives == 0:
        return f"no {kind}{held_out.noun} {words.shows[0]}; {end}"
    if held_out.by_input is not None:
        inputs = pluralise(held_out.faulty_inputs, f"{kind}input")
        decisions = pluralise(negatives, "decision" if held_out.noun == "input" else held_out.noun)
        return f"only {inputs} show the fault, in {decisions} of which {repaired} are right now; {end}"
    if negatives == 1:
        now = words.repaired[0] if repaired else words.unrepaired
        return f"only 1 {kind}{held_out.noun} {words.shows[0]} and it {now}; {end}"
    right = f"{repaired or 'none'} of them {words.repaired[repaired > 1]}"
    return f"only {negatives} {kind}{held_out.noun}s {words.shows[1]} and {right}; {end}"


def _not_shown(held_out: PartEvidence, counts: Counts, kind: str) -> str:
    target, words = held_out.target, held_out.words
    if target.gone == target.new == 0:
        return f"all {held_out.negatives:,} {kind}{held_out.noun}s that {words.showed} still {words.shows_it[1]}"
    if held_out.repaired == 0:
        return (
            f"none of the {held_out.negatives:,} {kind}{held_out.noun}s that {words.showed} {words.repaired[0]}; "
            f"{target.gone:,} of them {are(target.gone)} wrong in another way"
        )
    chance = p_value(counts.shown_p)
    new = _describe_new(held_out, counts.new)
    return f"{_describe_repair(held_out, kind)} and {new}, which chance alone could do ({chance})"


_SENTENCES = {
    WORSE: _worse,
    TOO_FEW: _too_few,
    NOT_SHOWN: _not_shown,
    REDUCED: _describe_shown,
    REMOVED: _describe_shown,
}
