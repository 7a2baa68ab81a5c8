"""Evaluation: what a candidate patch costs."""

from __future__ import annotations

from arachne.evaluate.base import UNIT, Evaluator, Stake
from arachne.evaluate.plain import PlainEvaluator

__all__ = ["UNIT", "Evaluator", "PlainEvaluator", "Stake"]
