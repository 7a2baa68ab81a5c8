"""Options of a plug-in, declared once as the fields of a frozen dataclass.

    @dataclass(frozen=True, kw_only=True)
    class Hill(Searcher):
        name = "hill"
        steps: int = option(50, "How often to try.", least=1)

What Python checks, `-O steps=9` on the command line, `arachne.toml`, provenance, `arachne plugins hill` and the
reference come from that line.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

from arachne.errors import UsageError, did_you_mean
from arachne.text import Brief

OPTION_TYPES = ("int", "float", "str", "bool", "tuple[str, ...]", "tuple[float, float]")
"""Types that an option may be annotated with, each also with `| None`; `Sequence[str]` is kept as `tuple[str, ...]`."""

WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "True or False",
    "tuple[str, ...]": "names",
    "tuple[float, float]": "two numbers",
}
"""Words for these types in messages."""

TRUTHS = {"true": True, "yes": True, "false": False, "no": False}
"""How a text says yes or no."""

_UNSET: Any = object()


@dataclass(frozen=True)
class Option:
    """One option, as it was declared.

    Attributes:
        name: The field's name.
        kind: One of `OPTION_TYPES`.
        optional: Whether None is a value too.
        default: Its value unless another is given.
        help: What it does, one sentence.
        least: The smallest value.
        most: The largest value.
        choices: The only values, if there are few.
        metavar: What stands for a value in help texts.
        paper: Its value when a repair is to follow the paper to the letter.
    """

    name: str
    kind: str
    optional: bool
    default: Any
    help: str
    least: float | None
    most: float | None
    choices: tuple[str, ...] | None
    metavar: str | None
    paper: Any

    @property
    def values(self) -> tuple[str, ...]:
        """The texts it may be given as, where there are few of them."""
        return ("true", "false") if self.kind == "bool" else self.choices or ()

    def read(self, text: str) -> Any:
        """The value that a text such as `64`, `true`, `0.5,1` or `bias,last` stands for.

        Raises:
            UsageError: It stands for none that this option can have.
        """
        if self.optional and text.lower() == "none":
            return None
        try:
            value = self._parse(text)
        except ValueError:
            raise UsageError(f"{self.name} must be {self.accepts}, got '{text}'") from None
        return self.validate(value)

    @property
    def accepts(self) -> str:
        """The values it takes, in words: `a whole number`, `auto, gaussian or near`."""
        if self.choices is not None:
            return f"{', '.join(self.choices[:-1])} or {self.choices[-1]}"
        return {"bool": "true or false", "tuple[str, ...]": "names with commas"}.get(self.kind, WORDS[self.kind])

    def _parse(self, text: str) -> Any:
        if self.kind == "bool":
            if text.lower() not in TRUTHS:
                raise ValueError(text)
            return TRUTHS[text.lower()]
        if self.kind == "tuple[str, ...]":
            return tuple(part.strip() for part in text.split(",") if part.strip())
        if self.kind == "tuple[float, float]":
            return tuple(float(part) for part in text.split(","))
        return {"int": int, "float": float}.get(self.kind, str)(text)

    def validate(self, value: Any) -> Any:
        """The value, a list as a tuple.

        Raises:
            UsageError: It is not one this option can have; it says which ones are.
        """
        if value is None and self.optional:
            return None
        if self.kind.startswith("tuple") and isinstance(value, (list, tuple)):
            value = tuple(value)
        if not self._fits(value):
            raise UsageError(f"{self.name} must be {WORDS[self.kind]}, got {value!r}")
        if self.choices is not None:
            check_choice(self.name, value, self.choices)
        for number in value if isinstance(value, tuple) else (value,):
            self._check_range(number)
        return value

    def _fits(self, value: Any) -> bool:
        if self.kind == "tuple[str, ...]":
            return isinstance(value, tuple) and all(isinstance(one, str) for one in value)
        if self.kind == "tuple[float, float]":
            return isinstance(value, tuple) and len(value) == 2 and all(map(_is_number, value))
        if self.kind == "float":
            return _is_number(value)
        return type(value).__name__ == self.kind

    def _check_range(self, value: Any) -> None:
        if self.least is not None and value < self.least:
            raise UsageError(f"{self.name} must be {self.least:g} or more, got {value}")
        if self.most is not None and value > self.most:
            raise UsageError(f"{self.name} must be {self.most:g} or less, got {value}")


def option(
    default: Any,
    help: str,
    *,
    least: float | None = None,
    most: float | None = None,
    choices: Sequence[str] | None = None,
    metavar: str | None = None,
    paper: Any = _UNSET,
) -> Any:
    """Declare an option as a field of a localiser or a searcher; see `Option` for the arguments."""
    declared: dict[str, Any] = {"help": help, "least": least, "most": most, "metavar": metavar}
    declared |= {"choices": None if choices is None else tuple(choices), "paper": paper}
    return field(default=default, metadata={"option": declared})


def options_of(plugin: type[Any]) -> tuple[Option, ...]:
    """The options a localiser or a searcher declares, those of its base classes first."""
    found = []
    for one in fields(plugin):
        declared = one.metadata.get("option")
        if declared is not None:
            text = inspect.formatannotation(one.type) if not isinstance(one.type, str) else one.type
            kind = text.removesuffix(" | None").replace("Sequence[str]", "tuple[str, ...]")
            if kind not in OPTION_TYPES:
                raise TypeError(
                    f"{plugin.__name__}.{one.name} is a '{text}', expected one of {', '.join(OPTION_TYPES)}"
                )
            paper = one.default if declared["paper"] is _UNSET else declared["paper"]
            found.append(Option(one.name, kind, text.endswith(" | None"), one.default, **{**declared, "paper": paper}))
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class Configured(Brief):
    """Base of localisers and searchers: options that are checked when one is made, and can be written down."""

    name: ClassVar[str]

    def __post_init__(self) -> None:
        for one in options_of(type(self)):
            object.__setattr__(self, one.name, one.validate(getattr(self, one.name)))

    @classmethod
    def faithful(cls, **options: Any) -> Self:
        """As in the paper, to the letter; keywords change it."""
        return cls(**{one.name: one.paper for one in options_of(cls)} | options)

    def to_json(self) -> dict[str, Any]:
        """The options and their values."""
        return {one.name: getattr(self, one.name) for one in options_of(type(self))}


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Refuse a value that is none of the choices, with the choices and the nearest of them.

    Raises:
        UsageError: It is none.
    """
    if value not in choices:
        near = did_you_mean(value, choices)
        near = near if near.endswith("?") else ""
        raise UsageError(f"{name} must be {', '.join(choices[:-1])} or {choices[-1]}, got '{value}'{near}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
