"""What a worker does: open the model itself, read its piece, and answer a question about it.

A worker keeps what is costly to make: opened models, pieces, and what was made of both (a cut, facts about candidates).
All of it can be lost with the worker; another one makes it again from the question alone.
"""

from __future__ import annotations

import hashlib
import signal
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from arachne.backend import ModelBackend
from arachne.cluster.models import Change, Model, check_versions, digest_of, versions_here
from arachne.cuts import weights_of
from arachne.elsewhere import Answer
from arachne.errors import ArachneError
from arachne.files import sha256_of
from arachne.registry import load
from arachne.values import Inputs, Weights

T = TypeVar("T")

MODELS_KEPT, MADE_KEPT, PIECES_KEPT = 2, 64, 64
"""How many models, things made of pieces, and pieces that were read from files a worker keeps."""


class ModelNotSeenError(ArachneError):
    """The worker sees no file with the model's sha256, and was sent no bytes."""


@dataclass(frozen=True, eq=False)
class Piece:
    """Some inputs, the same whoever asks.

    Attributes:
        key: A name for its content.
        rows: Which of all inputs they are.
        described: Where a worker reads them, as `LazyArray.describe` has it; None where they are sent.
    """

    key: str
    rows: slice
    described: Mapping[str, Any] | None = None


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked about one piece.

    Attributes:
        model: The model.
        changes: What differs from its file.
        halved: How often batches were halved for lack of memory.
        work: What to call, a function of a module: `work(backend, inputs, rows, *arguments)`, or `work(made,
            *arguments)` where something is made of the piece first.
        arguments: Plain values and arrays.
        make: Makes it, as `Making` says; kept for the next question.
        made_key: A name for what is made.
    """

    model: Model
    changes: tuple[Change, ...]
    halved: int
    work: Callable[..., Any]
    arguments: tuple[Any, ...]
    make: Callable[..., Any] | None = None
    made_key: str = ""


class _Kept(OrderedDict[str, Any]):
    """The latest few things."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def get_or_make(self, key: str, make: Callable[[], Any]) -> Any:
        if key not in self:
            self[key] = make()
        self.move_to_end(key)
        while len(self) > self._most:
            self.popitem(last=False)
        return self[key]


class _Opened:
    """A model, and what was done to it since."""

    def __init__(self, backend: ModelBackend) -> None:
        self.backend = backend
        self.base: Weights = weights_of(backend)
        self.changes: tuple[Change, ...] = ()
        self.digest = digest_of(())
        self.halved = 0

    def with_changes(self, changes: tuple[Change, ...], halved: int) -> str:
        """Give the model these weights; the name of the changes."""
        digest = digest_of(changes)
        if digest != self.digest:
            touched = {(one.layer, one.parameter): self.base[one.layer, one.parameter] for one in self.changes}
            touched |= {(one.layer, one.parameter): one.applied(self.base[one.layer, one.parameter]) for one in changes}
            for (layer, parameter), values in touched.items():
                self.backend.set_weights(layer, parameter, values)
            self.changes, self.digest = changes, digest
        for _ in range(halved - self.halved):
            self.backend.halve_batches()
        self.halved = max(halved, self.halved)
        return digest


_models, _made, _pieces = _Kept(MODELS_KEPT), _Kept(MADE_KEPT), _Kept(PIECES_KEPT)
_folder: tempfile.TemporaryDirectory[str] | None = None
_one_at_a_time = threading.RLock()


def dask_setup(worker: object) -> None:
    """Called by dask as a local worker starts: Ctrl-C in the terminal is for the process that asks, which ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def deliver(value: T) -> T:
    """The value itself: a task, so that it is made again when a worker is lost with it."""
    return value


@dataclass(frozen=True, eq=False)
class Opening:
    """What opens the model beside its description; sent once to each worker.

    Attributes:
        look: The first inputs that were looked at: what only inputs can tell is learnt from the same ones everywhere.
        files: The model's files by name, where workers see none.
    """

    look: Inputs | None = None
    files: Mapping[str, bytes] | None = None


def answers(
    asked: bytes,
    contents: Sequence[Inputs | None],
    opening: Opening,
    made_of: Sequence[tuple[Any, ...]],
) -> bytes:
    """Answer questions about several pieces, one after the other.

    Args:
        asked: Pairs of `Question` and `Piece` as the asking process pickled them, so that it knows how many bytes
            travel; the answers come back in the same way.
        contents: The inputs of each piece.
        opening: What opens the model.
        made_of: For each piece the arguments of what is made of it.
    """
    from distributed.protocol.pickle import dumps, loads

    questions: list[tuple[Question, Piece]] = loads(asked)
    found = [
        answer(question, piece, inputs, opening, own)
        for (question, piece), inputs, own in zip(questions, contents, made_of, strict=True)
    ]
    return bytes(dumps(found))


def answer(
    question: Question, piece: Piece, inputs: Inputs | None, opening: Opening, made_of: tuple[Any, ...] = ()
) -> Answer:
    """Answer a question about a piece.

    Args:
        question: What is asked.
        piece: Which inputs.
        inputs: The inputs, unless the piece says where they are.
        opening: What opens the model.
        made_of: The arguments of what is made of the piece.
    """
    with _one_at_a_time:
        began = time.perf_counter(), time.process_time()
        opened: _Opened = _models.get_or_make(question.model.key, lambda: _Opened(opened_here(question.model, opening)))
        digest = opened.with_changes(question.changes, question.halved)
        given = _read(piece) if inputs is None else inputs
        if question.make is None:
            value = question.work(opened.backend, given, piece.rows, *question.arguments)
            return Answer(value, *_since(began), _name())
        make = question.make
        key = hashlib.blake2b(
            "\0".join((question.model.key, digest, piece.key, question.made_key)).encode()
        ).hexdigest()
        held = _made.get_or_make(key, lambda: _Held(make(opened.backend, given, piece.rows, *made_of)))
        value = question.work(held.value, *question.arguments)
        return Answer(value, *_since(began), _name(), held.name)


def _since(began: tuple[float, float]) -> tuple[float, float]:
    return time.perf_counter() - began[0], time.process_time() - began[1]


class _Held:
    """Something made of a piece; its name tells it from the same made again."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.name = f"{time.time_ns()}-{id(self)}"


def _read(piece: Piece) -> Inputs:
    from arachne.data.described import open_described

    described = piece.described or {}
    found: Inputs = _pieces.get_or_make(piece.key, lambda: _in_memory(open_described(described)))
    return found


def _in_memory(inputs: Any) -> Inputs:
    if isinstance(inputs, Mapping):
        return {name: array[:] for name, array in inputs.items()}
    whole: Inputs = inputs[:]
    return whole


def opened_here(model: Model, opening: Opening) -> ModelBackend:
    """The model, opened from a file that this machine sees, or from its bytes.

    Raises:
        EnvironmentFaultError: This machine has other versions of what computes.
        ModelNotSeenError: No such file is seen here, and no bytes came.
    """
    options = dict(model.load)
    check_versions(model.versions, versions_here(str(options["backend"])), _name())
    paths = [Path(file.path) for file in model.files]
    files = opening.files
    if files is None:
        for file, path in zip(model.files, paths, strict=True):
            if not path.is_file() or sha256_of(path) != file.sha256:
                raise ModelNotSeenError(f"no file '{file.path}' with the model's content on {_name()}")
    else:
        paths = [_written(model.key, file.name, files[file.name]) for file in model.files]
    common = {"expect_sha256": model.files[0].sha256, **options}
    own = {"source": paths[0]} if model.factory is None else {"source": model.factory, "weights": paths[0]}
    found = load(**own, **common)
    if opening.look is not None:
        found.look(opening.look)
    return found


def _written(key: str, name: str, content: bytes) -> Path:
    """A file of the model, written below a folder that ends with this process; its name cannot lead out of it."""
    global _folder
    _folder = _folder or tempfile.TemporaryDirectory(prefix="arachne-worker-")
    base = Path(_folder.name) / key
    path = (base / name).resolve()
    if not path.is_relative_to(base.resolve()):
        raise ArachneError(f"a model's file lies in its folder, got the name '{name}'")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def _name() -> str:
    from distributed import get_worker

    try:
        return str(get_worker().address)
    except ValueError:
        return "this machine"
