"""`cause:1` as a target: the scan's first cause, found again, or read from the scan's file (`cause:scan.json:1`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from arachne.backend import ModelBackend
from arachne.causes.cases import Cases
from arachne.causes.cause import find_causes
from arachne.causes.rule import Rule
from arachne.causes.rules import rule_from
from arachne.data.labelled import LabelledData
from arachne.data.targets import Target, listed_targets, weights_of
from arachne.errors import ArachneError, InputError, NothingToRepairError, UsageError
from arachne.files import LARGEST_OBJECT
from arachne.reading import foreign, parse_json, read_bytes
from arachne.values import Array
from arachne.wording import counted

PREFIX = "cause:"


@dataclass(frozen=True)
class Carries:
    """Which inputs have a cause: its rule, and the model for a rule that asks it."""

    rule: Rule
    backend: ModelBackend

    def __call__(self, data: LabelledData) -> Array:
        """Which inputs have it, bool `(n,)`."""
        with foreign("the rule of a cause", InputError):  # it may come from a file
            return self.rule(data, self.backend)

    def to_json(self) -> dict[str, Any]:
        """The rule, for provenance."""
        return self.rule.to_json()


@dataclass(frozen=True)
class CauseTargets:
    """Turns texts such as `cause:1` into targets.

    Attributes:
        backend: The model.
        known: Rules that are known already, by the target's text: those a patch was made for.
    """

    backend: ModelBackend
    known: Mapping[str, Any] | None = None

    def __call__(
        self, texts: str | Target | Sequence[str | Target], data: LabelledData, predictions: Array
    ) -> list[str | Target]:
        """The same targets, those of causes with the rows that have them.

        Args:
            texts: Targets in the user's words.
            data: The data they speak of.
            predictions: What the model makes of it `(n,)`.

        Raises:
            UsageError: There is no cause of that number.
            NothingToRepairError: The mistakes have no common cause.
            InputError: The file is no scan's.
        """
        listed = listed_targets(texts)
        if data.class_names is not None and PREFIX.rstrip(":") in data.class_names:
            return list(listed)
        return [self._target(one, data, predictions) if _is_cause(one) else one for one in listed]

    def _target(self, text: Any, data: LabelledData, predictions: Array) -> Target:
        body, weight = min(weights_of(text.strip()), key=lambda reading: len(reading[0]))
        rule = self._rule(body, data, predictions)
        has = rule.among(Cases.of(data, predictions, self.backend))
        rows = tuple(np.flatnonzero(has).tolist())
        return Target(body, weight, rows=rows, carried=Carries(rule, self.backend))

    def _rule(self, text: str, data: LabelledData, predictions: Array) -> Rule:
        if self.known is not None and text in self.known:
            return rule_from(self.known[text])
        file, _, number = text.removeprefix(PREFIX).rpartition(":")
        if not (number.isdecimal() and int(number) > 0):
            raise UsageError(f"target '{text}' wants the number of a cause, such as 'cause:1', got '{number}'")
        if file:
            return _from_file(Path(file), int(number))
        causes = find_causes(self.backend, data, predictions)
        if not causes:
            raise NothingToRepairError(f"the mistakes have no common cause, so there is no '{text}'")
        if int(number) > len(causes):
            raise UsageError(f"no '{text}': the mistakes in this data have {counted(len(causes), 'common cause')}")
        return causes[int(number) - 1].rule


def rules_of(targets: Sequence[Target]) -> dict[str, Any]:
    """The rules of targets that are causes, by their texts: what `CauseTargets.known` takes."""
    return {target.text: target.carried.to_json() for target in targets if target.carried is not None}


def _from_file(path: Path, number: int) -> Rule:
    content = read_bytes(path, "list of causes", LARGEST_OBJECT)
    try:
        causes = parse_json(content)["causes"]
        if number > len(causes):
            raise UsageError(f"no cause {number} in '{path}', which has {counted(len(causes), 'cause')}")
        return rule_from(causes[number - 1]["rule"])
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, ArachneError):
            raise
        raise InputError(f"cannot read causes from '{path}': expected what a scan wrote as JSON") from error


def _is_cause(text: str | Target) -> bool:
    return isinstance(text, str) and text.strip().startswith(PREFIX)
