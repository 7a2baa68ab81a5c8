"""Evaluation: what a candidate patch costs."""

from __future__ import annotations

from arachne.backend import ModelBackend
from arachne.errors import UsageError, did_you_mean
from arachne.evaluate.base import UNIT, Evaluator, Stake
from arachne.evaluate.fast import MEMORY, FastEvaluator
from arachne.evaluate.plain import PlainEvaluator
from arachne.suspects import Suspects

EVALUATORS = ("fast", "plain")


def make_evaluator(
    kind: str, backend: ModelBackend, stake: Stake, suspects: Suspects, *, memory: int = MEMORY
) -> Evaluator:
    """The evaluator of a kind: `fast`, or `plain` for the reference; both take the same decisions.

    Args:
        kind: `fast` or `plain`.
        backend: The model.
        stake: The inputs that count.
        suspects: The weights candidates change.
        memory: What the fast one may keep between candidates, in bytes.
    """
    if kind == "plain":
        return PlainEvaluator(backend, stake, suspects)
    if kind == "fast":
        return FastEvaluator(backend, stake, suspects, memory=memory)
    raise UsageError(f"no evaluator named '{kind}'" + did_you_mean(kind, EVALUATORS))


__all__ = ["EVALUATORS", "MEMORY", "UNIT", "Evaluator", "FastEvaluator", "PlainEvaluator", "Stake", "make_evaluator"]
