"""What do mistakes share? Finders propose rules, a held-back half of the data confirms them."""

from arachne.causes.base import Finder, Proposals
from arachne.causes.cases import Cases
from arachne.causes.cause import Cause, find_causes
from arachne.causes.finding import find_rules
from arachne.causes.rule import Rule
from arachne.causes.rules import rule_from

__all__ = ["Cases", "Cause", "Finder", "Proposals", "Rule", "find_causes", "find_rules", "rule_from"]
