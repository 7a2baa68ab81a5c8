"""Commands whose places are swapped for links, hard links or other folders while they write."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.safety import faults, valid
from tests.safety.results import QUICK, prepare
from tests.safety.runs import Runs

State = dict[str, tuple[int, bytes | str]]
"""Permissions and content of every file and link below a folder, by its path there."""


@dataclass(frozen=True)
class Swap:
    """Something that happens to the places of a command.

    Attributes:
        what: What is moved away, from the folder the command runs in; `{out}` and `{name}` are the output's.
        how: What takes its name: one of `faults.SYMLINK`, `LINK` and `RENAME`.
        other: That, from the folder of somebody else.
        keeps_output: Whether the output itself stays under its name.
    """

    what: str
    how: int
    other: str = ""
    keeps_output: bool = True


@dataclass(frozen=True)
class Command:
    """A command that replaces an output of an earlier run.

    Attributes:
        argv: The command line.
        output: The name of the output in the folder `out`.
        old: What is there before: the name of a file or folder of the template, or the content of a file.
        stages: At how many of its calls each swap is tried.
    """

    argv: tuple[str, ...]
    output: str
    old: str | bytes = b"old"
    stages: int = 12


SCANNED = ("net.onnx", "--data", "data.npz")
COMMANDS = {
    "repair": Command(("repair", "net.onnx", *QUICK, "--seed", "2", "-o", "out/fix", "--force"), "fix", "base"),
    "repair --junit": Command(
        ("repair", "net.onnx", *QUICK, "--fail-if", "broken>9999", "--junit", "out/gates.xml", "--force"),
        "gates.xml", stages=6),
    "choose": Command(("choose", "base", "--max-break", "50%", "-o", "out/fix", "--force"), "fix", "base"),
    "compare": Command(
        ("compare", *SCANNED, "--target", "top:1", "--search", "bias", "-o", "out/all", "--force"), "all", "compared",
        6),
    "demo": Command(("demo", "-o", "out", "--force", "--quiet"), "fix", "base", 4),
    "report": Command(("report", "out/fix"), "fix", "base"),
    "report --out": Command(("report", "base", "-o", "out/page.html", "--force"), "page.html"),
    "report --hub-card": Command(("report", "base", "--hub-card", "out/card.md", "--force"), "card.md"),
    "apply": Command(("apply", "two.json", "net.onnx", "-o", "out/net.onnx", "--force"), "net.onnx"),
    "revert": Command(("revert", "two.json", "patched.onnx", "-o", "out/net.onnx", "--force"), "net.onnx"),
    "diff": Command(("diff", "net.onnx", "patched.onnx", "-o", "out/patch.json", "--force"), "patch.json"),
    "stack": Command(("stack", "two.json", "-o", "out/patch.json", "--force"), "patch.json"),
    "delta": Command(("delta", "net.onnx", "patched.onnx", "-o", "out/fix.delta", "--force"), "fix.delta"),
    "evaluate --report": Command(("evaluate", *SCANNED, "--report", "out/page.html", "--force"), "page.html", stages=6),
    "evaluate --junit": Command(
        ("evaluate", *SCANNED, "--fail-if", "accuracy<1%", "--junit", "out/gates.xml", "--force"), "gates.xml",
        stages=6),
    "scan --page": Command(("scan", *SCANNED, "--page", "out/page.html", "--force"), "page.html", stages=6),
    "scan --out": Command(("scan", *SCANNED, "--no-causes", "-o", "out/scan.json", "--force"), "scan.json"),
    "scan --log-file": Command(
        ("scan", *SCANNED, "--no-causes", "--log-file", "out/log"), "log", b"2026-01-01 00:00:00 old\n"),
    "localise --plot": Command(
        ("localise", *SCANNED, "--target", "top:1", "--plot", "out/plot.svg", "--force"), "plot.svg", stages=4),
    "convert": Command(
        ("convert", "net.pt2", "--data", "data.npz", "-o", "out/net.onnx", "--force"), "net.onnx", stages=2),
}  # fmt: skip
"""Every command that writes, once for each of its outputs."""

MADE = {
    "compare": ("compare", *SCANNED, "--target", "top:1", "--search", "ridge", "-o", "compared"),
    "revert": ("apply", "two.json", "net.onnx", "-o", "patched.onnx"),
    "diff": ("apply", "two.json", "net.onnx", "-o", "patched.onnx"),
    "delta": ("apply", "two.json", "net.onnx", "-o", "patched.onnx"),
}
"""Arguments some commands need besides model, data, patches and the folder `base` of a repair."""

SWAPS = {
    "the working folder, for a link": Swap("out/.{name}.arachne", faults.SYMLINK),
    "the working folder, for another folder": Swap("out/.{name}.arachne", faults.RENAME),
    "the draft, for a link": Swap("out/.{name}.arachne/result", faults.SYMLINK, "result"),
    "the copy, for a link": Swap("out/.{name}.arachne/copy", faults.SYMLINK, "copy"),
    "the output, for a link": Swap("out/{name}", faults.SYMLINK, "fix", keeps_output=False),
    "the output, for a hard link": Swap("out/{name}", faults.LINK, "letter", keeps_output=False),
    "the output, for another folder": Swap("out/{name}", faults.RENAME, "fix", keeps_output=False),
    "the folder of the output, for a link": Swap("out", faults.SYMLINK, keeps_output=False),
}


def state_of(folder: Path) -> State:
    """List the files below a folder, links not followed."""
    found: State = {}
    for top, folders, files in os.walk(folder):
        for path in (Path(top) / name for name in [*folders, *files]):
            mode = stat.S_IMODE(path.lstat().st_mode)
            name = path.relative_to(folder).as_posix()
            if path.is_symlink():
                found[name] = mode, os.readlink(path)
            else:
                found[name] = mode, path.read_bytes() if path.is_file() else ""
    return found


@dataclass
class Swapped:
    """A folder in which a command replaces its output while something is swapped, again and again."""

    runs: Runs
    root: Path
    template: Path
    command: str

    @property
    def work(self) -> Path:
        return self.root / "work"

    def begin(self) -> None:
        """The inputs, the output of an earlier run, and a folder of somebody else with the same names in it."""
        for name in ("work", "home", "aside"):
            place = self.root / name
            if place.is_symlink() or place.is_file():
                place.unlink()
            elif place.exists():
                shutil.rmtree(place)
        shutil.copytree(self.template, self.work)
        command, out = COMMANDS[self.command], self.work / "out"
        out.mkdir()
        if isinstance(command.old, str):
            shutil.copytree(self.template / command.old, out / command.output)
        else:
            (out / command.output).write_bytes(command.old)
        make_home(self.root / "home")

    def count(self) -> int:
        """How many calls there are in a run that nothing happens to."""
        self.begin()
        ended = self.runs.run(COMMANDS[self.command].argv, self.work, fault=(self.work, 0, 0, False), every_step=False)
        if ended.code != 0:
            raise RuntimeError(f"{self.command} failed with exit {ended.code}: {ended.err}")
        return ended.calls

    def attack(self, swap: Swap, number: int) -> list[str]:
        """Swap something just before one of the calls; what is wrong afterwards."""
        self.begin()
        argv, output = COMMANDS[self.command].argv, COMMANDS[self.command].output
        home, aside, what = self.root / "home", self.root / "aside", self.work / swap.what.format(name=output)
        before, old = state_of(home), state_of(self.work / "out")
        inputs = state_of(self.template)
        places = what, aside, home / swap.other if swap.other else home
        ended = self.runs.run(
            argv, self.work, fault=(self.work, number, swap.how, False), swap=places, every_step=False
        )
        wrong = [] if ended.code in (0, 2, 3, 4) else [f"exit {ended.code}: {ended.err.strip()[-300:]}"]
        wrong += ["a traceback"] if "Traceback" in ended.err else []
        if swap.how == faults.RENAME and not places[2].exists():  # it lies where the other was
            if not what.exists():
                return [*wrong, "somebody's folder is gone"]
            shutil.move(what, places[2])
        now = state_of(home)
        wrong += [
            f"'{name}' of somebody else was changed or removed" for name in before if now.get(name) != before[name]
        ]
        wrong += [f"'{name}' was put into somebody's folder" for name in now if name not in before]
        after = state_of(self.work)
        wrong += [f"the input '{name}' has changed" for name in inputs if after.get(name) != inputs[name]]
        return wrong + self._find_lost(swap, old, output, aside, ended.code)

    def _find_lost(self, swap: Swap, old: State, output: str, aside: Path, code: int) -> list[str]:
        """List files of an earlier run that are neither there nor replaced by something whole."""
        place = self.work / "out" / output
        if not swap.keeps_output:
            moved = aside / output if swap.what == "out" else aside
            place = moved if os.path.lexists(moved) else place
        if not os.path.lexists(place):
            return ["the output is gone"]
        kept = {name: value for name, value in old.items() if name == output or name.startswith(f"{output}/")}
        found = {output: (stat.S_IMODE(place.lstat().st_mode), place.read_bytes() if place.is_file() else "")}
        if place.is_dir():
            found |= {f"{output}/{name}": value for name, value in state_of(place).items()}
        if code != 0 and found != kept and swap.keeps_output:
            return ["it failed, and the old output is not there as it was"]
        missing = sorted(set(kept) - set(found))
        return [f"'{missing[0]}' of the output is gone"] if missing else []


def make_home(home: Path) -> None:
    """A folder of somebody else, with the names that a run uses too."""
    names = ("letter", ".arachne-lock", "result/patch.json", "result/letter", "copy/net.onnx", "copy/letter")
    more = ("fix/patch.json", "fix/letter", "checkpoints/search-000001.npz", "net.onnx", "page.html", "patch.json")
    for name in (*names, *more):
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"dear {name}")
        path.chmod(0o640)


@contextmanager
def prepare_swap(runs: Runs, command: str) -> Iterator[Swapped]:
    """A folder with model, data, patches and a result with a front, in which a command can be attacked."""
    with tempfile.TemporaryDirectory(prefix="arachne-swaps-") as name:
        root = Path(os.path.realpath(name))
        template = root / "template"
        template.mkdir()
        prepare(runs, template)
        for argv in MADE.get(command, ()), ("repair", "net.onnx", *QUICK, "--seed", "1", "-o", "base"):
            ended = runs.run(argv, template, every_step=False) if argv else None
            if ended is not None and ended.code != 0:
                raise RuntimeError(f"{' '.join(argv)} failed with exit {ended.code}: {ended.err}")
        if command == "convert":
            valid.program(template)
        yield Swapped(runs, root, template, command)
