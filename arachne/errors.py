"""Everything Arachne raises on purpose, and the exit code each error has on the command line.

    ArachneError                      70
    ├── UsageError (ValueError)        2   the call itself is wrong
    │   ├── UnknownLayerError (KeyError)
    │   └── WeightShapeError
    ├── InputError (ValueError)        3   a model, data or patch that is bad or unsafe
    │   ├── ModelError
    │   │   └── UnsafeModelError
    │   ├── DataError
    │   ├── PatchError
    │   └── CheckpointError
    ├── EnvironmentFaultError          4   disk, memory, a missing package
    │   ├── ClusterError
    │   ├── OutOfMemoryError (MemoryError)
    │   └── PluginUnavailableError (ImportError)
    │       └── BackendUnavailableError
    ├── NothingToRepairError           5   the model does not make this mistake
    ├── NothingWithinBudgetError       6   no patch keeps the budget
    └── GateFailedError                1   a gate failed

    Interrupted (BaseException)  130, 143   a signal has ended the run

A message is one sentence: what was expected, what came, what to do. It starts in lower case and has no full stop. It
names no command-line option: where an argument of the Python function would help, the error has its name as `argument`,
and the command line adds the option.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar


class ArachneError(Exception):
    """Root of all errors that Arachne raises on purpose.

    Args:
        *message: The sentence.
        argument: The name of the argument that the user should give, such as `classes`.
        below: The lines of a table below the sentence.
    """

    exit_code: ClassVar[int] = 70

    def __init__(self, *message: object, argument: str | None = None, below: Sequence[str] = ()) -> None:
        self.sentence = " ".join(map(str, message))
        super().__init__("\n".join([self.sentence, *below]))
        self.argument = argument
        self.below = tuple(below)


class UsageError(ArachneError, ValueError):
    """The call is wrong: an option, a name or a target that does not exist."""

    exit_code = 2


class UnknownLayerError(UsageError, KeyError):
    """The model has no such layer or parameter."""

    def __str__(self) -> str:
        """The sentence itself; `KeyError` would put it in quotes."""
        return str(self.args[0])


class WeightShapeError(UsageError):
    """Values of another shape than the parameter they are for."""


class InputError(ArachneError, ValueError):
    """Something the user handed over is bad or unsafe."""

    exit_code = 3


class ModelError(InputError):
    """A model that cannot be read or repaired."""


class UnsafeModelError(ModelError):
    """A model file that could run code or write outside its folder."""


class DataError(InputError):
    """Labelled inputs that cannot be used."""


class PatchError(InputError):
    """A patch that is malformed or does not fit the model."""


class CheckpointError(InputError):
    """A checkpoint that is damaged, or of another run."""


class EnvironmentFaultError(ArachneError):
    """The machine lacks something: disk, memory, a package."""

    exit_code = 4


class ClusterError(EnvironmentFaultError):
    """The machines that compute cannot be reached, or are gone."""


class OutOfMemoryError(EnvironmentFaultError, MemoryError):
    """There is not enough memory, even with the smallest batches."""


class PluginUnavailableError(EnvironmentFaultError, ImportError):
    """A plug-in that needs a package which is not installed."""


class BackendUnavailableError(PluginUnavailableError):
    """A backend whose framework is not installed."""


class NothingToRepairError(ArachneError):
    """The model makes no such mistake on this data."""

    exit_code = 5


class NothingWithinBudgetError(ArachneError):
    """No candidate keeps the budget; the message describes the best beyond it.

    Attributes:
        result: What was found all the same, as `RepairResult`: its patch changes nothing.
    """

    exit_code = 6

    def __init__(self, *message: object, result: Any = None) -> None:
        super().__init__(*message)
        self.result = result


class GateFailedError(ArachneError):
    """A condition the user set on the evidence does not hold."""

    exit_code = 1


class Interrupted(BaseException):
    """A signal ended a run; the text says what is kept. Like `KeyboardInterrupt`, it is no `Exception`.

    Attributes:
        exit_code: 128 and the number of the signal, as a shell has it.
    """

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.exit_code = 128 + number


LONGEST_NAME = 100
"""Characters of a name, at most, that is compared with others or shown as one of them; files may hold any."""

MAX_COMPARED = 2000
"""How many names are compared with an unknown one."""


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: a close match, or else the first choices."""
    known = [str(choice) for choice in choices]
    short = [one for one in known[:MAX_COMPARED] if len(one) <= LONGEST_NAME]
    close = difflib.get_close_matches(name, short, n=1, cutoff=0.6) if len(name) <= LONGEST_NAME else []
    if close:
        return f"; did you mean '{close[0]}'?"
    if not known:
        return ""
    shown = [one if len(one) <= LONGEST_NAME else f"{one[:LONGEST_NAME]}…" for one in known[:12]]
    return f"; available: {', '.join(shown)}" + (", …" if len(known) > 12 else "")


OUT_OF_MEMORY_WORDS = re.compile(
    r"allocat\w* memory|out of memory|bad[_ ]alloc|resource_?exhausted|unable to allocate|can't start new thread"
    r"|failed to map segment",
    re.I,
)
"""How NumPy, PyTorch, TensorFlow, JAX, onnxruntime, Python's threads and the linker report it, in no common class."""


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error, or one of its causes, was raised for lack of memory."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError) or OUT_OF_MEMORY_WORDS.search(f"{type(cause).__name__}: {cause}"):
            return True
        cause = cause.__cause__
    return False
