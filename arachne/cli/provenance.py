"""Where the value of an option came from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import click


class Origin(Enum):
    """The five origins of a value."""

    TYPED = "typed"
    NAMED = "named file"
    ENVIRONMENT = "environment"
    FOUND = "found file"
    DEFAULT = "default"


@dataclass(frozen=True)
class Source:
    """Where a value came from.

    Attributes:
        origin: Which of the five.
        origin_name: The file or the variable, where there is one.
        line: The line in the file, if known.
    """

    origin: Origin
    origin_name: str = ""
    line: int | None = None

    @property
    def is_found(self) -> bool:
        """Whether it was merely found, not named by the user."""
        return self.origin in (Origin.FOUND, Origin.ENVIRONMENT)

    @property
    def text(self) -> str:
        """`'arachne.toml', line 3`, or the variable, or `typed`."""
        if self.origin in (Origin.NAMED, Origin.FOUND):
            return f"'{self.origin_name}'" + ("" if self.line is None else f", line {self.line}")
        return self.origin_name or self.origin.value


TYPED, DEFAULT = Source(Origin.TYPED), Source(Origin.DEFAULT)


def option_text(parameter: click.Parameter) -> str:
    """`--data`, or `MODEL` of an argument."""
    if isinstance(parameter, click.Option):
        return max(parameter.opts, key=len)
    return (parameter.metavar or str(parameter.name)).strip("[].").upper()


def setting_names(parameter: click.Parameter) -> list[str]:
    """The names of a parameter in a file: an option's long names, an argument's own."""
    if isinstance(parameter, click.Argument):
        return [str(parameter.name).replace("_", "-")]
    return [name.removeprefix("--") for name in parameter.opts if name.startswith("--")]
