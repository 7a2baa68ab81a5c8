"""Causes of mistakes: finders propose rules on one half of the data, the other half confirms them."""

from arachne.causes.base import Finder, Proposals
from arachne.causes.cases import Cases
from arachne.causes.cause import Cause, find_causes, try_causes
from arachne.causes.experiment import Experiment
from arachne.causes.finding import find_rules
from arachne.causes.rule import Rule
from arachne.causes.rule_reader import rule_from

__all__ = [
    "Cases",
    "Cause",
    "Experiment",
    "Finder",
    "Proposals",
    "Rule",
    "find_causes",
    "find_rules",
    "rule_from",
    "try_causes",
]
