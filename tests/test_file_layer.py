"""Only `arachne.io` creates, replaces and removes files; whoever else is allowed to is named here, with the reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

ALLOWED = {
    "delta/arachne_delta.py": "a program of its own, which goes to devices without Arachne",
    "cluster/worker.py": "copies of the model, in a temporary folder of the worker's own",
    "testing/suite_run.py": "a test file, in a temporary folder of its own",
    "testing/checks/files.py": "damaged models, in the folder that pytest gives to a test",
    "cli/exit.py": "standard output, turned to the null device when nobody reads it",
    "arachne_keras/weights.py": "the draft of a copy, in the working folder that `arachne.io` has made for it",
    "arachne_onnx/io.py": "the files of such a draft, and folders of data inside the folder of a model",
    "arachne_onnx/weights.py": "such a draft",
    "arachne_tflite/running.py": "standard error, turned to the null device while LiteRT opens a file",
}
"""Modules of `arachne` outside `arachne.io`, and of our backends, that may write, and what."""

OF_OS = {
    *("chmod", "fchmod", "ftruncate", "link", "makedirs", "mkdir", "mkfifo", "open", "remove", "removedirs", "rename"),
    *("renames", "replace", "rmdir", "symlink", "truncate", "unlink", "utime"),
}
OF_PATHS = {
    *("chmod", "hardlink_to", "mkdir", "rename", "rmdir", "symlink_to", "touch", "unlink", "write_bytes"),
}
"""Methods `pathlib.Path` writes with, and no other class of ours has; `open`, `replace` and `write_text` are below."""


def writes(source: str) -> Iterator[tuple[int, str]]:
    """Calls in a source text that create, change, move or remove files: line and name of each."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module in ("os", "shutil"):
            names = [alias.name for alias in node.names if node.module == "shutil" or alias.name in OF_OS]
            yield from ((node.lineno, f"{node.module}.{name}") for name in names)
        if isinstance(node, ast.Call) and (name := written_by(node)):
            yield node.lineno, name


def written_by(call: ast.Call) -> str | None:
    """The name of a call that writes, None for any other."""
    name = ast.unparse(call.func)
    owner, _, verb = name.rpartition(".")
    if owner == "shutil" or (owner == "os" and verb in OF_OS):
        return name
    if owner == "tempfile":
        return name if any(keyword.arg == "dir" for keyword in call.keywords) else None
    if name == "open" or (owner and verb == "open"):
        modes = [*call.args[:2], *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
        return name if any(is_writing_mode(mode) for mode in modes) else None
    if owner and verb == "replace":  # a text's takes two values, a path's one
        return name if len(call.args) == 1 and not call.keywords else None
    if owner and verb == "write_text":
        return None if owner == "formatter" else name  # click's formatter writes help to the terminal
    return name if owner and verb in OF_PATHS else None


def is_writing_mode(value: ast.expr) -> bool:
    """Whether a value is a mode of `open` that writes."""
    text = value.value if isinstance(value, ast.Constant) else None
    return isinstance(text, str) and set(text) <= set("rwaxbt+") and bool(set(text) & set("wax+"))


def sources() -> dict[str, str]:
    """Every module of `arachne` and of our backends, by its path in that folder."""
    folders = (ROOT / "arachne", ROOT / "backends")
    paths = [(path, path.relative_to(folder).as_posix()) for folder in folders for path in sorted(folder.rglob("*.py"))]
    return {name: path.read_text("utf-8") for path, name in paths}


def test_no_module_but_those_of_the_file_layer_writes_files() -> None:
    found = [
        f"{module}:{line} calls {name}; use arachne.io"
        for module, source in sources().items()
        if not module.startswith("io/") and module not in ALLOWED
        for line, name in writes(source)
    ]
    assert found == []


def test_whoever_is_allowed_to_write_still_does() -> None:
    modules = sources()
    assert [module for module in ALLOWED if not list(writes(modules.get(module, "")))] == []


@pytest.mark.parametrize(
    "line",
    [
        "open(path, 'w')",
        "open(path, mode='ab')",
        "path.open('r+b')",
        "Path(path).write_text('a')",
        "(folder / 'a').write_bytes(b'')",
        "path.unlink(missing_ok=True)",
        "os.remove(path)",
        "os.open(path, os.O_WRONLY)",
        "os.rename(a, b)",
        "draft.replace(out)",
        "shutil.rmtree(path)",
        "from shutil import copyfile",
        "from os import unlink",
        "tempfile.TemporaryDirectory(dir=out.parent)",
        "path.mkdir()",
    ],
)
def test_a_call_that_writes_is_found(line: str) -> None:
    assert len(list(writes(line))) == 1


@pytest.mark.parametrize(
    "line",
    ["open(path, 'rb')", "path.open('rb')", "text.replace('a', 'b')", "replace(result, gates=gates)", "os.stat(path)"],
)
def test_a_call_that_only_reads_is_not(line: str) -> None:
    assert list(writes(line)) == []
