"""Reading the pickles inside torch files without running anything: tensors become records of where they lie."""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True)
class _Storage:
    key: str
    dtype: str


def _tensor(storage: _Storage, offset: int, shape: Any, strides: Any, *_: Any) -> TensorRecord:
    return TensorRecord(storage.key, storage.dtype, int(offset), tuple(map(int, shape)), tuple(map(int, strides)))


def _first(value: Any, *_: Any) -> Any:
    return value


def _nothing(*_: Any) -> None:
    return None


ALLOWED: Mapping[tuple[str, str], Callable[..., Any] | str] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch", "Size"): tuple,
    ("torch", "device"): _nothing,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _first,
    ("torch.serialization", "_get_layout"): _nothing,
    **{("torch", name): dtype for name, dtype in STORAGES.items()},
}
"""What a pickle may name, and what stands in for it; none of it is torch's own."""


class _Reader(pickle.Unpickler):
    def __init__(self, data: bytes, name: str) -> None:
        super().__init__(io.BytesIO(data))
        self._name = name

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
        return _Storage(str(key), str(dtype))


def read_pickle(data: bytes, name: str) -> Any:
    """The content of a pickle made of containers, numbers, strings and tensors.

    Raises:
        UnsafeModelError: It names anything else.
        ModelError: It cannot be read.
    """
    try:
        return _Reader(data, name).load()
    except UnsafeModelError:
        raise
    except Exception as error:  # a crafted pickle can fail in any way the interpreter knows
        raise ModelError(f"'{name}' holds a pickle that cannot be read: {error}") from error
