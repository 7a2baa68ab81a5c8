"""npz and npy files."""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.safety import valid
from tests.safety.case import Case, canary

Maker = Callable[[Path], list[str]]
X = valid.pixels(6)[:, None].astype(np.float32) / 255
Y = np.arange(6) % 10


def npy(array: np.ndarray[Any, Any]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def header(shape: object, descr: str = "'<f4'", body: bytes = b"", *, fortran: str = "False") -> bytes:
    """An array file that claims a shape."""
    text = f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(text)) + text + body


def archive(members: Mapping[str, bytes], *, packed: bool = False) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return stream.getvalue()


def scan(content: Callable[[], bytes]) -> Maker:
    def make(folder: Path) -> list[str]:
        (folder / "data.npz").write_bytes(content())
        return ["scan", valid.model(folder), "--data", "data.npz"]

    return make


def of(**members: bytes) -> Callable[[], bytes]:
    """An npz of these members beside good ones."""
    good = {"x": npy(X), "y": npy(Y)} | members
    return lambda: archive({f"{name}.npy": content for name, content in good.items()})


def _zeros(gigabytes: float) -> Maker:
    """An archive that unpacks to gigabytes, written without holding them."""

    def make(folder: Path) -> list[str]:
        rows = int(gigabytes * 2**30 / 256)
        with zipfile.ZipFile(folder / "data.npz", "w", zipfile.ZIP_DEFLATED) as file:
            with file.open("x.npy", "w", force_zip64=True) as member:
                member.write(header((rows, 1, 8, 8)))
                for _ in range(rows * 256 >> 20):
                    member.write(bytes(1 << 20))
            file.writestr("y.npy", npy(np.zeros(rows, np.int64)))
        return ["scan", valid.model(folder), "--data", "data.npz"]

    return make


def _overlapping() -> bytes:
    """Many names for one member that is packed well."""
    whole = archive({"x.npy": header((1_000_000,), "'<f8'", bytes(8_000_000))}, packed=True)
    start = whole.rindex(b"PK\1\2")
    entry, end = whole[start : whole.rindex(b"PK\5\6")], whole[whole.rindex(b"PK\5\6") :]
    entries = b"".join(entry.replace(b"x.npy", f"{n:05d}".encode()) for n in range(2_000))
    return whole[:start] + entries + end[:8] + struct.pack("<HHII", 2_000, 2_000, len(entries), start) + b"\0\0"


def _flags() -> bytes:
    whole = bytearray(of()())
    at = whole.rindex(b"PK\1\2")
    whole[at + 8] |= 1
    return bytes(whole)


def _damaged_body() -> bytes:
    whole = bytearray(of()())
    whole[300] ^= 0xFF
    return bytes(whole)


def _pickle(folder: Path) -> list[str]:
    payload = f"cposix\nsystem\n(S'touch {canary(folder)}'\ntR.".encode()
    content = of(x=header((1,), "'|O'", payload))()
    (folder / "data.npz").write_bytes(content)
    return ["scan", valid.model(folder), "--data", "data.npz"]


def _pickle_alone(folder: Path) -> list[str]:
    (folder / "data.npz").write_bytes(f"cposix\nsystem\n(S'touch {canary(folder)}'\ntR.".encode())
    return ["scan", valid.model(folder), "--data", "data.npz"]


SURROGATES = np.array([0xD800] * 6, "<u4").view("<U1")
BEYOND = np.array([0x7FFFFFFF] * 6, "<u4").view("<U1")

TYPES: dict[str, Callable[[], bytes]] = {
    "labels-of-30-digits": of(y=npy(np.array(["9" * 30] * 6))),
    "labels-of-5000-digits": of(y=npy(np.array(["9" * 5000] * 6))),
    "labels-beyond-int64": of(y=npy(np.full(6, 2**64 - 1, np.uint64))),
    "labels-that-are-infinite": of(y=npy(np.full(6, np.inf))),
    "labels-that-are-nan": of(y=npy(np.full(6, np.nan))),
    "labels-of-1e300": of(y=npy(np.full(6, 1e300))),
    "labels-that-are-negative": of(y=npy(np.full(6, -1))),
    "labels-that-are-complex": of(y=npy(np.full(6, 1j))),
    "labels-that-are-dates": of(y=npy(np.full(6, "2020-01-01", "datetime64[D]"))),
    "labels-that-are-records": of(y=npy(np.zeros(6, [("a", "<i4")]))),
    "labels-that-are-void": of(y=header((6,), "'|V8'", bytes(48))),
    "labels-of-no-width": of(y=header((10**12,), "'<U0'")),
    "labels-of-bytes-that-are-no-text": of(y=npy(np.array([b"\xff\xfe"] * 6))),
    "labels-that-are-one-value": of(y=npy(np.array(3))),
    "labels-of-two-axes": of(y=npy(np.ones((6, 7)))),
    "labels-of-too-few-rows": of(y=npy(Y[:3])),
    "labels-with-half-a-character": of(y=npy(SURROGATES)),
    "labels-beyond-unicode": of(y=npy(BEYOND)),
    "class-names-with-half-characters": of(class_names=npy(SURROGATES)),
    "class-names-beyond-unicode": of(class_names=npy(BEYOND)),
    "inputs-of-no-rows": of(x=npy(X[:0]), y=npy(Y[:0])),
    "inputs-that-are-text": of(x=npy(np.array(["a"] * 6))),
    "inputs-that-are-complex": of(x=npy(X.astype(np.complex64))),
    "inputs-that-are-dates": of(x=npy(np.full(6, "2020", "datetime64[Y]"))),
    "inputs-that-are-nan": of(x=npy(X * np.nan)),
    "inputs-that-are-infinite": of(x=npy(X + np.inf)),
    "inputs-beyond-float32": of(x=npy(X.astype(np.float64) + 1e300)),
    "inputs-of-another-shape": of(x=npy(X.reshape(6, 64))),
    "inputs-of-sixty-axes": of(x=npy(X.reshape(6, *[1] * 55, 64))),
    "inputs-that-are-one-value": of(x=npy(np.asarray(1, np.float32))),
    "metadata-of-records": of(group_a=npy(np.zeros(6, [("a", "<i4")]))),
    "metadata-that-is-void": of(meta_a=header((6,), "'|V4'", bytes(24))),
    "metadata-with-half-characters": of(group_a=npy(SURROGATES)),
}

CLAIMS: dict[str, Callable[[], bytes]] = {
    "inputs-that-claim-40-terabytes": of(x=header((10**12, 10))),
    "inputs-that-claim-2-to-the-80": of(x=header((2**40, 2**40))),
    "inputs-that-claim-a-negative-side": of(x=header((-1, 64))),
    "inputs-that-claim-nothing-times-2-to-the-62": of(x=header((2**62, 0))),
    "inputs-whose-side-is-no-number": of(x=header("('a',)")),
    "inputs-whose-shape-is-no-tuple": of(x=header("5")),
    "inputs-whose-side-is-a-float": of(x=header("(6.0, 1, 8, 8)")),
    "inputs-with-fewer-bytes-than-claimed": of(x=header((6, 1, 8, 8), body=bytes(100))),
    "inputs-with-more-bytes-than-claimed": of(x=npy(X) + bytes(1000)),
    "inputs-of-an-unknown-kind": of(x=header((6, 1, 8, 8), "'<q9'", bytes(100))),
    "inputs-whose-kind-is-code": of(x=header((6,), "__import__('os').system('true')", bytes(100))),
    "inputs-whose-header-nests-deeply": of(x=header("(" * 4000 + ")" * 4000)),
    "inputs-whose-header-is-no-python": of(x=b"\x93NUMPY\x01\0\x04\0\xff\xff\xff\n"),
    "inputs-whose-header-is-4-gigabytes": of(x=b"\x93NUMPY\x02\0\xff\xff\xff\xff{}"),
    "inputs-of-an-unknown-version": of(x=b"\x93NUMPY\x09\0\x04\0{}\n\n"),
    "inputs-without-a-header": of(x=b"hello"),
    "inputs-of-nothing": of(x=b""),
    "fortran-order-that-is-text": of(x=header((6, 1, 8, 8), body=bytes(1536), fortran="'yes'")),
}

ARCHIVES: dict[str, Callable[[], bytes]] = {
    "npz-with-a-text-among-its-members": lambda: archive({"x.npy": npy(X), "y.npy": npy(Y), "notes.txt": b"hello"}),
    "npz-with-a-text-as-its-inputs": lambda: archive({"x": b"hello", "y.npy": npy(Y)}),
    "npz-with-a-folder": lambda: archive({"x.npy": npy(X), "y.npy": npy(Y), "more/": b""}),
    "npz-whose-member-reaches-outside": lambda: archive({"../x.npy": npy(X), "y": npy(Y)}),
    "npz-with-a-zero-in-a-name": lambda: archive({"x.npy": npy(X), "y.npy": npy(Y)}).replace(b"y.npy", b"\0.npy"),
    "npz-with-one-name-twice": lambda: archive({"x.npy": npy(X), "z.npy": npy(X), "y.npy": npy(Y)}).replace(
        b"z.npy", b"x.npy"
    ),
    "npz-with-members-that-overlap": _overlapping,
    "npz-that-is-encrypted": _flags,
    "npz-with-a-damaged-member": _damaged_body,
    "npz-cut-off": lambda: of()()[:-30],
    "npz-of-half-its-bytes": lambda: of()()[: len(of()()) // 2],
    "npz-without-members": lambda: archive({}),
    "npz-without-labels": lambda: archive({"x.npy": npy(X)}),
    "npz-without-inputs": lambda: archive({"y.npy": npy(Y)}),
    "npz-that-is-a-csv": lambda: b"y,a\n1,2\n",
    "npz-that-is-empty": lambda: b"",
    "npz-with-an-unknown-compression": lambda: archive({"x.npy": npy(X), "y.npy": npy(Y)}).replace(
        b"PK\1\2\x14\x03\x14\0\0\0\0\0", b"PK\1\2\x14\x03\x14\0\0\0\x63\0"
    ),
    "npz-whose-packed-bytes-are-none": lambda: archive({"x.npy": npy(X), "y.npy": npy(Y)}, packed=True).replace(
        zlib.compress(npy(Y))[2:8], b"\xff" * 6
    ),
}


def _folder(x: bytes, y: bytes) -> Maker:
    """A folder of npy files."""

    def make(folder: Path) -> list[str]:
        (folder / "data").mkdir()
        (folder / "data" / "x.npy").write_bytes(x)
        (folder / "data" / "y.npy").write_bytes(y)
        return ["scan", valid.model(folder), "--data", "data"]

    return make


def _pipe(name: str) -> Maker:
    def make(folder: Path) -> list[str]:
        os.mkfifo(folder / name)
        return ["scan", valid.model(folder), "--data", name]

    return make


def _pipe_in_folder(folder: Path) -> list[str]:
    _folder(npy(X), npy(Y))(folder)
    os.mkfifo(folder / "data" / "z.npy")
    return ["scan", "net.onnx", "--data", "data"]


def _device(folder: Path) -> list[str]:
    (folder / "data.npz").symlink_to("/dev/zero")
    return ["scan", valid.model(folder), "--data", "data.npz"]


def _loop(folder: Path) -> list[str]:
    (folder / "data.npz").symlink_to("data.npz")
    return ["scan", valid.model(folder), "--data", "data.npz"]


def _long_name(folder: Path) -> list[str]:
    return ["scan", valid.model(folder), "--data", "a" * 5000 + ".npz"]


FILES: dict[str, tuple[bytes, bytes]] = {
    "npy-that-claims-40-terabytes": (header((10**12, 10)), npy(Y)),
    "npy-of-objects": (header((6,), "'|O'", bytes(48)), npy(Y)),
    "npy-that-is-a-pickle": (b"\x80\x04N.", npy(Y)),
    "npy-that-is-empty": (b"", npy(Y)),
    "npy-cut-off": (npy(X)[:-10], npy(Y)),
    "npy-of-its-first-bytes": (npy(X)[:9], npy(Y)),
    "npy-that-is-a-zip": (archive({"x.npy": npy(X)}), npy(Y)),
    "npy-labels-of-no-width": (npy(X), header((10**12,), "'<U0'")),
    "npy-labels-that-are-dates": (npy(X), npy(np.full(6, "2020", "datetime64[Y]"))),
    "npy-labels-with-half-characters": (npy(X), npy(SURROGATES)),
    "npy-with-nan": (npy(X * np.nan), npy(Y)),
}

CASES = [
    *(Case(name, "npz", "type", scan(content)) for name, content in TYPES.items()),
    *(Case(name, "npz", "size", scan(content)) for name, content in CLAIMS.items()),
    *(Case(name, "npz", "damage", scan(content)) for name, content in ARCHIVES.items()),
    Case("npz-with-a-pickle-inside", "npz", "code", _pickle),
    Case("npz-that-is-a-pickle", "npz", "code", _pickle_alone),
    Case("npz-that-unpacks-to-3-gigabytes", "npz", "bomb", _zeros(3)),
    Case("npz-that-unpacks-to-half-a-gigabyte", "npz", "bomb", _zeros(0.5)),
    *(Case(name, "npy", "size" if "claims" in name else "type", _folder(x, y)) for name, (x, y) in FILES.items()),
    *(
        Case(f"data-that-is-a-pipe-{name}", "npz", "pipe", _pipe(name))
        for name in ("data.npz", "data.csv", "data.tsv", "data.csv.gz", "data.parquet", "data.npy")
    ),
    Case("npy-that-is-a-pipe", "npy", "pipe", _pipe_in_folder),
    Case("data-that-links-to-an-endless-device", "npz", "pipe", _device),
    Case("data-that-links-to-itself", "npz", "pipe", _loop),
    Case("data-with-a-name-of-5000-letters", "npz", "path", _long_name),
]
