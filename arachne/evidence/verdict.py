"""The verdict on a repair: one of six words, and a sentence with the numbers behind it."""

from __future__ import annotations

from dataclasses import dataclass

from arachne.choose.budget import BREAK_BUDGET
from arachne.data.seen import ALL, HELD_OUT, PARTLY_SEEN, SEEN, UNKNOWN
from arachne.evidence.group_summary import headline
from arachne.evidence.measures import PartEvidence
from arachne.scoring.statistics import LEVEL, Rate, fewest_for_level
from arachne.text import are, percent, pluralise

TOO_FEW = "too few inputs to say"
REPAIRED = "repaired"
DAMAGE = "repaired with damage"
NOT_REPAIRED = "not repaired"
WORSE = "worse overall"
NOTHING_WITHIN = "nothing within the budget"
VERDICTS = (TOO_FEW, REPAIRED, DAMAGE, NOT_REPAIRED, WORSE, NOTHING_WITHIN)

BASIS_WORDS = {HELD_OUT: "held-out ", SEEN: "seen ", PARTLY_SEEN: "", UNKNOWN: "", ALL: ""}
"""The adjective for the inputs a verdict rests on, by their basis."""


@dataclass(frozen=True)
class Verdict:
    """The verdict on a repair.

    Attributes:
        word: One of `VERDICTS`.
        sentence: The reason, with numbers.
    """

    word: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.word}: {self.sentence}"


def judge(held_out: PartEvidence, budget: float = BREAK_BUDGET, kind: str = BASIS_WORDS[HELD_OUT]) -> Verdict:
    """Judge a repair by inputs it has never seen; `kind` is their adjective in sentences, one of `BASIS_WORDS`.

    A repair with a fairness objective is judged by the interval of the objective's change.
    """
    if held_out.broken > held_out.repaired + held_out.others_fixed and held_out.mcnemar_p < LEVEL:
        return Verdict(WORSE, _worse(held_out, kind))
    needed = fewest_for_level()
    if held_out.faulty_inputs < needed:
        return Verdict(TOO_FEW, _too_few(held_out, needed, kind))
    target, fairness = held_out.target, held_out.fairness
    if fairness is not None and not fairness.fairer:
        chance = ", which chance alone could do" if fairness.gain > 0 else ""
        return Verdict(NOT_REPAIRED, f"{headline(fairness, kind)}{chance}; {_describe_repair(held_out, kind)}")
    if fairness is None and not (held_out.repaired and target.gone > target.new and target.sign_p < LEVEL):
        return Verdict(NOT_REPAIRED, _not_repaired(held_out, kind))
    low, _ = held_out.breakage.interval
    done = f"{_describe_repair(held_out, kind)} ({percent(held_out.repair_rate)}), "
    if fairness is not None:
        done = f"{headline(fairness, kind)}; {done}"
    if held_out.positives and low > budget:
        return Verdict(
            DAMAGE,
            f"{done}but {describe_breakage(held_out.breakage)}, at least {percent(low)} with 95 % confidence, "
            f"more than the budget of {percent(budget)}",
        )
    net = f"; the fault went from {_net(held_out)}" if fairness is None else ""
    return Verdict(REPAIRED, f"{done}and {describe_breakage(held_out.breakage)}{net}")


def p_value(p: float) -> str:
    """Format a p-value: `p = 0.031`, `p < 0.001`."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def describe_breakage(rate: Rate) -> str:
    """Format a break rate: `12 of 4,487 inputs that were right broke (0.27 %)`."""
    return f"{rate.count:,} of {rate.total:,} inputs that were right broke ({percent(rate.value)})"


def _worse(held_out: PartEvidence, kind: str) -> str:
    fixed = held_out.repaired + held_out.others_fixed
    before, after = percent(held_out.accuracy_before), percent(held_out.accuracy_after)
    start = (
        f"accuracy fell from {before} to {after} ({p_value(held_out.mcnemar_p)}): "
        f"{describe_breakage(held_out.breakage)}, "
        f"{fixed:,} that {'was' if fixed == 1 else 'were'} wrong {are(fixed)} right now"
    )
    return start if not held_out.negatives else f"{start}; {_describe_repair(held_out, kind)}"


def _describe_repair(held_out: PartEvidence, kind: str) -> str:
    repaired = held_out.repaired
    return f"{repaired} of {held_out.negatives} {kind}inputs that showed the fault {are(repaired)} right now"


def _net(held_out: PartEvidence) -> str:
    target = held_out.target
    return f"{target.errors_before} to {target.errors_after} inputs ({p_value(target.sign_p)})"


def _too_few(held_out: PartEvidence, needed: int, kind: str) -> str:
    negatives, repaired = held_out.negatives, held_out.repaired
    end = f"at least {needed} are needed before any result could be told from chance"
    if negatives == 0:
        return f"no {kind}input shows the fault; {end}"
    if held_out.by_input is not None:
        inputs = pluralise(held_out.faulty_inputs, f"{kind}input")
        return f"only {inputs} show the fault, in {negatives} decisions of which {repaired} are right now; {end}"
    if negatives == 1:
        return f"only 1 {kind}input shows the fault and it is {'' if repaired else 'not '}right now; {end}"
    right = f"{repaired or 'none'} of them {'is' if repaired <= 1 else 'are'} right now"
    return f"only {negatives} {kind}inputs show the fault and {right}; {end}"


def _not_repaired(held_out: PartEvidence, kind: str) -> str:
    target = held_out.target
    if target.gone == target.new == 0:
        return f"all {held_out.negatives} {kind}inputs that showed the fault still show it"
    if held_out.repaired == 0:
        return (
            f"none of the {held_out.negatives} {kind}inputs that showed the fault is right now; "
            f"{target.gone} of them {are(target.gone)} wrong in another way"
        )
    start = f"{_describe_repair(held_out, kind)}, but it"
    if target.gone <= target.new:
        return f"{start} appeared in {pluralise(target.new, 'other')}: from {_net(held_out)}"
    return f"{start} went from {_net(held_out)} only, which chance alone could do"
