"""Choose the framework below Keras and the folder of its settings before Keras is imported.

Importing this module imports Keras. A Keras that is already imported is used unchanged.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

FRAMEWORKS = ("tensorflow", "torch", "jax")
"""The frameworks Keras can run on, in order of preference."""

LEVEL = "TF_CPP_MIN_LOG_LEVEL"
TALKATIVE = os.environ.get(LEVEL, "2") in ("0", "1")
"""Whether the user asked for TensorFlow's messages; a level of warnings or errors alone counts as no."""


def choose_framework() -> str | None:
    """Return the first installed framework, or None if the user has chosen one.

    A user chooses by `KERAS_BACKEND`, or by a `keras.json` in the folder where Keras looks for it. Keras writes that
    file by itself too, so it only counts where the framework it names is installed.

    Raises:
        ImportError: Keras is there, but nothing for it to run on.
    """
    if os.environ.get("KERAS_BACKEND") or _is_installed(_configured_framework()):
        return None
    for name in FRAMEWORKS:
        if _is_installed(name):
            return name
    raise ImportError(f"Keras needs one of {', '.join(FRAMEWORKS)}", name=FRAMEWORKS[0])


@contextlib.contextmanager
def clean_home() -> Iterator[None]:
    """Let Keras write its settings, which it always does, into a temporary folder."""
    if "KERAS_HOME" in os.environ or _home_config().exists():
        yield
        return
    with tempfile.TemporaryDirectory(prefix="keras-") as folder:
        os.environ["KERAS_HOME"] = folder
        try:
            yield
        finally:
            del os.environ["KERAS_HOME"]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hide messages of TensorFlow's libraries while they load, which no setting turns off.

    They are printed if the block fails. Keras loads TensorFlow on other frameworks too, to look into files.
    """
    if TALKATIVE or "tensorflow" in sys.modules:
        yield
        return
    before = os.environ.get(LEVEL)
    os.environ[LEVEL] = before or "2"
    sys.stderr.flush()
    with tempfile.TemporaryFile() as held:
        kept = os.dup(2)
        os.dup2(held.fileno(), 2)
        try:
            yield
        except BaseException:
            held.seek(0)
            os.write(kept, held.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            if before is None:  # TensorFlow has read it; it is not for the processes that are started from here
                os.environ.pop(LEVEL, None)


def _is_installed(name: str) -> bool:
    return name in FRAMEWORKS and importlib.util.find_spec(name) is not None


def _configured_framework() -> str:
    try:
        config = json.loads(_home_config().read_text())
    except (OSError, ValueError):
        return ""
    return str(config.get("backend", "")) if isinstance(config, dict) else ""


def _home_config() -> Path:
    home = os.environ.get("KERAS_HOME") or str(Path("~").expanduser() / ".keras")
    return Path(home) / "keras.json"


if "keras" not in sys.modules:
    _framework = choose_framework()
    if _framework is not None:
        os.environ["KERAS_BACKEND"] = _framework
    with clean_home(), quiet():
        import keras  # noqa: F401
