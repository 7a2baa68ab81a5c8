"""Tasks: how a model's raw outputs are read as decisions, and when a decision is right."""

from __future__ import annotations

from arachne.tasks.base import Task
from arachne.tasks.decisions import Decisions, best_others, closest_two, correct, decide, margins
from arachne.tasks.rows import DecisionRows, OutputGradient
from arachne.tasks.single_label import SINGLE_LABEL, SingleLabel

__all__ = [
    "SINGLE_LABEL",
    "DecisionRows",
    "Decisions",
    "OutputGradient",
    "SingleLabel",
    "Task",
    "best_others",
    "closest_two",
    "correct",
    "decide",
    "margins",
]
