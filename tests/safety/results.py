"""Outputs that are replaced while something goes wrong: what must be there afterwards is the old one or the new one."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from arachne.io.manifest import MANIFEST, files_in, read_manifest
from tests.safety import valid
from tests.safety.runs import Runs

QUICK = ("--data", "data.npz", "--target", "top:1", "--search", "bias", "--max-break", "20%", "--quiet")


@dataclass(frozen=True)
class Writer:
    """A command that replaces what an earlier run of it has written.

    Attributes:
        old: The command line of the earlier run.
        new: That of the run that something happens to; it may replace.
        output: What both write.
    """

    old: tuple[str, ...]
    new: tuple[str, ...]
    output: str


WRITERS = {
    "repair": Writer(
        ("repair", "net.onnx", *QUICK, "--seed", "1", "-o", "fix"),
        ("repair", "net.onnx", *QUICK[:-1], "--seed", "2", "-o", "fix", "--force"),  # not quiet: notes are looked for
        "fix",
    ),
    "apply": Writer(
        ("apply", "one.json", "net.onnx", "-o", "patched.onnx"),
        ("apply", "two.json", "net.onnx", "-o", "patched.onnx", "--force"),
        "patched.onnx",
    ),
    "scan": Writer(
        ("scan", "net.onnx", "--data", "data.npz", "--no-causes", "-o", "scan.json"),
        ("scan", "net.onnx", "--data", "other.npz", "--no-causes", "-o", "scan.json", "--force"),
        "scan.json",
    ),
}
"""A folder, a model and a plain file."""


@dataclass
class Replaced:
    """A folder in which a command replaces its output, again and again from the same beginning."""

    runs: Runs
    folder: Path
    writer: Writer
    template: Path
    new: str

    def begin(self) -> None:
        """The output of the earlier run, and nothing of a later one."""
        self.clear()
        source, target = self.template / self.writer.output, self.folder / self.writer.output
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copyfile(source, target)

    def clear(self) -> None:
        """Remove the output, and what is hidden beside it."""
        for path in (self.folder / self.writer.output, *self.folder.glob(".*")):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def whole(self) -> tuple[str, list[str]]:
        """Which output is there, `old` or `new`, and what is wrong with it."""
        path = self.folder / self.writer.output
        if not os.path.lexists(path):
            return "none", ["there is neither the old output nor the new one"]
        old = identity(self.template / self.writer.output)
        which = {old: "old", self.new: "new"}.get(identity(path), "mixed")
        wrong = [] if which != "mixed" else ["the output is neither the old one nor the new one"]
        return which, wrong + (find_broken(path) if path.is_dir() else [])

    def lacking(self) -> list[str]:
        """Names of files that every whole folder of results has and this one has not."""
        source, target = self.template / self.writer.output, self.folder / self.writer.output
        return sorted(set(os.listdir(source)) - set(os.listdir(target))) if source.is_dir() and target.is_dir() else []

    def hidden_files(self) -> list[str]:
        """List hidden files beside the output."""
        return sorted(path.name for path in self.folder.glob(".*"))

    def inputs(self) -> dict[str, tuple[int, int, str]]:
        """Inode, time of change and hash of everything that is only read."""
        paths = [path for path in self.folder.iterdir() if path.suffix in (".onnx", ".npz", ".json") and path.is_file()]
        return {path.name: state(path) for path in paths if path.name != self.writer.output}


def state(path: Path) -> tuple[int, int, str]:
    """Inode, time of change and hash of a file."""
    return path.stat().st_ino, path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest()


def identity(path: Path) -> str:
    """Fingerprint outputs, without the times in them: seed, patch and model of a folder, or a file's bytes."""
    if path.is_dir():
        try:
            seed = json.loads((path / "result.json").read_text())["seed"]
            patch = json.loads((path / "patch.json").read_text())["provenance"]["seed"]
            report = path / "report.json"  # a fault may cost it; `Replaced.lacking` names what is lost without one
            page = json.loads(report.read_text())["result"]["seed"] if report.exists() else seed
        except (OSError, ValueError, KeyError) as error:
            return f"broken: {error}"
        return f"{seed} {patch} {page} {hashlib.sha256((path / 'model.onnx').read_bytes()).hexdigest()}"
    return hashlib.sha256(path.read_bytes()).hexdigest()


def find_broken(folder: Path) -> list[str]:
    """How a folder of results differs from its manifest."""
    told = read_manifest(folder)
    if told is None:
        return ["the folder has no manifest"]
    found = {path.relative_to(folder).as_posix(): path for path in files_in(folder) if path.name != MANIFEST}
    wrong = [f"'{name}' is not in the manifest or not in the folder" for name in set(found) ^ set(told)]
    digests = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in found.items()}
    return wrong + [
        f"'{name}' has another hash" for name in set(found) & set(told) if digests[name] != told[name]["sha256"]
    ]


@contextmanager
def prepare_folder(runs: Runs, writer: Writer) -> Iterator[Replaced]:
    """A folder with model, data and patches, in which a command has written once."""
    with tempfile.TemporaryDirectory(prefix="arachne-results-") as name:
        folder = Path(os.path.realpath(name)) / "work"
        template = folder.with_name("template")
        for place in (folder, template):
            place.mkdir()
        prepare(runs, folder)
        for command in (writer.old, writer.new):
            ended = runs.run(command, folder)
            if ended.code != 0:
                raise RuntimeError(f"{' '.join(command)} failed with exit {ended.code}: {ended.err}")
            if command == writer.old:
                source = folder / writer.output
                (shutil.copytree if source.is_dir() else shutil.copyfile)(source, template / writer.output)
        yield Replaced(runs, folder, writer, template, identity(folder / writer.output))


def prepare(runs: Runs, folder: Path) -> None:
    """Put a model, two data files and two patches into a folder."""
    valid.model(folder)
    valid.data(folder, rows=600)
    valid.data(folder, "other.npz", rows=400)
    for seed, name in ((1, "one.json"), (2, "two.json")):
        ended = runs.run(["repair", "net.onnx", *QUICK, "--seed", str(seed), "-o", f"made{seed}"], folder)
        if ended.code != 0:
            raise RuntimeError(f"the repair failed with exit {ended.code}: {ended.err}")
        shutil.move(folder / f"made{seed}" / "patch.json", folder / name)
        shutil.rmtree(folder / f"made{seed}")
