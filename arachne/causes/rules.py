"""The rules of Arachne's own finders: plain values and no code, so that files can hold them.

| kind | an input has the cause if |
|---|---|
| `values` | at least `least` of its values at `index` equal `value` |
| `range` | its value at `index` is in a range |
| `missing` | its value at `index` is no number |
| `token` | a token is anywhere in it |
| `colour` | at least `least` pixels are of exactly one colour, and so are their neighbours |
| `derived` | features of the whole input (brightness, length, a column) are in ranges |
| `columns` | metadata columns have these values |
| `class` | its true class is this one: the second rule of a `both` |
| `both` | two rules hold |
| `activation` | it is read as a class, and the input of a layer lies beyond a plane |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from arachne.causes.cases import Cases
from arachne.causes.features import feature
from arachne.causes.rule import Rule
from arachne.data.layout import as_pictures
from arachne.data.lazy.memmap import gather
from arachne.errors import DataError, did_you_mean
from arachne.model.values import Array


@dataclass(frozen=True)
class Values(Rule):
    """At least `least` of the values at `index` (in the flattened input) equal `value`."""

    kind = "values"
    input: str
    index: tuple[int, ...]
    value: tuple[float, ...]
    least: int

    def holds(self, cases: Cases) -> Array:
        equal = cases.inputs(self.input, np.asarray(self.index)) == np.asarray(self.value)
        return np.asarray(equal.sum(axis=1) >= self.least)

    @property
    def conditions(self) -> int:
        """One for a single value; a region counts as two, however large."""
        return min(2, len(self.index))


@dataclass(frozen=True)
class Range(Rule):
    """The value at `index` (in the flattened input) is at least `low` and at most `high`; None means no bound."""

    kind = "range"
    input: str
    index: int
    low: float | None
    high: float | None

    def holds(self, cases: Cases) -> Array:
        return in_range(cases.inputs(self.input, np.asarray([self.index]))[:, 0], self.low, self.high)


@dataclass(frozen=True)
class Missing(Rule):
    """The value at `index` (in the flattened input) is no number."""

    kind = "missing"
    input: str
    index: int

    def holds(self, cases: Cases) -> Array:
        return np.isnan(cases.inputs(self.input, np.asarray([self.index]))[:, 0])


@dataclass(frozen=True)
class Token(Rule):
    """A token is anywhere in the input."""

    kind = "token"
    input: str
    token: int

    def holds(self, cases: Cases) -> Array:
        return np.asarray((cases.inputs(self.input) == self.token).any(axis=1))


@dataclass(frozen=True)
class Colour(Rule):
    """At least `least` pixels are of exactly one colour, and so are their right and lower neighbours."""

    kind = "colour"
    input: str
    layout: tuple[int, ...]
    colour: tuple[float, ...]
    least: int

    def holds(self, cases: Cases) -> Array:
        """Return which cases have the cause, bool `(n,)`.

        Raises:
            DataError: The colour has another number of channels than the pictures.
        """
        pictures = as_pictures(np.asarray(gather(cases.arrays[self.input], cases.rows)), self.layout)
        if len(self.colour) != pictures.shape[-1]:
            raise DataError(f"the cause's colour has {len(self.colour)} channels and the data {pictures.shape[-1]}")
        colour = np.asarray(self.colour, dtype=pictures.dtype)
        same = (pictures == colour).all(axis=-1)
        filled = same[:, :-1, :-1] & same[:, :-1, 1:] & same[:, 1:, :-1]
        return np.asarray(filled.sum(axis=(1, 2)) >= self.least)


@dataclass(frozen=True)
class OfClass(Rule):
    """The true class is `label`. Its inputs are compared with others of that class, so it only narrows another rule."""

    kind = "class"
    within_class = True
    label: int

    def holds(self, cases: Cases) -> Array:
        return np.asarray(cases.labels == self.label)

    def comparison_group(self, cases: Cases) -> Array | None:
        return self.holds(cases)


@dataclass(frozen=True)
class Both(Rule):
    """Two rules hold."""

    kind = "both"
    rules: tuple[Rule, ...]

    def holds(self, cases: Cases) -> Array:
        return np.asarray(np.logical_and.reduce([rule.holds(cases) for rule in self.rules]))

    @property
    def conditions(self) -> int:
        """The sum of both."""
        return sum(rule.conditions for rule in self.rules)

    @property
    def asks_model(self) -> bool:
        """Whether one of its rules does."""
        return any(rule.asks_model for rule in self.rules)

    @property
    def asks_metadata(self) -> bool:
        """Whether one of its rules does."""
        return any(rule.asks_metadata for rule in self.rules)

    @property
    def least_odds(self) -> float:
        """The least odds of the first rule."""
        return self.rules[0].least_odds

    @property
    def within_class(self) -> bool:
        """Whether the last rule names a class, or may be a cause within one."""
        return self.rules[-1].within_class

    def comparison_group(self, cases: Cases) -> Array | None:
        """Return the cases that the last rule is compared with."""
        return self.rules[-1].comparison_group(cases)

    def to_json(self) -> dict[str, Any]:
        """Return the kind and the two rules."""
        return {"kind": self.kind, "rules": [rule.to_json() for rule in self.rules]}


@dataclass(frozen=True)
class Derived(Rule):
    """Features of the whole input are in ranges.

    Attributes:
        input: The input array's name.
        layout: The shape that makes pictures of it; None if it holds none.
        names: The features, as `feature_names` lists them.
        low: Their lower bounds, None for none.
        high: Their upper bounds, None for none.
        unknown: The token that stands for unknown words.
    """

    kind = "derived"
    input: str
    layout: tuple[int, ...] | None
    names: tuple[str, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    unknown: int = 1

    def holds(self, cases: Cases) -> Array:
        belongs = np.ones(len(cases), dtype=bool)
        for name, low, high in zip(self.names, self.low, self.high, strict=True):
            belongs &= in_range(feature(cases, name, self.input, self.layout, self.unknown), low, high)
        return belongs

    @property
    def conditions(self) -> int:
        """How many ranges."""
        return len(self.names)


@dataclass(frozen=True)
class Columns(Rule):
    """Metadata columns have these values."""

    kind = "columns"
    asks_metadata = True
    least_odds = 5.0  # half of other rules': there are few metadata values to test
    within_class = True  # a group may be of one class
    columns: tuple[str, ...]
    values: tuple[str, ...]

    def holds(self, cases: Cases) -> Array:
        """Return which cases have the cause, bool `(n,)`.

        Raises:
            DataError: The data has no such metadata column.
        """
        belongs = np.ones(len(cases), dtype=bool)
        for column, value in zip(self.columns, self.values, strict=True):
            if column not in cases.whole.columns:
                choices = did_you_mean(column, cases.whole.columns)
                raise DataError(f"the data has no column '{column}' that the cause asks for{choices}")
            belongs &= cases.column(column) == value
        return belongs

    @property
    def conditions(self) -> int:
        """How many columns."""
        return len(self.columns)


@dataclass(frozen=True)
class Activation(Rule):
    """The input is read as a class, and the product of a layer's input with `direction` is at least `least`."""

    kind = "activation"
    conditions = 4  # more than any rule about inputs: it is reported only if nothing else explains an error
    asks_model = True
    within_class = True  # its errors share no appearance, only activations
    layer: str
    read_as: int
    direction: tuple[float, ...]
    least: float

    def holds(self, cases: Cases) -> Array:
        belongs: Array = cases.predictions == self.read_as
        chosen = np.flatnonzero(belongs)
        if len(chosen):
            along = cases.take(chosen).hidden_activations(self.layer) @ np.asarray(self.direction, dtype=np.float32)
            belongs[chosen] = along >= self.least
        return belongs

    def comparison_group(self, cases: Cases) -> Array | None:
        """Return the cases read as the same class."""
        return np.asarray(cases.predictions == self.read_as)


RULES: Mapping[str, type[Rule]] = {
    rule.kind: rule for rule in (Values, Range, Missing, Token, Colour, OfClass, Both, Derived, Columns, Activation)
}


def in_range(values: Array, low: float | None, high: float | None) -> Array:
    """Return which values lie between two bounds, bool; NaN never does."""
    inside = ~np.isnan(values) if values.dtype.kind == "f" else np.ones(len(values), dtype=bool)
    if low is not None:
        inside &= values >= low
    if high is not None:
        inside &= values <= high
    return inside
