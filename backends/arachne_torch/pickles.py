"""Reading the pickles inside torch files without running anything: tensors become records of where they lie."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from arachne.errors import ModelError, UnsafeModelError

STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
}


@dataclass(frozen=True)
class TensorRecord:
    """A tensor as the pickle describes it: which storage, and how it lies in it."""

    key: str
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def __setstate__(self, state: Any) -> None:
        """A pickle may ask for other attributes; a record has none but its own."""
        raise ModelError("a tensor is given a state of its own")


@dataclass(frozen=True)
class _Storage:
    key: str
    dtype: str

    def __setstate__(self, state: Any) -> None:
        raise ModelError("a storage is given a state of its own")


class _Dict(dict[Any, Any]):
    """Stands in for an ordered dict; what a pickle would set as its attributes is left out."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        """A state dict's `_metadata`, or names that would hide the methods of a mapping."""


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> TensorRecord:
    numbers = (offset, *shape, *strides)
    if not isinstance(storage, _Storage) or any(type(number) is not int for number in numbers):
        raise ModelError("a tensor is described by something else than whole numbers")
    return TensorRecord(storage.key, storage.dtype, offset, tuple(shape), tuple(strides))


def _first(value: Any, *_: Any) -> Any:
    return value


def _nothing(*_: Any) -> None:
    return None


ALLOWED: Mapping[tuple[str, str], Callable[..., Any] | str] = {
    ("collections", "OrderedDict"): _Dict,
    ("torch", "Size"): tuple,
    ("torch", "device"): _nothing,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _first,
    ("torch.serialization", "_get_layout"): _nothing,
    **{("torch", name): dtype for name, dtype in STORAGES.items()},
}
"""What a pickle may name, and what stands in for it; none of it is torch's own."""


LARGEST_PICKLE = 32 << 20
"""Bytes of a pickle that are read: some hundred thousand tensors' places."""

MOST_STEPS = 4_000_000
"""How many instructions a pickle may have; each of them may make an object."""


class _Counted(io.BytesIO):
    """Bytes that are handed out only so often."""

    steps = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise ModelError(f"it has more than {MOST_STEPS:,} instructions")
        return super().read(size)


class _Reader(pickle._Unpickler):  # in Python: the one in C makes room for as many objects as a pickle says it has
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = dict(pickle._Unpickler.dispatch)

    def __init__(self, data: bytes, name: str) -> None:
        super().__init__(_Counted(data))
        self._name = name

    def load_frame(self) -> None:
        """A frame is read instruction by instruction, so that they are counted."""
        self.read(8)

    dispatch[pickle.FRAME[0]] = load_frame

    def find_class(self, module: str, name: str) -> Any:
        found = ALLOWED.get((module, name))
        if found is None:
            raise UnsafeModelError(
                f"'{self._name}' holds a pickled '{module}.{name}', and opening it would run code; save "
                "model.state_dict() instead, or a program with torch.export"
            )
        return found

    def persistent_load(self, pid: Any) -> _Storage:
        _, dtype, key, *_ = pid
        if not isinstance(key, str) or not isinstance(dtype, str):
            raise ModelError("a storage is described by something else than text")
        return _Storage(key, dtype)


def read_pickle(data: bytes, name: str) -> Any:
    """The content of a pickle made of containers, numbers, strings and tensors.

    Raises:
        UnsafeModelError: It names anything else.
        ModelError: It cannot be read.
    """
    if len(data) > LARGEST_PICKLE:
        raise ModelError(f"'{name}' holds a pickle of {len(data):,} bytes, too large to be read")
    try:
        return _Reader(data, name).load()
    except UnsafeModelError:
        raise
    except Exception as error:  # a crafted pickle can fail in any way the interpreter knows
        reason = str(error) if isinstance(error, (ModelError, pickle.UnpicklingError)) else type(error).__name__
        raise ModelError(f"'{name}' holds a pickle that cannot be read: {reason[:160]}") from error
