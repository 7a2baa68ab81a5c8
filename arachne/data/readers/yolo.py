"""Read a YOLO folder: `images/`, and in `labels/` a text file for each with a line `class x y width height` per box."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Sequence
from pathlib import Path

from arachne.data.preprocess import Preprocess
from arachne.data.readers.boxes import LabelledPicture, check_box, load_labelled
from arachne.data.readers.images import pictures_below
from arachne.data.readers.raw import RawData
from arachne.errors import DataError
from arachne.io.reading import read_text

IMAGES, LABELS = "images", "labels"
NAME_FILES = ("classes.txt", "obj.names", "data.yaml", "data.yml", "dataset.yaml")
MOST_LABEL_FILE = 16 << 20
MOST_CLASSES = 100_000


def label_folder(folder: Path) -> tuple[Path, Path] | None:
    """Return the folders of pictures and of labels, if this is a YOLO folder: it holds both, or is below `images`."""
    if os.path.isdir(folder / IMAGES) and os.path.isdir(folder / LABELS):
        return folder / IMAGES, folder / LABELS
    parts = folder.absolute().parts
    if IMAGES in parts:
        at = len(parts) - 1 - parts[::-1].index(IMAGES)
        beside = Path(*parts[:at], LABELS, *parts[at + 1 :])
        if os.path.isdir(beside):
            return folder, beside
    return None


def read_yolo_folder(folder: Path, preprocess: Preprocess, limit: int | None, memory: int) -> RawData:
    """Read pictures and their boxes; a picture without a label file has none.

    Class names come from `classes.txt` or the `names` of `data.yaml`, in the folder, in `labels/` or above it.

    Raises:
        DataError: There are no pictures, a label file has no picture, or a line is no box in the picture.
    """
    found = label_folder(folder)
    if found is None:
        raise DataError(f"'{folder}' has no folders 'images' and 'labels'")
    images, labels = found
    paths = pictures_below(images)
    if not paths:
        raise DataError(f"no pictures below '{images}'")
    texts = {path.relative_to(labels).with_suffix("") for path in labels.rglob("*.txt") if path.name not in NAME_FILES}
    alone = sorted(texts - {path.relative_to(images).with_suffix("") for path in paths})
    if alone:
        raise DataError(f"'{labels / alone[0]}.txt' has no picture in '{images}' ({len(alone)} such files in all)")
    names = read_class_list([folder, labels, folder.absolute().parent, labels.parent])
    pictures = []
    for path in paths[:limit]:
        text = labels / path.relative_to(images).with_suffix(".txt")
        pictures.append(LabelledPicture(path, _read_boxes(text, names) if os.path.lexists(text) else ()))
    return load_labelled(pictures, names, images, preprocess, memory)


def _read_boxes(path: Path, names: Sequence[str] | None) -> list[tuple[int, float, float, float, float]]:
    """Read the boxes of one picture; a polygon is taken by the box around it."""
    lines = read_text(path, "label file", MOST_LABEL_FILE, DataError).splitlines()
    found = []
    for at, line in enumerate(lines, start=1):
        words, where = line.split(), f"line {at} of '{path}'"
        if not words:
            continue
        try:
            number, values = int(words[0]), [float(word) for word in words[1:]]
        except ValueError as error:
            raise DataError(f"{where} is '{line[:60]}', expected a class number and 4 numbers") from error
        if len(values) != 4 and (len(values) < 6 or len(values) % 2):
            raise DataError(f"{where} has {len(values)} numbers behind the class, expected 4: x y width height")
        last = (MOST_CLASSES if names is None else len(names)) - 1
        if not 0 <= number <= last:
            raise DataError(f"{where} has the class {number}, expected 0 to {last}")
        found.append((number, *check_box(values if len(values) == 4 else _around(values), where)))
    return found


def _around(points: Sequence[float]) -> tuple[float, float, float, float]:
    """Return centre and size of the box around a polygon, which is given as x1 y1 x2 y2 and so on."""
    across, down = points[::2], points[1::2]
    left, right, top, bottom = min(across), max(across), min(down), max(down)
    return (left + right) / 2, (top + bottom) / 2, right - left, bottom - top


def read_class_list(folders: Sequence[Path]) -> tuple[str, ...] | None:
    """Read the class names from the first file that has them."""
    for folder in folders:
        for name in NAME_FILES:
            path = folder / name
            if os.path.lexists(path):
                text = read_text(path, "list of class names", MOST_LABEL_FILE, DataError)
                names = _yaml_names(text, path) if path.suffix in (".yaml", ".yml") else text.splitlines()
                return _check_names([name.strip() for name in names if name.strip()], path)
    return None


def _check_names(names: Sequence[str], path: Path) -> tuple[str, ...]:
    if not names or len(set(names)) != len(names) or len(names) > MOST_CLASSES:
        raise DataError(f"'{path}' has {len(names)} class names, expected some, each once")
    return tuple(names)


def _yaml_names(text: str, path: Path) -> list[str]:
    """Read the `names` of a data.yaml: a list or numbered entries, on one line or one below the other.

    Nothing else in the file is looked at, and no other form of YAML is read.
    """
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    starts = [at for at, line in enumerate(lines) if line.startswith("names:")]
    if len(starts) != 1:
        raise DataError(f"'{path}' has no 'names', expected the class names")
    rest = lines[starts[0]].removeprefix("names:").strip()
    below = []
    for line in lines[starts[0] + 1 :]:
        if not line.startswith((" ", "\t", "-")) and not (rest and rest.count("[") > rest.count("]")):
            break
        below.append(line.strip())
    if rest.startswith(("[", "{")):
        inside = " ".join([rest, *below]).split("]" if rest[0] == "[" else "}")[0][1:]
        entries = _split_outside_quotes(inside)
    else:
        entries = [entry.removeprefix("-") for entry in below]
    found: dict[int, str] = {}
    for at, entry in enumerate(entries):
        numbered = re.fullmatch(r"(\d{1,6})\s*:\s*(.*)", entry.strip())
        number, name = (int(numbered[1]), numbered[2]) if numbered else (at, entry)
        found[number] = name.strip().strip("'\"")
    if sorted(found) != list(range(len(entries))):
        raise DataError(f"'{path}' numbers its classes {sorted(found)[:5]}…, expected 0, 1, 2, …")
    return [found[number] for number in range(len(found))]


def _split_outside_quotes(text: str) -> list[str]:
    """Split at the commas that stand in no quotes; a comma at the end ends the last entry."""
    found = re.finditer(r"'[^']*'|\"[^\"]*\"|,", text)
    commas = [match.start() for match in found if match[0] == ","]
    entries = [text[start + 1 : end] for start, end in itertools.pairwise([-1, *commas, len(text)])]
    return entries if entries[-1].strip() else entries[:-1]
