"""Reading the pickles inside torch files without running anything: tensors become records of where they lie."""

from __future__ import annotations

import io
import pickle
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from arachne.errors import ModelError, UnsafeModelError

SCRIPTED = "__torch__"
"""Prefix of the class names of objects that TorchScript pickles; their code is in the archive, not in Python."""

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
    offset: int = 0

    def __setstate__(self, state: Any) -> None:
        raise ModelError("a storage is given a state of its own")


class _Dict(dict[Any, Any]):
    """Replaces an ordered dict, and ignores attributes that a pickle sets."""

    __slots__ = ()

    def __init__(self, items: Any = ()) -> None:
        super().__init__()
        for key, value in items.items() if isinstance(items, dict) else items:
            self[_plain(key)] = value

    def __setstate__(self, state: Any) -> None:
        """A state dict's `_metadata`, or names that would hide the methods of a mapping."""


class Inert:
    """Replaces an object of any other class: accepts any arguments and does nothing.

    Attributes:
        state: The attributes it would have had.
    """

    state: Any = None

    def __new__(cls, *_: Any, **__: Any) -> Inert:
        return super().__new__(cls)

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        """Accept an item like a mapping, and ignore it."""

    def append(self, value: Any) -> None:
        """Accept an item like a list, and ignore it."""


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> TensorRecord:
    numbers = (offset, *shape, *strides)
    if not isinstance(storage, _Storage) or any(type(number) is not int for number in numbers):
        raise ModelError("a tensor is described by something else than whole numbers")
    return TensorRecord(storage.key, storage.dtype, storage.offset + offset, tuple(shape), tuple(strides))


def _first(value: Any, *_: Any) -> Any:
    return value


def _nothing(*_: Any) -> None:
    return None


ALLOWED: Mapping[tuple[str, str], Callable[..., Any] | str] = {
    ("collections", "OrderedDict"): _Dict,
    ("argparse", "Namespace"): Inert,
    ("collections", "defaultdict"): Inert,
    ("collections", "Counter"): Inert,
    ("builtins", "set"): Inert,
    ("__builtin__", "set"): Inert,
    ("_codecs", "encode"): Inert,
    ("pathlib", "PosixPath"): Inert,
    ("pathlib", "WindowsPath"): Inert,
    ("numpy", "dtype"): Inert,
    ("numpy", "ndarray"): Inert,
    ("numpy.core.multiarray", "scalar"): Inert,
    ("numpy.core.multiarray", "_reconstruct"): Inert,
    ("numpy._core.multiarray", "scalar"): Inert,
    ("numpy._core.multiarray", "_reconstruct"): Inert,
    ("torch", "Size"): tuple,
    ("torch", "device"): _nothing,
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _first,
    ("torch.serialization", "_get_layout"): _nothing,
    **{("torch.jit._pickle", f"build_{kind}list"): _first for kind in ("int", "double", "bool", "tensor")},
    ("torch.jit._pickle", "restore_type_tag"): _first,
    **{(module, name): dtype for name, dtype in STORAGES.items() for module in ("torch", "torch.cuda")},
}
"""The names a pickle may use, and our replacement of each; none of them is torch's own."""


MAX_PICKLE_BYTES = 32 << 20
"""Bytes of a pickle that are read: some hundred thousand tensors' locations."""

MAX_DEPTH = 100
"""Modules inside modules that are followed."""

MAX_MODULES = 100_000
"""Modules that are visited: a pickle of a few bytes can hold one module inside others in any number of ways."""

MAX_OPCODES = 2_000_000
"""How many instructions a pickle may have; each of them may make an object."""


class _Counted(io.BytesIO):
    """Bytes with a limit on the number of reads."""

    steps = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.steps += 1
        if self.steps > MAX_OPCODES:
            raise ModelError(f"it has more than {MAX_OPCODES:,} instructions")
        return super().read(size)


SCALARS = (str, int, float, bool, bytes, type(None))


def _plain(key: Any) -> Any:
    """A key, if it is hashed at once: a tuple of tuples takes twice as long with every level.

    Raises:
        ModelError: It is none.
    """
    parts = key if type(key) is tuple else (key,)
    if any(type(part) not in SCALARS for part in parts):
        raise ModelError("a key of a mapping is neither a name nor a number")
    return key


class _Reader(pickle._Unpickler):  # in Python: the one in C makes room for as many objects as a pickle says it has
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = dict(pickle._Unpickler.dispatch)
    read: Callable[[int], bytes]
    stack: list[Any]
    append: Callable[[Any], None]
    pop_mark: Callable[[], list[Any]]

    def __init__(self, stream: _Counted, name: str, *, scripted: bool = False, modules: bool = False) -> None:
        super().__init__(stream, encoding="utf-8")  # as torch reads what Python 2 has written
        self._name = name
        self._scripted = scripted
        self._modules = modules
        self.storages: dict[str, str] = {}

    def load_frame(self) -> None:
        """A frame is read instruction by instruction, so that they are counted."""
        self.read(8)

    dispatch[pickle.FRAME[0]] = load_frame

    def load_setitem(self) -> None:
        """A key and a value for the mapping below them."""
        value, key = self.stack.pop(), self.stack.pop()
        self.stack[-1][_plain(key)] = value

    dispatch[pickle.SETITEM[0]] = load_setitem

    def load_setitems(self) -> None:
        """Keys and values, one behind the other."""
        items = self.pop_mark()
        for key, value in zip(items[::2], items[1::2], strict=True):
            self.stack[-1][_plain(key)] = value

    dispatch[pickle.SETITEMS[0]] = load_setitems

    def load_dict(self) -> None:
        """Build a mapping from keys and values."""
        items = self.pop_mark()
        self.append({_plain(key): value for key, value in zip(items[::2], items[1::2], strict=True)})

    dispatch[pickle.DICT[0]] = load_dict

    def load_additems(self) -> None:
        """Add elements to the set below them."""
        items = self.pop_mark()
        self.stack[-1].update(map(_plain, items))

    dispatch[pickle.ADDITEMS[0]] = load_additems

    def load_frozenset(self) -> None:
        """Build a frozen set from its elements."""
        self.append(frozenset(map(_plain, self.pop_mark())))

    dispatch[pickle.FROZENSET[0]] = load_frozenset

    def find_class(self, module: str, name: str) -> Any:
        if self._scripted and module.partition(".")[0] == SCRIPTED:
            return Inert
        found = ALLOWED.get((module, name))
        package = module.partition(".")[0]
        if found is None and self._modules and (package == "__main__" or package not in sys.stdlib_module_names):
            return Inert
        if found is None:
            raise UnsafeModelError(f"'{self._name}' holds a pickled '{module}.{name}', and opening it would run code")
        return found

    def persistent_load(self, pid: Any) -> _Storage:
        kind, dtype, key, _, _, *view = pid
        if kind != "storage" or not isinstance(key, str) or not isinstance(dtype, str):
            raise ModelError("a storage is described by something else than text")
        start = view[0][1] if view and view[0] else 0
        if type(start) is not int:
            raise ModelError("a storage is described by something else than whole numbers")
        self.storages[key] = dtype
        return _Storage(key, dtype, start)


def read_pickle(data: bytes, name: str, *, scripted: bool = False) -> Any:
    """The content of a pickle made of containers, numbers, strings and tensors.

    Args:
        data: The pickle.
        name: The file's name, for messages.
        scripted: Whether objects of TorchScript classes are let through, as `Inert` ones.

    Raises:
        UnsafeModelError: It names anything else.
        ModelError: It cannot be read.
    """
    if len(data) > MAX_PICKLE_BYTES:
        raise ModelError(f"'{name}' holds a pickle of {len(data):,} bytes, too large to be read")
    with _readable(data, name):
        return _Reader(_Counted(data), name, scripted=scripted).load()


def read_pickles(data: bytes, name: str, number: int) -> tuple[list[Any], int, Mapping[str, str]]:
    """Read several pickles one after the other.

    Returns:
        What they hold, where the last of them ends, and the dtype of every storage they name by its key.
    """
    stream = _Counted(data[:MAX_PICKLE_BYTES])
    storages: dict[str, str] = {}
    found = []
    with _readable(data, name):
        for _ in range(number):
            reader = _Reader(stream, name)
            found.append(reader.load())
            storages |= reader.storages
    return found, stream.tell(), storages


def read_module(data: bytes, name: str) -> Mapping[str, Any] | None:
    """Return the state dict of a whole pickled module, whose classes become `Inert`; None if there is none in it.

    Raises:
        UnsafeModelError: It names something of Python's own, which no module needs.
        ModelError: It cannot be read.
    """
    if len(data) > MAX_PICKLE_BYTES or not WHOLE_MODULE.search(data):
        return None
    with _readable(data, name):
        content = _Reader(_Counted(data), name, modules=True).load()
    found = [content, *content.values()] if isinstance(content, dict) else [content]
    visits = iter(range(MAX_MODULES))
    with _readable(data, name):
        for one in found:
            state = _module_state(one, "", 0, visits)
            if state:
                return state
    return None


def _module_state(module: Any, prefix: str, depth: int, visits: Iterator[int]) -> dict[str, Any]:
    """Collect the parameters and buffers of a module and of those inside it, under the names torch gives them."""
    state = module.state if isinstance(module, Inert) else None
    if not isinstance(state, dict) or depth > MAX_DEPTH:
        return {}
    if next(visits, None) is None:
        raise ModelError(f"it has more than {MAX_MODULES:,} modules inside each other")
    found: dict[str, Any] = {}
    for table in ("_parameters", "_buffers"):
        for name, value in (state.get(table) or {}).items():
            if isinstance(value, TensorRecord):
                found[f"{prefix}{name}"] = value
    for name, inner in (state.get("_modules") or {}).items():
        found |= _module_state(inner, f"{prefix}{name}.", depth + 1, visits)
    return found


@contextmanager
def _readable(data: bytes, name: str) -> Iterator[None]:
    """Turn any error in reading a pickle into one sentence."""
    try:
        yield
    except UnsafeModelError as error:
        if not WHOLE_MODULE.search(data[:MAX_PICKLE_BYTES]):
            raise UnsafeModelError(f"{error}; save model.state_dict() alone, or a program with torch.export") from error
        raise UnsafeModelError(
            f"{error}: it is a whole pickled module; give 'module:factory' as the model and this file as its weights, "
            "which alone are then read, or, with its code at hand, run "
            f"torch.save(torch.load('{name}', weights_only=False).state_dict(), 'weights.pt') once and give that file",
            argument="factory",
        ) from error
    except Exception as error:  # a crafted pickle can fail in any way the interpreter knows
        reason = str(error) if isinstance(error, (ModelError, pickle.UnpicklingError)) else type(error).__name__
        raise ModelError(f"'{name}' holds a pickle that cannot be read: {reason[:160]}") from error


WHOLE_MODULE = re.compile(rb"_parameters.*_modules|_modules.*_parameters", re.DOTALL)
"""Matches the pickle of any module: the names of two tables of `nn.Module`."""
