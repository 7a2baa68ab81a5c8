"""Describes the model that a worker opens, and the packages it needs: plain values sent with every question.

No model is ever pickled. A worker opens the file itself, by its own safe reader, from a path where it finds a file with
the same sha256, or else from the file's bytes.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
from dataclasses import dataclass, field
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import numpy as np

from arachne.errors import EnvironmentFaultError, UsageError
from arachne.io.files import sha256_of
from arachne.model.backend import ModelBackend
from arachne.model.values import Array

PACKAGES = {
    "torch": ("torch",),
    "onnx": ("onnx", "onnxruntime"),
    "keras": ("keras", "tensorflow", "tensorflow-cpu", "jax"),
}
"""Packages that a backend computes with; the same versions round the same way."""

VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
"""Kinds of parameters that need no argument."""

Versions = tuple[tuple[str, str], ...]
"""Packages and their versions, Python's first."""


@dataclass(frozen=True)
class File:
    """One file of a model.

    Attributes:
        name: Its name, from the folder of the first.
        path: Where it is on the machine that asks.
        sha256: What it holds.
    """

    name: str
    path: str
    sha256: str


@dataclass(frozen=True)
class Model:
    """How a worker opens the model.

    Attributes:
        files: The file with the weights, then those beside it.
        factory: `module:factory` that makes the network, where the file holds weights alone.
        load: More keywords of `arachne.model.registry.load`, as pairs.
        versions: What the client computes with.
        key: A name for all of it.
    """

    files: tuple[File, ...]
    factory: str | None
    load: tuple[tuple[str, Any], ...]
    versions: Versions
    key: str = field(init=False)

    def __post_init__(self) -> None:
        content = repr(([(file.name, file.sha256) for file in self.files], self.factory, self.load))
        object.__setattr__(self, "key", hashlib.sha256(content.encode()).hexdigest()[:32])

    def bytes(self) -> dict[str, bytes]:
        """Its files' content by name, for workers that see no such path."""
        return {file.name: Path(file.path).read_bytes() for file in self.files}


def describe_model(backend: ModelBackend, folder: Path) -> Model:
    """Describe how workers open the model that a backend holds.

    Args:
        backend: The model, with the weights it was opened with.
        folder: Where a model object is saved, so that it can be opened from a file.

    Raises:
        UsageError: It is an object that no factory makes.
    """
    given = dict(backend.opened_with or {})
    versions = versions_here(backend.NAME)
    if backend.file_identity is not None:
        factory = given.pop("factory", None)
        paths = list(backend.file_identity.files)
        files = tuple(
            File(_beside(path, paths[0]), str(path), digest) for path, digest in backend.file_identity.files.items()
        )
        return Model(files, factory, tuple(sorted(given.items())), versions)
    path = folder / f"model{backend.suffix}"
    backend.save(path)
    beside = [one for one in sorted(folder.rglob("*")) if one.is_file() and one != path]
    files = tuple(File(_beside(one, path), str(one), sha256_of(one)) for one in (path, *beside))
    factory = given.pop("factory", None) or _factory_of(backend)
    return Model(files, factory, tuple(sorted({"backend": backend.NAME, **given}.items())), versions)


def _beside(path: Path, first: Path) -> str:
    return path.relative_to(first.parent).as_posix() if path.is_relative_to(first.parent) else path.name


def _factory_of(backend: ModelBackend) -> str | None:
    """Return the class of a network object, if it can be imported, as its factory; None where files hold all."""
    if backend.NAME != "torch":
        return None
    kind = type(backend.native)
    required = [
        one for one in signature(kind).parameters.values() if one.default is one.empty and one.kind not in VARIADIC
    ]
    nowhere = kind.__module__ in ("__main__", "builtins") or kind.__module__.startswith("torch.")
    if nowhere or "." in kind.__qualname__ or required:
        raise UsageError(
            f"a worker cannot make a model of class '{kind.__qualname__}' again; give the model as a file, or as "
            "'module:factory' with its weights"
        )
    return f"{kind.__module__}:{kind.__qualname__}"


def versions_here(backend: str) -> Versions:
    """Return this process's versions of the packages that decide how numbers are rounded."""
    found = [("python", platform.python_version())]
    for package in ("arachne-repair", "numpy", "scipy", *PACKAGES.get(backend, (backend,))):
        try:
            found.append((package, importlib.metadata.version(package)))
        except importlib.metadata.PackageNotFoundError:
            continue
    return tuple(found)


def check_versions(wanted: Versions, here: Versions, worker: str) -> None:
    """Refuse a worker with other versions: its numbers could round differently.

    Raises:
        EnvironmentFaultError: It has one.
    """
    own = dict(here)
    for package, version in wanted:
        if own.get(package) != version:
            raise EnvironmentFaultError(
                f"the worker at {worker} has {package} {own.get(package, '(none)')}, expected {version} as on this "
                "machine; install the same versions on both"
            )


@dataclass(frozen=True, eq=False)
class Change:
    """One parameter that is not as in the model's file.

    Attributes:
        layer: The layer.
        parameter: The parameter.
        positions: Where it differs, flat positions `(k,)`; None where `values` is all of it.
        values: What it holds there.
    """

    layer: str
    parameter: str
    positions: Array | None
    values: Array

    @classmethod
    def between(cls, key: tuple[str, str], before: Array, after: Array) -> Change | None:
        """Return the change from one array to another of its shape; None where they hold the same bits."""
        if before.dtype != after.dtype:
            return cls(*key, None, np.array(after))
        old, new = (np.ascontiguousarray(one).reshape(-1) for one in (before, after))
        differs = np.flatnonzero(old.view(f"u{old.itemsize}") != new.view(f"u{new.itemsize}"))
        if not len(differs):
            return None
        if 2 * len(differs) > len(new):
            return cls(*key, None, np.array(after))
        return cls(*key, differs, new[differs])

    def apply_to(self, before: Array) -> Array:
        """Return the parameter with the change in it."""
        if self.positions is None:
            return self.values
        after = np.array(before)
        after.reshape(-1)[self.positions] = self.values
        return after


def digest_of(changes: tuple[Change, ...]) -> str:
    """Hash some changes; equal bits give equal digests."""
    digest = hashlib.blake2b(digest_size=16)
    for change in changes:
        digest.update(f"{change.layer}\0{change.parameter}\0{change.values.shape}\0".encode())
        if change.positions is not None:
            digest.update(change.positions.tobytes())
        digest.update(np.ascontiguousarray(change.values).tobytes())
    return digest.hexdigest()
