"""Patches: the text, the file of values beside it, and every command that reads them."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.safety import valid
from tests.safety.case import Case

Maker = Callable[[Path], list[str]]
Document = dict[str, Any]

COMMANDS: dict[str, list[str]] = {
    "show": ["show", "patch.json"],
    "apply": ["apply", "patch.json", "net.onnx", "-o", "out.onnx"],
    "revert": ["revert", "patch.json", "net.onnx", "-o", "out.onnx"],
    "evaluate": ["evaluate", "net.onnx", "--data", "data.npz", "--patch", "patch.json"],
    "stack": ["stack", "patch.json", "patch.json", "-o", "both.json"],
    "log": ["log", "net.onnx", "--patches", "patch.json"],
}


def text(change: Callable[[str], str | bytes], command: str = "show") -> Maker:
    """A patch whose text is changed."""

    def make(folder: Path) -> list[str]:
        file = folder / valid.patch(folder)
        changed = change(file.read_text(encoding="utf-8"))
        file.write_bytes(changed.encode("utf-8", "surrogatepass") if isinstance(changed, str) else changed)
        return COMMANDS[command]

    return make


def document(change: Callable[[Document], object], command: str = "show") -> Maker:
    """A patch whose content is changed."""

    def apply_change(content: str) -> str:
        found = json.loads(content)
        change(found)
        return json.dumps(found)

    return text(apply_change, command)


def put(*path: str | int, value: Any) -> Callable[[Document], object]:
    """Set one value, wherever it is."""

    def change(found: Any) -> None:
        for step in path[:-1]:
            found = found[step]
        found[path[-1]] = value

    return change


LONG_TEXT = "9" * 400
TEXTS: dict[str, Callable[[str], str | bytes]] = {
    "of-nothing": lambda _: "",
    "of-null": lambda _: "null",
    "of-a-list": lambda _: "[]",
    "of-a-number": lambda _: "7",
    "of-brackets-without-end": lambda _: "[" * 1_000_000,
    "of-objects-without-end": lambda _: '{"a":' * 100_000,
    "of-zero-bytes": lambda _: bytes(1000),
    "that-is-not-utf8": lambda found: found.encode() + b"\xff",
    "cut-off": lambda found: found[: len(found) // 2],
    "with-rubbish-behind": lambda found: found + "x",
    "with-a-number-of-400-digits": lambda found: found.replace('"index": [', f'"index": [{LONG_TEXT}, ', 1),
    "with-a-number-of-5000-digits": lambda found: found.replace('"index": [', f'"index": [{"9" * 5000}, ', 1),
    "with-a-float-of-400-digits": lambda found: found.replace('"old": ', f'"old": {LONG_TEXT}.5', 1),
    "with-1e999": lambda found: found.replace('"old": ', '"old": 1e999, "x": ', 1),
    "with-nan": lambda found: found.replace('"new": ', '"new": NaN, "x": ', 1),
    "with-infinity": lambda found: found.replace('"new": ', '"new": -Infinity, "x": ', 1),
    "with-half-a-character-in-a-name": lambda found: found.replace('"layer": "hidden"', '"layer": "\\ud800"'),
    "with-half-a-character-in-a-key": lambda found: found.replace('"seed"', '"\\udfff"'),
    "with-half-a-character-in-raw-bytes": lambda found: found.replace("hidden", "\ud800").encode(
        "utf-8", "surrogatepass"
    ),
    "with-a-key-twice": lambda found: found.replace('"schema"', '"schema": 1, "schema"', 1),
    "with-ten-thousand-keys-and-one-twice": lambda found: found.replace(
        '"provenance": {', '"provenance": {' + "".join(f'"k{n}": 1, ' for n in range(10_000)) + '"k9999": 1, ', 1
    ),
    "of-another-version": lambda found: found.replace("arachne.patch/1", "arachne.patch/2"),
    "with-a-version-of-a-list": lambda found: found.replace('"arachne.patch/1"', "[]"),
    "with-a-newline-behind-its-version": lambda found: found.replace("arachne.patch/1", "arachne.patch/1\\n"),
    "of-three-million-lists": lambda _: "[" + "[]," * 3_000_001 + "[]]",
}

VALUES: dict[str, Callable[[Document], object]] = {
    "base-that-is-a-list": put("base", value=[]),
    "base-that-is-null": put("base", value=None),
    "tensors-that-are-text": put("base", "tensors", value="x"),
    "tensors-that-are-numbers": put("base", "tensors", value=[1, 2]),
    "tensor-of-a-negative-side": put("base", "tensors", 0, "shape", value=[-1, 64]),
    "tensor-of-no-side": put("base", "tensors", 0, "shape", value=[0]),
    "tensor-of-2-to-the-62": put("base", "tensors", 0, "shape", value=[2**62, 2**62]),
    "tensor-of-a-hundred-axes": put("base", "tensors", 0, "shape", value=[1] * 100),
    "tensor-with-a-side-that-is-text": put("base", "tensors", 0, "shape", value=["a"]),
    "tensor-with-a-side-that-is-true": put("base", "tensors", 0, "shape", value=[True, 64]),
    "tensor-of-objects": put("base", "tensors", 0, "dtype", value="object"),
    "tensor-of-a-list-as-dtype": put("base", "tensors", 0, "dtype", value=["float32"]),
    "tensor-with-a-hash-that-is-short": put("base", "tensors", 0, "sha256", value="ab"),
    "tensor-with-a-hash-with-a-newline": put("base", "tensors", 0, "sha256", value="a" * 64 + "\n"),
    "tensor-used-2-to-the-62-times-as-text": put("base", "tensors", 0, "uses", value="2"),
    "tensor-listed-twice": lambda found: found["base"]["tensors"].append(found["base"]["tensors"][0]),
    "tensor-that-nothing-changes": lambda found: found["base"]["tensors"].append(
        {**found["base"]["tensors"][0], "layer": "other"}
    ),
    "entries-that-are-an-object": put("entries", value={}),
    "entry-that-is-null": put("entries", 0, value=None),
    "entry-outside-its-tensor": put("entries", 0, "index", value=[10**6, 0]),
    "entry-with-a-negative-place": put("entries", 0, "index", value=[-1, 0]),
    "entry-with-too-few-places": put("entries", 0, "index", value=[0]),
    "entry-with-too-many-places": put("entries", 0, "index", value=[0] * 40),
    "entry-with-a-place-of-2-to-the-70": put("entries", 0, "index", value=[2**70, 0]),
    "entry-with-a-place-that-is-a-float": put("entries", 0, "index", value=[0.0, 0]),
    "entry-with-bits-of-nan": put("entries", 0, "new_bits", value="7fc00000"),
    "entry-with-bits-of-infinity": put("entries", 0, "new_bits", value="7f800000"),
    "entry-with-bits-that-are-too-few": put("entries", 0, "new_bits", value="3f80"),
    "entry-with-bits-that-are-no-bits": put("entries", 0, "new_bits", value="xyzxyzxy"),
    "entry-with-bits-that-are-a-number": put("entries", 0, "new_bits", value=5),
    "entry-whose-value-is-not-its-bits": put("entries", 0, "new", value=1.5),
    "entry-whose-value-is-true": put("entries", 0, "new", value=True),
    "entry-whose-value-is-beyond-float32": put("entries", 0, "new", value=1e300),
    "entry-of-another-dtype": put("entries", 0, "dtype", value="float64"),
    "entry-of-an-unknown-dtype": put("entries", 0, "dtype", value="int8"),
    "entry-of-a-tensor-nobody-lists": put("entries", 0, "layer", value="evil"),
    "entry-twice": lambda found: found["entries"].append(found["entries"][0]),
    "entry-with-a-name-that-is-a-list": put("entries", 0, "layer", value=["hidden"]),
    "values-in-a-file-outside": put("values", value={"file": "../x.safetensors", "sha256": "a" * 64, "weights": 1}),
    "values-in-an-absolute-file": put("values", value={"file": "/x.safetensors", "sha256": "a" * 64, "weights": 1}),
    "values-in-a-file-with-a-zero": put("values", value={"file": "a\0.safetensors", "sha256": "a" * 64, "weights": 1}),
    "values-in-a-file-and-in-the-text": put(
        "values", value={"file": "x.safetensors", "sha256": "a" * 64, "weights": 1}
    ),
    "provenance-that-is-a-list": put("provenance", value=[]),
    "provenance-with-a-target-of-numbers": put("provenance", "target", value=[1, 2]),
    "provenance-with-300000-targets": put("provenance", "target", value=["8:1"] * 300_000),
    "provenance-with-a-target-of-objects": put("provenance", "target", value={"a": 1}),
    "provenance-with-a-seed-of-text": put("provenance", "seed", value="x"),
    "provenance-with-data-of-text": put("provenance", "data", value="x"),
    "provenance-with-a-hash-that-is-a-list": put("provenance", "data", "sha256", value=[]),
    "provenance-with-seen-rows-that-are-numbers": put("provenance", "data", "seen", "rows", value=5),
    "provenance-with-a-stack-of-numbers": put("provenance", "stack", value=[1, 2]),
    "provenance-with-a-stack-of-stacks": put("provenance", "stack", value=[{"provenance": []}]),
    "provenance-derived-from-a-text": put("provenance", "derived_from", value="x"),
    "provenance-derived-from-numbers": put("provenance", "derived_from", value={"tensors": [1]}),
    "provenance-with-causes-of-a-list": put("provenance", "causes", value=[1]),
    "provenance-nested-a-thousand-times": put("provenance", "x", value=json.loads("[" * 900 + "]" * 900)),
    "evidence-that-is-null": put("evidence", value=None),
    "evidence-with-counts-of-text": put("evidence", "held_out", value={"repaired": "x"}),
    "evidence-with-counts-that-are-a-list": put("evidence", "held_out", value=[1]),
    "evidence-with-an-interval-of-one": put("evidence", "held_out", "repair_interval", value=[0]),
    "evidence-with-an-interval-of-text": put("evidence", "held_out", "break_interval", value=["a", "b"]),
    "evidence-with-a-verdict-of-numbers": put("evidence", "verdict", value=[1]),
    "fingerprint-that-is-a-number": put("fingerprints", value=[1]),
    "fingerprint-with-too-few-projections": put(
        "fingerprints", value=[{"layer": "hidden", "parameter": "weight", "row": 0, "norm": 1, "projections": [1]}]
    ),
    "fingerprint-with-a-negative-norm": put(
        "fingerprints", value=[{"layer": "hidden", "parameter": "weight", "row": 0, "norm": -1, "projections": [1] * 4}]
    ),
    "something-unknown": put("evil", value=1),
}

FITTING: dict[str, tuple[str, Callable[[Document], object]]] = {
    "of-another-model": ("apply", put("base", "tensors", 0, "sha256", value="a" * 64)),
    "that-promises-another-tensor": ("apply", put("base", "tensors", 0, "patched_sha256", value="a" * 64)),
    "that-the-model-does-not-carry": ("revert", put("base", "file", value=None)),
    "with-a-target-that-is-no-target": ("evaluate", put("provenance", "target", value=["::::"])),
    "with-a-target-of-a-pipe": ("evaluate", put("provenance", "target", value=["rows:/dev/zero"])),
    "with-a-target-of-a-class-nobody-has": ("evaluate", put("provenance", "target", value=["99:98"])),
    "with-a-cause-that-is-a-number": (
        "evaluate",
        lambda found: found["provenance"].update(target=["cause:1"], causes={"cause:1": 5}),
    ),
    "with-a-cause-of-no-kind": (
        "evaluate",
        lambda found: found["provenance"].update(target=["cause:1"], causes={"cause:1": {"kind": "evil"}}),
    ),
}


def large(change: Callable[[dict[str, Any], bytes], tuple[dict[str, Any], bytes]], *, hashed: bool = True) -> Maker:
    """A patch whose values lie in a file beside it, with another header or other bytes."""

    def make(folder: Path) -> list[str]:
        file = folder / valid.patch(folder)
        found = json.loads(file.read_text(encoding="utf-8"))
        tensor = found["base"]["tensors"][0]
        found["base"]["tensors"] = [tensor]
        name = f"{tensor['layer']}.{tensor['parameter']}"
        header, data = _values(name)
        header, data = change(header, data)
        head = json.dumps(header).encode()
        content = struct.pack("<Q", len(head)) + head + data
        (folder / "patch.safetensors").write_bytes(content)
        digest = hashlib.sha256(content).hexdigest() if hashed else "a" * 64
        found |= {"entries": [], "values": {"file": "patch.safetensors", "sha256": digest, "weights": 1}}
        found.pop("fingerprints", None)
        file.write_text(json.dumps(found), encoding="utf-8")
        return COMMANDS["show"]

    return make


def _values(name: str) -> tuple[dict[str, Any], bytes]:
    parts = {
        "index": ("I64", [1, 2], 16),
        "old": ("F32", [1], 4),
        "new": ("F32", [1], 4),
        "fingerprints": ("F64", [0, 6], 0),
    }
    header, at = {}, 0
    for part, (code, shape, size) in parts.items():
        header[f"{name}.{part}"] = {"dtype": code, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    return header, bytes(24)


def _edit(part: str, **new: Any) -> Callable[[dict[str, Any], bytes], tuple[dict[str, Any], bytes]]:
    def change(header: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        header[next(name for name in header if name.endswith(part))] |= new
        return header, data

    return change


LARGE: dict[str, Maker] = {
    "whose-hash-is-another": large(lambda header, data: (header, data), hashed=False),
    "cut-off": large(lambda header, data: (header, data[:10])),
    "with-bytes-left-over": large(lambda header, data: (header, data + b"x")),
    "that-overlap": large(_edit("old", data_offsets=[0, 4])),
    "with-a-hole": large(_edit("new", data_offsets=[22, 26])),
    "whose-offsets-are-text": large(_edit("old", data_offsets=["a", "b"])),
    "whose-offsets-are-one": large(_edit("old", data_offsets=[0])),
    "whose-offsets-go-backwards": large(_edit("old", data_offsets=[20, 16])),
    "of-an-unknown-dtype": large(_edit("old", dtype="Q7")),
    "of-another-dtype": large(_edit("old", dtype="F16", data_offsets=[16, 18])),
    "whose-shape-is-negative": large(_edit("old", shape=[-1])),
    "whose-shape-is-2-to-the-62": large(_edit("old", shape=[2**62])),
    "whose-shape-is-text": large(_edit("old", shape="x")),
    "of-a-hundred-axes": large(_edit("index", shape=[1] * 98 + [1, 2])),
    "with-an-array-nobody-lists": large(lambda header, data: ({**header, "evil": header[min(header)]}, data)),
    "without-its-index": large(lambda header, data: ({k: v for k, v in header.items() if "index" not in k}, data[16:])),
    "whose-header-is-a-list": large(lambda header, data: ([], data)),  # type: ignore[arg-type,return-value]  # hostile
    "whose-member-is-a-number": large(lambda header, data: (dict.fromkeys(header, 5), data)),
    "with-a-negative-place": large(lambda header, data: (header, b"\xff" * 16 + data[16:])),
    "with-nan": large(lambda header, data: (header, data[:16] + struct.pack("<f", float("nan")) + data[20:])),
    "with-fingerprints-of-nan": large(
        lambda header, data: (
            _edit("fingerprints", shape=[1, 6], data_offsets=[24, 72])(header, data)[0],
            data + struct.pack("<6d", *[float("nan")] * 6),
        )
    ),
}


def _pipe(command: str) -> Maker:
    def make(folder: Path) -> list[str]:
        valid.model(folder)
        valid.data(folder)
        os.mkfifo(folder / "patch.json")
        return COMMANDS[command]

    return make


def _values_pipe(folder: Path) -> list[str]:
    argv = large(lambda header, data: (header, data))(folder)
    (folder / "patch.safetensors").unlink()
    os.mkfifo(folder / "patch.safetensors")
    return argv


def _big(folder: Path) -> list[str]:
    """Three megabytes of patch that are right but for their last entry."""
    file = folder / valid.patch(folder)
    found = json.loads(file.read_text(encoding="utf-8"))
    entry = found["entries"][0]
    found["base"]["tensors"] = [{**found["base"]["tensors"][0], "shape": [40_000, 64]}]
    found["entries"] = [{**entry, "index": [number, 0]} for number in range(20_000)] + [{**entry, "index": [0, 0]}]
    file.write_text(json.dumps(found), encoding="utf-8")
    return COMMANDS["show"]


CASES = [
    *(Case(f"patch-{name}", "patch", "type", text(change)) for name, change in TEXTS.items()),
    *(Case(f"patch-{name}", "patch", "value", document(change)) for name, change in VALUES.items()),
    *(Case(f"patch-{name}", "patch", "fit", document(change, at)) for name, (at, change) in FITTING.items()),
    *(Case(f"patch-values-{name}", "patch", "size", make) for name, make in LARGE.items()),
    *(Case(f"patch-that-is-a-pipe-in-{name}", "patch", "pipe", _pipe(name)) for name in COMMANDS),
    *(
        Case(f"patch-with-nan-in-{name}", "patch", "value", text(TEXTS["with-nan"], name))
        for name in ("apply", "revert", "evaluate", "stack", "log")
    ),
    Case("patch-values-that-are-a-pipe", "patch", "pipe", _values_pipe),
    Case("patch-of-3-megabytes", "patch", "size", _big),
]
