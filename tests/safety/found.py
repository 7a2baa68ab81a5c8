"""Every option of every command, set by a file that lies in the folder or by the environment: cases to be watched."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from arachne.cli.config import ConfiguredCommand
from arachne.cli.provenance import setting_names
from tests.safety import valid
from tests.test_cli_border import HARMLESS, options, parameter_of, value_for

DATA = ("--data", "data.npz")
FAULT = ("--target", "*:7")
WORDS = {
    "demo": ("--out", "net.onnx"),
    "scan": ("net.onnx", *DATA, "--no-causes"),
    "localise": ("net.onnx", *DATA, *FAULT),
    "repair": ("net.onnx", *DATA, *FAULT, "--search", "bias"),
    "compare": ("net.onnx", *DATA, *FAULT, "--search", "bias"),
    "evaluate": ("net.onnx", *DATA),
    "choose": ("missing", "missing.onnx"),
}
"""The words typed behind a command: enough for a short run, where nothing that is found is refused."""

ADDRESS = "tcp://127.0.0.1:1"
"""The place that `value_for` gives to options that take a text; the listener's takes its place."""


@dataclass(frozen=True)
class Found:
    """One setting that nobody typed.

    Attributes:
        command: The command.
        option: The option's name in a file.
        origin: `file` or `environment`.
        text: The value as TOML, or as the environment has it.
        taken: Whether the option may be found; None where the command reads no settings at all.
        typed: Further words that are typed.
    """

    command: str
    option: str
    origin: str
    text: str
    taken: bool | None
    typed: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """`repair --cluster from the environment, 'tcp://…'`."""
        return f"{self.command} {self.option} from the {self.origin}: {self.text}"

    @property
    def variable(self) -> str:
        """The environment variable that would set it."""
        _, parameter = parameter_of(self.command, self.option)
        return f"ARACHNE_{self.command}_{setting_names(parameter)[0]}".upper().replace("-", "_")

    @property
    def argv(self) -> list[str]:
        """The command line, without the option itself."""
        words = WORDS.get(self.command, ("missing.onnx",))
        if self.option in ("search", "searchers"):
            words = tuple(word for word in words if word not in ("--search", "bias"))
        if self.option in ("causes", "no-causes"):
            words = tuple(word for word in words if word != "--no-causes")
        return [self.command, *words, *self.typed]

    def exits(self) -> tuple[int, ...]:
        """Exit codes that are right."""
        if self.taken is False:
            return (3,) if self.origin == "file" else (2,)
        return tuple(range(7))


def cases(address: str) -> list[Found]:
    """All of them.

    Args:
        address: `127.0.0.1:4711`, where somebody listens.
    """
    found = []
    for command, option in options():
        owner, parameter = parameter_of(command, option)
        taken = (option in HARMLESS) if isinstance(owner, ConfiguredCommand) else None
        toml, word = value_for(parameter)
        texts = [(toml, word)]
        if ADDRESS in word:
            texts = [
                (f'"{place}"', place) for place in (f"tcp://{address}", "../elsewhere/x", f"mlflow:http://{address}")
            ]
        for text, plain in texts:
            found += [Found(command, option, "file", text, taken), Found(command, option, "environment", plain, taken)]
    return found


def prepare(folder: Path) -> None:
    """Put a model and data into a folder, a folder beside it, and a home of its own."""
    for name in ("here", "elsewhere", "home", "tmp"):
        (folder / name).mkdir()
    valid.model(folder / "here")
    valid.data(folder / "here", rows=600)
    (folder / "here" / "scheduler.json").write_text(json.dumps({"address": ADDRESS}))


def enter(case: Found, folder: Path) -> None:
    """Set what is found, and go to where it is."""
    os.chdir(folder / "here")
    home = str(folder / "home")
    os.environ.update(HOME=home, TMPDIR=str(folder / "tmp"), XDG_STATE_HOME=home, XDG_CACHE_HOME=home)
    if case.origin == "file":
        Path("arachne.toml").write_text(f"[{case.command}]\n{case.option} = {case.text}\n")
    else:
        os.environ[case.variable] = case.text
