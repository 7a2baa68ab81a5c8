"""The worker's side: it opens the model itself, reads its shard, and answers a question about it.

A worker caches what is costly: open models, shards, and what was built from both (a cut, facts about candidates).
All of it can be lost with the worker; another one builds it again from the question alone.
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

from arachne.cluster.models import Change, Model, check_versions, digest_of, versions_here
from arachne.errors import ArachneError
from arachne.io.files import sha256_of
from arachne.io.imports import import_from_elsewhere
from arachne.model.backend import ModelBackend
from arachne.model.cut import weights_of
from arachne.model.registry import load
from arachne.model.remote import Answer
from arachne.model.values import Inputs, Weights

T = TypeVar("T")

MAX_MODELS, MAX_BUILDS, MAX_SHARDS = 2, 64, 64
"""Number of models, of objects built from shards, and of shards read from files that a worker caches."""


class ModelNotSeenError(ArachneError):
    """The worker sees no file with the model's sha256, and was sent no bytes."""


@dataclass(frozen=True, eq=False)
class Piece:
    """A shard of the inputs, identified by its content hash.

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
    """A question about one shard.

    Attributes:
        model: The model.
        changes: What differs from its file.
        halved: How often batches were halved for lack of memory.
        work: What to call, a function of a module: `work(backend, inputs, rows, *arguments)`, or `work(built,
            *arguments)` where something is built from the shard first.
        arguments: Plain values and arrays.
        make: Builds it, as in `CachedBuild`; it is cached for the next question.
        build_key: A name for what is built.
    """

    model: Model
    changes: tuple[Change, ...]
    halved: int
    work: Callable[..., Any]
    arguments: tuple[Any, ...]
    make: Callable[..., Any] | None = None
    build_key: str = ""


class _LatestFew(OrderedDict[str, Any]):
    """A cache of the latest few values."""

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


class _OpenModel:
    """An open model, and the changes made to it since."""

    def __init__(self, backend: ModelBackend) -> None:
        self.backend = backend
        self.base: Weights = weights_of(backend)
        self.changes: tuple[Change, ...] = ()
        self.digest = digest_of(())
        self.halved = 0

    def with_changes(self, changes: tuple[Change, ...], halved: int) -> str:
        """Give the model these weights and return the digest of the changes."""
        digest = digest_of(changes)
        if digest != self.digest:
            touched = {(one.layer, one.parameter): self.base[one.layer, one.parameter] for one in self.changes}
            touched |= {
                (one.layer, one.parameter): one.apply_to(self.base[one.layer, one.parameter]) for one in changes
            }
            for (layer, parameter), values in touched.items():
                self.backend.set_weights(layer, parameter, values)
            self.changes, self.digest = changes, digest
        for _ in range(halved - self.halved):
            self.backend.halve_batches()
        self.halved = max(halved, self.halved)
        return digest


_models, _made, _pieces = _LatestFew(MAX_MODELS), _LatestFew(MAX_BUILDS), _LatestFew(MAX_SHARDS)
_folder: tempfile.TemporaryDirectory[str] | None = None
_one_at_a_time = threading.RLock()


def dask_setup(worker: object) -> None:
    """Ignore Ctrl-C, which the asking process handles; dask calls this as a local worker starts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import_from_elsewhere()


def deliver(value: T) -> T:
    """Return the value: as a dask task it is sent again when its worker is lost."""
    return value


@dataclass(frozen=True, eq=False)
class Opening:
    """Everything a worker needs to open the model beside its description; sent once to each worker.

    Attributes:
        look: The first inputs that were looked at, so that every worker learns from the same ones.
        files: The model's files by name, where workers see none.
    """

    look: Inputs | None = None
    files: Mapping[str, bytes] | None = None


def answers(
    asked: bytes,
    contents: Sequence[Inputs | None],
    opening: Opening,
    build_arguments: Sequence[tuple[Any, ...]],
) -> bytes:
    """Answer questions about several shards, one after the other.

    Args:
        asked: Pairs of `Question` and `Piece` as the asking process pickled them, so that it knows how many bytes
            travel; the answers come back in the same way.
        contents: The inputs of each shard.
        opening: What opens the model.
        build_arguments: For each shard, the arguments of what is built from it.
    """
    from distributed.protocol.pickle import dumps, loads

    questions: list[tuple[Question, Piece]] = loads(asked)
    found = [
        answer(question, piece, inputs, opening, own)
        for (question, piece), inputs, own in zip(questions, contents, build_arguments, strict=True)
    ]
    return bytes(dumps(found))


def answer(
    question: Question, piece: Piece, inputs: Inputs | None, opening: Opening, build_arguments: tuple[Any, ...] = ()
) -> Answer:
    """Answer a question about a shard.

    Args:
        question: The question.
        piece: The shard.
        inputs: The inputs, unless the shard says where they are.
        opening: What opens the model.
        build_arguments: The arguments of what is built from the shard.
    """
    with _one_at_a_time:
        began = time.perf_counter(), time.process_time()
        opened: _OpenModel = _models.get_or_make(
            question.model.key, lambda: _OpenModel(open_model(question.model, opening))
        )
        digest = opened.with_changes(question.changes, question.halved)
        given = _read(piece) if inputs is None else inputs
        if question.make is None:
            value = question.work(opened.backend, given, piece.rows, *question.arguments)
            return Answer(value, *_since(began), _name())
        make = question.make
        key = hashlib.blake2b(
            "\0".join((question.model.key, digest, piece.key, question.build_key)).encode()
        ).hexdigest()
        held = _made.get_or_make(key, lambda: _CachedValue(make(opened.backend, given, piece.rows, *build_arguments)))
        value = question.work(held.value, *question.arguments)
        return Answer(value, *_since(began), _name(), held.name)


def _since(began: tuple[float, float]) -> tuple[float, float]:
    return time.perf_counter() - began[0], time.process_time() - began[1]


class _CachedValue:
    """A cached build with an id that changes when it is rebuilt."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.name = f"{time.time_ns()}-{id(self)}"


def _read(piece: Piece) -> Inputs:
    from arachne.data.lazy.source_spec import open_description

    described = piece.described or {}
    found: Inputs = _pieces.get_or_make(piece.key, lambda: _in_memory(open_description(described)))
    return found


def _in_memory(inputs: Any) -> Inputs:
    if isinstance(inputs, Mapping):
        return {name: array[:] for name, array in inputs.items()}
    whole: Inputs = inputs[:]
    return whole


def open_model(model: Model, opening: Opening) -> ModelBackend:
    """Open the model from a file that this machine sees, or from its bytes.

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
        paths = [_write_file(model.key, file.name, files[file.name]) for file in model.files]
    common = {"expect_sha256": {file.name: file.sha256 for file in model.files}, **options}
    own = {"source": paths[0]} if model.factory is None else {"source": model.factory, "weights": paths[0]}
    found = load(**own, **common)
    if opening.look is not None:
        found.look(opening.look)
    return found


def _write_file(key: str, name: str, content: bytes) -> Path:
    """Write a file of the model into a folder that is deleted with this process; its name cannot lead out of it."""
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
