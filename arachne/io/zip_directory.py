"""The end of a zip archive: how long a list of members it claims, known before the list is read."""

from __future__ import annotations

import zipfile
from typing import IO

MAX_DIRECTORY_BYTES = 8 << 20
"""Bytes the list of members may take, which is some hundred thousand of them."""

END, END64, LOCATOR64 = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"


def directory_size(stream: IO[bytes]) -> int:
    """The size of an archive's directory in bytes, according to its end record; 0 if there is none."""
    size = stream.seek(0, 2)
    first = stream.seek(max(0, size - (1 << 16) - 22))
    tail = stream.read()
    at = len(tail) - 22
    if at < 0 or tail[at : at + 4] != END or tail[-2:] != bytes(2):
        at = tail.rfind(END)
    if at < 0 or len(tail) - at < 22:
        return 0
    found = int.from_bytes(tail[at + 12 : at + 16], "little")
    start64 = first + at - 20
    stream.seek(max(0, start64))
    locator = stream.read(20)
    if start64 >= 0 and locator[:4] == LOCATOR64:
        stream.seek(min(size, int.from_bytes(locator[8:16], "little")))
        end = stream.read(56)
        if end[:4] == END64:
            for small, large in ((tail[at + 12 : at + 16], end[40:48]), (tail[at + 16 : at + 20], end[48:56])):
                if small not in (b"\xff" * 4, large[:4]):
                    raise zipfile.BadZipFile("it ends in two ways")
            return int.from_bytes(end[40:48], "little")
    return found
