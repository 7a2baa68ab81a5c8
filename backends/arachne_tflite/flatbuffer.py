"""Read a flatbuffer within bounds: every offset, length and text of every table is checked before it is believed.

The package `flatbuffers` believes them: it fails with whatever `struct` raises, or reads other fields' bytes. LiteRT
believes them too, and ends the process; so a file goes to it only after all of it was read here.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from arachne.errors import ModelError
from arachne_tflite.schema import NUMBERS, OPTIONS, TABLES

MAX_TABLES = 400_000
"""The largest number of tables that are read; offsets may lead to one table again and again."""

UNREAD = {
    "sparsity": "sparse weights",
    "details": "quantisation of a kind of its own",
    "variant_tensors": "lists of tensors",
    "builtin_options_2": "StableHLO operators",
    "external_buffers": "weights in files beside it",
    "external_buffer_groups": "weights in files beside it",
}
"""Tables that are there and not read, by the fields that lead to them."""

SIZES = {kind: np.dtype(code).itemsize for kind, code in NUMBERS.items()}


class Table(dict[str, Any]):
    """The fields of a table that was read, by name; `position` is where it begins, `slots` where its fields begin."""

    def __init__(self, position: int) -> None:
        super().__init__()
        self.position = position
        self.slots: dict[str, int] = {}


class Reader:
    """Reads tables out of bytes."""

    def __init__(self, content: bytes, name: str) -> None:
        self.content, self.name = content, name
        self.left = MAX_TABLES

    def root(self, kind: str) -> Table:
        """Read the table that the first bytes lead to, and all tables behind it.

        Raises:
            ModelError: Something lies outside the file, or is no table of the schema.
        """
        return self.table(self.follow(0), kind)

    def table(self, position: int, kind: str) -> Table:
        """Read a table and all behind it."""
        self.left -= 1
        if self.left < 0:
            raise ModelError(f"'{self.name}' has more than {MAX_TABLES:,} tables")
        known = TABLES[kind]
        start = position - self._number("<i", position, 4)
        length, size = self._number("<H", start, 2), self._number("<H", start + 2, 2)
        if length < 4 or length % 2 or start + length > len(self.content) or position + size > len(self.content):
            raise self.error(f"a table of kind {kind} lies outside the file")
        found = Table(position)
        slots = struct.unpack_from(f"<{(length - 4) // 2}H", self.content, start + 4)
        for number, offset in enumerate(slots):
            if not offset:
                continue
            if number >= len(known) or known[number][1] == "none":
                raise ModelError(
                    f"'{self.name}' uses a part of TFLite that Arachne does not know: field {number} of {kind}"
                )
            width = SIZES.get(known[number][1], 4)
            if offset < 4 or offset + width > size:
                raise self.error(f"a field of {kind} lies outside its table")
            found.slots[known[number][0]] = position + offset
        for name, what, default in known:
            found[name] = self._field(found, name, what) if name in found.slots else default
        return found

    def _field(self, table: Table, name: str, kind: str) -> Any:
        position = table.slots[name]
        if kind in NUMBERS:
            return np.frombuffer(self.content, NUMBERS[kind], 1, position)[0].item()
        if kind in ("None", "[None]"):
            if kind == "[None]" and not self._number("<I", self.follow(position), 4):
                return []
            raise ModelError(f"'{self.name}' has {UNREAD[name]}, which Arachne does not read")
        if kind == "union":
            wanted = OPTIONS.get(table[f"{name}_type"])
            if wanted is None:
                return None  # of an operator that is refused by its name
            return self.table(self.follow(position), wanted)
        return self._behind(self.follow(position), kind)

    def _behind(self, position: int, kind: str) -> Any:
        """Read what an offset leads to: a text, a vector or a table."""
        if kind == "text":
            return self._text(position)
        if not kind.startswith("["):
            return self.table(position, kind)
        inner = kind[1:-1]
        count = self._number("<I", position, 4)
        if position + 4 + count * SIZES.get(inner, 4) > len(self.content):
            raise self.error(f"a vector of {count:,} entries lies outside the file")
        if inner in NUMBERS:
            return np.frombuffer(self.content, NUMBERS[inner], count, position + 4)
        if count > self.left:
            raise ModelError(f"'{self.name}' has more than {MAX_TABLES:,} tables")
        return [self.table(self.follow(position + 4 + 4 * number), inner) for number in range(count)]

    def _text(self, position: int) -> str:
        count = self._number("<I", position, 4)
        end = position + 4 + count
        if end >= len(self.content) or self.content[end]:
            raise self.error("a text lies outside the file, or has no end")
        return self.content[position + 4 : end].decode("utf-8", "replace")

    def follow(self, position: int) -> int:
        """Return where an offset leads."""
        return position + self._number("<I", position, 4)

    def _number(self, code: str, position: int, size: int) -> int:
        if position < 0 or position + size > len(self.content):
            raise self.error("an offset leads outside the file")
        return int(struct.unpack_from(code, self.content, position)[0])

    def error(self, reason: str) -> ModelError:
        """Return the error that says why the bytes are no model."""
        return ModelError(f"'{self.name}' is no TFLite model, or it was cut short: {reason}")


def with_outputs(content: bytes, subgraph: Mapping[str, int], outputs: list[int]) -> bytes:
    """Return a copy whose subgraph has other outputs: a new vector at the end, and the offset that leads to it.

    Args:
        content: The file.
        subgraph: Where the fields of the subgraph begin.
        outputs: The numbers of the tensors.
    """
    copy = bytearray(content)
    copy += bytes(-len(copy) % 16)
    start = len(copy)
    copy += struct.pack(f"<{1 + len(outputs)}I", len(outputs), *outputs)
    struct.pack_into("<I", copy, subgraph["outputs"], start - subgraph["outputs"])
    return bytes(copy)
