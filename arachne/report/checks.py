"""The outcome of a backend's check, operation by operation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from arachne.testing.outcome import FAILED, PASSED, SKIPPED, Outcome, counts

MOST_NETWORKS = 4
"""How many networks are named for one sentence of the contract."""


def checks_text(name: str, on: str, outcomes: Sequence[Outcome]) -> str:
    """Lines for people: each operation with its count, and below it what failed, in the words of the contract."""
    total = counts(outcomes)
    lines = [f"backend '{name}' on {on}: " + _counts_text(total), ""]
    for operation, group in groupby(outcomes, key=lambda outcome: outcome.operation):
        own = list(group)
        found = counts(own)
        word = "FAILED" if found[FAILED] else "ok" if found[PASSED] else "skipped"
        lines.append(f"{operation}: {word} ({_counts_text(found)})")
        lines += [line for state in (FAILED, SKIPPED) for line in _by_sentence(own, state)]
    return "\n".join(lines)


def checks_object(name: str, on: str, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The outcomes as the object that `--json` prints."""
    return {
        "schema": "arachne.check/1",
        "backend": name,
        "checked_on": on,
        **counts(outcomes),
        "checks": [
            {
                "operation": outcome.operation,
                "contract": outcome.sentence,
                "network": outcome.network,
                "state": outcome.state,
                "told": outcome.detail,
            }
            for outcome in outcomes
        ],
    }


def _by_sentence(outcomes: Sequence[Outcome], state: str) -> list[str]:
    """Lines for the outcomes of one state, by sentence; skips on single networks are said once, elsewhere."""
    chosen = [outcome for outcome in outcomes if outcome.state == state]
    if state == SKIPPED:
        chosen = [outcome for outcome in chosen if outcome.network is None]
    lines = []
    for sentence in dict.fromkeys(outcome.sentence for outcome in chosen):
        own = [outcome for outcome in chosen if outcome.sentence == sentence]
        lines.append(f"  {'FAILED' if state == FAILED else 'skipped'}: {sentence}")
        for outcome in own[:MOST_NETWORKS]:
            network = f"on '{outcome.network}': " if outcome.network else ""
            lines.append(f"    {network}{outcome.detail}")
        if len(own) > MOST_NETWORKS:
            lines.append(f"    and on {len(own) - MOST_NETWORKS} more")
    return lines


def _counts_text(found: dict[str, int]) -> str:
    return ", ".join(
        f"{found[state]} {state}" for state in (PASSED, FAILED, SKIPPED) if found[state] or state == PASSED
    )
