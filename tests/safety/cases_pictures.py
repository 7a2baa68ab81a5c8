"""Files that are called pictures."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from tests.safety import valid
from tests.safety.case import Case, canary


def _scan(name: str, content: Callable[[Path], bytes], ending: str = "png") -> Callable[[Path], list[str]]:
    """One good picture and a hostile one in a folder of classes."""

    def make(folder: Path) -> list[str]:
        for label in ("0", "1"):
            (folder / "data" / label).mkdir(parents=True)
        good, other = (Image.fromarray(image) for image in valid.pixels(2))
        good.save(folder / "data" / "0" / "good.png")
        other.save(folder / "data" / "1" / "other.png")
        (folder / "data" / "1" / f"{name}.{ending}").write_bytes(content(folder))
        return ["scan", valid.model(folder), "--data", "data", "--preprocess", "scale=1/255 layout=nchw"]

    return make


def postscript(folder: Path) -> bytes:
    """A program for Ghostscript, which Pillow starts."""
    return (
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n"
        + f"({canary(folder)}) (w) file closefile\nshowpage\n".encode()
        + b"%%EOF\n"
    )


def png(folder: Path) -> bytes:
    """A good picture."""
    stored = io.BytesIO()
    Image.fromarray(valid.pixels(1)[0]).save(stored, "png")
    return stored.getvalue()


def png_of(width: int, height: int, body: bytes) -> bytes:
    """A grey PNG that claims a size and holds this body, uncompressed."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(body)) + chunk(b"IEND", b"")


CASES = [
    Case("png-that-is-postscript", "picture", "code", _scan("evil", postscript)),
    Case(
        "png-that-claims-10-to-the-10-pixels", "picture", "bomb", _scan("huge", lambda _: png_of(100_000, 100_000, b""))
    ),
    Case("png-cut-in-the-middle", "picture", "damage", _scan("cut", lambda folder: png(folder)[:60])),
]
