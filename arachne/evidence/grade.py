"""Grade a repair by counts alone: how much of the fault is gone, whether a limit was kept, and the word for it.

The rules, with examples, are in `docs/guides/evidence.md`; `python -m examples.study verdicts` counts how often each
word is wrong on fresh inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

from arachne.scoring.statistics import LEVEL, Rate, fewest_for_level, mcnemar, sign_test

WORSE = "worse overall"
NOTHING_WITHIN = "nothing within the budget"
TOO_FEW = "too few"
NOT_SHOWN = "not shown"
REDUCED = "reduced"
REMOVED = "removed"
VERDICTS = (WORSE, NOTHING_WITHIN, TOO_FEW, NOT_SHOWN, REDUCED, REMOVED)
"""The words of a verdict, the worst first: a gate may ask for `verdict < reduced`."""

KEPT = "kept"
BY_CHANCE = "overrun by chance"
OVERRUN = "overrun"
LIMIT_STATES = (OVERRUN, BY_CHANCE, KEPT)
"""The states of a limit on inputs the choice did not look at, the worst first."""

REMOVED_SHARE = 0.9
"""A fault counts as removed when at least this share of it is gone..."""

REMOVED_LOW = 0.5
"""...and when the lower 95 % bound of that share is at least this."""

SHARE_WORDS = (
    (0.075, "a little"),
    (0.15, "a tenth"),
    (0.225, "a fifth"),
    (0.29, "a quarter"),
    (0.365, "a third"),
    (0.45, "two fifths"),
    (0.55, "half"),
    (0.63, "three fifths"),
    (0.71, "two thirds"),
    (0.775, "three quarters"),
    (0.85, "four fifths"),
    (0.95, "nine tenths"),
)
"""Words for a share below each bound."""


@dataclass(frozen=True)
class Counts:
    """Counts that a verdict rests on.

    Attributes:
        negatives: Inputs that showed the fault.
        repaired: How many of those are right now.
        new: Inputs that show the fault only now.
        positives: Inputs that were right.
        broken: How many of those are wrong now.
        others_fixed: Other errors that are right now.
        faulty_inputs: Inputs that showed the fault; `negatives` when None, because no input has several decisions.
        draws: How many independent decisions the negatives are worth; `negatives` when None.
        repair_p: The test of repaired against new ones that counts an input as one draw; a sign test when None.
        accuracy_p: The test of fixed against broken ones that counts an input as one draw; McNemar's when None.
    """

    negatives: int
    repaired: int
    new: int
    positives: int
    broken: int
    others_fixed: int = 0
    faulty_inputs: int | None = None
    draws: float | None = None
    repair_p: float | None = None
    accuracy_p: float | None = None

    @property
    def total_fixed(self) -> int:
        """Inputs that were wrong and are right now."""
        return self.repaired + self.others_fixed

    @property
    def reduction(self) -> Rate:
        """Share of the fault that is gone: repaired inputs less those that show it only now, of the negatives."""
        return Rate(max(0, self.repaired - self.new), self.negatives, self.draws)

    @property
    def shown_p(self) -> float:
        """How likely chance alone would repair so many more, or fewer, than show the fault only now."""
        return sign_test(self.repaired, self.new) if self.repair_p is None else self.repair_p

    @property
    def is_shown(self) -> bool:
        """Whether more inputs were repaired than show the fault only now, beyond chance."""
        return self.repaired > self.new and self.shown_p < LEVEL

    @property
    def is_worse(self) -> bool:
        """Whether more inputs broke than were fixed, beyond chance."""
        p = mcnemar(self.total_fixed, self.broken) if self.accuracy_p is None else self.accuracy_p
        return self.broken > self.total_fixed and p < LEVEL


def grade(counts: Counts, state: str) -> str:
    """Return the word for some counts; `state` is that of the worst limit, one of `LIMIT_STATES`."""
    if counts.is_worse:
        return WORSE
    if (counts.negatives if counts.faulty_inputs is None else counts.faulty_inputs) < fewest_for_level():
        return TOO_FEW
    if not counts.is_shown:
        return NOT_SHOWN
    gone = counts.reduction
    removed = gone.value >= REMOVED_SHARE and gone.interval[0] >= REMOVED_LOW
    return REMOVED if removed and state == KEPT else REDUCED


def limit_state(value: float, low: float, limit: float) -> str:
    """Return whether a limit was kept, from the measured share and its lower 95 % bound."""
    if low > limit:
        return OVERRUN
    return BY_CHANCE if value > limit else KEPT


def break_state(broken: Rate, budget: float) -> str:
    """Return whether the budget of broken inputs was kept; it was if there was nothing to break."""
    return limit_state(broken.value, broken.interval[0], budget) if broken.total else KEPT


def describe_reduction(share: float) -> str:
    """Name the share that is gone in words: `by a third` for 0.34, `to almost none` from 0.95 on."""
    left = "to almost none" if share < 1 else "to none"
    return next((f"by {words}" for bound, words in SHARE_WORDS if share < bound), left)
