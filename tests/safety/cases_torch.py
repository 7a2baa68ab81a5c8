"""Hostile state dicts: pickles inside of zips, and safetensors."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.safety import valid
from tests.safety.case import Case, canary
from tests.safety.lazy import Lazy

torch: Any = Lazy("torch")
safetensors_torch: Any = Lazy("safetensors.torch")

Members = dict[str, bytes]
"""The members of an archive, by their names behind its root folder."""

SCAN = ("scan", *valid.FACTORY, "--data", "data.npz", "--weights")


def _scan(name: str, change: Callable[[bytes, Path], bytes]) -> Callable[[Path], list[str]]:
    """A scan of the network with a state dict whose bytes were changed."""

    def make(folder: Path) -> list[str]:
        valid.data(folder)
        path = folder / valid.state_dict(folder, name)
        path.write_bytes(change(path.read_bytes(), folder))
        return [*SCAN, name]

    return make


def _diff(name: str, change: Callable[[bytes, Path], bytes]) -> Callable[[Path], list[str]]:
    """The difference between the good state dict and the changed one, for which no code of the network is needed."""

    def make(folder: Path) -> list[str]:
        path = folder / valid.state_dict(folder, name)
        (folder / f"good{path.suffix}").write_bytes(path.read_bytes())
        path.write_bytes(change(path.read_bytes(), folder))
        return ["diff", f"good{path.suffix}", name, "-o", "difference.json"]

    return make


# Archives


def members_of(content: bytes) -> Members:
    """Members of an archive, without its root folder."""
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        return {name.partition("/")[2]: file.read(name) for name in file.namelist()}


def archive(members: Mapping[str, bytes], root: str = "net/", **options: Any) -> bytes:
    """An archive of these members."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", **options) as file:
        for name, data in members.items():
            file.writestr(root + name, data)
    return stream.getvalue()


def members(change: Callable[[Members], object]) -> Callable[[bytes, Path], bytes]:
    """Members changed, and an archive made of them again, its checksums right."""

    def apply_change(content: bytes, folder: Path) -> bytes:
        found = members_of(content)
        change(found)
        return archive(found)

    return apply_change


def pickle_state(data: Callable[[Path], bytes]) -> Callable[[bytes, Path], bytes]:
    """Another pickle in place of the state dict's."""
    return lambda content, folder: archive({**members_of(content), "data.pkl": data(folder)})


def field(offset: int, value: bytes, signature: bytes = b"PK\x01\x02") -> Callable[[bytes, Path], bytes]:
    """Other bytes in the last record of a kind: of the directory, of a member's header, or of the archive's end."""

    def change(content: bytes, folder: Path) -> bytes:
        at = content.rindex(signature) + offset
        return content[:at] + value + content[at + len(value) :]

    return change


def _overlapping(content: bytes, folder: Path) -> bytes:
    """Every entry of the directory leads to the first member."""
    changed, at = bytearray(content), content.index(b"PK\x01\x02")
    first = content[at + 10 : at + 46]
    while changed[at : at + 4] == b"PK\x01\x02":
        changed[at + 10 : at + 28] = first[:18]
        changed[at + 42 : at + 46] = first[32:36]
        at += 46 + sum(struct.unpack("<HHH", changed[at + 28 : at + 34]))
    return bytes(changed)


def _long_directory(content: bytes, folder: Path) -> bytes:
    """More members than anybody has, of no bytes each."""
    entry = b"PK\x01\x02" + bytes(24) + struct.pack("<HHH", 1, 0, 0) + bytes(12) + b"a"
    directory = entry * 400_000
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 0xFFFF, 0xFFFF, len(directory), len(content), 0)
    return content + directory + end


def _twice(content: bytes, folder: Path) -> bytes:
    stream = io.BytesIO(content)
    with zipfile.ZipFile(stream, "a") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file.writestr(zipfile.ZipInfo(file.namelist()[0]), b"other")
    return stream.getvalue()


def cut(part: int) -> Callable[[bytes, Path], bytes]:
    """The first eighths of a file."""
    return lambda content, folder: content[: len(content) * part // 8]


ARCHIVES: dict[str, Callable[[bytes, Path], bytes]] = {
    "packed-a-thousandfold": lambda content, folder: archive(
        {**members_of(content), "data/0": bytes(300 << 20)}, compression=zipfile.ZIP_DEFLATED
    ),
    "member-outside": members(lambda found: found.update({"../../evil": b"x"})),
    "member-with-a-drive": members(lambda found: found.update({"C:evil": b"x"})),
    "absolute-member": lambda content, folder: archive({**members_of(content), "etc/evil": b""}, root="/"),
    "several-roots": lambda content, folder: archive(members_of(content), root=""),
    "without-a-pickle": members(lambda found: found.pop("data.pkl")),
    "without-a-storage": members(lambda found: found.pop("data/0")),
    "storage-too-short": members(lambda found: found.update({"data/0": b"1234"})),
    "without-members": lambda content, folder: archive({}),
    "big-endian": members(lambda found: found.update({"byteorder": b"big"})),
    "byte-order-that-is-noise": members(lambda found: found.update({"byteorder": b"\xff\xfe\0"})),
    "one-member-under-all-names": _overlapping,
    "one-name-for-two-members": _twice,
    "long-directory": _long_directory,
    "encrypted": field(8, b"\x01\x00"),
    "unknown-compression": field(10, b"\x63\x00"),
    "wrong-checksum": field(16, b"\x01\x02\x03\x04"),
    "member-behind-the-end": field(42, b"\xf0\xff\xff\x7f"),
    "member-size-of-gigabytes": field(24, b"\xff\xff\xff\x7f"),
    "packed-size-of-gigabytes": field(20, b"\xff\xff\xff\x7f"),
    "name-longer-than-the-file": field(28, b"\xff\xff"),
    "extra-longer-than-the-file": field(30, b"\xff\xff"),
    "other-name-in-the-header": field(30, b"e", b"PK\x03\x04"),
    "directory-behind-the-end": field(16, b"\xff\xff\xff\x7f", b"PK\x05\x06"),
    "directory-longer-than-the-file": field(12, b"\xff\xff\xff\x7f", b"PK\x05\x06"),
    "directory-of-nothing": field(12, bytes(4), b"PK\x05\x06"),
    "bytes-before-the-archive": lambda content, folder: b"MZ" * 500 + content[: len(content) // 2],
    **{f"cut-to-{part}-of-8": cut(part) for part in range(8)},
    "zeros": lambda content, folder: bytes(len(content)),
    "text": lambda content, folder: b"no model\n" * 100,
    "end-alone": lambda content, folder: content[-22:],
}  # fmt: skip


# Pickles


class Calls:
    """Pickled, it is a call."""

    def __init__(self, function: Any, *given: Any) -> None:
        self.function, self.given = function, given

    def __reduce__(self) -> Any:
        return self.function, self.given


def call_by_name(module: str, name: str, *given: str, protocol: int = 2) -> Callable[[Path], bytes]:
    """A call of anything by its name; `{}` in an argument is the canary's path."""

    def make(folder: Path) -> bytes:
        texts = [text.format(canary(folder)) for text in given]
        arguments = b"".join(b"X" + struct.pack("<I", len(text.encode())) + text.encode() for text in texts)
        asked = f"c{module}\n{name}\n".encode()
        if protocol == 4:
            words = [b"\x8c" + bytes([len(word)]) + word.encode() for word in (module, name)]
            asked = b"".join(words) + b"\x93"
        return b"\x80" + bytes([protocol]) + asked + b"(" + arguments + b"tR."

    return make


def _tensor(
    key: Any = "0", count: int = 512, offset: Any = 0, shape: Any = (8, 64), strides: Any = (64, 1),
    kind: str = "FloatStorage",
) -> Callable[[Path], bytes]:  # fmt: skip
    """A state dict whose first weight is described in another way."""
    return lambda folder: _describe([("1.weight", key, count, offset, shape, strides, kind)])


def _describe(tensors: list[tuple[Any, ...]]) -> bytes:
    """A pickle as torch writes it, of tensors that are described in any way."""
    stream = io.BytesIO()

    class Storage:
        def __init__(self, key: Any, count: Any, kind: str) -> None:
            self.id = ("storage", Named("torch", kind), key, "cpu", count)

    class Named:
        def __init__(self, module: str, name: str) -> None:
            self.asked = f"c{module}\n{name}\n".encode()

    base: Any = pickle._Pickler  # the one in Python, whose parts can be replaced

    class Pickler(base):  # type: ignore[misc]  # it is untyped
        def persistent_id(self, value: Any) -> Any:
            return value.id if isinstance(value, Storage) else None

        def save(self, value: Any, *given: Any, **options: Any) -> None:
            if isinstance(value, Named):
                self.write(value.asked)
            else:
                super().save(value, *given, **options)

    pickler = Pickler(stream, 2)
    pickler.write(b"\x80\x02}")
    for name, key, count, offset, shape, strides, kind in tensors:
        pickler.save(name)
        pickler.save(Named("torch._utils", "_rebuild_tensor_v2"))
        pickler.save((Storage(key, count, kind), offset, shape, strides, False, {}))
        pickler.write(b"Rs")
    pickler.write(b".")
    return stream.getvalue()


def _holds_itself(folder: Path) -> bytes:
    found: dict[str, Any] = {"epoch": 1}
    found["state_dict"] = found
    return pickle.dumps(found, 2)


def _hold_each_other(folder: Path) -> bytes:
    first: dict[str, Any] = {}
    first["model"] = {"state_dict": {"model_state_dict": first}}
    return pickle.dumps(first, 2)


def _names_of_names(made: bytes = b"}", put: bytes = b"K\x01s") -> Callable[[Path], bytes]:
    """A key of pairs of pairs, each level of which takes twice as long to be hashed or written out."""
    return lambda folder: b"\x80\x02" + made + b"X\x01\x00\x00\x00x" + b"2\x86" * 60 + put + b"."


def _hidden_items(folder: Path) -> bytes:
    """An ordered dict that is given attributes by the names of its methods."""
    text = b"X\x05\x00\x00\x00items"
    return b"\x80\x02ccollections\nOrderedDict\n)R}" + text + b"K\x01sX\x06\x00\x00\x00valuesK\x01sb."


def _other_state(folder: Path) -> bytes:
    """A tensor that is given a data type after it was described."""
    whole = _describe([("1.weight", "0", 512, 0, (8, 64), (64, 1), "FloatStorage")])
    return whole[:-2] + b"}X\x05\x00\x00\x00dtype}sbs."


CODE = {
    "os-system": call_by_name("os", "system", "touch {}"),
    "posix-system": call_by_name("posix", "system", "touch {}"),
    "builtins-eval": call_by_name("builtins", "eval", "open('{}', 'w')"),
    "builtins-exec": call_by_name("__builtin__", "exec", "open('{}', 'w')"),
    "builtins-open": call_by_name("builtins", "open", "{}", "w"),
    "subprocess": call_by_name("subprocess", "getoutput", "touch {}"),
    "imported": call_by_name("importlib", "import_module", "antigravity"),
    "attribute-of-something-allowed": call_by_name("collections", "OrderedDict.fromkeys", "{}", protocol=4),
    "attribute-of-a-function-of-ours": call_by_name("torch._utils", "_rebuild_tensor_v2.__globals__", protocol=4),
    "file-read-by-torch": call_by_name("torch.serialization", "load", "{}"),
    "storage-from-bytes": call_by_name("torch.storage", "_load_from_bytes", "x"),
    "script-loaded-by-torch": call_by_name("torch.jit", "load", "{}"),
    "array-rebuilt": call_by_name("numpy.core.multiarray", "_reconstruct", "x"),
    "module": call_by_name("torch.nn.modules.linear", "Linear"),
    "hub": call_by_name("torch.hub", "load", "evil/evil", "evil"),
    "path-touched": lambda folder: pickle.dumps(Calls(Path.touch, canary(folder)), 2),
    "pickle-in-a-pickle": lambda folder: pickle.dumps(Calls(pickle.loads, b"cos\nsystem\n."), 2),
    "extension": lambda folder: b"\x80\x02\x82\x01.",
    "old-style-instance": lambda folder: b"(S'touch'\nios\nsystem\n.",
}

PICKLES: dict[str, tuple[str, Callable[[Path], bytes]]] = {
    **{name: ("code", make) for name, make in CODE.items()},
    "memo-of-two-billion": ("memory", lambda folder: b"\x80\x02}r\xff\xff\xff\x7f."),
    "memo-of-half-a-billion": ("memory", lambda folder: b"\x80\x02}r\xff\xff\xff\x1f."),
    "bytes-of-exabytes": ("memory", lambda folder: b"\x80\x04\x8e" + struct.pack("<Q", 2**60) + b"."),
    "text-of-gigabytes": ("memory", lambda folder: b"\x80\x04\x8d" + struct.pack("<Q", 2**33) + b"."),
    "frame-of-exabytes": ("memory", lambda folder: b"\x80\x04\x95" + struct.pack("<Q", 2**60) + b"."),
    "long-of-gigabytes": ("memory", lambda folder: b"\x80\x02\x8b\xff\xff\xff\x7f."),
    "ten-million-dicts": ("memory", lambda folder: b"\x80\x02(" + b"}" * 10_000_000 + b"l."),
    "thirty-million-marks": ("memory", lambda folder: b"\x80\x02" + b"(" * 30_000_000 + b"."),
    "framed-dicts": ("memory", lambda folder: b"\x80\x04\x95" + struct.pack("<Q", 10**7 + 3) + b"(" + b"}" * 10**7
                     + b"l."),
    "forty-megabytes": ("memory", lambda folder: b"\x80\x02" + b"N0" * 20_000_000 + b"N."),
    "names-of-names": ("hang", _names_of_names()),
    "names-of-names-in-an-ordered-dict": ("hang", _names_of_names(b"ccollections\nOrderedDict\n)R")),
    "names-of-names-at-once": ("hang", _names_of_names(b"(", b"K\x01d")),
    "names-of-names-several": ("hang", _names_of_names(b"}(", b"K\x01u")),
    "names-of-names-in-a-call": ("hang", _names_of_names(b"ccollections\nOrderedDict\n(", b"K\x01\x86l\x85R")),
    "names-of-names-in-a-set": ("hang", _names_of_names(b"\x8f(", b"\x90")),
    "names-of-names-in-a-frozen-set": ("hang", _names_of_names(b"(", b"\x91")),
    "holds-itself": ("type", _holds_itself),
    "hold-each-other": ("type", _hold_each_other),
    "a-hundred-thousand-deep": ("type", lambda folder: b"\x80\x02" + b"]" * 10**5 + b"a" * (10**5 - 1) + b"."),
    "hidden-items": ("type", _hidden_items),
    "other-state": ("type", _other_state),
    "list": ("type", lambda folder: pickle.dumps([1, 2], 2)),
    "number": ("type", lambda folder: pickle.dumps(7, 2)),
    "empty-dict": ("type", lambda folder: pickle.dumps({}, 2)),
    "numbers-for-weights": ("type", lambda folder: pickle.dumps({"1.weight": 3, "1.bias": None}, 2)),
    "empty": ("damaged", lambda folder: b""),
    "cut": ("damaged", lambda folder: _tensor()(folder)[:40]),
    "noise": ("damaged", lambda folder: bytes(range(256))),
    "stop-alone": ("damaged", lambda folder: b"."),
    "protocol-of-tomorrow": ("damaged", lambda folder: b"\x80\x63."),
    "text-that-is-none": ("damaged", lambda folder: b"\x80\x02X\x02\x00\x00\x00\xff\xfe."),
    "number-of-ten-thousand-digits": ("damaged", lambda folder: b"I" + b"9" * 10_000 + b"\n."),
    "storage-without-its-parts": ("type", lambda folder: b"\x80\x02)Q."),
    "storage-by-a-number": ("type", lambda folder: b"\x80\x02K\x01Q."),
    "stride-zero-of-forty-gigabytes": ("memory", _tensor(shape=(10_000, 1_000_000), strides=(0, 0))),
    "stride-zero-of-exabytes": ("memory", _tensor(shape=(2**30, 2**30), strides=(0, 0))),
    "stride-one-over-and-over": ("memory", _tensor(shape=(500, 10, 10_000_000), strides=(1, 0, 0))),
    "sixty-thousand-names-of-one-range": ("memory", lambda folder: _describe(
        [(f"w{number}", "0", 512, 0, (100, 512), (0, 1), "FloatStorage") for number in range(60_000)])),
    "offset-negative": ("type", _tensor(offset=-1)),
    "offset-behind-the-end": ("type", _tensor(offset=10**9)),
    "offset-of-a-thousand-digits": ("type", _tensor(offset=10**1000)),
    "offset-that-is-text": ("type", _tensor(offset="0")),
    "stride-negative": ("type", _tensor(strides=(-64, 1))),
    "stride-of-a-thousand-digits": ("type", _tensor(strides=(10**1000, 1))),
    "fewer-strides": ("type", _tensor(strides=(64,))),
    "shape-negative": ("type", _tensor(shape=(-8, 64))),
    "shape-that-is-text": ("type", _tensor(shape="864")),
    "shape-of-real-numbers": ("type", _tensor(shape=(8.5, 64))),
    "shape-that-is-nothing": ("type", _tensor(shape=None)),
    "shape-empty-and-huge": ("type", _tensor(shape=(0, 2**62), strides=(1, 1))),
    "a-hundred-axes": ("type", _tensor(shape=(1,) * 100, strides=(1,) * 100)),
    "storage-elsewhere": ("outside", _tensor(key="../../data.npz")),
    "storage-that-is-the-pickle": ("outside", _tensor(key="../data.pkl")),
    "storage-by-a-dict": ("type", _tensor(key={})),
    "storage-of-no-known-kind": ("type", _tensor(kind="QUInt8Storage")),
    "storage-of-another-kind": ("type", _tensor(kind="DoubleStorage", count=10**6, shape=(1000, 1000))),
}  # fmt: skip


# Weights that are no numbers


def holding(value: float, dtype: str, ending: str) -> Callable[[bytes, Path], bytes]:
    """The state dict in a dtype, with one number that is none."""

    def change(content: bytes, folder: Path) -> bytes:
        path = folder / f"other{ending}"
        state = safetensors_torch.load(content) if ending == ".safetensors" else torch.load(io.BytesIO(content))
        state = {name: tensor.to(getattr(torch, dtype)) for name, tensor in state.items()}
        state["3.weight"][2, 3] = value
        if ending == ".safetensors":
            safetensors_torch.save_file(state, path)
        else:
            torch.save(state, path)
        return path.read_bytes()

    return change


# Safetensors


def write_header(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes, Path], bytes]:
    """Another header, of the right length."""

    def apply_change(content: bytes, folder: Path) -> bytes:
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length])
        found = change(header)
        text = found if isinstance(found, bytes) else json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text + content[8 + length :]

    return apply_change


def entry(**fields: Any) -> Callable[[bytes, Path], bytes]:
    """Other fields for the first weight."""
    return write_header(lambda header: header["1.weight"].update(fields) or None)


def _twice_in_header(header: dict[str, Any]) -> bytes:
    text = json.dumps(header)
    first = json.dumps(header["1.weight"])
    return (text[:-1] + f', "1.weight": {first}' + "}").encode()


def _shift(by: int) -> Callable[[dict[str, Any]], object]:
    def change(header: dict[str, Any]) -> None:
        last = max((name for name in header if name != "__metadata__"), key=lambda name: header[name]["data_offsets"])
        header[last]["data_offsets"] = [place + by for place in header[last]["data_offsets"]]

    return change


SAFETENSORS: dict[str, tuple[str, Callable[[bytes, Path], bytes]]] = {
    "two-tensors-in-one-place": ("accepted", write_header(lambda header: header.update({"copy": header["1.weight"]}))),
    "overlap": ("accepted", write_header(_shift(-4))),
    "hole": ("accepted", lambda content, folder: write_header(_shift(4))(content + bytes(4), folder)),
    "trailing-bytes": ("accepted", lambda content, folder: content + b"more"),
    "tensor-left-out": ("accepted", write_header(lambda header: header.pop("1.bias") and None)),
    "key-that-stands-twice": ("accepted", write_header(_twice_in_header)),
    "text-for-offsets": ("accepted", write_header(lambda header: header["1.weight"].update(
        data_offsets=[str(place) for place in header["1.weight"]["data_offsets"]]) or None)),
    "text-for-sizes": ("accepted", entry(shape=["8", "64"])),
    "real-sizes": ("accepted", entry(shape=[8.0, 64.0])),
    "sizes-that-are-true": ("accepted", entry(shape=[True, 64])),
    "metadata-of-numbers": ("accepted", write_header(lambda header: header.update({"__metadata__": {"a": 1}}))),
    "offsets-turned-round": ("type", write_header(lambda header: header["1.weight"]["data_offsets"].reverse())),
    "negative-offsets": ("type", entry(data_offsets=[-8, 2040])),
    "offsets-behind-the-end": ("type", entry(data_offsets=[10**12, 10**12 + 2048])),
    "three-offsets": ("type", entry(data_offsets=[0, 1, 2])),
    "no-offsets": ("type", write_header(lambda header: header["1.weight"].pop("data_offsets") and None)),
    "sizes-that-overflow": ("type", entry(shape=[2**32, 2**32])),
    "size-of-thirty-digits": ("type", entry(shape=[10**30])),
    "negative-size": ("type", entry(shape=[-8, -64])),
    "empty-and-huge": ("type", entry(shape=[0, 2**62])),
    "a-hundred-axes": ("type", entry(shape=[8, 64, *[1] * 100])),
    "a-hundred-thousand-axes": ("size", entry(shape=[8, 64, *[1] * 100_000])),
    "a-million-axes-of-none": ("size", entry(shape=[0, *[1] * 1_000_000])),
    "unknown-dtype": ("type", entry(dtype="F1")),
    "dtype-that-is-a-dict": ("type", entry(dtype={})),
    "another-dtype": ("type", entry(dtype="F64")),
    "header-that-is-a-list": ("type", write_header(lambda header: b"[]")),
    "header-that-is-a-number": ("type", write_header(lambda header: b"7")),
    "header-that-is-no-json": ("type", write_header(lambda header: b"{'a': 1}")),
    "header-with-nan": ("type", write_header(lambda header: b'{"a": NaN}')),
    "header-nested-deeply": ("type", write_header(lambda header: b'{"a":' * 50_000)),
    "header-that-is-no-utf-8": ("type", write_header(lambda header: b'{"\xff": 1}')),
    "header-with-a-lone-surrogate": ("type", write_header(lambda header: b'{"\\ud800": 1}')),
    "entry-that-is-a-list": ("type", write_header(lambda header: header.update({"1.weight": [1, 2]}))),
    "header-of-exabytes": ("memory", lambda content, folder: struct.pack("<Q", 2**60) + content[8:]),
    "header-of-the-whole-file": ("memory", lambda content, folder: struct.pack("<Q", len(content)) + content[8:]),
    "half-a-million-tensors": ("memory", lambda content, folder: write_header(lambda header: json.dumps(
        {f"t{n}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for n in range(500_000)}).encode())(
            content[:8 + int.from_bytes(content[:8], "little")], folder)),
    "ten-million-values": ("memory", write_header(lambda header: b'{"a": [' + b"[]," * 10_000_000 + b"[]]}")),
    **{f"cut-to-{part}-of-8": ("damaged", cut(part)) for part in range(8)},
    "seven-bytes": ("damaged", lambda content, folder: content[:7]),
    "zeros": ("damaged", lambda content, folder: bytes(len(content))),
    "text": ("damaged", lambda content, folder: b"no model\n" * 100),
}  # fmt: skip


def _pipe(name: str) -> Callable[[Path], list[str]]:
    def make(folder: Path) -> list[str]:
        valid.data(folder)
        valid.state_dict(folder, name)
        (folder / name).unlink()
        os.mkfifo(folder / name)
        return [*SCAN, name]

    return make


NUMBERS = [("nan", float("nan")), ("infinity", float("inf")), ("minus-infinity", float("-inf"))]
DTYPES = ("float32", "float16", "bfloat16", "float64")

CASES = [
    *(Case(f"pt-archive-{name}", "pt", "archive", _scan("net.pt", change)) for name, change in ARCHIVES.items()),
    *(Case(f"pt-{name}", "pt", attack, _scan("net.pt", pickle_state(make))) for name, (attack, make) in PICKLES.items()
    ),
    *(Case(f"pth-{name}", "pt", "code", _diff("net.pth", pickle_state(make))) for name, make in CODE.items()),
    *(
        Case(f"safetensors-{name}", "safetensors", attack, _scan("net.safetensors", change))
        for name, (attack, change) in SAFETENSORS.items()
    ),
    *(
        Case(f"safetensors-{name}-in-diff", "safetensors", attack, _diff("net.safetensors", change))
        for name, (attack, change) in SAFETENSORS.items()
        if attack == "accepted"
    ),
    *(
        Case(f"{kind}-{what}-{dtype}-in-{where}", kind, "not finite",
             make(f"net.{kind}", holding(value, dtype, f".{kind}")))
        for kind in ("pt", "safetensors")
        for what, value in NUMBERS
        for dtype in DTYPES
        for where, make in (("scan", _scan), ("diff", _diff))
    ),
    *(Case(f"{kind}-pipe", kind, "pipe", _pipe(f"net.{kind}")) for kind in ("pt", "safetensors")),
]  # fmt: skip
