"""Rates, intervals, tests and the verdict: what a repair did to inputs it has seen, and to those it has not."""

from arachne.evidence.evidence import Evidence, SplitScores, compare, measure, score
from arachne.evidence.measures import Accuracy, Changed, PartEvidence, TargetEvidence
from arachne.evidence.statistics import Rate
from arachne.evidence.verdict import BREAK_BUDGET, VERDICTS, Verdict, judge

__all__ = [
    "BREAK_BUDGET",
    "VERDICTS",
    "Accuracy",
    "Changed",
    "Evidence",
    "PartEvidence",
    "Rate",
    "SplitScores",
    "TargetEvidence",
    "Verdict",
    "compare",
    "judge",
    "measure",
    "score",
]
