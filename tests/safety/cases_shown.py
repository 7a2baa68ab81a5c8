"""Names that steer a terminal, in every command that shows names of a file; they are shown, and steer nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.safety import valid
from tests.safety.case import Case

Maker = Callable[[Path], list[str]]
NAMES = {
    "escape": "\x1b]0;owned\x07\x1b[2J\x1b[31m",
    "one-byte-escape": "\x9b2J\x9d0;owned\x9c",
    "backspace": "good\b\b\b\bevil\r",
    "direction": "\u202egnp.exe\u2066",
    "markup": "[link=http://127.0.0.1]click[/link][/bold]",
    "newline": "a\nerror: forged",
}
DATA = ("--data", "data.npz")
TARGET = ("--target", "top:1")
COMMANDS: dict[str, tuple[str, ...]] = {
    "scan": ("scan", "net.onnx", *DATA),
    "scan-as-json": ("scan", "net.onnx", *DATA, "--json"),
    "scan-with-a-log": ("scan", "net.onnx", *DATA, "--log-file", "log.txt", "--verbose"),
    "localise": ("localise", "net.onnx", *DATA, *TARGET),
    "localise-as-json": ("localise", "net.onnx", *DATA, *TARGET, "--json"),
    "repair": ("repair", "net.onnx", *DATA, *TARGET, "--search", "margin", "-o", "fix"),
    "evaluate": ("evaluate", "net.onnx", *DATA),
    "convert": ("convert", "net.onnx", "-o", "out.onnx"),
}


def rename_layers(name: str, argv: tuple[str, ...]) -> Maker:
    """Layers, weights and classes of this name."""

    def make(folder: Path) -> list[str]:
        import onnx

        model = onnx.load(folder / valid.model(folder))
        for node in model.graph.node:
            node.name = name + node.name
        for tensor in model.graph.initializer:
            before, tensor.name = tensor.name, f"{name}{tensor.name}"
            for node in model.graph.node:
                node.input[:] = [tensor.name if used == before else used for used in node.input]
        onnx.save(model, folder / "net.onnx")
        valid.data(folder, rows=300)
        with np.load(folder / "data.npz") as stored:
            names = np.array([f"{name}{number}" for number in range(10)])
            np.savez(folder / "data.npz", x=stored["x"], y=stored["y"], class_names=names)
        return list(argv)

    return make


PATCHES: dict[str, tuple[str, ...]] = {
    "show": ("show", "patch.json"),
    "show-as-json": ("show", "patch.json", "--json"),
    "log": ("log", "net.onnx", "--patches", "patch.json"),
    "log-as-json": ("log", "net.onnx", "--patches", "patch.json", "--json"),
    "log-of-a-folder": ("log", "net.onnx", "--patches", "."),
    "apply": ("apply", "patch.json", "net.onnx", "-o", "out.onnx"),
    "revert": ("revert", "patch.json", "net.onnx", "-o", "out.onnx"),
    "stack": ("stack", "patch.json", "-o", "both.json"),
    "evaluate-with-it": ("evaluate", "net.onnx", *DATA, "--patch", "patch.json"),
}


def patch(name: str, argv: tuple[str, ...]) -> Maker:
    """A patch that tells of a target, a file and a verdict of this name, and one beside it that is none."""

    def make(folder: Path) -> list[str]:
        file = folder / valid.patch(folder)
        found = json.loads(file.read_text(encoding="utf-8"))
        found["base"]["file"] = name + ".onnx"
        found["provenance"] |= {"target": [name], "note" + name: name}
        found["evidence"] |= {"verdict": name, "sentence": name}
        file.write_text(json.dumps(found), encoding="utf-8")
        (folder / "other.json").write_text(json.dumps({"schema": name}), encoding="utf-8")
        return list(argv)

    return make


def report(name: str) -> Maker:
    """A report whose every text is this name."""

    def make(folder: Path) -> list[str]:
        file = folder / valid.result(folder) / "report.json"
        found = json.loads(file.read_text(encoding="utf-8"))
        found["result"] |= {"sentence": name, "target": name, "verdict": name}
        found["confusion"]["names"] = [name] * len(found["confusion"]["names"])
        file.write_text(json.dumps(found), encoding="utf-8")
        return ["report", "fix"]

    return make


ANY = (0, 1, 2, 3, 5, 6)
"""Only the text shown matters; whether the run succeeds is another test's."""

CASES = [
    *(
        Case(f"{kind}-in-names-in-{command}", "shown", "escape", rename_layers(name, argv), exits=ANY)
        for command, argv in COMMANDS.items()
        for kind, name in NAMES.items()
    ),
    *(
        Case(f"{kind}-in-a-patch-in-{command}", "shown", "escape", patch(name, argv), exits=ANY)
        for command, argv in PATCHES.items()
        for kind, name in NAMES.items()
    ),
    *(Case(f"{kind}-in-a-report", "shown", "escape", report(name), exits=ANY) for kind, name in NAMES.items()),
    *(
        Case(
            f"{kind}-in-settings",
            "shown",
            "escape",
            lambda folder, name=name: _settings(folder, name),  # type: ignore[misc]  # a name bound early
            exits=ANY,
        )
        for kind, name in NAMES.items()
    ),
]


def _settings(folder: Path, name: str) -> list[str]:
    valid.model(folder)
    (folder / "arachne.toml").write_text(f"classes = {json.dumps(name)}\n", encoding="utf-8")
    return ["settings", "scan", "net.onnx", "--data", "data.npz", "--config", "arachne.toml"]
