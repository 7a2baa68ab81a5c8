"""Tasks: how a model's raw outputs are read as decisions, and when a decision is right.

Each is a plug-in of the group `arachne.tasks`: `single-label`, `binary`, `multilabel`, `tokens`, `segmentation`,
`regression` and `rule` are ours.
"""

from __future__ import annotations

from arachne.decisions.decisions import Decisions, best_others, closest_two, correct, decide, margins
from arachne.tasks.base import Task
from arachne.tasks.binary import Binary
from arachne.tasks.default import default_task
from arachne.tasks.detection.task import Detection
from arachne.tasks.figures import Figures, cell_text
from arachne.tasks.multilabel import Multilabel
from arachne.tasks.regression import Regression
from arachne.tasks.rows import DecisionRows, OutputGradient
from arachne.tasks.rule import RuleTask, rule_in
from arachne.tasks.single_label import SINGLE_LABEL, SingleLabel
from arachne.tasks.tokens import Segmentation, Tokens

__all__ = [
    "SINGLE_LABEL",
    "Binary",
    "DecisionRows",
    "Decisions",
    "Detection",
    "Figures",
    "Multilabel",
    "OutputGradient",
    "Regression",
    "RuleTask",
    "Segmentation",
    "SingleLabel",
    "Task",
    "Tokens",
    "best_others",
    "cell_text",
    "closest_two",
    "correct",
    "decide",
    "default_task",
    "margins",
    "rule_in",
]
