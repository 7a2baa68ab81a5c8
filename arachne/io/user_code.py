"""Code the user names as `package.module:name`; naming it is the permission to run it.

Errors inside it are reported as the user's own: a failure is bad input, a missing package the machine's fault.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from arachne.errors import ArachneError, EnvironmentFaultError, ModelError, UsageError, did_you_mean

T = TypeVar("T")


def load_function(text: str) -> Callable[..., Any]:
    """The function a text names.

    Args:
        text: `package.module:function`; the module may lie in the current directory.

    Raises:
        UsageError: No such module or function, or a module that fails when it is imported.
        EnvironmentFaultError: The module needs a package that is not installed.
    """
    with current_directory_importable():
        function = _import_named(text, "function", UsageError)
    if not callable(function):
        raise UsageError(f"'{text}' is a '{type(function).__name__}', expected a function")
    found: Callable[..., Any] = function
    return found


def call_factory(text: str, kind: type[T], noun: str) -> T:
    """The model that `module:name` names, or that the factory of this name makes.

    Args:
        text: `package.module:factory`; the module may lie in the current directory.
        kind: The class of the models that are wanted.
        noun: What to call it in a message: `an nn.Module`.

    Raises:
        UsageError: The text is of another form.
        ModelError: No such module or factory, one that fails, or one that makes something else.
        EnvironmentFaultError: It needs a package that is not installed.
    """
    with current_directory_importable():
        made = _import_named(text, "factory", ModelError)
        if not isinstance(made, kind):
            with user_code(f"the factory '{text}'", ModelError):
                made = made()
    if not isinstance(made, kind):
        raise ModelError(f"'{text}' gives a '{type(made).__name__}', expected {noun}")
    return made


@contextmanager
def user_code(what: str, fault: type[ArachneError]) -> Iterator[None]:
    """Turn any error of the user's code in the block into one sentence with the last line of its message.

    Args:
        what: The code, as the sentence should call it.
        fault: What to raise when the code fails.

    Raises:
        EnvironmentFaultError: It needs a package that is not installed.
    """
    try:
        yield
    except (ArachneError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__
        # A library that misses an optional package raises a plain ImportError, which names no module.
        missing = isinstance(error, ModuleNotFoundError) or (isinstance(error, ImportError) and error.name is None)
        if missing:
            raise EnvironmentFaultError(f"{what} needs a package that is not installed here ({reason})") from error
        raise fault(f"{what} failed ({reason}); this is in your code, not in Arachne") from error


def _import_named(text: str, noun: str, fault: type[ArachneError]) -> Any:
    module_name, _, name = text.partition(":")
    if not (name.isidentifier() and all(part.isidentifier() for part in module_name.split("."))):
        raise UsageError(f"expected a {noun} as 'package.module:{noun}', got '{text}'")
    importlib.invalidate_caches()
    with user_code(f"module '{module_name}'", fault):
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
                raise
            raise fault(f"no module '{module_name}' in '{Path.cwd()}' or among the installed packages") from error
    if not hasattr(module, name):
        choices = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise fault(f"module '{module_name}' has no {noun} '{name}'" + did_you_mean(name, choices))
    return getattr(module, name)


@contextmanager
def current_directory_importable() -> Iterator[None]:
    """Let modules of the current directory be imported inside the block."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        if here in sys.path:
            sys.path.remove(here)
