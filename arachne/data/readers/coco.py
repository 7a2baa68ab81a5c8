"""Read boxes as COCO has them: one JSON file with `images`, `annotations` and `categories`, and pictures beside it."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from arachne.data.preprocess import Preprocess
from arachne.data.readers.boxes import LabelledPicture, check_box, load_labelled, picture_size
from arachne.data.readers.images import SUFFIXES
from arachne.data.readers.raw import RawData
from arachne.errors import DataError
from arachne.io.reading import parse_errors_as, parse_json, read_bytes

MOST_BYTES = 512 << 20
PARTS = ("images", "annotations", "categories")


def find_coco_file(folder: Path) -> Path | None:
    """Return the one JSON file beside pictures or `images`, or in `annotations`; None in a folder of class folders."""
    beside = os.path.isdir(folder / "images") or any(path.suffix.lower() in SUFFIXES for path in folder.iterdir())
    for parent in ([folder] if beside else []) + [folder / "annotations"]:
        found = sorted(parent.glob("*.json")) if os.path.isdir(parent) else []
        if len(found) == 1:
            return found[0]
        if found:
            listed = ", ".join(path.name for path in found[:5])
            raise DataError(f"'{parent}' has several files of annotations ({listed}); name one of them")
    return None


def read_coco(path: Path, preprocess: Preprocess, limit: int | None, memory: int) -> RawData:
    """Read pictures and their boxes; boxes of crowds are left out.

    A picture is looked for beside the file, in `images` beside it, and in both above it. Classes are in the order of
    their numbers.

    Raises:
        DataError: It is no such file, a picture is missing, or a box is outside its picture.
    """
    with parse_errors_as(f"annotations '{path}'", DataError):
        content = parse_json(read_bytes(path, "file of annotations", MOST_BYTES, DataError))
    parts: list[Any] = [content.get(name) if isinstance(content, dict) else None for name in PARTS]
    if not all(isinstance(part, list) and all(isinstance(entry, dict) for entry in part) for part in parts):
        raise DataError(
            f"'{path}' has no lists 'images', 'annotations' and 'categories', expected boxes as COCO has them"
        )
    images, annotations, categories = parts
    numbers, names = _classes(categories, path)
    wanted = images[:limit]
    boxes: dict[Any, list[tuple[int, float, float, float, float]]] = {_key(image, "id", path): [] for image in wanted}
    sizes = {image["id"]: _size(image, path) for image in wanted}
    known = {_key(image, "id", path) for image in images}
    if len(known) < len(images):
        raise DataError(f"'{path}' has {len(images):,} images with {len(known):,} ids, expected one for each")
    for annotation in annotations:
        image = _key(annotation, "image_id", path)
        if image not in known:
            raise DataError(f"'{path}' has a box of image {image}, which is not among its images")
        if image in boxes and not annotation.get("iscrowd"):
            boxes[image].append(_box(annotation, numbers, sizes[image], path))
    pictures = [LabelledPicture(_find(image, sizes[image["id"]], path), boxes[image["id"]]) for image in wanted]
    if not pictures:
        raise DataError(f"'{path}' lists no images")
    return load_labelled(pictures, names, path.parent, preprocess, memory)


def _classes(categories: Sequence[Mapping[str, Any]], path: Path) -> tuple[dict[int, int], tuple[str, ...]]:
    """Return the position of each category by its id, and their names, in the order of ids."""
    found = {_key(category, "id", path): category.get("name") for category in categories}
    names = tuple(name for number in sorted(found) if isinstance(name := found[number], str) and name)
    if not names or len(set(names)) != len(categories):
        raise DataError(f"'{path}' has {len(categories)} categories, expected some, with a name each of its own")
    return {number: position for position, number in enumerate(sorted(found))}, names


def _key(entry: Mapping[str, Any], name: str, path: Path) -> int:
    value = entry.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise DataError(f"'{path}' has an entry whose '{name}' is {str(value)[:40]!r}, expected a whole number")
    return value


def _size(image: Mapping[str, Any], path: Path) -> tuple[int, int]:
    width, height = (_key(image, name, path) for name in ("width", "height"))
    if width < 1 or height < 1:
        raise DataError(f"'{path}' has an image of {width}x{height}, expected a width and a height above 0")
    return width, height


def _box(
    annotation: Mapping[str, Any], numbers: Mapping[int, int], size: tuple[int, int], path: Path
) -> tuple[int, float, float, float, float]:
    """Return class, centre and size of a box that is given by its corner and size in pixels."""
    values, kind = annotation.get("bbox"), _key(annotation, "category_id", path)
    where = f"annotation {annotation.get('id')} of '{path}'"
    if kind not in numbers:
        raise DataError(f"{where} has the category {kind}, which is not among its categories")
    if not isinstance(values, list) or len(values) != 4 or not all(isinstance(v, (int, float)) for v in values):
        raise DataError(f"{where} has no 'bbox' of 4 numbers: x, y, width, height")
    x, y, width, height = (
        value / side if math.isfinite(value) else value for value, side in zip(values, size * 2, strict=True)
    )
    return (numbers[kind], *check_box((x + width / 2, y + height / 2, width, height), where))


def _find(image: Mapping[str, Any], size: tuple[int, int], path: Path) -> Path:
    """Return the file of an image, whose size is as the annotations say.

    Raises:
        DataError: There is none, its name leads elsewhere, or it has another size.
    """
    name = image.get("file_name")
    if not isinstance(name, str) or not name or os.path.isabs(name) or ".." in Path(name).parts or "\0" in name:
        raise DataError(f"'{path}' has the file name {str(name)[:60]!r}, expected one below its folder")
    above = path.absolute().parent.parent
    for parent in (path.parent, path.parent / "images", above, above / "images"):
        found = parent / name
        if os.path.isfile(found):
            if picture_size(found) != size:
                real = "x".join(map(str, picture_size(found)))
                raise DataError(f"'{found}' is {real} pixels, but '{path}' says {size[0]}x{size[1]}")
            return found
    raise DataError(f"'{path}' lists the picture '{name}', which is neither beside it nor in 'images'")
