"""Files that are called pictures."""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from tests.safety import valid
from tests.safety.case import Case, canary

Content = Callable[[Path], bytes]
PREPROCESS = ("--preprocess", "grey scale=1/255 layout=nchw")


def folder_of_classes(folder: Path) -> Path:
    """Two classes with a good picture each; gives the second class's folder."""
    for label, image in zip(("0", "1"), valid.pixels(2), strict=True):
        (folder / "data" / label).mkdir(parents=True)
        Image.fromarray(image).save(folder / "data" / label / "good.png")
    return folder / "data" / "1"


def scan(folder: Path, data: str = "data") -> list[str]:
    return ["scan", valid.model(folder), "--data", data, *PREPROCESS]


def one(content: Content, ending: str = "png") -> Callable[[Path], list[str]]:
    """Good pictures and a hostile one."""

    def make(folder: Path) -> list[str]:
        (folder_of_classes(folder) / f"evil.{ending}").write_bytes(content(folder))
        return scan(folder)

    return make


def chunk(kind: bytes, content: bytes, checksum: int | None = None) -> bytes:
    crc = zlib.crc32(kind + content) if checksum is None else checksum
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", crc)


def png(width: int = 8, height: int = 8, body: bytes | None = None, *, between: bytes = b"", depth: int = 8) -> bytes:
    """A grey PNG of a size, with a body of lines and chunks before it."""
    body = b"".join(b"\0" + bytes(width) for _ in range(height)) if body is None else body
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, 0, 0, 0, 0))
    packed = chunk(b"IDAT", zlib.compress(body, 9))
    return b"\x89PNG\r\n\x1a\n" + header + between + packed + chunk(b"IEND", b"")


def broken_checksum(which: bytes) -> bytes:
    """A PNG whose chunk of this kind has a wrong checksum."""
    content = bytearray(png(between=chunk(b"tEXt", b"Comment\0hello")))
    at = content.index(which)
    length = int.from_bytes(content[at - 4 : at], "big")
    content[at + 4 + length] ^= 1
    return bytes(content)


def save_picture(kind: str, size: tuple[int, int] = (8, 8), **options: object) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", size).save(stream, kind, **options)
    return stream.getvalue()


def change_bytes(content: bytes, at: int, new: bytes) -> bytes:
    return content[:at] + new + content[at + len(new) :]


def webp(kind: bytes, body: bytes) -> bytes:
    """A WebP that claims what its first chunk says."""
    inside = b"WEBP" + kind + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", len(inside)) + inside


def tiff(width: int, height: int, *, strip: int = 8, compression: int = 1, offset: int | None = None) -> bytes:
    """A grey TIFF that claims a size."""
    tags = [(256, 4, width), (257, 4, height), (258, 3, 8), (259, 3, compression), (262, 3, 1)]
    tags += [(273, 4, 8 if offset is None else offset), (277, 3, 1), (278, 4, height), (279, 4, strip)]
    table = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in tags)
    pixels = bytes(min(strip, 64))
    return b"II*\0" + struct.pack("<I", 8 + len(pixels)) + pixels + struct.pack("<H", len(tags)) + table + bytes(4)


HUGE = 0x7FFFFFFF


def postscript(folder: Path) -> bytes:
    """A program for Ghostscript, which Pillow would start."""
    return (
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n"
        + f"({canary(folder)}) (w) file closefile\nshowpage\n%%EOF\n".encode()
    )


OTHERS: dict[str, Content] = {
    "postscript": postscript,
    "dos-postscript": lambda folder: b"\xc5\xd0\xd3\xc6" + struct.pack("<I", 32) + bytes(24) + postscript(folder),
    "pdf": lambda _: b"%PDF-1.4\n1 0 obj\n<<>>\nendobj\ntrailer\n<<>>\n%%EOF\n",
    "svg": lambda folder: f'<svg xmlns="http://www.w3.org/2000/svg"><image href="{canary(folder)}"/></svg>'.encode(),
    "html": lambda _: b"<html><img src=http://127.0.0.1:9/x></html>",
    "wmf": lambda _: b"\xd7\xcd\xc6\x9a\0\0" + bytes(100),
    "emf": lambda _: b"\x01\0\0\0" + bytes(36) + b" EMF" + bytes(60),
    "jpeg-2000": lambda _: b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(80),
    "photoshop": lambda _: b"8BPS\0\1" + bytes(100),
    "icns": lambda _: b"icns" + struct.pack(">I", 100) + bytes(92),
    "ico": lambda _: b"\0\0\1\0\1\0" + bytes(100),
    "fits": lambda _: b"SIMPLE  =                    T" + b" " * 2850,
    "xbm": lambda _: b"#define a_width 8\n#define a_height 8\nstatic char a_bits[] = {0};",
    "tar": lambda _: bytes(257) + b"ustar" + bytes(250),
    "pickle": lambda folder: f"cposix\nsystem\n(S'touch {canary(folder)}'\ntR.".encode(),
    "zip": lambda _: b"PK\3\4" + bytes(60),
    "elf": lambda _: b"\x7fELF" + bytes(60),
    "text": lambda _: b"hello",
    "nothing": lambda _: b"",
    "one-byte": lambda _: b"\x89",
}

BOMBS: dict[str, tuple[str, Content]] = {
    "png-of-10-to-the-10-pixels": ("png", lambda _: png(100_000, 100_000, b"")),
    "png-of-2-to-the-62-pixels": ("png", lambda _: png(HUGE, HUGE, b"")),
    "png-of-49-million-pixels-in-50-kilobytes": ("png", lambda _: png(7_000, 7_000)),
    "png-of-40-million-16-bit-pixels": ("png", lambda _: png(6_400, 6_400, bytes(6_400 * (2 * 6_400 + 1)), depth=16)),
    "png-with-a-packed-text-of-200-megabytes": (
        "png",
        lambda _: png(between=chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(200_000_000), 9))),
    ),
    "png-with-a-packed-profile-of-200-megabytes": (
        "png",
        lambda _: png(between=chunk(b"iCCP", b"ICC\0\0" + zlib.compress(bytes(200_000_000), 9))),
    ),
    "webp-canvas-of-16383-by-16383": (
        "webp",
        lambda _: webp(b"VP8X", b"\x02\0\0\0" + 2 * (16_382).to_bytes(3, "little")),
    ),
    "webp-canvas-of-2-to-the-48": ("webp", lambda _: webp(b"VP8X", b"\x02\0\0\0" + b"\xff" * 6)),
    "webp-lossless-of-16383-by-16383": (
        "webp",
        lambda _: webp(b"VP8L", b"\x2f" + (16_382 | 16_382 << 14).to_bytes(4, "little") + bytes(20)),
    ),
    "webp-lossy-of-16383-by-16383": (
        "webp",
        lambda _: webp(b"VP8 ", b"\x10\0\0\x9d\x01\x2a" + 2 * struct.pack("<H", 16_383) + bytes(20)),
    ),
    "gif-of-65535-by-65535": ("gif", lambda _: change_bytes(save_picture("GIF"), 6, b"\xff\xff\xff\xff")),
    "gif-frame-beyond-the-screen": (
        "gif",
        lambda _: change_bytes(save_picture("GIF"), save_picture("GIF").index(b",") + 5, b"\xff\xff\xff\xff"),
    ),
    "bmp-of-2-to-the-31-by-2-to-the-31": (
        "bmp",
        lambda _: change_bytes(save_picture("BMP"), 18, 2 * struct.pack("<I", HUGE)),
    ),
    "bmp-of-negative-size": ("bmp", lambda _: change_bytes(save_picture("BMP"), 18, 2 * struct.pack("<i", -(2**31)))),
    "ppm-of-10-to-the-12-pixels": ("ppm", lambda _: b"P6 1000000 1000000 255\n" + bytes(64)),
    "ppm-with-a-size-of-a-thousand-digits": ("ppm", lambda _: b"P6 " + b"9" * 1000 + b" 8 255\n" + bytes(64)),
    "ppm-in-decimal-without-end": ("ppm", lambda _: b"P3 8 8 255\n" + b"#" * 3_000_000),
    "tiff-of-2-to-the-31-by-2-to-the-31": ("tif", lambda _: tiff(HUGE, HUGE)),
    "tiff-strip-of-4-gigabytes": ("tif", lambda _: tiff(8, 8, strip=0xFFFFFFF0, compression=5)),
    "tiff-strip-outside-the-file": ("tif", lambda _: tiff(8, 8, offset=0xFFFFFF00)),
    "tiff-of-49-million-pixels-in-100-bytes": ("tif", lambda _: tiff(7_000, 7_000, strip=49_000_000)),
    "tiff-with-an-unknown-compression": ("tif", lambda _: tiff(8, 8, compression=34925)),
    "jpeg-of-65535-by-65535": (
        "jpg",
        lambda _: change_bytes(save_picture("JPEG"), save_picture("JPEG").index(b"\xff\xc0") + 5, b"\xff\xff\xff\xff"),
    ),
}

DAMAGED: dict[str, tuple[str, Content]] = {
    "png-with-a-wrong-checksum-of-its-pixels": ("png", lambda _: broken_checksum(b"IDAT")),
    "png-with-a-wrong-checksum-of-its-header": ("png", lambda _: broken_checksum(b"IHDR")),
    "png-with-a-wrong-checksum-of-its-comment": ("png", lambda _: broken_checksum(b"tEXt")),
    "png-with-a-wrong-checksum-of-its-end": ("png", lambda _: broken_checksum(b"IEND")),
    "png-without-an-end": ("png", lambda _: png()[:-12]),
    "png-with-a-chunk-longer-than-the-file": ("png", lambda _: png(between=struct.pack(">I", HUGE) + b"tEXt")),
    "png-with-pixels-that-are-not-packed": (
        "png",
        lambda _: (
            b"\x89PNG\r\n\x1a\n"
            + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0))
            + chunk(b"IDAT", b"no zlib")
            + chunk(b"IEND", b"")
        ),
    ),
    "png-of-no-pixels": ("png", lambda _: png(0, 0, b"")),
    "png-of-an-unknown-depth": ("png", lambda _: png(depth=77)),
    "jpeg-cut-off": ("jpg", lambda _: save_picture("JPEG", (64, 64))[:400]),
    "jpeg-of-its-first-bytes": ("jpg", lambda _: save_picture("JPEG")[:20]),
    "gif-cut-off": ("gif", lambda _: save_picture("GIF")[:20]),
    "bmp-cut-off": ("bmp", lambda _: save_picture("BMP")[:60]),
    "tiff-without-tags": ("tif", lambda _: b"II*\0\x08\0\0\0\0\0\0\0\0\0"),
    "tiff-whose-tags-lie-outside": ("tif", lambda _: b"II*\0\xff\xff\xff\x7f"),
    "webp-cut-off": ("webp", lambda _: save_picture("WEBP")[:24]),
    "ppm-without-pixels": ("ppm", lambda _: b"P6 8 8 255\n"),
}


def _pipe(ending: str) -> Callable[[Path], list[str]]:
    def make(folder: Path) -> list[str]:
        os.mkfifo(folder_of_classes(folder) / f"pipe.{ending}")
        return scan(folder)

    return make


def _link(target: str) -> Callable[[Path], list[str]]:
    def make(folder: Path) -> list[str]:
        (folder_of_classes(folder) / "link.png").symlink_to(target)
        return scan(folder)

    return make


def _directory(folder: Path) -> list[str]:
    (folder_of_classes(folder) / "folder.png").mkdir()
    (folder / "data" / "1" / "gone.png").symlink_to("nowhere")
    return scan(folder)


def _many_bombs(folder: Path) -> list[str]:
    """Pictures that are each small enough, and together take gigabytes."""
    place = folder_of_classes(folder)
    content = png(4_000, 4_000)
    for number in range(100):
        (place / f"{number}.png").write_bytes(content)
    return scan(folder)


def _table(path: str) -> Callable[[Path], list[str]]:
    def make(folder: Path) -> list[str]:
        folder_of_classes(folder)
        os.mkfifo(folder / "pipe.png")
        (folder / "evil.png").write_bytes(postscript(folder))
        (folder / "data.csv").write_text(f'path,label\ndata/0/good.png,0\n"{path}",1\n')
        return scan(folder, "data.csv")

    return make


PATHS = {
    "pipe": "pipe.png",
    "postscript": "evil.png",
    "password-file": "/etc/passwd",
    "endless-device": "/dev/zero",
    "folder": "data",
    "nothing-there": "nowhere.png",
    "name-of-a-thousand-letters": "a" * 1000,
    "address-on-the-network": "http://127.0.0.1:9/a.png",
    "way-out": "../" * 40 + "etc/passwd",
    "nothing": "",
}

CASES = [
    *(Case(f"png-that-is-{name}", "picture", "code", one(content)) for name, content in OTHERS.items()),
    *(Case(name, "picture", "bomb", one(content, ending)) for name, (ending, content) in BOMBS.items()),
    *(Case(name, "picture", "damage", one(content, ending)) for name, (ending, content) in DAMAGED.items()),
    *(Case(f"picture-that-is-a-pipe-{ending}", "picture", "pipe", _pipe(ending)) for ending in ("png", "jpg", "tif")),
    Case("picture-that-links-to-an-endless-device", "picture", "pipe", _link("/dev/zero")),
    Case("picture-that-links-to-itself", "picture", "pipe", _link("link.png")),
    Case("picture-that-links-nowhere", "picture", "damage", _directory),
    Case("hundred-pictures-of-16-megabytes-each", "picture", "bomb", _many_bombs),
    *(Case(f"table-of-pictures-with-a-{name}", "csv", "path", _table(path)) for name, path in PATHS.items()),
]
