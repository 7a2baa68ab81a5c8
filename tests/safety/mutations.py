"""Random changes of a valid file's bytes: flips, truncations, splices, swapped lengths."""

from __future__ import annotations

import numpy as np


def mutate(content: bytes, rng: np.random.Generator) -> bytes:
    """One to four random changes; never the same bytes."""
    changed = content
    while changed == content:
        changed = content
        for _ in range(int(rng.integers(1, 5))):
            change = CHANGES[int(rng.integers(len(CHANGES)))]
            changed = change(bytearray(changed), rng) if changed else bytes(rng.bytes(8))
    return changed


def _flip(content: bytearray, rng: np.random.Generator) -> bytes:
    for place in rng.integers(len(content), size=int(rng.integers(1, 9))):
        content[place] ^= 1 << int(rng.integers(8))
    return bytes(content)


def _overwrite(content: bytearray, rng: np.random.Generator) -> bytes:
    place = int(rng.integers(len(content)))
    content[place : place + 4] = rng.bytes(4)
    return bytes(content)


def _truncate(content: bytearray, rng: np.random.Generator) -> bytes:
    return bytes(content[: int(rng.integers(len(content)))])


def _remove(content: bytearray, rng: np.random.Generator) -> bytes:
    start, end = sorted(int(place) for place in rng.integers(len(content) + 1, size=2))
    del content[start : min(end, start + 200)]
    return bytes(content)


def _splice(content: bytearray, rng: np.random.Generator) -> bytes:
    """A part of the file put into another place of it."""
    source, place = (int(place) for place in rng.integers(len(content), size=2))
    part = content[source : source + int(rng.integers(1, 64))]
    return bytes(content[:place] + part + content[place:])


def _length(content: bytearray, rng: np.random.Generator) -> bytes:
    """Four or eight bytes, as a length or a shape would stand, become another number."""
    size = int(rng.choice([4, 8]))
    numbers = (0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 0x80000000, len(content), 2**40, 2**63 - 1, 2**64 - 1)
    number = int(rng.choice(np.array(numbers, dtype=np.uint64))) % (1 << 8 * size)
    place = int(rng.integers(len(content)))
    content[place : place + size] = number.to_bytes(size, "little" if rng.integers(2) else "big")
    return bytes(content)


def _digits(content: bytearray, rng: np.random.Generator) -> bytes:
    """A number in a text becomes a long, negative, infinite or missing one."""
    places = [place for place, byte in enumerate(content) if 48 <= byte <= 57]
    if not places:
        return _flip(content, rng)
    place = places[int(rng.integers(len(places)))]
    others = [
        b"-1",
        b"9" * 40,
        b"1e999",
        b"NaN",
        b"null",
        b"true",
        b'"x"',
        b"[]",
        b"{}",
        b"",
        b"0.5",
        b"\\ud800",
        b"\x1b[2J",
    ]
    content[place : place + 1] = others[int(rng.integers(len(others)))]
    return bytes(content)


CHANGES = (_flip, _overwrite, _truncate, _remove, _splice, _length, _digits)
