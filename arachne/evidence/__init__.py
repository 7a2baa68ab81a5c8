"""Evidence of a repair, on inputs it has seen and on others: rates, intervals, tests and the verdict."""

from arachne.evidence.confidence import Confidence
from arachne.evidence.evidence import Evidence, SplitScores, compare, measure, score
from arachne.evidence.flips import Flips
from arachne.evidence.gates import Gate, GateResult, check_gates
from arachne.evidence.grade import VERDICTS
from arachne.evidence.label_noise import LabelNoise, find_label_noise
from arachne.evidence.measure_part import measure_part
from arachne.evidence.part_evidence import Accuracy, ChangedInputs, PartEvidence, TargetEvidence
from arachne.evidence.scan import Scan
from arachne.evidence.verdict import Verdict, judge
from arachne.scoring.statistics import Rate

__all__ = [
    "VERDICTS",
    "Accuracy",
    "ChangedInputs",
    "Confidence",
    "Evidence",
    "Flips",
    "Gate",
    "GateResult",
    "LabelNoise",
    "PartEvidence",
    "Rate",
    "Scan",
    "SplitScores",
    "TargetEvidence",
    "Verdict",
    "check_gates",
    "compare",
    "find_label_noise",
    "judge",
    "measure",
    "measure_part",
    "score",
]
