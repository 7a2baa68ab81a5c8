"""Files of torch before 1.6, which are no archives: five pickles, then the storages one after the other."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from arachne.errors import ModelError
from arachne_torch.pickles import MAX_PICKLE_BYTES, read_pickles

MAGIC = 0x1950A86A20F9469CFC6C
"""The number in the first pickle."""

PROTOCOL = 1001
"""The number in the second pickle; there has been no other."""

START = b"\x80\x02\x8a\x0a" + MAGIC.to_bytes(10, "little")
"""How such a file begins: a pickle of protocol 2 that holds `MAGIC`."""

SIZES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2} | dict.fromkeys(
    ("int8", "uint8", "bool"), 1
)

Extents = Mapping[str, tuple[int, int]]
"""Where each storage's bytes start in the file, and how many they are, by its key."""


def is_legacy(path: Path) -> bool:
    """Whether a file is of this format."""
    with path.open("rb") as file:
        return file.read(len(START)) == START


def read_legacy(path: Path) -> tuple[Any, Extents]:
    """Read a file: its content, with a record of the location of each tensor, and the extents of its storages.

    Raises:
        UnsafeModelError: A pickle names what would run code.
        ModelError: The file is damaged, or of a machine with another byte order.
    """
    with path.open("rb") as file:
        (_, protocol, system, content, keys), end, dtypes = read_pickles(file.read(MAX_PICKLE_BYTES), path.name, 5)
        if protocol != PROTOCOL or not isinstance(system, Mapping) or not isinstance(keys, list):
            raise ModelError(f"'{path.name}' is of an old format of torch that is not known: version {protocol}")
        if system.get("little_endian") is not True:
            raise ModelError(f"'{path.name}' was written on a big-endian machine; save it again on this one")
        return content, _extents(file, end, path, keys, dtypes)


def _extents(
    file: IO[bytes], at: int, path: Path, keys: list[Any], dtypes: Mapping[str, str]
) -> dict[str, tuple[int, int]]:
    """Walk over the storages from where the first begins: the number of elements of each stands before it."""
    total = path.stat().st_size
    found: dict[str, tuple[int, int]] = {}
    for key in keys:
        size = SIZES.get(dtypes.get(key, "")) if isinstance(key, str) else None
        file.seek(at)
        number = file.read(8)
        if size is None or key in found or len(number) < 8:
            raise ModelError(
                f"'{path.name}' is damaged: it says that it has a storage '{str(key)[:60]}', which cannot be read"
            )
        (count,) = struct.unpack("<q", number)
        found[key] = (at + 8, count * size)
        at += 8 + count * size
        if count < 0 or at > total:
            raise ModelError(f"'{path.name}' was cut short: it lacks the end of its storage '{key}'")
    if missing := [key for key in dtypes if key not in found]:
        raise ModelError(f"'{path.name}' is damaged: it lacks its storage '{missing[0]}'")
    if at != total:
        raise ModelError(f"'{path.name}' is damaged: {total - at} bytes follow its last storage")
    return found
