"""Names on their way out: `deprecated` warns whoever uses one, and says so in its docstring."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

Named = TypeVar("Named", bound=Callable[..., Any])


class ArachneDeprecationWarning(FutureWarning):
    """A name of Arachne's that will go; it is shown by default, since who has to act is who runs the code."""


def deprecated(*, since: str, removed_in: str, instead: str) -> Callable[[Named], Named]:
    """Mark a function, a method or a class as deprecated.

    Args:
        since: The version that first warns, such as `0.2`.
        removed_in: The version without it; two minor versions later at the earliest.
        instead: What to use, as a sentence can end with it: `'finish'`.

    Raises:
        ValueError: It would go too soon.
    """
    if _minor(removed_in) < _minor(since) + 2:
        raise ValueError(f"a name stays for two minor versions: since {since}, so removed in {removed_in} is too soon")

    def decorate(named: Named) -> Named:
        told = f"'{named.__qualname__}' is deprecated since {since} and will be removed in {removed_in}; use {instead}"

        if inspect.isclass(named):
            created = named.__init__

            @functools.wraps(created)
            def replaced(self: Any, *given: Any, **named_given: Any) -> None:
                warnings.warn(told, ArachneDeprecationWarning, stacklevel=2)
                created(self, *given, **named_given)

            setattr(named, "__init__", replaced)  # noqa: B010  # mypy refuses a method that is replaced
            named.__doc__ = _noted(named.__doc__, told)
            return named

        @functools.wraps(named)
        def warning(*given: Any, **named_given: Any) -> Any:
            warnings.warn(told, ArachneDeprecationWarning, stacklevel=2)
            return named(*given, **named_given)

        warning.__doc__ = _noted(named.__doc__, told)
        return warning  # type: ignore[return-value]  # it takes and gives what `named` does

    return decorate


def _minor(version: str) -> int:
    major, minor = (int(part) for part in version.split(".")[:2])
    return 1000 * major + minor


def _noted(docstring: str | None, told: str) -> str:
    """The docstring with the note after its first paragraph."""
    first, _, rest = inspect.cleandoc(docstring or "").partition("\n\n")
    return "\n\n".join(part for part in (first, f"Deprecated: {told}.", rest) if part)
