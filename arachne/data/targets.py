"""Targets of a repair: texts that say which inputs show the fault.

| text | its inputs |
|---|---|
| `6:0`, `cat:dog` | of class 6, read as 0 |
| `cat:*`, `*:dog`, `*:*` | cats read as anything else; anything else read as dog; every mistake |
| `false:dog`, `missed:dog` | no dog read as one, a dog read as none: where the task has an absent or background class |
| `top:3` | the three most frequent confusions, as three targets |
| `rows:bad.csv` | the misclassified ones of these rows of the data |
| `group:sex=female`, `group:female` | the misclassified ones with this value in a metadata column |
| `cause:1` | the misclassified ones with the scan's first cause; `arachne.causes.targets` looks it up |

`=3` at the end is a weight. Names may contain `:` and `=`: every reading of the text is tried, and a text with two
meanings is refused.
"""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from arachne.data.confusions import confusions
from arachne.data.labelled import LabelledData
from arachne.data.readers.rows_file import read_rows
from arachne.errors import DataError, NothingToRepairError, UsageError, did_you_mean
from arachne.model.values import Array
from arachne.tasks import SINGLE_LABEL, Task
from arachne.tasks.base import FALSE, MISSED
from arachne.text import Brief, is_whole_number

FORMS = "class:class, class:*, *:class, false:class, missed:class, top:k, rows:FILE, group:VALUE, cause:N"
KEYWORDS = (FALSE, MISSED, "top", "rows", "group", "cause")
"""The words before a colon that are no classes."""


class Membership(Protocol):
    """Tells which inputs have a cause."""

    def __call__(self, data: LabelledData) -> Array:
        """Return which inputs have the cause, bool `(n,)`."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values from which it can be made again."""


@dataclass(frozen=True)
class Target(Brief):
    """One fault: inputs of a class, read as a class, in some rows; None means any.

    Attributes:
        text: The text the user wrote, without the weight.
        weight: The weight of one of its inputs, relative to other targets.
        label: The true class.
        prediction: The class it is read as.
        rows: Row numbers of the user's data it is limited to.
        column: The metadata column of a `group:` target.
        value: The value in that column.
        membership: Tells which inputs have the cause of a `cause:` target.
    """

    text: str
    weight: float = 1.0
    label: int | None = None
    prediction: int | None = None
    rows: tuple[int, ...] | None = None
    column: str | None = None
    value: str | None = None
    membership: Membership | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        """The text of this target with its weight."""
        return self.text if self.weight == 1 else f"{self.text}={self.weight:g}"

    def shows(self, labels: Array, predictions: Array, rows: Array) -> Array:
        """Return which inputs show the fault, bool `(n,)`.

        Args:
            labels: True classes `(n,)`.
            predictions: Predicted classes `(n,)`.
            rows: Row numbers of the inputs in the user's data `(n,)`.
        """
        shown: Array = np.asarray(labels) != np.asarray(predictions)
        if self.label is not None:
            shown = shown & (labels == self.label)
        if self.prediction is not None:
            shown = shown & (predictions == self.prediction)
        if self.rows is not None:
            shown = shown & np.isin(rows, np.asarray(self.rows, dtype=np.int64))
        return shown

    def for_other_data(self, data: LabelledData) -> Target:
        """Return the target for other data: a group or cause is looked up there; row numbers do not apply.

        Raises:
            DataError: The other data has no such metadata column.
        """
        if self.rows is None:
            return self
        if self.membership is not None:
            return replace(self, rows=tuple(np.flatnonzero(self.membership(data)).tolist()))
        if self.column is None:
            return replace(self, rows=())
        if self.column not in data.columns:
            choices = did_you_mean(self.column, data.columns)
            raise DataError(f"the held-out data has no column '{self.column}' for target '{self.text}'{choices}")
        return replace(self, rows=_rows_with(data, self.column, self.value or ""))


def parse_targets(
    texts: str | Target | Sequence[str | Target],
    data: LabelledData,
    predictions: Array,
    n_classes: int,
    labels: Array | None = None,
    *,
    class_names: Sequence[str] | None = None,
    task: Task = SINGLE_LABEL,
) -> tuple[Target, ...]:
    """Parse targets.

    Args:
        texts: One target, or several; a `Target` stays as it is.
        data: The data the targets refer to: its class names, rows and metadata columns.
        predictions: The original model's prediction for each decision `(m,)`; `top:k` counts them.
        n_classes: How many classes the model has.
        labels: The true classes of the decisions `(m,)`; the data's labels when None.
        class_names: The names of all classes that decisions are between; the data's when None.
        task: Has words of its own for some targets, such as `false:person`.

    Raises:
        UsageError: A text has no meaning, or two meanings.
        NothingToRepairError: `top:k` was asked of a model without mistakes.
    """
    parser = _Parser(
        data, predictions, n_classes, data.labels if labels is None else labels, class_names or data.class_names, task
    )
    targets: list[Target] = []
    for text in as_target_list(texts):
        for target in (text,) if isinstance(text, Target) else parser.parse(text.strip()):
            if any(_is_same(target, other) for other in targets):
                raise UsageError(f"target '{target.text}' is given twice")
            targets.append(target)
    if not targets:
        raise UsageError(f"expected a target, got none; forms: {FORMS}")
    return tuple(targets)


def as_target_list(texts: str | Target | Sequence[str | Target]) -> Sequence[str | Target]:
    """Return one target or several as a list.

    Raises:
        UsageError: One is neither a text nor a target.
    """
    if isinstance(texts, (str, Target)):
        return [texts]
    if not isinstance(texts, Iterable):
        raise UsageError(f"a target is a text such as '6:0', got {texts!r}; forms: {FORMS}")
    wrong = [text for text in texts if not isinstance(text, (str, Target))]
    if wrong:
        pair = list(texts) if len(texts) == 2 else [6, 0]
        raise UsageError(f"a target is a text, as in '{pair[0]}:{pair[1]}', got {texts!r}; forms: {FORMS}")
    return texts


class _Parser:
    """Tries all readings of a target's text; exactly one must make sense."""

    def __init__(
        self,
        data: LabelledData,
        predictions: Array,
        n_classes: int,
        labels: Array,
        class_names: Sequence[str] | None,
        task: Task,
    ) -> None:
        self._data = data
        self._task = task
        self._given_names = class_names
        self._labels = labels
        self._predictions = predictions
        self._n_classes = n_classes
        self._class_names = tuple(class_names or map(str, range(n_classes)))

    def parse(self, text: str) -> tuple[Target, ...]:
        readings = {_meaning(reading): reading for reading in self._readings(text)}
        if len(readings) > 1:
            meanings = " or ".join(sorted(f"'{meaning}'" for meaning in readings))
            raise UsageError(f"target '{text}' can mean {meanings}; use class numbers or rename")
        if not readings:
            raise self._refusal(text)
        (reading,) = readings.values()
        for target in reading:
            if target.label is not None and target.label == target.prediction:
                raise UsageError(f"target '{text}' has the same class on both sides, so it is no mistake")
        return reading

    def _readings(self, text: str) -> Iterator[tuple[Target, ...]]:
        for body, weight in weights_of(text):
            for pair in self._pairs(body, weight):
                yield (pair,)
            found = self._task.find_target(body, self._class_names)
            if found is not None:
                yield (Target(body, weight, label=found[0], prediction=found[1]),)
            keyword, _, rest = body.partition(":")
            if keyword == "top" and is_whole_number(rest) and int(rest) > 0:
                yield self._top(int(rest), weight)
            if keyword == "rows" and os.path.isfile(rest):
                yield (Target(body, weight, rows=read_rows(Path(rest), len(self._data))),)
            if keyword == "group":
                for column, value in self._groups(rest):
                    rows = _rows_with(self._data, column, value)
                    yield (Target(body, weight, rows=rows, column=column, value=value),)

    def _pairs(self, body: str, weight: float) -> Iterator[Target]:
        for position, character in enumerate(body):
            if character != ":":
                continue
            sides = body[:position].strip(), body[position + 1 :].strip()
            if all(side == "*" or self._class(side) is not None for side in sides):
                label, prediction = (None if side == "*" else self._class(side) for side in sides)
                yield Target(body, weight, label=label, prediction=prediction)

    def _class(self, name: str) -> int | None:
        """Find a class by its name, or else by its number."""
        if name in self._class_names:
            return self._class_names.index(name)
        if is_whole_number(name) and int(name) < self._n_classes:
            return int(name)
        return None

    def _top(self, k: int, weight: float) -> tuple[Target, ...]:
        ranked = confusions(self._labels, self._predictions, self._n_classes, self._given_names, self._task)
        if not ranked:
            raise NothingToRepairError(f"the model classifies all {len(self._data)} inputs correctly")
        return tuple(
            Target(fault.target, weight, label=fault.label, prediction=fault.prediction) for fault in ranked[:k]
        )

    def _groups(self, text: str) -> Iterator[tuple[str, str]]:
        columns = {name: set(map(str, column.tolist())) for name, column in self._data.columns.items()}
        holders = [name for name, values in columns.items() if text in values]
        if len(holders) > 1:
            raise UsageError(
                f"several columns have the value '{text}': write " + " or ".join(f"'group:{c}={text}'" for c in holders)
            )
        for name in holders:
            yield name, text
        for name, values in columns.items():
            if text.startswith(f"{name}=") and text[len(name) + 1 :] in values:
                yield name, text[len(name) + 1 :]

    def _refusal(self, text: str) -> UsageError | DataError:
        body = max(weights_of(text), key=lambda reading: -len(reading[0]))[0]
        keyword, colon, rest = body.partition(":")
        if keyword == "rows":
            return DataError(f"the rows file '{rest}' of target '{text}' is no file")
        if keyword == "cause":
            reason = self._task.no_causes or "this command looks for no causes"
            return UsageError(f"target '{text}' is a cause of the scan's: {reason}")
        if keyword == "top":
            return UsageError(f"target '{text}' wants a number above 0 after 'top:', got '{rest}'")
        if keyword == "group":
            return UsageError(self._no_group(text, rest))
        if keyword in (FALSE, MISSED) and rest.strip() in self._class_names:
            return UsageError(
                f"target '{text}' needs a task in which '{rest.strip()}' can be absent; with several classes '*:"
                f"{rest.strip()}' is anything read as it, '{rest.strip()}:*' it read as anything"
            )
        if keyword in (FALSE, MISSED):
            return UsageError(f"target '{text}' names '{rest}', which is none{did_you_mean(rest, self._class_names)}")
        if not colon and self._class(body) is not None:
            return UsageError(
                f"target '{text}' is one class of a mistake: '*:{body}' is anything read as it, '{body}:*' it read as "
                "anything"
            )
        if not colon:
            for sign in ("->", "→", "=>", "-", ",", "/", " "):
                sides = [side.strip() for side in body.split(sign)]
                if len(sides) == 2 and all(side == "*" or self._class(side) is not None for side in sides):
                    return UsageError(f"target '{text}' is not of a known form; did you mean '{sides[0]}:{sides[1]}'?")
            return UsageError(f"target '{text}' is not of a known form; forms: {FORMS}")
        _, equals, weight = text.rpartition("=")
        if equals and body == text and self._is_known_pair(text.rpartition("=")[0]):
            return UsageError(f"target '{text}' has the weight '{weight}', expected a number above 0")
        close = difflib.get_close_matches(keyword, KEYWORDS, n=1, cutoff=0.7)
        if close and keyword != "*" and self._class(keyword.strip()) is None:
            return UsageError(f"target '{text}' is not of a known form; did you mean '{close[0]}:{rest}'?")
        for side in (keyword.strip(), rest.strip()):
            if side != "*" and self._class(side) is None:
                if side.lstrip("-").isdecimal() and all(name.isdecimal() for name in self._class_names):
                    return UsageError(f"no class '{side}': the model has the classes 0 to {self._n_classes - 1}")
                return UsageError(f"no class named '{side}'" + did_you_mean(side, self._class_names))
        return UsageError(f"target '{text}' is not of a known form; forms: {FORMS}")

    def _is_known_pair(self, body: str) -> bool:
        return any(True for _ in self._pairs(body, 1.0))

    def _no_group(self, text: str, rest: str) -> str:
        columns = self._data.columns
        if not columns:
            return f"target '{text}' needs data with metadata columns, and this data has none"
        name, equals, value = rest.partition("=")
        if equals and name in columns:
            choices = did_you_mean(value, sorted(set(map(str, columns[name].tolist()))))
            return f"no input has '{value}' in column '{name}'{choices}"
        values = sorted({str(value) for column in columns.values() for value in column.tolist()})
        choices = did_you_mean(rest, values if len(values) <= 1000 else [])
        return f"no group '{rest}' in the columns {', '.join(columns)}{choices}"


def weights_of(text: str) -> Iterator[tuple[str, float]]:
    """Yield the text with weight 1 and, if it ends in `=number`, the text without it and that weight."""
    yield text, 1.0
    body, equals, tail = text.rpartition("=")
    try:
        weight = float(tail)
    except ValueError:
        return
    if equals and math.isfinite(weight) and weight > 0:
        yield body, weight


def _rows_with(data: LabelledData, column: str, value: str) -> tuple[int, ...]:
    return tuple(row for row, entry in enumerate(data.columns[column].tolist()) if str(entry) == value)


def _is_same(one: Target, other: Target) -> bool:
    return (one.label, one.prediction, one.rows) == (other.label, other.prediction, other.rows)


def _meaning(reading: tuple[Target, ...]) -> str:
    return ", ".join(
        f"class {_number(t.label)} read as {_number(t.prediction)}" if t.rows is None else f"{t.text}" for t in reading
    ) + (f" with weight {reading[0].weight:g}" if reading[0].weight != 1 else "")


def _number(label: int | None) -> str:
    return "anything" if label is None else str(label)
