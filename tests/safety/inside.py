"""Random changes inside of a file whose outside stays right: members of archives, values of JSON, fields of messages.

Bytes flipped in an archive are found by its checksums and get no further; these get to what is read behind them.
"""

from __future__ import annotations

import copy
import io
import json
import re
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.safety.mutations import mutate

Change = Callable[[bytes, np.random.Generator], bytes]

WEIRD: tuple[Any, ...] = (
    None, True, 0, 1, -1, 2**31, 2**63, 10**30, 0.5, 1e300, "", "x", "a\0b", "../x", "\x1b[2J", "9" * 400, [], [[]], {},
    {"class_name": "x"}, [1, 2, 3], "relu", "float32", 7, 1000,
)  # fmt: skip
"""Values that stand where others are expected."""


def in_member(pattern: str, change: Change = mutate) -> Change:
    """Change one member of an archive, chosen among those whose names match, and pack it again."""

    def apply_change(content: bytes, rng: np.random.Generator) -> bytes:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            found = {name: file.read(name) for name in file.namelist()}
        names = [name for name in found if re.search(pattern, name)]
        name = names[int(rng.integers(len(names)))]
        found[name] = change(found[name], rng)
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as file:
            for member, data in found.items():
                file.writestr(zipfile.ZipInfo(member), data)
        return stream.getvalue()

    return apply_change


def in_json(content: bytes, rng: np.random.Generator) -> bytes:
    """One to three values of a JSON text replaced, removed, doubled, or put where another stands."""
    whole = json.loads(content)
    for _ in range(int(rng.integers(1, 4))):
        places = list(_places(whole))
        if not places:
            break
        holder, key = places[int(rng.integers(len(places)))]
        match int(rng.integers(4)):
            case 0:
                del holder[key]
            case 1:
                other, place = places[int(rng.integers(len(places)))]
                holder[key] = copy.deepcopy(other[place])
            case 2 if isinstance(holder, list):
                holder.insert(key, copy.deepcopy(holder[key]))
            case _:
                holder[key] = copy.deepcopy(WEIRD[int(rng.integers(len(WEIRD)))])
    return json.dumps(whole).encode()


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every place in a tree of lists and dicts, by what holds it and its key there."""
    found, waiting = [], [value]
    while waiting:
        holder = waiting.pop()
        keys = holder if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        for key in keys:
            found.append((holder, key))
            waiting.append(holder[key])
    return found


def in_header(content: bytes, rng: np.random.Generator) -> bytes:
    """The header of safetensors, with its length set right."""
    length = int.from_bytes(content[:8], "little")
    text = in_json(content[8 : 8 + length], rng)
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


def in_message(content: bytes, rng: np.random.Generator) -> bytes:
    """One to three fields of an ONNX model set to something else, removed or doubled."""
    import onnx

    model = onnx.ModelProto.FromString(content)
    for _ in range(int(rng.integers(1, 4))):
        fields = list(_fields(model))
        message, field, value = fields[int(rng.integers(len(fields)))]
        try:
            _change(message, field, value, rng)
        except (TypeError, ValueError):  # what this field cannot hold
            continue
    changed: bytes = model.SerializeToString()
    return changed if changed != content else content[:-1]


def _fields(message: Any) -> list[tuple[Any, Any, Any]]:
    found, waiting = [], [message]
    while waiting:
        current = waiting.pop()
        for field, value in current.ListFields():
            found.append((current, field, value))
            if field.message_type is not None:
                waiting += list(value) if _is_repeated(value) else [value]
    return found


def _is_repeated(value: Any) -> bool:
    return hasattr(value, "append")


def _change(message: Any, field: Any, value: Any, rng: np.random.Generator) -> None:
    numbers = [-1, 0, 1, 2, 7, 16, 99, 2**31 - 1, 2**40, 2**62]
    action = int(rng.integers(3))
    if _is_repeated(value):
        index = int(rng.integers(len(value)))
        if action == 0:
            del value[index]
        elif field.message_type is not None:
            value.add().CopyFrom(value[index])
        else:
            value.append(value[index] if action == 1 else type(value[index])(numbers[int(rng.integers(len(numbers)))]))
    elif field.message_type is not None or action == 0:
        message.ClearField(field.name)
    elif isinstance(value, bytes):
        setattr(message, field.name, mutate(value, rng) if value else b"\0")
    elif isinstance(value, str):
        texts = ["", "x", "a\0b", "../x", "Loop", "If", "Constant", "image", "scores", value * 2]
        setattr(message, field.name, texts[int(rng.integers(len(texts)))])
    else:
        setattr(message, field.name, type(value)(numbers[int(rng.integers(len(numbers)))]))
