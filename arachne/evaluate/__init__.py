"""Evaluation: what a candidate patch costs."""

from __future__ import annotations

from arachne.backend import ModelBackend
from arachne.errors import UsageError, did_you_mean
from arachne.evaluate.base import UNIT, Evaluator, Stake
from arachne.evaluate.plain import PlainEvaluator
from arachne.localise.base import Suspects


def make_evaluator(kind: str, backend: ModelBackend, stake: Stake, suspects: Suspects) -> Evaluator:
    """The evaluator of a kind: `fast`, or `plain` for the reference."""
    if kind not in ("fast", "plain"):
        raise UsageError(f"no evaluator named '{kind}'" + did_you_mean(kind, ["fast", "plain"]))
    return PlainEvaluator(backend, stake, suspects)


__all__ = ["UNIT", "Evaluator", "PlainEvaluator", "Stake", "make_evaluator"]
