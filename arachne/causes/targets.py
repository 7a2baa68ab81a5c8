"""Resolve targets such as `cause:1`, the first cause of a scan, or `cause:scan.json:1`, read from the scan's file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from arachne.causes.cases import Cases
from arachne.causes.cause import find_causes
from arachne.causes.experiment import Experiment, run_experiment
from arachne.causes.judging import dominant_prediction
from arachne.causes.rule import Rule
from arachne.causes.rule_reader import rule_from
from arachne.causes.wording import describe_planted
from arachne.data.labelled import LabelledData
from arachne.data.part import Part
from arachne.data.targets import Target, as_target_list, weights_of
from arachne.errors import ArachneError, InputError, NothingToRepairError, UsageError
from arachne.io.readers import MAX_OBJECT_BYTES
from arachne.io.reading import parse_errors_as, parse_json, read_bytes
from arachne.model.backend import ModelBackend
from arachne.model.values import Array
from arachne.text import pluralise

PREFIX = "cause:"

MAX_DIGITS = 9
"""The most digits of a cause's number."""


@dataclass(frozen=True)
class CauseMembership:
    """Tells which inputs have a cause, by its rule and the model."""

    rule: Rule
    backend: ModelBackend

    def __call__(self, data: LabelledData) -> Array:
        """Return which inputs have the cause, bool `(n,)`."""
        with parse_errors_as("the rule of a cause", InputError):  # it may come from a file
            return self.rule(data, self.backend)

    def to_json(self) -> dict[str, Any]:
        """Return the rule for provenance."""
        return self.rule.to_json()


@dataclass(frozen=True)
class CauseTargets:
    """Turns texts such as `cause:1` into targets.

    Attributes:
        backend: The model.
        known_rules: Rules that are known already, by the target's text: those a patch was made for.
    """

    backend: ModelBackend
    known_rules: Mapping[str, Any] | None = None

    def __call__(
        self, texts: str | Target | Sequence[str | Target], data: LabelledData, predictions: Array
    ) -> list[str | Target]:
        """Replace each `cause:` text by a target with the rows that have the cause; other targets stay as they are.

        Args:
            texts: Targets as the user wrote them.
            data: The data they refer to.
            predictions: The predicted class of each input `(n,)`.

        Raises:
            UsageError: There is no cause of that number.
            NothingToRepairError: The mistakes have no common cause.
            InputError: The file does not hold a scan.
        """
        listed = as_target_list(texts)
        if data.class_names is not None and PREFIX.rstrip(":") in data.class_names:
            return list(listed)
        return [self._target(one, data, predictions) if _is_cause(one) else one for one in listed]

    def _target(self, text: Any, data: LabelledData, predictions: Array) -> Target:
        body, weight = min(weights_of(text.strip()), key=lambda reading: len(reading[0]))
        rule = self._rule(body, data, predictions)
        try:
            with parse_errors_as(f"the rule of '{body}'", InputError):  # it may come from a file
                has = rule.match(Cases.of(data, predictions, self.backend))
        except UsageError as error:
            raise InputError(f"the rule of '{body}' does not fit: {error}") from error
        rows = tuple(np.flatnonzero(has).tolist())
        return Target(body, weight, rows=rows, membership=CauseMembership(rule, self.backend))

    def _rule(self, text: str, data: LabelledData, predictions: Array) -> Rule:
        if isinstance(self.known_rules, Mapping) and text in self.known_rules:
            return rule_from(self.known_rules[text])
        file, _, number = text.removeprefix(PREFIX).rpartition(":")
        if not (number.isascii() and number.isdecimal() and len(number) <= MAX_DIGITS and int(number) > 0):
            raise UsageError(f"target '{text}' wants the number of a cause, such as 'cause:1', got '{number}'")
        if file:
            return _from_file(Path(file), int(number))
        causes = find_causes(self.backend, data, predictions)
        if not causes:
            raise NothingToRepairError(f"the mistakes have no common cause, so there is no '{text}'")
        if int(number) > len(causes):
            raise UsageError(f"no '{text}': the mistakes in this data have {pluralise(len(causes), 'common cause')}")
        return causes[int(number) - 1].rule


def try_targets(backend: ModelBackend, part: Part) -> dict[str, Experiment]:
    """Try the causes among a part's targets by experiment, on the part's inputs; by the targets' texts.

    Experiments read outputs as class scores, so there are none where a model has one raw output.
    """
    found: dict[str, Experiment] = {}
    for target in part.targets if part.task.SINGLE else ():
        if isinstance(target.membership, CauseMembership):
            shown = part.shows(target)
            read_as = dominant_prediction(shown, Cases.of(part.data, part.predictions))
            rule, members = target.membership.rule, np.flatnonzero(shown)
            found[target.text] = run_experiment(backend, rule, members, read_as, part.data, part.predictions)
    return found


def describe_targets(part: Part, experiments: Mapping[str, Experiment]) -> dict[str, str]:
    """Describe the causes among a part's targets in the words of a scan, by the targets' texts."""
    descriptions = {}
    for target in part.targets:
        if isinstance(target.membership, CauseMembership):
            tried = experiments.get(target.text)
            planted = tried.intervention if tried is not None and tried.verdict == "confirmed" else None
            words = None if planted is None else planted.words
            descriptions[target.text] = describe_planted(target.membership.rule, part.data, words)
    return descriptions


def cause_rules(targets: Sequence[Target]) -> dict[str, Any]:
    """Return the rules of `cause:` targets by their texts, as `CauseTargets.known_rules` takes them."""
    return {target.text: target.membership.to_json() for target in targets if target.membership is not None}


def _from_file(path: Path, number: int) -> Rule:
    content = read_bytes(path, "list of causes", MAX_OBJECT_BYTES)
    try:
        causes = parse_json(content)["causes"]
        if number > len(causes):
            raise UsageError(f"no cause {number} in '{path}', which has {pluralise(len(causes), 'cause')}")
        return rule_from(causes[number - 1]["rule"])
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, ArachneError):
            raise
        raise InputError(f"cannot read causes from '{path}': expected what a scan wrote as JSON") from error


def _is_cause(text: str | Target) -> bool:
    return isinstance(text, str) and text.strip().startswith(PREFIX)
