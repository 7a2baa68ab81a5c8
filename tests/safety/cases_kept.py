"""Files kept for later runs: checkpoints, fronts, manifests, cards, low-rank edits, and files of a scheduler."""

from __future__ import annotations

import base64
import io
import json
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from arachne.io.own_key import make_mark
from tests.safety import valid
from tests.safety.case import Case
from tests.safety.cases_results import TEXTS, Maker, put
from tests.safety.cases_rules import WRONG

Stored = tuple[dict[str, Any], dict[str, Any]]
"""The JSON object of an npz file of ours, and its arrays."""


def unpack(content: bytes) -> Stored:
    """Take an npz file of ours apart."""
    with np.load(io.BytesIO(content)) as stored:
        arrays = {name: stored[name] for name in stored.files}
    return json.loads(arrays.pop("about").tobytes()), arrays


def pack(about: Any, arrays: dict[str, Any], *, key: bytes = valid.KEY) -> bytes:
    """Put it together again, with the mark of a key where it had one."""
    text = json.dumps(about).encode()
    if "mark" in arrays:
        arrays = arrays | {"mark": np.frombuffer(make_mark(key, text), np.uint8)}
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, about=np.frombuffer(text, np.uint8), **arrays)
    return stream.getvalue()


def keep_checkpoint(name: str, *path: str | int, value: Any) -> Maker:
    """A run that was interrupted, whose checkpoint has something else in one place, and the right mark."""

    def make(folder: Path) -> list[str]:
        file = folder / valid.checkpoint(folder, name)
        about, arrays = unpack(file.read_bytes())
        put(*path, value=value)(about)
        file.write_bytes(pack(about, arrays))
        return list(valid.RESUMED)

    return make


def mark_checkpoint(change: Callable[[Path], object]) -> Maker:
    """A checkpoint that a stranger has made: whole, and with the mark of no key, of another, or of other bytes."""

    def make(folder: Path) -> list[str]:
        change(folder / valid.checkpoint(folder))
        return list(valid.RESUMED)

    return make


def _without_mark(file: Path) -> None:
    about, arrays = unpack(file.read_bytes())
    arrays.pop("mark")
    file.write_bytes(pack(about, arrays))


def _other_key(file: Path) -> None:
    file.write_bytes(pack(*unpack(file.read_bytes()), key=b"x" * 32))


def _old_mark(file: Path) -> None:
    about, arrays = unpack(file.read_bytes())
    mark = arrays.pop("mark")
    about["seconds"] = {}
    file.write_bytes(pack(about, {"mark2": mark} | arrays).replace(b"mark2.npy", b"mark.npy"))


def _long_mark(file: Path) -> None:
    about, arrays = unpack(file.read_bytes())
    stream = io.BytesIO()
    text = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez(stream, allow_pickle=False, about=text, **(arrays | {"mark": np.zeros(10**7, np.uint8)}))
    file.write_bytes(stream.getvalue())


def _short_mark(file: Path) -> None:
    about, arrays = unpack(file.read_bytes())
    stream = io.BytesIO()
    text = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez(stream, allow_pickle=False, about=text, **(arrays | {"mark": np.zeros(0, np.uint8)}))
    file.write_bytes(stream.getvalue())


STRANGERS = {
    "without-a-mark": _without_mark,
    "with-the-mark-of-another-key": _other_key,
    "with-the-mark-of-other-bytes": _old_mark,
    "with-a-mark-of-ten-megabytes": _long_mark,
    "with-an-empty-mark": _short_mark,
}

STATE: dict[str, tuple[str | int, ...]] = {
    "schema": ("schema",),
    "fields": ("fields",),
    "arrays": ("arrays",),
    "state": ("state",),
    "history": ("state", "history"),
    "generation": ("state", "history", 0),
    "fitness": ("state", "history", 0, "fitness"),
    "values": ("state", "values"),
    "unchanged": ("state", "values", "unchanged"),
    "stopped": ("state", "stopped"),
    "random": ("random",),
    "random-state": ("random", "state"),
    "seconds": ("seconds",),
}
LOCALISED: dict[str, tuple[str | int, ...]] = {
    "method": ("method",),
    "front": ("front",),
    "candidates": ("candidates",),
    "parameters": ("parameters",),
    "parameter": ("parameters", 0),
    "scores": ("scores",),
    "localised-random": ("random",),
}
FRONT: dict[str, tuple[str | int, ...]] = {
    "schema": ("schema",),
    "groups": ("groups",),
    "group": ("groups", 0),
    "parameters": ("groups", 0, "parameters"),
    "points": ("points",),
    "point": ("points", 0),
    "search": ("search",),
    "chosen": ("search", "chosen"),
    "history": ("search", "history"),
    "class-names": ("class_names",),
    "sources": ("sources",),
    "model": ("sources", "model"),
}
DELTA = ("layer", "parameter", "rank", "left", "right", "residue")
READ = (0, 2, 3)
"""A place that is not looked at, or that says nothing against it, is no reason to refuse a file."""


def front(*path: str | int, value: Any, argv: list[str]) -> Maker:
    """A repair's folder whose front has something else in one place."""

    def make(folder: Path) -> list[str]:
        file = folder / valid.front(folder) / "front.npz"
        about, arrays = unpack(file.read_bytes())
        put(*path, value=value)(about)
        file.write_bytes(pack(about, arrays))
        return argv

    return make


def manifest(change: Callable[[Any, Path], object], argv: list[str]) -> Maker:
    """A repair's folder with another manifest, which a repair is to replace or a page goes into."""

    def make(folder: Path) -> list[str]:
        fix = folder / valid.result(folder)
        found = json.loads((fix / "manifest.json").read_text())
        change(found, fix)
        (fix / "manifest.json").write_text(json.dumps(found))
        return argv

    return make


def write_manifest(change: Callable[[str], str | bytes], argv: list[str]) -> Maker:
    """A repair's folder with another text as its manifest."""

    def make(folder: Path) -> list[str]:
        file = folder / valid.result(folder) / "manifest.json"
        changed = change(file.read_text())
        file.write_bytes(changed.encode("utf-8", "surrogatepass") if isinstance(changed, str) else changed)
        return argv

    return make


def delta(change: Callable[[dict[str, Any]], object], *argv: str) -> Maker:
    """A patch whose low-rank edit is another."""

    def make(folder: Path) -> list[str]:
        file = folder / valid.delta(folder)
        found = json.loads(file.read_text())
        change(found)
        file.write_text(json.dumps(found))
        return [*argv]

    return make


def card(change: Callable[[Path], object]) -> Maker:
    """A repair's folder with another card, which is copied for a hub."""

    def make(folder: Path) -> list[str]:
        change(folder / valid.result(folder) / "MODEL_CARD.md")
        return ["report", "fix", "--hub-card", "card.md"]

    return make


def scheduler(content: bytes) -> Maker:
    """A file that should say where a scheduler listens."""

    def make(folder: Path) -> list[str]:
        (folder / "scheduler.json").write_bytes(content)
        return ["scan", valid.model(folder), "--data", valid.data(folder), "--cluster", "scheduler.json"]

    return make


def _replace(file: Path, make: Callable[[Path], object]) -> None:
    file.unlink()
    make(file)


FORCE = ["repair", "net.onnx", "--data", "data.npz", "--target", "top:1", "--search", "bias", "-o", "fix", "--force"]
REPORT = ["report", "fix", "--force"]
APPLY, SHOW = ("apply", "patch.json", "net.onnx", "-o", "o.onnx"), ("show", "patch.json")


def _name(name: str) -> Callable[[Any, Path], object]:
    return lambda found, fix: found["files"].update({name: {"bytes": 1, "sha256": "0" * 64}})


MANIFESTS: dict[str, Callable[[Any, Path], object]] = {
    "that-names-a-file-above": _name("../net.onnx"),
    "that-names-a-file-elsewhere": _name("/etc/passwd"),
    "that-names-itself": _name("manifest.json"),
    "that-names-a-device": _name("/dev/zero"),
    "that-names-a-folder": _name("."),
    "that-names-nothing": _name(""),
    "that-names-a-zero-byte": _name("a\0b"),
    "that-names-half-a-character": _name("\ud800"),
    "that-names-a-file-twice-over": _name("./patch.json"),
    "with-a-hash-of-others": lambda found, fix: found["files"]["patch.json"].update(sha256="0" * 64),
    "without-a-hash": lambda found, fix: found["files"]["patch.json"].pop("sha256"),
    "of-ten-thousand-files": lambda found, fix: [_name(f"f{n}")(found, fix) for n in range(10_000)],
    "for-a-letter-of-somebody": lambda found, fix: (fix / "letter").write_text("dear"),
    "with-a-link-to-the-model": lambda found, fix: os.symlink("../net.onnx", fix / "link"),
    "with-a-patch-that-is-a-link": lambda found, fix: _replace(
        fix / "patch.json", lambda f: f.symlink_to("../net.onnx")
    ),
    "with-a-patch-that-is-a-folder": lambda found, fix: _replace(fix / "patch.json", Path.mkdir),
    "with-a-patch-that-is-a-pipe": lambda found, fix: _replace(fix / "patch.json", os.mkfifo),
}
CARDS: dict[str, Callable[[Path], object]] = {
    "of-nothing": lambda file: file.write_bytes(b""),
    "that-is-not-utf8": lambda file: file.write_bytes(b"\xff\xfe card"),
    "of-five-megabytes": lambda file: file.write_bytes(b"x" * (5 << 20)),
    "that-is-a-hole-of-gigabytes": lambda file: os.truncate(file, 3_100_000_000),
    "that-is-a-link": lambda file: _replace(file, lambda f: f.symlink_to("/etc/passwd")),
    "that-is-a-pipe": lambda file: _replace(file, os.mkfifo),
    "that-is-a-folder": lambda file: _replace(file, Path.mkdir),
    "that-is-a-device": lambda file: _replace(file, lambda f: f.symlink_to("/dev/zero")),
    "that-is-missing": lambda file: file.unlink(),
    "with-metadata-of-its-own": lambda file: file.write_text("---\nlicense: x\n--- \n!!python/object:os.system\n"),
    "with-metadata-without-end": lambda file: file.write_text("---\n" + "a: &a [*a]\n" * 1000),
    "of-zero-bytes": lambda file: file.write_bytes(bytes(1000)),
}


def _floats(value: float) -> str:
    return base64.b64encode(np.full(32, value, "<f4").tobytes()).decode()


def _bomb(found: dict[str, Any]) -> None:
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(bytes(1 << 24)) for _ in range(64)) + packer.flush()
    found["low_rank"][0]["residue"] = base64.b64encode(b"\x01" + packed).decode()


DELTAS: dict[str, Callable[[dict[str, Any]], object]] = {
    "whose-residue-unpacks-to-gigabytes": _bomb,
    "whose-residue-has-wide-numbers": put("low_rank", 0, "residue", value=base64.b64encode(b"\xff" * 40).decode()),
    "with-a-rank-of-2-to-the-40": put("low_rank", 0, "rank", value=2**40),
    "with-a-rank-of-0": put("low_rank", 0, "rank", value=0),
    "with-vectors-of-nan": put("low_rank", 0, "left", value=_floats(np.nan)),
    "with-vectors-of-1e38": put("low_rank", 0, "left", value=_floats(3e38)),
    "with-too-few-numbers": put("low_rank", 0, "left", value=base64.b64encode(bytes(8)).decode()),
    "with-half-a-number": put("low_rank", 0, "left", value=base64.b64encode(bytes(127)).decode()),
    "of-one-tensor-twice": lambda found: found["low_rank"].append(found["low_rank"][0]),
    "a-thousand-times": lambda found: found["low_rank"].extend(found["low_rank"] * 1000),
    "of-a-tensor-that-is-not-listed": put("low_rank", 0, "layer", value="nobody"),
    "of-a-tensor-of-another-shape": put("base", "tensors", 0, "shape", value=[2**30, 2**30]),
    "of-a-tensor-without-axes": put("base", "tensors", 0, "shape", value=[]),
    "of-a-tensor-of-another-dtype": put("base", "tensors", 0, "dtype", value="int64"),
    "of-a-tensor-with-another-hash": put("base", "tensors", 0, "patched_sha256", value="0" * 64),
    "in-a-direction-nobody-knows": put("low_rank", 0, "direction", value="up"),
}  # fmt: skip
SCHEDULERS = {
    "of-nothing": b"",
    "of-a-list": b"[]",
    "of-brackets-without-end": b"[" * 1_000_000,
    "without-an-address": b"{}",
    "with-an-address-of-a-number": b'{"address": 7}',
    "with-an-address-of-no-protocol": b'{"address": "nowhere"}',
    "with-an-address-of-an-unknown-protocol": b'{"address": "gopher://127.0.0.1:9"}',
    "that-is-not-utf8": b'{"address": "\xff"}',
    "that-is-a-pickle": b"\x80\x04cos\nsystem\n.",
}


def _wrong_places() -> Iterator[Case]:
    """Each place of the objects that are kept, as something else."""
    for wrong, value in WRONG.items():
        for name, path in STATE.items():
            make = keep_checkpoint("search-000002.npz", *path, value=value)
            yield Case(f"checkpoint-with-{name}-{wrong}", "checkpoint", "type", make, exits=READ)
        for name, path in LOCALISED.items():
            make = keep_checkpoint("localised.npz", *path, value=value)
            yield Case(f"localisation-with-{name}-{wrong}", "checkpoint", "type", make, exits=READ)
        for name, path in FRONT.items():
            make = front(*path, value=value, argv=["choose", "fix"])
            yield Case(f"front-with-{name}-as-{wrong}", "front", "type", make, exits=READ)
        for field in DELTA:
            make = delta(put("low_rank", 0, field, value=value), *APPLY)
            yield Case(f"delta-with-{field}-{wrong}", "delta", "type", make)


CASES = [
    *_wrong_places(),
    *(Case(f"checkpoint-{name}", "checkpoint", "forged", mark_checkpoint(make)) for name, make in STRANGERS.items()),
    *(
        Case(f"manifest-{name}-under-{argv[0]}", "manifest", "forged", manifest(change, argv), exits=READ)
        for name, change in MANIFESTS.items()
        for argv in (FORCE, REPORT)
    ),
    *(
        Case(f"manifest-{name}-under-{argv[0]}", "manifest", "text", write_manifest(change, argv), exits=READ)
        for name, change in TEXTS.items()
        for argv in (FORCE, REPORT)
    ),
    *(Case(f"card-{name}", "card", "size", card(change), exits=READ) for name, change in CARDS.items()),
    *(
        Case(f"delta-{name}-under-{argv[0]}", "delta", "size", delta(change, *argv), exits=exits)
        for name, change in DELTAS.items()
        for argv, exits in ((APPLY, (3,)), (SHOW, READ))
    ),
    *(Case(f"scheduler-file-{name}", "scheduler", "type", scheduler(text)) for name, text in SCHEDULERS.items()),
]  # fmt: skip
