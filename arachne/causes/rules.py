"""Rules that say whether an input has a cause: kinds and numbers, no code, so that they can be written down.

| kind | an input belongs if |
|---|---|
| `values` | at least `least` of its values at `index` equal `value` |
| `range` | its value at `index` is in a range |
| `missing` | its value at `index` is no number |
| `token` | a token is anywhere in it |
| `colour` | at least `least` pixels are of exactly one colour, and so are their neighbours |
| `derived` | features of the whole input (brightness, length, a column) are in ranges |
| `columns` | metadata columns have these values |
| `both` | it belongs by two rules |
| `activation` | it is read as a class, and what enters a layer lies beyond a plane |
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from arachne.causes.cases import Cases
from arachne.causes.features import feature
from arachne.causes.rule import Rule
from arachne.data.layout import as_pictures
from arachne.data.mapped import gather
from arachne.errors import DataError, InputError, PluginUnavailableError, did_you_mean
from arachne.plugins import FINDERS
from arachne.values import Array


@dataclass(frozen=True)
class Values(Rule):
    """At least `least` of the values at `index` (in the flattened input) equal `value`."""

    kind = "values"
    input: str
    index: tuple[int, ...]
    value: tuple[float, ...]
    least: int

    def holds(self, cases: Cases) -> Array:
        """Which cases belong, bool `(n,)`."""
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
        """Which cases belong, bool `(n,)`."""
        return within(cases.inputs(self.input, np.asarray([self.index]))[:, 0], self.low, self.high)

    @property
    def conditions(self) -> int:
        """One."""
        return 1


@dataclass(frozen=True)
class Missing(Rule):
    """The value at `index` (in the flattened input) is no number."""

    kind = "missing"
    input: str
    index: int

    def holds(self, cases: Cases) -> Array:
        """Which cases belong, bool `(n,)`."""
        return np.isnan(cases.inputs(self.input, np.asarray([self.index]))[:, 0])

    @property
    def conditions(self) -> int:
        """One."""
        return 1


@dataclass(frozen=True)
class Token(Rule):
    """A token is anywhere in the input."""

    kind = "token"
    input: str
    token: int

    def holds(self, cases: Cases) -> Array:
        """Which cases belong, bool `(n,)`."""
        return np.asarray((cases.inputs(self.input) == self.token).any(axis=1))

    @property
    def conditions(self) -> int:
        """One."""
        return 1


@dataclass(frozen=True)
class Colour(Rule):
    """At least `least` pixels are of exactly one colour, and so are their right and lower neighbours."""

    kind = "colour"
    input: str
    layout: tuple[int, ...]
    colour: tuple[float, ...]
    least: int

    def holds(self, cases: Cases) -> Array:
        """Which cases belong, bool `(n,)`."""
        pictures = as_pictures(np.asarray(gather(cases.arrays[self.input], cases.rows)), self.layout)
        colour = np.asarray(self.colour, dtype=pictures.dtype)
        same = (pictures == colour).all(axis=-1)
        filled = same[:, :-1, :-1] & same[:, :-1, 1:] & same[:, 1:, :-1]
        return np.asarray(filled.sum(axis=(1, 2)) >= self.least)

    @property
    def conditions(self) -> int:
        """One."""
        return 1


@dataclass(frozen=True)
class Both(Rule):
    """The input belongs by two rules."""

    kind = "both"
    rules: tuple[Rule, ...]

    def holds(self, cases: Cases) -> Array:
        """Which cases belong, bool `(n,)`."""
        return np.asarray(np.logical_and.reduce([rule.holds(cases) for rule in self.rules]))

    @property
    def conditions(self) -> int:
        """The sum of both."""
        return sum(rule.conditions for rule in self.rules)

    @property
    def asks_model(self) -> bool:
        """Whether one of them does."""
        return any(rule.asks_model for rule in self.rules)

    def to_json(self) -> dict[str, Any]:
        """Kind, and the two rules."""
        return {"kind": self.kind, "rules": [rule.to_json() for rule in self.rules]}


@dataclass(frozen=True)
class Derived(Rule):
    """Features of the whole input are in ranges.

    Attributes:
        input: The input array's name.
        layout: How it becomes pictures; None where it does not.
        names: The features, as `names_of` lists them.
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
        """Which cases belong, bool `(n,)`."""
        belongs = np.ones(len(cases), dtype=bool)
        for name, low, high in zip(self.names, self.low, self.high, strict=True):
            belongs &= within(feature(cases, name, self.input, self.layout, self.unknown), low, high)
        return belongs

    @property
    def conditions(self) -> int:
        """How many ranges."""
        return len(self.names)


@dataclass(frozen=True)
class Columns(Rule):
    """Metadata columns have these values."""

    kind = "columns"
    columns: tuple[str, ...]
    values: tuple[str, ...]

    def holds(self, cases: Cases) -> Array:
        """Which cases belong, bool `(n,)`.

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

    @property
    def least_odds(self) -> float:
        """Less than for other rules: of metadata there is little to look at."""
        return 5.0

    @property
    def within_class(self) -> bool:
        """Always: a group may be of one class."""
        return True


@dataclass(frozen=True)
class Activation(Rule):
    """Read as a class, and what enters a layer, times `direction`, is at least `least`."""

    kind = "activation"
    layer: str
    read_as: int
    direction: tuple[float, ...]
    least: float

    def holds(self, cases: Cases) -> Array:
        """Which cases belong, bool `(n,)`."""
        belongs: Array = cases.predictions == self.read_as
        chosen = np.flatnonzero(belongs)
        if len(chosen):
            along = cases.take(chosen).hidden(self.layer) @ np.asarray(self.direction, dtype=np.float32)
            belongs[chosen] = along >= self.least
        return belongs

    @property
    def conditions(self) -> int:
        """More than any rule about inputs: it is told when nothing else explains an error."""
        return 4

    @property
    def asks_model(self) -> bool:
        """Always."""
        return True

    def compared(self, cases: Cases) -> Array | None:
        """Those read as the same class."""
        return np.asarray(cases.predictions == self.read_as)

    @property
    def within_class(self) -> bool:
        """Always: no appearance is shared, only what the model makes of it."""
        return True


RULES: Mapping[str, type[Rule]] = {
    rule.kind: rule for rule in (Values, Range, Missing, Token, Colour, Both, Derived, Columns, Activation)
}


def rule_from(written: Mapping[str, Any]) -> Rule:
    """The rule that `to_json` wrote down.

    Raises:
        InputError: It is none.
    """
    if not isinstance(written, Mapping):
        raise InputError(f"expected a rule as an object, got '{written}'")
    kind = RULES.get(str(written.get("kind"))) or _of_a_plugin(str(written.get("kind")))
    if kind is Both:
        inner = written.get("rules", ())
        return Both(tuple(rule_from(one) for one in (inner if isinstance(inner, (list, tuple)) else [inner])))
    if kind is None:
        raise InputError(f"no rule of kind '{written.get('kind')}'" + did_you_mean(str(written.get("kind")), RULES))
    try:
        return kind(**{name: _tuples(value) for name, value in written.items() if name != "kind"})
    except TypeError as error:
        raise InputError(f"the rule of kind '{kind.kind}' is not complete: {error}") from error


def _of_a_plugin(kind: str) -> type[Rule] | None:
    """A rule by somebody else: it is known once the finder it came from is imported."""
    for name in FINDERS.third_party():
        with contextlib.suppress(PluginUnavailableError):
            FINDERS.get(name)
    return next((rule for rule in Rule.__subclasses__() if getattr(rule, "kind", None) == kind), None)


def within(values: Array, low: float | None, high: float | None) -> Array:
    """Which values lie between two bounds, bool; what is no number never does."""
    inside = ~np.isnan(values) if values.dtype.kind == "f" else np.ones(len(values), dtype=bool)
    if low is not None:
        inside &= values >= low
    if high is not None:
        inside &= values <= high
    return inside


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
