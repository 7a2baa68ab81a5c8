"""Outcome: the result of one check of a backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclass(frozen=True)
class Outcome:
    """The result of one check.

    Attributes:
        operation: What of a backend it looks at: `weight_gradients`.
        sentence: The sentence of the contract it checks.
        state: `passed`, `failed` or `skipped`.
        detail: What came instead, or why it was skipped.
        network: The network of the suite it ran on; None for a model of the user's.
    """

    operation: str
    sentence: str
    state: str
    detail: str = ""
    network: str | None = None


def counts(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """How many passed, failed and were skipped."""
    return {state: sum(outcome.state == state for outcome in outcomes) for state in (PASSED, FAILED, SKIPPED)}
