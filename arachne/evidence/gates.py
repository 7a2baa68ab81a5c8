"""Conditions on the evidence that make a pipeline stop, such as `break_rate > 0.5%`.

A gate names a number of the evidence, a comparison and a limit; it fails when the comparison holds, and also when the
number cannot be known, because there were no inputs to count. `verdict != removed` looks at the verdict's word,
`verdict < reduced` at its rank, `budget != kept` at what became of the limits.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from arachne.errors import UsageError, did_you_mean
from arachne.evidence.evidence import Evidence
from arachne.evidence.grade import LIMIT_STATES, VERDICTS
from arachne.evidence.part_evidence import Accuracy, PartEvidence
from arachne.text import percent

COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}
PARTS = ("held_out", "seen", "choose")

SHARES: Mapping[str, Callable[[PartEvidence], float]] = {
    "repair_rate": lambda part: part.repair_rate,
    "break_rate": lambda part: part.break_rate,
    "repair_rate_low": lambda part: part.repair.interval[0],
    "reduction": lambda part: part.reduction.value,
    "reduction_low": lambda part: part.reduction.interval[0],
    "break_rate_low": lambda part: part.breakage.interval[0],
    "break_rate_high": lambda part: part.breakage.interval[1],
    "accuracy": lambda part: part.accuracy_after,
    "accuracy_before": lambda part: part.accuracy_before,
    "accuracy_after": lambda part: part.accuracy_after,
    "accuracy_drop": lambda part: -part.accuracy.change,
    "objective": lambda part: math.nan if part.fairness is None else part.fairness.after.value,
    "calibration_error": lambda part: part.confidence_after.error,
    "sign_p": lambda part: part.sign_p,
    "mcnemar_p": lambda part: part.mcnemar_p,
}
COUNTS: Mapping[str, Callable[[PartEvidence], int]] = {
    "inputs": lambda part: part.inputs,
    "negatives": lambda part: part.negatives,
    "positives": lambda part: part.positives,
    "repaired": lambda part: part.repaired,
    "broken": lambda part: part.broken,
    "others_fixed": lambda part: part.others_fixed,
    "target_errors_before": lambda part: part.target_errors_before,
    "target_errors_after": lambda part: part.target_errors_after,
}
BRACKETED = ("class_drop", "class_accuracy", "group_drop", "group_accuracy", "group_gap")
"""Numbers that take a class, a group or a column in brackets; without one, the worst is used."""

WORDS: Mapping[str, tuple[str, ...]] = {"verdict": VERDICTS, "budget": LIMIT_STATES}
"""Gates that compare words, each with its words, the worst first."""

OLD_WORDS = {
    "repaired": "verdict < reduced",
    "repaired with damage": "budget == overrun",
    "not repaired": "verdict < reduced",
    "too few inputs to say": "verdict == too few",
}
"""Words that verdicts had before they were graded, and a gate to use instead."""

NAMES = (*SHARES, *COUNTS, *BRACKETED, *WORDS)
_WORD = re.compile(r"(verdict|budget)\s*(==|!=|<=|>=|<|>)\s*([\"']?)([a-z ]+)\3", re.IGNORECASE)
_FORM = re.compile(r"(?:(\w+)\.)?(\w+)(?:\[(.*)\])?\s*(<=|>=|<|>)\s*([0-9.eE+-]+)\s*(%?)")


@dataclass(frozen=True)
class Gate:
    """One condition that must not hold.

    Attributes:
        text: The gate as the user wrote it.
        part: The part of the data it refers to.
        name: The name of the number, `verdict` or `budget`.
        of: The class, group or column in brackets.
        comparison: `>`, `<`, `>=` or `<=`; of words also `==` or `!=`.
        limit: The limit, as a share of 1 or a count; or a word.
    """

    text: str
    part: str
    name: str
    of: str | None
    comparison: str
    limit: float | str

    @classmethod
    def parse(cls, text: str) -> Gate:
        """Parse a gate.

        Raises:
            UsageError: The text is no gate.
        """
        if text.strip().lower().startswith(tuple(WORDS)):
            return cls._of_word(text)
        found = _FORM.fullmatch(text.strip())
        if found is None:
            raise UsageError(f"cannot read the gate '{text}', expected something like 'break_rate > 0.5%'")
        part, name, of, comparison, number, unit = found.groups()
        if part is not None and part not in PARTS:
            raise UsageError(f"the gate '{text}' names no part of the data" + did_you_mean(part, PARTS))
        if name not in NAMES:
            raise UsageError(f"the gate '{text}' names no number of the evidence" + did_you_mean(name, NAMES))
        if of is not None and name not in BRACKETED:
            raise UsageError(f"the gate '{text}' asks for '{of}', but '{name}' is one number")
        try:
            limit = float(number)
        except ValueError:
            raise UsageError(f"the gate '{text}' compares with '{number}', expected a number") from None
        if unit and name in COUNTS:
            raise UsageError(f"the gate '{text}' has a %, but '{name}' is a count")
        return cls(text.strip(), part or "held_out", name, of, comparison, limit / 100 if unit else limit)

    @classmethod
    def _of_word(cls, text: str) -> Gate:
        found = _WORD.fullmatch(text.strip())
        if found is None:
            raise UsageError(
                f"cannot read the gate '{text}', expected something like 'verdict != removed' or 'budget == overrun'"
            )
        name, word = found[1].lower(), " ".join(found[4].lower().split())
        if word in OLD_WORDS and name == "verdict":
            raise UsageError(f"the gate '{text}' has a word from before verdicts were graded; use '{OLD_WORDS[word]}'")
        if word not in WORDS[name]:
            raise UsageError(
                f"the gate '{text}' names no {name if name == 'verdict' else 'state of a budget'}"
                + did_you_mean(word, WORDS[name])
            )
        return cls(text.strip(), "held_out", name, None, found[2], word)

    def check(self, evidence: Evidence) -> GateResult:
        """Check the gate against the evidence.

        Raises:
            UsageError: The evidence has no such part, class or group.
        """
        if isinstance(self.limit, str):
            word = evidence.verdict.word if self.name == "verdict" else evidence.verdict.limit_state
            ranks = WORDS[self.name]
            return GateResult(self, word, COMPARISONS[self.comparison](ranks.index(word), ranks.index(self.limit)))
        part = {"held_out": evidence.held_out, "seen": evidence.seen, "choose": evidence.choose}[self.part]
        if part is None:
            raise UsageError(f"the gate '{self.text}' looks at '{self.part}' inputs, and there are none here")
        value = round(self._value(part), 12)  # a difference of shares must not miss its limit by a last bit
        return GateResult(self, value, math.isnan(value) or COMPARISONS[self.comparison](value, self.limit))

    def check_class(self, names: Sequence[str]) -> None:
        """Refuse a class that is none of these, before anything is spent on a repair.

        Raises:
            UsageError: It is none.
        """
        if self.name.startswith("class_") and self.of is not None and self.of not in names:
            raise self._unknown(names)

    def _value(self, part: PartEvidence) -> float:
        if self.name in SHARES:
            return SHARES[self.name](part)
        if self.name in COUNTS:
            return COUNTS[self.name](part)
        if self.name == "group_gap":
            return self._gap(part)
        rows = part.classes if self.name.startswith("class") else [g for groups in part.groups.values() for g in groups]
        rows = [row for row in rows if row.total or row.name == self.of]
        if self.of is not None:
            rows = [row for row in rows if row.name == self.of]
            if not rows:
                raise self._unknown(self._names(part))
        if self.name.endswith("drop"):
            return max((-row.change for row in rows), default=math.nan)
        return min((row.after.value for row in rows), default=math.nan)

    def _gap(self, part: PartEvidence) -> float:
        if self.of is not None and self.of not in part.groups:
            raise UsageError(f"the gate '{self.text}' names no column of the data" + did_you_mean(self.of, part.groups))
        columns = [part.groups[self.of]] if self.of is not None else list(part.groups.values())
        return max((_spread(groups) for groups in columns), default=math.nan)

    def _names(self, part: PartEvidence) -> list[str]:
        rows = part.classes if self.name.startswith("class") else [g for groups in part.groups.values() for g in groups]
        return [row.name for row in rows]

    def _unknown(self, names: Sequence[str]) -> UsageError:
        return UsageError(
            f"the gate '{self.text}' names a class or group that does not exist" + did_you_mean(self.of or "", names)
        )


@dataclass(frozen=True)
class GateResult:
    """A gate, the number or word it found, and whether it failed."""

    gate: Gate
    value: float | str
    failed: bool

    @property
    def value_text(self) -> str:
        """The value, formatted for people."""
        if isinstance(self.value, str):
            return self.value
        if math.isnan(self.value):
            return "unknown: no inputs to count"
        if self.gate.name in COUNTS:
            return f"{self.value:,.0f}"
        return f"{self.value:.3g}" if self.gate.name.endswith("_p") else percent(self.value + 0.0)  # no -0

    def __str__(self) -> str:
        """`gate failed: break_rate > 0.5% (it is 3.49 %)`, or `gate passed: not broken > 5 (it is 3)`."""
        return f"gate {'failed: ' if self.failed else 'passed: not '}{self.gate.text} (it is {self.value_text})"


def check_gates(texts: Sequence[str], evidence: Evidence) -> tuple[GateResult, ...]:
    """Parse and check every gate, in the order given."""
    return tuple(Gate.parse(text).check(evidence) for text in texts)


def _spread(groups: Sequence[Accuracy]) -> float:
    shares = [group.after.value for group in groups if group.total]
    return max(shares) - min(shares) if shares else math.nan
