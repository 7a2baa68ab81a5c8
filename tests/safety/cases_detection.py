"""Pictures with boxes: label files of a YOLO folder, its class names, and the JSON of COCO."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image

from tests.safety import valid
from tests.safety.case import Case

Maker = Callable[[Path], list[str]]


def labels(content: bytes | str | None) -> Maker:
    """A YOLO folder whose first picture has these labels; None makes them a pipe."""
    return _beside_pictures("labels/000.txt", content)


def names(file: str, content: bytes | str | None) -> Maker:
    """A YOLO folder whose classes are named by this file."""

    def make(folder: Path) -> list[str]:
        made = _beside_pictures(file, content)(folder)
        if file != "classes.txt":
            (folder / "pictures" / "classes.txt").unlink()
        return made

    return make


def _beside_pictures(file: str, content: bytes | str | None) -> Maker:
    def make(folder: Path) -> list[str]:
        argv = valid.detection(folder)
        path = folder / "pictures" / file
        path.unlink(missing_ok=True)
        if content is None:
            os.mkfifo(path)
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return argv

    return make


def coco(change: Callable[[dict[str, Any]], object] | bytes) -> Maker:
    """A file of annotations after a change, or bytes in its place."""

    def make(folder: Path) -> list[str]:
        argv = valid.coco(folder)
        path = folder / "annotations.json"
        if isinstance(change, bytes):
            path.write_bytes(change)
        else:
            told = json.loads(path.read_text())
            change(told)
            path.write_text(json.dumps(told))
        return argv

    return make


def _link(folder: Path) -> list[str]:
    argv = valid.detection(folder)
    (folder / "pictures" / "labels" / "000.txt").unlink()
    os.symlink("/etc/passwd", folder / "pictures" / "labels" / "000.txt")
    return argv


def _circle(folder: Path) -> list[str]:
    argv = valid.detection(folder)
    (folder / "pictures" / "labels" / "000.txt").unlink()
    os.symlink("000.txt", folder / "pictures" / "labels" / "000.txt")
    return argv


def _lying_picture(folder: Path) -> list[str]:
    argv = valid.coco(folder)
    Image.new("RGB", (7, 7)).save(folder / "images" / "000.png")
    return argv


def _set(part: str, name: str, value: Any) -> Callable[[dict[str, Any]], object]:
    return lambda told: told[part][0].__setitem__(name, value)


def _many_boxes(told: dict[str, Any]) -> None:
    told["annotations"] = [told["annotations"][0]] * 300_000
    told["images"] = [{**told["images"][0], "id": number} for number in range(600)]


LINES: dict[str, bytes | str | None] = {
    "that-are-a-pipe": None,
    "that-are-zero-bytes": bytes(1000),
    "that-are-not-utf8": b"\xff\xfe 0.5 0.5 0.1 0.1\n",
    "with-a-class-of-5000-digits": "9" * 5000 + " 0.5 0.5 0.1 0.1\n",
    "with-a-class-below-zero": "-1 0.5 0.5 0.1 0.1\n",
    "with-an-unknown-class": "99 0.5 0.5 0.1 0.1\n",
    "with-a-half-class": "0.5 0.5 0.5 0.1 0.1\n",
    "with-endless-numbers": "0 1e999 0.5 0.1 0.1\n",
    "with-numbers-that-are-none": "0 nan nan nan nan\n",
    "with-numbers-of-5000-digits": "0 " + "9" * 5000 + " 0.5 0.1 0.1\n",
    "with-negative-sizes": "0 0.5 0.5 -0.1 -0.1\n",
    "with-no-sizes": "0 0.5 0.5 0 0\n",
    "outside-the-picture": "0 5 5 0.1 0.1\n",
    "with-three-numbers": "0 0.5 0.5 0.1\n",
    "with-five-numbers": "0 0.5 0.5 0.1 0.1 0.1\n",
    "with-endless-polygons": "0 " + "inf " * 6 + "\n",
    "with-polygons-of-a-point": "0 " + "0.5 " * 1_000_000 + "\n",
    "that-steer-the-terminal": "\x1b[2J 0.5 0.5 0.1 0.1\n",
    "of-20-megabytes": "0 0.5 0.5 0.1 0.1\n" * 1_200_000,
    "of-one-long-word": "9" * 10_000_000,
}

NAMES: dict[str, tuple[str, bytes | str | None]] = {
    "that-are-a-pipe": ("classes.txt", None),
    "that-are-not-utf8": ("classes.txt", b"\xff\n\xfe\n"),
    "that-are-twice-there": ("classes.txt", "red\nred\n"),
    "that-are-none": ("classes.txt", "\n \n"),
    "that-are-two-million": ("classes.txt", "\n".join(map(str, range(2_000_000)))),
    "that-are-one-too-few": ("classes.txt", "red\n"),
    "in-a-yaml-without-them": ("data.yaml", "nc: 2\n"),
    "in-a-yaml-that-has-them-twice": ("data.yaml", "names: [a]\nnames: [b]\n"),
    "in-a-yaml-with-gaps": ("data.yaml", "names:\n  0: a\n  7: b\n"),
    "in-a-yaml-with-a-million-spaces": ("data.yaml", "names: [a" + " " * 1_000_000 + "'"),
    "in-a-yaml-with-a-million-numbers": ("data.yaml", "names: [" + "1 " * 500_000 + "'"),
    "in-a-yaml-with-a-million-quotes": ("data.yaml", "names: [" + "'" * 1_000_001 + "]\n"),
    "in-a-yaml-with-a-long-number": ("data.yaml", "names: {" + "9" * 5000 + ": a}\n"),
    "in-a-yaml-that-makes-objects": ("data.yaml", "names: !!python/object/apply:os.system ['touch CANARY']\n"),
    "in-a-yaml-of-aliases": ("data.yaml", "a: &a [x, x]\nnames: *a\n"),
}

JSON_CHANGES: dict[str, Callable[[dict[str, Any]], object] | bytes] = {
    "that-is-no-json": b"{",
    "that-is-empty": b"",
    "that-is-a-list": b"[]",
    "of-nested-lists": b"[" * 100_000,
    "with-a-key-twice": b'{"images": [], "images": [], "annotations": [], "categories": []}',
    "with-a-number-of-5000-digits": b'{"images": [' + b"9" * 5000 + b"]}",
    "with-images-that-are-numbers": lambda told: told.__setitem__("images", [1, 2]),
    "with-images-that-are-an-object": lambda told: told.__setitem__("images", {"a": 1}),
    "without-images": lambda told: told.__setitem__("images", []),
    "without-categories": lambda told: told.__setitem__("categories", []),
    "with-a-category-twice": lambda told: told["categories"].append(told["categories"][0]),
    "with-a-category-without-a-name": _set("categories", "name", ""),
    "with-a-category-whose-id-is-text": _set("categories", "id", "1"),
    "with-a-category-whose-name-is-a-list": _set("categories", "name", [[]]),
    "with-a-box-of-nobody": _set("annotations", "image_id", 10**9),
    "with-a-box-of-no-category": _set("annotations", "category_id", 10**9),
    "with-a-box-of-three-numbers": _set("annotations", "bbox", [1, 2, 3]),
    "with-a-box-of-texts": _set("annotations", "bbox", ["a"] * 4),
    "with-a-box-of-400-digits": _set("annotations", "bbox", [10**400] * 4),
    "with-a-box-of-negative-400-digits": _set("annotations", "bbox", [-(10**400), 1, 1, 1]),
    "with-an-endless-box": _set("annotations", "bbox", [1e308, 1e308, 1e308, 1e308]),
    "with-a-box-without-size": _set("annotations", "bbox", [1, 1, 0, 0]),
    "with-a-box-that-is-none": _set("annotations", "bbox", None),
    "with-an-id-that-steers-the-terminal": lambda told: told["annotations"][0].update(id="\x1b[2J", bbox=None),
    "with-an-id-of-half-a-character": lambda told: told["annotations"][0].update(id="\ud800", bbox=None),
    "with-an-image-of-400-digits": lambda told: told["images"][0].update(width=10**400, height=10**400),
    "with-an-image-without-size": _set("images", "width", 0),
    "with-an-image-whose-id-is-a-list": _set("images", "id", []),
    "with-a-file-elsewhere": _set("images", "file_name", "/etc/passwd"),
    "with-a-file-above": _set("images", "file_name", "../../../../etc/passwd"),
    "with-a-file-name-of-zeros": _set("images", "file_name", "a\0b"),
    "with-a-file-name-of-half-a-character": _set("images", "file_name", "\ud800.png"),
    "with-a-file-name-of-a-megabyte": _set("images", "file_name", "a" * 1_000_000),
    "with-a-file-that-is-missing": _set("images", "file_name", "none.png"),
    "with-a-file-that-is-a-folder": _set("images", "file_name", "images"),
    "with-a-file-that-is-itself": _set("images", "file_name", "annotations.json"),
    "with-an-image-twice": lambda told: told["images"].append(told["images"][0]),
    "with-300000-boxes-for-600-pictures": _many_boxes,
}

CASES = [
    *(Case(f"yolo-labels-{name}", "boxes", "type", labels(content)) for name, content in LINES.items()),
    *(Case(f"yolo-names-{name}", "boxes", "type", names(*given)) for name, given in NAMES.items()),
    *(Case(f"coco-{name}", "boxes", "type", coco(change)) for name, change in JSON_CHANGES.items()),
    Case("yolo-labels-that-lead-elsewhere", "boxes", "escape", _link),
    Case("yolo-labels-that-lead-in-a-circle", "boxes", "type", _circle),
    Case("coco-picture-of-another-size", "boxes", "type", _lying_picture),
]
