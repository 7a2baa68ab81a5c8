"""Scenes for a detector: real traffic signs (GTSRB) pasted on real pictures (CIFAR-10), with their boxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from examples.study.data import side_by_group, subject_data

Array = np.ndarray[Any, Any]

SIDE = 96
"""Height and width of a scene."""

SIGNS = (9, 12, 13, 14, 18, 38)
"""The signs the detector knows: no passing, priority road, yield, stop, general caution, keep right."""

LOOKALIKES = (17, 25, 35)
"""Signs that no training scene has, and that look like three it knows: no entry, road work, ahead only."""

OTHERS = (1, 2, 4, 7, 10, 11, 15, 26, 33, 40)
"""Signs in training scenes that have no box: the detector learns to leave them alone."""


@dataclass(frozen=True, eq=False)
class Scenes:
    """Scenes and the boxes in them.

    Attributes:
        pictures: uint8 `(n, 3, SIDE, SIDE)`.
        boxes: Class (a position in `SIGNS`), x, y, width and height in pixels of the signs of each scene, `(k, 5)`.
    """

    pictures: Array
    boxes: tuple[Array, ...]


def class_names() -> tuple[str, ...]:
    """The names of the signs that the detector knows."""
    names = subject_data("gtsrb").class_names
    return tuple(names[sign] for sign in SIGNS)


def make_scenes(part: str, n: int, *, seed: int) -> Scenes:
    """Compose scenes for one part.

    No photograph of a sign and no background is in two parts. The detector has learnt from other physical signs than
    `repair` and `judge` show; these two show other photographs of the same ones.

    Args:
        part: `train` (with `OTHERS` that have no box), `repair` or `judge` (with `LOOKALIKES` that have none).
        n: How many.
        seed: Of what is drawn.
    """
    signs, labels, backgrounds = _material(part)
    strangers = OTHERS if part == "train" else LOOKALIKES
    rows = {sign: np.flatnonzero(labels == sign) for sign in (*SIGNS, *strangers)}
    rng = np.random.default_rng(seed)
    made = [_compose(signs, rows, backgrounds, strangers, rng) for _ in range(n)]
    return Scenes(np.stack([picture for picture, _ in made]), tuple(boxes for _, boxes in made))


def write_scenes(scenes: Scenes, folder: Path) -> None:
    """Write scenes as a YOLO folder: `images/`, `labels/` and `classes.txt`."""
    for name in ("images", "labels"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "classes.txt").write_text("\n".join(class_names()) + "\n")
    for at, (picture, boxes) in enumerate(zip(scenes.pictures, scenes.boxes, strict=True)):
        Image.fromarray(picture.transpose(1, 2, 0)).save(folder / "images" / f"{at:05}.png")
        lines = [f"{int(c)} {(x + w / 2) / SIDE} {(y + h / 2) / SIDE} {w / SIDE} {h / SIDE}" for c, x, y, w, h in boxes]
        (folder / "labels" / f"{at:05}.txt").write_text("".join(f"{line}\n" for line in lines))


def _material(part: str) -> tuple[Array, Array, Array]:
    """Pictures of signs, their labels, and backgrounds of a part."""
    signs, backgrounds = subject_data("gtsrb"), subject_data("c10")
    kept, aside = side_by_group(signs.train_groups, len(signs.train), 0.3, np.random.default_rng(0))
    if part == "train":
        return signs.train[kept], signs.train_labels[kept], backgrounds.train[:25000]
    pictures = np.concatenate([signs.train[aside], signs.test])
    labels = np.concatenate([signs.train_labels[aside], signs.test_labels])
    half = np.random.default_rng(1).permutation(len(labels)) % 2 == (part == "judge")
    return pictures[half], labels[half], backgrounds.test if part == "judge" else backgrounds.train[25000:]


def _compose(
    signs: Array, rows: dict[int, Array], backgrounds: Array, strangers: Sequence[int], rng: np.random.Generator
) -> tuple[Array, Array]:
    """One scene: up to three signs the detector knows, and up to two strangers."""
    scene = _enlarge(backgrounds[rng.integers(len(backgrounds))], SIDE).astype(np.float32)
    taken, boxes = np.zeros((SIDE, SIDE), bool), []
    wanted = [*rng.choice(SIGNS, rng.integers(0, 4)), *rng.choice(strangers, rng.integers(0, 3))]
    for sign in wanted:
        side = int(rng.integers(20, 41))
        x, y = rng.integers(0, SIDE - side + 1, size=2)
        if taken[y : y + side, x : x + side].any():
            continue
        taken[y : y + side, x : x + side] = True
        picture = _enlarge(signs[rng.choice(rows[sign])][:, 4:-4, 4:-4], side)
        ramp = np.minimum(np.arange(side), np.arange(side)[::-1]).clip(0, 2) / 2
        mask = np.minimum.outer(ramp, ramp)[None]
        scene[:, y : y + side, x : x + side] *= 1 - mask
        scene[:, y : y + side, x : x + side] += mask * picture
        if sign in SIGNS:
            boxes.append((SIGNS.index(sign), x, y, side, side))
    return scene.round().astype(np.uint8), np.array(boxes, np.float64).reshape(-1, 5)


def _enlarge(picture: Array, side: int) -> Array:
    """A picture `(3, h, w)` at another size `(3, side, side)`."""
    image = Image.fromarray(picture.transpose(1, 2, 0)).resize((side, side), Image.Resampling.BILINEAR)
    return np.asarray(image).transpose(2, 0, 1)
