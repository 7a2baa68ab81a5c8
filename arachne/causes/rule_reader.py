"""Read rules from a patch or from the file of a scan, and check every value against the types of the rule's fields.

Rules of plug-ins are checked in the same way. Sizes are limited to what a finder can produce.
"""

from __future__ import annotations

import contextlib
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

import numpy as np

from arachne.causes.features import PICTURES, TEXTS
from arachne.causes.rule import Rule
from arachne.causes.rules import RULES, Activation, Both, Colour, Columns, Derived, Missing, OfClass, Range, Values
from arachne.errors import InputError, PluginUnavailableError, did_you_mean
from arachne.plugins.table import FINDERS

MAX_DEPTH = 4
"""The most levels of rules within rules; finders make at most two."""

MAX_RULES = 16
"""The most rules in one rule, all levels together."""

MAX_ITEMS = 1 << 20
"""The most numbers in one list of a rule: the values of an input, or the width of a layer."""

MAX_CONDITIONS = 64
"""The most features or columns in one rule."""

MAX_TEXT = 1000
"""The most characters of a name or value in a rule."""

MAX_SIDE = 1 << 20
"""The largest side of a picture."""

MAX_CLASSES = 1 << 31
"""More classes than any model has."""

MAX_SHOWN = 40
"""The most characters of a wrong value that a message repeats."""


def rule_from(written: Any) -> Rule:
    """Make a rule from the object that its `to_json` returned.

    Raises:
        InputError: The object is no rule, or has values or sizes that no rule can have.
    """
    try:
        rule = _rule(written, MAX_DEPTH)
        if _count_rules(rule) > MAX_RULES:
            raise ValueError(f"expected a rule of at most {MAX_RULES} rules")
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"a cause's rule cannot be used: {error}") from error
    return rule


def _rule(written: Any, levels: int) -> Rule:
    if not isinstance(written, Mapping):
        raise ValueError(f"expected a rule as an object, got {_quote(written)}")
    if not levels:
        raise ValueError(f"its rules are nested deeper than {MAX_DEPTH} levels")
    kind = written.get("kind")
    known = (RULES.get(kind) or _plugin_rule(kind)) if isinstance(kind, str) else None
    if known is None:
        choices = did_you_mean(kind, RULES) if isinstance(kind, str) and len(kind) <= MAX_SHOWN else ""
        raise ValueError(f"no rule of kind {_quote(kind)}{choices}")
    given = {name: value for name, value in written.items() if name != "kind"}
    _check_names(known, given)
    if known is Both:
        inner = given["rules"]
        if not isinstance(inner, (list, tuple)) or not 1 <= len(inner) <= MAX_RULES:
            raise ValueError(f"expected a list of 1 to {MAX_RULES} rules, got {_quote(inner)}")
        return Both(tuple(_rule(one, levels - 1) for one in inner))
    types_of = _field_types(known)
    rule = known(**{name: _check_type(value, types_of.get(name, object), f"'{name}'") for name, value in given.items()})
    wrong = CHECKS.get(known, lambda _: None)(rule)
    if wrong is not None:
        raise ValueError(f"the rule of kind '{kind}' does not fit itself: {wrong}")
    return rule


def _check_names(kind: type[Rule], given: Mapping[str, Any]) -> None:
    """Refuse unknown names, and a rule without a name that it needs."""
    known = {one.name: one.default is MISSING and one.default_factory is MISSING for one in fields(kind) if one.init}
    missing = [name for name, needed in known.items() if needed and name not in given]
    unknown = [name for name in given if name not in known]
    if missing:
        raise ValueError(f"the rule of kind '{kind.kind}' is not complete, it has no '{missing[0]}'")
    if unknown:
        raise ValueError(f"the rule of kind '{kind.kind}' has an unknown {_quote(unknown[0])}")


def _field_types(kind: type[Rule]) -> dict[str, Any]:
    """Return the types of a rule's fields; none for a plug-in whose annotations cannot be resolved."""
    try:
        return typing.get_type_hints(kind)
    except (NameError, TypeError, AttributeError):
        return {}


def _check_type(value: Any, wanted: Any, where: str) -> Any:
    """Return the value if it is of the wanted type, lists as tuples."""
    origin = typing.get_origin(wanted)
    if origin in (types.UnionType, typing.Union):
        choices = typing.get_args(wanted)
        if value is None and type(None) in choices:
            return None
        return _check_type(value, next(one for one in choices if one is not type(None)), where)
    if origin is tuple or wanted is tuple:
        if not isinstance(value, (list, tuple)) or len(value) > MAX_ITEMS:
            raise ValueError(f"{where} is {_quote(value)}, expected a list of at most {MAX_ITEMS:,} values")
        item = (typing.get_args(wanted) or (object,))[0]
        return tuple(_check_type(one, item, where) for one in value)
    if isinstance(value, bool) and wanted in (int, float):
        raise ValueError(f"{where} is {_quote(value)}, expected a number")
    if wanted is float and isinstance(value, (int, float)) and math.isfinite(value):
        return value
    if wanted in (int, bool) and type(value) is wanted:
        return value
    if wanted is str and isinstance(value, str) and len(value) <= MAX_TEXT:
        return value
    if wanted in (float, int, bool, str):
        raise ValueError(f"{where} is {_quote(value)}, expected {TYPE_NAMES[wanted]}")
    return tuple(value) if isinstance(value, list) else value  # a plug-in's own type, which it checks itself


TYPE_NAMES = {float: "a finite number", int: "a whole number", bool: "true or false", str: "a short text"}


def _values_problem(rule: Values) -> str | None:
    if len(rule.index) != len(rule.value) or not rule.index:
        return f"it has {len(rule.index)} positions and {len(rule.value)} values"
    if min(rule.index) < 0 or len(set(rule.index)) != len(rule.index):
        return "a position is negative or stands twice"
    return None if 1 <= rule.least <= len(rule.index) else f"it wants {rule.least} of {len(rule.index)} values"


def _index_problem(rule: Range | Missing) -> str | None:
    return None if rule.index >= 0 else "its position is negative"


def _class_problem(rule: OfClass) -> str | None:
    return None if 0 <= rule.label < MAX_CLASSES else f"there is no class {rule.label}"


def _layout_problem(layout: Sequence[int] | None) -> str | None:
    if layout is None:
        return None
    fits = len(layout) in (2, 3) and all(1 <= side <= MAX_SIDE for side in layout)
    return None if fits else f"{_quote(list(layout))} is no shape of a picture"


def _colour_problem(rule: Colour) -> str | None:
    if not 1 <= len(rule.colour) <= MAX_CONDITIONS:
        return f"a colour has 1 to {MAX_CONDITIONS} channels, not {len(rule.colour)}"
    return _layout_problem(rule.layout) or (None if rule.least >= 0 else "its number of pixels is negative")


def _derived_problem(rule: Derived) -> str | None:
    if not 1 <= len(rule.names) == len(rule.low) == len(rule.high) <= MAX_CONDITIONS:
        return "it does not have one range for each feature"
    for name in rule.names:
        column = name.removeprefix("column ")
        number = name.startswith("column ") and column.isascii() and column.isdecimal() and len(column) <= 9
        if not number and name not in PICTURES and name not in TEXTS:
            return f"there is no feature {_quote(name)}"
    return _layout_problem(rule.layout)


def _columns_problem(rule: Columns) -> str | None:
    fits = 1 <= len(rule.columns) == len(rule.values) <= MAX_CONDITIONS
    return None if fits else "it does not have one value for each column"


def _activation_problem(rule: Activation) -> str | None:
    most = float(np.finfo(np.float32).max)
    fits = rule.direction and rule.read_as >= 0 and all(abs(one) <= most for one in rule.direction)
    return None if fits else "its direction is empty or beyond float32, or its class is negative"


CHECKS: Mapping[type[Rule], Callable[[Any], str | None]] = {
    Values: _values_problem,
    Range: _index_problem,
    Missing: _index_problem,
    OfClass: _class_problem,
    Colour: _colour_problem,
    Derived: _derived_problem,
    Columns: _columns_problem,
    Activation: _activation_problem,
}
"""Further checks of a rule's values, by kind; each returns the problem, or None."""


def _plugin_rule(kind: str) -> type[Rule] | None:
    """Return the rule of a plug-in, which is known once the finder it came from is imported."""
    for name in FINDERS.third_party():
        with contextlib.suppress(PluginUnavailableError):
            FINDERS.get(name)
    return next((rule for rule in Rule.__subclasses__() if getattr(rule, "kind", None) == kind), None)


def _count_rules(rule: Rule) -> int:
    return 1 + sum(map(_count_rules, rule.rules)) if isinstance(rule, Both) else 1


def _quote(value: Any) -> str:
    if isinstance(value, (list, tuple, dict)) and len(value) > MAX_SHOWN:
        return f"{len(value):,} values"
    text = repr(value) if not isinstance(value, str) else f"'{value[: MAX_SHOWN + 1]}'"
    return text if len(text) <= MAX_SHOWN + 2 else text[: MAX_SHOWN - 1] + "…"
