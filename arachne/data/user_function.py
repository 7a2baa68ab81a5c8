"""A function the user names as `package.module:function`; naming it is the permission to run it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from arachne.errors import UsageError, did_you_mean


def load_function(text: str, folder: Path) -> Callable[..., Any]:
    """The function a text names.

    Args:
        text: `package.module:function`.
        folder: Where the module may lie besides the installed packages: the current directory.

    Raises:
        UsageError: No such module or function, or a module that fails when imported.
    """
    module_name, _, name = text.partition(":")
    if not (name.isidentifier() and all(part.isidentifier() for part in module_name.split("."))):
        raise UsageError(f"expected a function as 'package.module:function', got '{text}'")
    sys.path.insert(0, str(folder))
    try:
        importlib.invalidate_caches()
        module = importlib.import_module(module_name)
    except Exception as error:  # a user's module may raise anything
        if isinstance(error, ModuleNotFoundError) and module_name.split(".")[0] == (error.name or "").split(".")[0]:
            raise UsageError(f"no module '{module_name}' in '{folder}' or among the installed packages") from error
        raise UsageError(f"module '{module_name}' cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(folder))
    function = getattr(module, name, None)
    if not callable(function):
        choices = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise UsageError(f"module '{module_name}' has no function '{name}'" + did_you_mean(name, choices))
    found: Callable[..., Any] = function
    return found
