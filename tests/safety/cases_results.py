"""The folder of a repair: report.json, result.json and front.npz, read again by `report` and `choose`."""

from __future__ import annotations

import json
import os
import shutil
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.safety import valid
from tests.safety.case import Case

Maker = Callable[[Path], list[str]]
Change = Callable[[Any], object]
REPORT = ["report", "fix"]
LIST = ["choose", "fix"]
CHOOSE = ["choose", "fix", "-o", "other"]
HUB = ["report", "fix", "--hub-card", "card.md"]


def text(name: str, change: Callable[[str], str | bytes], argv: list[str] = REPORT) -> Maker:
    """A repair's folder with the text of one file changed."""

    def make(folder: Path) -> list[str]:
        file = folder / valid.result(folder) / name
        changed = change(file.read_text(encoding="utf-8"))
        file.write_bytes(changed.encode("utf-8", "surrogatepass") if isinstance(changed, str) else changed)
        return argv

    return make


def content(name: str, change: Change, argv: list[str] = REPORT) -> Maker:
    """A repair's folder with the content of one file changed."""

    def apply_change(before: str) -> str:
        found = json.loads(before)
        change(found)
        return json.dumps(found)

    return text(name, apply_change, argv)


def put(*path: str | int, value: Any) -> Change:
    def change(found: Any) -> None:
        for step in path[:-1]:
            found = found[step]
        found[path[-1]] = value

    return change


def drop(*path: str | int) -> Change:
    def change(found: Any) -> None:
        for step in path[:-1]:
            found = found[step]
        del found[path[-1]]

    return change


TEXTS: dict[str, Callable[[str], str | bytes]] = {
    "of-nothing": lambda _: "",
    "of-a-list": lambda _: "[]",
    "of-an-empty-object": lambda _: "{}",
    "of-brackets-without-end": lambda _: "[" * 1_000_000,
    "of-zero-bytes": lambda _: bytes(1000),
    "that-is-not-utf8": lambda found: found.encode() + b"\xff",
    "cut-off": lambda found: found[: len(found) // 2],
    "with-nan": lambda found: found.replace('"seed": 0', '"seed": NaN', 1),
    "with-a-number-of-5000-digits": lambda found: found.replace('"seed": 0', '"seed": ' + "9" * 5000, 1),
    "with-half-a-character": lambda found: found.replace('"backend": "onnx"', '"backend": "\\ud800"', 1),
    "with-half-a-character-in-raw-bytes": lambda found: found.replace('"onnx"', '"\ud800"', 1),
    "of-four-million-lists": lambda _: '{"a": [' + "[]," * 4_000_000 + "[]]}",
}

FIELDS = {
    "schema": ("schema",),
    "result": ("result",),
    "verdict": ("result", "verdict"),
    "sentence": ("result", "sentence"),
    "weights": ("result", "weights"),
    "held-out": ("result", "held_out"),
    "classes": ("result", "held_out", "classes"),
    "inputs": ("result", "held_out", "inputs"),
    "accuracy": ("result", "held_out", "accuracy_before"),
    "thresholds": ("result", "held_out", "thresholds"),
    "confusion": ("confusion",),
    "confusion-before": ("confusion", "before"),
    "confusion-names": ("confusion", "names"),
    "gallery": ("gallery",),
    "confidence": ("confidence",),
    "layers": ("layers",),
    "localisation": ("localisation",),
    "search": ("search",),
    "weights-table": ("weights",),
}
WRONG = {"a-text": "x", "a-list": [1], "an-object": {"a": 1}, "a-number": -7.5}


def report_fields() -> list[Case]:
    """Every field of a report as something else; some that are only shown are shown as they are."""
    cases = []
    for field, path in FIELDS.items():
        for wrong, value in WRONG.items():
            name = f"{field}-{wrong}"
            make = content("report.json", put(*path, value=value))
            cases.append(Case(f"report-with-{name}", "result", "type", make, exits=(0, 3)))
        make = content("report.json", drop(*path))
        exits = (0, 3) if field in ("localisation", "search") else (3,)
        cases.append(Case(f"report-without-{field}", "result", "type", make, exits=exits))
    return cases


def pictures(source: str) -> Change:
    """Every picture of a report leads elsewhere."""

    def change(found: Any) -> None:
        cards = [card for part in found["gallery"].values() for card in part["cards"]]
        for card in cards:
            card["input"] = {"kind": "image", "src": source, "width": 8, "height": 8}
        if not cards:
            raise ValueError("the report has no cards")

    return change


def saliency(source: str) -> Change:
    """A map of what the model looks at leads elsewhere."""

    def change(found: Any) -> None:
        picture = {"kind": "image", "src": source, "width": 8, "height": 8}
        told = {"row": 0, "name": None, "label": "a", "wrong": "b", "became": "fixed"}
        found["saliency"] = [{**told, "input": picture, "before": picture, "after": picture}]

    return change


SOURCES = {
    "on-the-network": "http://127.0.0.1:9/a.png",
    "of-a-file": "file:///etc/passwd",
    "of-a-script": "javascript:alert(1)",
    "of-an-svg": "data:image/svg+xml;base64,PHN2Zy8+",
    "of-html": "data:text/html;base64,PGI+",
    "behind-a-quote": 'data:image/png;base64,AA" onerror="alert(1)',
    "of-no-picture": "data:image/png;base64,AAAA",
    "of-no-base64": "data:image/png;base64,A",
    "of-six-megabytes": "data:image/png;base64," + "A" * (6 << 20),
    "of-two-addresses": "data:image/png;base64,AA==\nhttp://127.0.0.1:9/",
}

RESULTS: dict[str, tuple[Change, list[str]]] = {
    "of-another-command": (put("command", value="scan"), LIST),
    "with-budgets-of-text": (put("budgets", value="x"), LIST),
    "with-a-budget-of-text": (put("budgets", value={"max_break": "x"}), LIST),
    "with-a-budget-of-7": (put("budgets", value={"max_break": 7}), LIST),
    "with-a-confidence-of-7": (put("budgets", value={"max_break": 0.1, "confidence": 7}), LIST),
    "with-drops-of-a-list": (put("budgets", value={"max_class_drop": [1]}), LIST),
    "with-a-choice-of-numbers": (put("chosen_by", value=5), LIST),
    "with-a-seed-of-text": (put("seed", value="x"), CHOOSE),
    "without-a-seed": (drop("seed"), CHOOSE),
    "with-seconds-of-text": (put("seconds", value={"a": "x"}), CHOOSE),
    "with-seconds-of-a-list": (put("seconds", value=[1]), CHOOSE),
    "with-a-localisation-of-text": (put("localised", value="x"), CHOOSE),
    "with-a-localisation-of-texts": (put("localised", value={"front": "x"}), CHOOSE),
    "with-settings-of-text": (put("provenance", value={"settings": "x"}), CHOOSE),
}


def _with_front(name: str, change: Change, argv: list[str]) -> Maker:
    """Change the content of a repair that left a front."""

    def make(folder: Path) -> list[str]:
        file = folder / valid.front(folder) / name
        found = json.loads(file.read_text(encoding="utf-8"))
        change(found)
        file.write_text(json.dumps(found), encoding="utf-8")
        return argv

    return make


def front(change: Callable[[dict[str, Any], dict[str, Any]], object], argv: list[str] = LIST) -> Maker:
    """A repair's folder whose front has other arrays, or another object about them."""

    def make(folder: Path) -> list[str]:
        file = folder / valid.front(folder) / "front.npz"
        with np.load(file) as stored:
            arrays = {name: stored[name] for name in stored.files}
        about = json.loads(arrays.pop("about").tobytes())
        change(arrays, about)
        np.savez(file, about=np.frombuffer(json.dumps(about).encode(), np.uint8), **arrays)
        return argv

    return make


def _array(name: str, value: Any) -> Callable[[dict[str, Any], dict[str, Any]], object]:
    return lambda arrays, about: arrays.update({name: np.asarray(value)})


def _about(*path: str | int, value: Any) -> Callable[[dict[str, Any], dict[str, Any]], object]:
    return lambda arrays, about: put(*path, value=value)(about)


FRONTS: dict[str, Callable[[dict[str, Any], dict[str, Any]], object]] = {
    "of-another-version": _about("schema", value="x"),
    "with-groups-of-text": _about("groups", value="x"),
    "with-points-of-numbers": _about("points", value=[1]),
    "with-a-choice-beyond-its-points": _about("search", "chosen", value=10**6),
    "with-a-negative-choice": _about("search", "chosen", value=-1),
    "with-a-history-of-text": _about("search", "history", value=["x"]),
    "with-a-history-of-unknown-fields": _about("search", "history", value=[{"evil": 1}]),
    "with-an-original-of-text": _about("search", "original", value=["x"]),
    "without-class-names": _about("class_names", value=None),
    "with-too-few-class-names": _about("class_names", value=["a"]),
    "with-sources-of-text": _about("sources", value="x"),
    "with-labels-of-2-to-the-40": lambda arrays, about: arrays.update({"seen.labels": arrays["seen.labels"] + 2**40}),
    "with-negative-rows": lambda arrays, about: arrays.update({"seen.rows": arrays["seen.rows"] - 10**6}),
    "with-rows-of-text": lambda arrays, about: arrays.update({"seen.rows": arrays["seen.rows"].astype(str)}),
    "with-rows-of-two-axes": lambda arrays, about: arrays.update({"seen.rows": arrays["seen.rows"][None]}),
    "with-bits-that-are-too-few": lambda arrays, about: arrays.update({"seen.right": arrays["seen.right"][:, :1]}),
    "with-a-parameter-twice": lambda arrays, about: about["groups"][0]["parameters"].append(
        about["groups"][0]["parameters"][0]
    ),
    "with-weights-out-of-order": lambda arrays, about: arrays.update({"group0.index0": arrays["group0.index0"][::-1]}),
    "with-negative-weights": lambda arrays, about: arrays.update({"group0.index0": arrays["group0.index0"] - 10**6}),
    "with-values-of-nan": lambda arrays, about: arrays.update({"group0.values": arrays["group0.values"] * np.nan}),
    "with-values-that-do-not-fit": _array("group0.values", [1.0]),
    "without-values": lambda arrays, about: arrays.pop("group0.values"),
    "without-deficits": lambda arrays, about: arrays.pop("deficits"),
    "with-deficits-that-are-one": _array("deficits", 1.0),
}


def sources(model: dict[str, Any] | None, data: dict[str, Any] | None = None) -> Maker:
    """A folder that tells where its model and data are."""

    def change(arrays: dict[str, Any], about: dict[str, Any]) -> None:
        about["sources"]["model"] = model if model is not None else about["sources"]["model"]
        about["sources"]["data"] |= data or {}

    def make(folder: Path) -> list[str]:
        (folder / "evil.py").write_text("open('CANARY', 'w').close()\ndef make(*_): open('CANARY', 'w').close()\n")
        return front(change, CHOOSE)(folder)

    return make


PLACES = {
    "a-pattern-of-everything": "/**/*.npz",
    "a-pattern": "*.npz",
    "a-list": "data.npz,data.npz",
    "an-absolute-file": "/etc/hostname",
    "a-folder-above": "../data.npz",
    "a-link": "linked.npz",
    "behind-a-link": "linked/data.npz",
    "nothing": "",
}
"""Names that a front may give its data; only a plain name in the working folder is taken."""


def _place(name: str) -> Maker:
    def make(folder: Path) -> list[str]:
        argv = sources(None, {"data": name})(folder)
        (folder / "linked.npz").symlink_to("data.npz")
        (folder / "linked").symlink_to(".")
        return argv

    return make


def _link(name: str, argv: list[str]) -> Maker:
    """A file of a repair's folder that is a link to one elsewhere, which would do."""

    def make(folder: Path) -> list[str]:
        file = folder / valid.front(folder) / name
        file.rename(folder / "elsewhere")
        file.symlink_to(folder / "elsewhere")
        return argv

    return make


def _sparse(name: str, argv: list[str], size: int = 3 << 30) -> Maker:
    """A file of a repair's folder with a hole of gigabytes behind its bytes, which takes no room on the disk."""

    def make(folder: Path) -> list[str]:
        os.truncate(folder / valid.front(folder) / name, size)
        return argv

    return make


def _sparse_checkpoint(name: str) -> Maker:
    """A checkpoint whose one array is a hole of 4.2 gigabytes."""

    def make(folder: Path) -> list[str]:
        file = folder / valid.checkpoint(folder, name)
        with zipfile.ZipFile(file) as archive:
            about = archive.read("about.npy")
        _write_hole(file, about, 4_200_000_000)
        return list(valid.RESUMED)

    return make


def _write_hole(file: Path, about: bytes, size: int) -> None:
    """An archive of two stored members, the second of them a hole."""
    entries, at = [], 0
    with file.open("wb") as stream:
        for name, content, length in ((b"about.npy", about, len(about)), (b"state/x.npy", b"", size)):
            extra = struct.pack("<HHQQ", 1, 16, length, length)
            head = struct.pack("<HHHHHIIIHH", 45, 0, 0, 0, 0x21, zlib.crc32(content), *[0xFFFFFFFF] * 2, len(name), 20)
            stream.write(b"PK\3\4" + head + name + extra + content)
            stream.seek(length - len(content), 1)
            entries.append(
                b"PK\1\2" + struct.pack("<H", 45) + head + struct.pack("<HHHII", 0, 0, 0, 0, at) + name + extra
            )
            at = stream.tell()
        directory = b"".join(entries)
        end = struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 2, 2, len(directory), at)
        stream.write(directory + b"PK\6\6" + end)
        stream.write(b"PK\6\7" + struct.pack("<IQI", 0, at + len(directory), 1))
        stream.write(b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 2, 2, 0xFFFFFFFF, 0xFFFFFFFF, 0))


def _pipe(name: str, argv: list[str]) -> Maker:
    def make(folder: Path) -> list[str]:
        file = folder / (valid.front(folder) if name == "front.npz" else valid.result(folder)) / name
        file.unlink()
        os.mkfifo(file)
        return argv

    return make


def _no_folder(folder: Path) -> list[str]:
    valid.result(folder)
    shutil.rmtree(folder / "fix")
    (folder / "fix").symlink_to("fix")
    return REPORT


CASES = [
    *(Case(f"report-{name}", "result", "damage", text("report.json", change)) for name, change in TEXTS.items()),
    *(Case(f"result-{name}", "result", "damage", text("result.json", change, LIST)) for name, change in TEXTS.items()),
    *report_fields(),
    *(
        Case(f"report-with-pictures-{name}", "result", "escape", content("report.json", pictures(source)))
        for name, source in SOURCES.items()
    ),
    *(
        Case(f"result-{name}", "result", "type", _with_front("result.json", change, argv))
        for name, (change, argv) in RESULTS.items()
    ),
    *(Case(f"front-{name}", "front", "type", front(change)) for name, change in FRONTS.items()),
    Case("front-whose-model-is-code", "front", "code", sources({"model_file": "evil:make"}), exits=(2, 3)),
    Case("front-whose-model-is-a-factory", "front", "code", sources({"factory": "evil:make"}), exits=(2, 3)),
    Case(
        "front-whose-data-is-prepared-by-code",
        "front",
        "code",
        sources(None, {"preprocess": "evil:make"}),
        exits=(2, 3),
    ),
    Case("front-whose-model-is-a-device", "front", "pipe", sources({"model_file": "/dev/zero", "backend": "onnx"})),
    Case("front-whose-data-is-a-device", "front", "pipe", sources(None, {"data": "/dev/zero"})),
    Case("front-whose-model-is-a-list", "front", "type", sources({"model_file": [1, 2]})),
    *(
        Case(f"{name}-that-is-a-pipe", "result", "pipe", _pipe(name, argv))
        for name, argv in (("report.json", REPORT), ("result.json", LIST), ("front.npz", LIST))
    ),
    *(
        Case(f"report-with-saliency-{name}", "result", "escape", content("report.json", saliency(source)))
        for name, source in SOURCES.items()
    ),
    *(Case(f"front-whose-data-is-{name}", "front", "escape", _place(place)) for name, place in PLACES.items()),
    *(
        Case(f"{name}-that-is-a-link", "result", "escape", _link(name, argv))
        for name, argv in (("report.json", REPORT), ("result.json", LIST), ("front.npz", LIST), ("MODEL_CARD.md", HUB))
    ),
    *(
        Case(f"{name}-with-a-hole-of-gigabytes", "result", "size", _sparse(name, argv))
        for name, argv in (("report.json", REPORT), ("result.json", LIST), ("front.npz", LIST), ("MODEL_CARD.md", HUB))
    ),
    Case("checkpoint-with-a-hole-of-gigabytes", "checkpoint", "size", _sparse_checkpoint("search-000002.npz")),
    Case(
        "localisation-with-a-hole-of-gigabytes",
        "checkpoint",
        "size",
        _sparse_checkpoint("localised.npz"),
        exits=(0, 3),
    ),
    Case("folder-that-links-to-itself", "result", "pipe", _no_folder),
]
