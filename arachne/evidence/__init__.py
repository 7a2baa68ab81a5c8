"""Rates, intervals, tests and the verdict: what a repair did to inputs it has seen, and to those it has not."""

from arachne.evidence.confidence import Confidence
from arachne.evidence.doubtful import Doubtful, doubtful_labels
from arachne.evidence.evidence import Evidence, SplitScores, compare, measure, score
from arachne.evidence.flips import Flips
from arachne.evidence.gates import Gate, GateResult, check_gates
from arachne.evidence.measures import Accuracy, Changed, PartEvidence, TargetEvidence
from arachne.evidence.scan import Scan
from arachne.evidence.statistics import Rate
from arachne.evidence.verdict import BREAK_BUDGET, VERDICTS, Verdict, judge

__all__ = [
    "BREAK_BUDGET",
    "VERDICTS",
    "Accuracy",
    "Changed",
    "Confidence",
    "Doubtful",
    "Evidence",
    "Flips",
    "Gate",
    "GateResult",
    "PartEvidence",
    "Rate",
    "Scan",
    "SplitScores",
    "TargetEvidence",
    "Verdict",
    "check_gates",
    "compare",
    "doubtful_labels",
    "judge",
    "measure",
    "score",
]
