"""Options that let code run, or files be replaced: they come from the user alone.

The user is who types the command, or names a file with `--config`. A file that lies in the working folder may have come
with it from a stranger, and so may not set them; nor may the environment.
"""

from __future__ import annotations

from typing import Any

import click


class UserOnly(click.Option):
    """An option that nothing but the command line or a file named there may set."""

    def reserved(self, value: Any) -> bool:
        """Whether this value is the user's alone to give."""
        return value is not False


class CodeOrText(UserOnly):
    """An option whose value may name code, as `module:function`; any other value may come from anywhere."""

    def reserved(self, value: Any) -> bool:
        return ":" in str(value)


def reserved(parameter: click.Parameter, value: Any) -> bool:
    """Whether a value of an option may only come from the user."""
    return isinstance(parameter, UserOnly) and value is not None and parameter.reserved(value)
