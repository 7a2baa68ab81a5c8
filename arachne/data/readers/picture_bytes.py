"""Check the size and checksums that a picture file claims, before a decoder gets its bytes."""

from __future__ import annotations

import struct
import zlib

MAX_PIXELS = 50_000_000
"""The most pixels of a picture that is decoded: a file of a few kilobytes can claim any size."""

FREE_DECODED_BYTES, MAX_DECODE_RATIO = 16 << 20, 250
"""Bytes that a picture may always decode to; beyond that, the largest ratio to the bytes of its file."""

PNG = b"\x89PNG\r\n\x1a\n"


def check_bytes(content: bytes) -> None:
    """Refuse a PNG with a wrong checksum, which Pillow reads, and a WebP canvas that is allocated before it is checked.

    Raises:
        ValueError: With the reason, in a few words.
    """
    if content.startswith(PNG):
        _check_png(content)
    elif content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        check_size(*_webp_size(content), 4, len(content))


def check_size(width: int, height: int, depth: int, size: int) -> None:
    """Refuse more pixels than a file of `size` bytes can plausibly hold; a pixel takes `depth` bytes.

    Raises:
        ValueError: With the reason.
    """
    if width * height > MAX_PIXELS:
        raise ValueError(f"{width}x{height} pixels, more than {MAX_PIXELS:,}")
    if width * height * depth > max(FREE_DECODED_BYTES, MAX_DECODE_RATIO * size):
        raise ValueError(f"{width}x{height} pixels from {size:,} bytes, over {MAX_DECODE_RATIO} times as many")


def _check_png(content: bytes) -> None:
    at = len(PNG)
    while True:
        head = content[at : at + 8]
        if len(head) < 8:
            raise ValueError("truncated")
        length, kind = struct.unpack(">I4s", head)
        end = at + 12 + length
        if end > len(content):
            raise ValueError("truncated")
        if zlib.crc32(content[at + 4 : end - 4]) != int.from_bytes(content[end - 4 : end], "big"):
            raise ValueError("damaged: a checksum is wrong")
        if kind == b"IEND":
            return
        at = end


def _webp_size(content: bytes) -> tuple[int, int]:
    """Read width and height from the first chunk of a WebP, by its kind."""
    kind, body = content[12:16], content[20:30].ljust(10, b"\0")
    if kind == b"VP8X":
        return 1 + int.from_bytes(body[4:7], "little"), 1 + int.from_bytes(body[7:10], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(body[1:5], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    return int.from_bytes(body[6:8], "little") & 0x3FFF, int.from_bytes(body[8:10], "little") & 0x3FFF
