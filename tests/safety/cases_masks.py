"""Pictures with masks: masks, their names, and the tables of multi-label, regression and token tasks."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from tests.safety.case import Case

Maker = Callable[[Path], list[str]]

SIDE, PICTURES = 8, 6
SEGMENTATION = ("--task", "segmentation", "--preprocess", "scale=1/255 layout=nchw", "--no-causes")


def write_model(folder: Path) -> None:
    """Write a model that tells red pixels from others, `pixels.onnx`."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = np.array([[1, 0, 0], [0, 1, 0]], np.float32).reshape(2, 3, 1, 1)
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    shapes = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", channels, SIDE, SIDE])
        for name, channels in (("x", 3), ("y", 2))
    ]
    graph = helper.make_graph([node], "pixels", shapes[:1], shapes[1:], [numpy_helper.from_array(weights, "w")])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "pixels.onnx"
    )


def write_pictures(folder: Path) -> list[str]:
    """Write a folder `pictures` with masks, and return the command that scans it."""
    write_model(folder)
    for name in ("images", "masks"):
        (folder / "pictures" / name).mkdir(parents=True)
    rng = np.random.default_rng(3)
    for number in range(PICTURES):
        mask = rng.integers(0, 2, (SIDE, SIDE)).astype(np.uint8)
        picture = np.stack([255 * (mask == 0), 255 * (mask == 1), rng.integers(0, 255, mask.shape)], axis=-1)
        Image.fromarray(picture.astype(np.uint8)).save(folder / f"pictures/images/{number}.png")
        Image.fromarray(mask).save(folder / f"pictures/masks/{number}.png")
    return ["scan", "pixels.onnx", "--data", "pictures", *SEGMENTATION]


def mask(content: bytes | Callable[[Path], object]) -> Maker:
    """Pictures with something else in place of the first mask."""

    def make(folder: Path) -> list[str]:
        argv = write_pictures(folder)
        path = folder / "pictures" / "masks" / "0.png"
        path.unlink()
        path.write_bytes(content) if isinstance(content, bytes) else content(path)
        return argv

    return make


def picture(values: np.ndarray, kind: str = "PNG") -> bytes:
    """Return an array as the bytes of a picture."""
    stream = io.BytesIO()
    Image.fromarray(values).save(stream, kind)
    return stream.getvalue()


def _leads_elsewhere(path: Path) -> None:
    secret = path.parents[2].parent / "secret.png"
    secret.write_bytes(picture(np.zeros((SIDE, SIDE), np.uint8)))
    path.symlink_to(secret)


def _among_masks(name: str, content: bytes) -> Maker:
    def make(folder: Path) -> list[str]:
        argv = write_pictures(folder)
        (folder / "pictures" / name).write_bytes(content)
        return argv

    return make


FLAT = np.zeros((SIDE, SIDE), np.uint8)
WHOLE = picture(FLAT)
MASKS: dict[str, bytes | Callable[[Path], object]] = {
    "that-is-empty": b"",
    "that-is-cut-off": WHOLE[:-20],
    "that-is-no-picture": b"hello" * 100,
    "that-is-a-pickle": b"\x80\x04cos\nsystem\n(S'touch CANARY'\ntR.",
    "that-is-a-jpeg": picture(FLAT, "JPEG"),
    "that-is-postscript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n(CANARY) (w) file\n",
    "that-is-a-pipe": os.mkfifo,
    "that-is-a-folder": os.mkdir,
    "that-leads-in-a-circle": lambda path: path.symlink_to(path.name),
    "that-leads-to-endless-zeros": lambda path: path.symlink_to("/dev/zero"),
    "of-another-size": picture(np.zeros((SIDE, SIDE + 1), np.uint8)),
    "of-one-pixel": picture(np.zeros((1, 1), np.uint8)),
    "of-colours": picture(np.random.default_rng(0).integers(0, 255, (SIDE, SIDE, 3)).astype(np.uint8)),
    "of-unknown-classes": picture(FLAT + 77),
    "of-65535-classes": picture(np.full((SIDE, SIDE), 65535, np.uint16)),
    "of-negative-classes": picture(np.full((SIDE, SIDE), -1, np.int32), "TIFF"),
    "of-floats": picture(np.full((SIDE, SIDE), np.nan, np.float32), "TIFF"),
    "of-49-million-pixels": lambda path: path.write_bytes(picture(np.zeros((7000, 7000), np.uint8))),
    "of-49-million-wide-pixels": lambda path: path.write_bytes(picture(np.full((7000, 7000), 300, np.uint16))),
    "of-noise-and-millions-of-pixels": lambda path: path.write_bytes(
        picture(np.random.default_rng(0).integers(0, 9, (2000, 2000)).astype(np.uint16))
    ),
}

NAMES = {
    "mask-without-a-picture": ("masks/other.png", WHOLE),
    "picture-without-a-mask": ("images/other.png", WHOLE),
    "mask-names-that-are-one-too-few": ("classes.txt", b"red\n"),
    "mask-names-that-are-not-utf8": ("classes.txt", b"\xff\n\xfe\n"),
    "mask-names-in-a-yaml-that-makes-objects": (
        "data.yaml",
        b"names: !!python/object/apply:os.system ['touch CANARY']\n",
    ),
}

CASES = [
    *(Case(f"mask-{name}", "mask", "type", mask(content)) for name, content in MASKS.items()),
    *(Case(name, "mask", "type", _among_masks(*given)) for name, given in NAMES.items()),
    Case("mask-of-many-frames", "mask", "type", mask(picture(FLAT, "GIF")[:-1] * 50 + b";"), exits=(0, 3)),
    Case("mask-that-leads-elsewhere", "mask", "escape", mask(_leads_elsewhere), exits=(0, 3)),
    Case("masks-as-they-should-be", "mask", "none", write_pictures, exits=(0,)),
]
