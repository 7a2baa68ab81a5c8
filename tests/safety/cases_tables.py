"""Tables: csv, packed csv, parquet; and the small text files beside data: class names, row numbers, causes."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.safety import valid
from tests.safety.case import Case

Maker = Callable[[Path], list[str]]
SHAPE = ("--preprocess", "shape=1x8x8")
COLUMNS = [f"p{number}" for number in range(64)]
HEADER = ",".join(["y", *COLUMNS])


def line(label: str = "1", value: str = "0.5") -> str:
    return ",".join([label, *[value] * 64])


def table(content: str | bytes, name: str = "data.csv") -> Maker:
    def make(folder: Path) -> list[str]:
        raw = content.encode() if isinstance(content, str) else content
        (folder / name).write_bytes(raw)
        return ["scan", valid.model(folder), "--data", name, *SHAPE]

    return make


def pack(content: bytes) -> Maker:
    return table(content, "data.csv.gz")


def _bomb(folder: Path) -> list[str]:
    """Three gigabytes of one row again and again."""
    rows = (line() + "\n").encode() * 4000
    with gzip.open(folder / "data.csv.gz", "wb") as stream:
        stream.write(HEADER.encode() + b"\n")
        for _ in range(3 * 2**30 // len(rows)):
            stream.write(rows)
    return ["scan", valid.model(folder), "--data", "data.csv.gz", *SHAPE]


GOOD = f"{HEADER}\n{line()}\n{line('2')}\n"

TABLES: dict[str, str | bytes] = {
    "csv-labels-of-30-digits": f"{HEADER}\n{line('9' * 30)}\n{line('1')}\n",
    "csv-labels-of-5000-digits": f"{HEADER}\n{line('9' * 5000)}\n{line('1')}\n",
    "csv-labels-in-arabic-digits": f"{HEADER}\n{line('٣')}\n{line('٤')}\n",
    "csv-labels-that-are-half-numbers": f"{HEADER}\n{line('1')}\n{line('cat')}\n",
    "csv-labels-that-are-negative": f"{HEADER}\n{line('-3')}\n{line('-4')}\n",
    "csv-labels-that-are-empty": f"{HEADER}\n{line('')}\n{line('1')}\n",
    "csv-labels-that-steer-the-terminal": f"{HEADER}\n{line(chr(27) + '[2J')}\n{line('b')}\n",
    "csv-values-of-1e999": f"{HEADER}\n{line('1', '1e999')}\n",
    "csv-values-of-5000-digits": f"{HEADER}\n{line('1', '9' * 5000)}\n",
    "csv-values-that-are-nan": f"{HEADER}\n{line('1', 'nan')}\n",
    "csv-values-that-are-text": f"{HEADER}\n{line('1', 'x')}\n",
    "csv-values-with-underscores": f"{HEADER}\n{line('1', '0x10')}\n",
    "csv-with-a-row-that-is-short": f"{HEADER}\n{line()}\n1,2,3\n",
    "csv-with-two-columns-of-one-name": f"y,a,a\n1,2,3\n",  # noqa: F541
    "csv-without-labels": "a,b\n1,2\n",
    "csv-without-features": "y,meta_a\n1,2\n",
    "csv-of-a-header-alone": f"{HEADER}\n",
    "csv-that-is-empty": "",
    "csv-of-zero-bytes": bytes(1000),
    "csv-with-zero-bytes-in-it": GOOD.replace("0.5", "0\0", 1),
    "csv-that-is-not-utf8": GOOD.encode() + b"\xff\xfe\n",
    "csv-in-utf16": GOOD.encode("utf-16"),
    "csv-with-half-a-character": GOOD.encode() + b"\xed\xa0\x80" + b",1" * 64,
    "csv-with-a-quote-that-never-ends": f'{HEADER}\n"{line()}\n',
    "csv-with-a-cell-of-a-megabyte": f"{HEADER}\n{line('a' * 1_000_000)}\n{line('b')}\n",
    "csv-that-is-a-zip": b"PK\3\4" + bytes(100),
    "csv-of-a-hundred-thousand-columns": "y," + ",".join(f"c{n}" for n in range(100_000)) + "\n1" + ",0" * 100_000,
}

PACKED: dict[str, bytes] = {
    "gz-that-is-no-gz": GOOD.encode(),
    "gz-that-is-empty": b"",
    "gz-cut-off": gzip.compress(GOOD.encode())[:-12],
    "gz-of-its-first-bytes": gzip.compress(GOOD.encode())[:5],
    "gz-with-a-wrong-checksum": gzip.compress(GOOD.encode())[:-8] + bytes(8),
    "gz-with-damaged-bytes": gzip.compress(GOOD.encode())[:15] + b"\xff" * 20 + gzip.compress(GOOD.encode())[35:],
    "gz-with-rubbish-behind-it": gzip.compress(GOOD.encode()) + b"rubbish",
    "gz-with-an-unknown-method": b"\x1f\x8b\x63" + gzip.compress(GOOD.encode())[3:],
    "gz-with-a-header-that-never-ends": b"\x1f\x8b\x08\x08" + bytes(6) + b"a" * 1000,
    "gz-that-is-plain-zlib": zlib.compress(GOOD.encode()),
    "gz-in-a-gz": gzip.compress(gzip.compress(GOOD.encode())),
}


def parquet(columns: Callable[[Any], dict[str, Any]]) -> Maker:
    def make(folder: Path) -> list[str]:
        import pyarrow
        from pyarrow import parquet as file

        made = {"y": pyarrow.array([1, 2])} | {name: pyarrow.array([0.5, 0.5]) for name in COLUMNS}
        file.write_table(pyarrow.table(made | columns(pyarrow)), folder / "data.parquet")
        return ["scan", valid.model(folder), "--data", "data.parquet", *SHAPE]

    return make


def lists_alone(values: Callable[[Any], Any]) -> Maker:
    """A table of labels and one column of lists."""

    def make(folder: Path) -> list[str]:
        import pyarrow
        from pyarrow import parquet as file

        made = {"y": pyarrow.array([1, 2]), "x": values(pyarrow)}
        file.write_table(pyarrow.table(made), folder / "data.parquet")
        return ["scan", valid.model(folder), "--data", "data.parquet", *SHAPE]

    return make


PARQUETS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "labels-of-binaries": lambda arrow: {"y": arrow.array([b"\xff\xfe", b"b"])},
    "labels-of-lists": lambda arrow: {"y": arrow.array([[1], [2, 3]])},
    "labels-that-are-null": lambda arrow: {"y": arrow.array([None, 1])},
    "labels-that-are-all-null": lambda arrow: {"y": arrow.array([None, None])},
    "labels-that-are-dates": lambda arrow: {"y": arrow.array([0, 1], arrow.date32())},
    "labels-that-are-structs": lambda arrow: {"y": arrow.array([{"a": 1}, {"a": 2}])},
    "labels-that-are-decimals": lambda arrow: {"y": arrow.array([1, 2], arrow.decimal128(38, 2))},
    "labels-beyond-int64": lambda arrow: {"y": arrow.array([2**64 - 1, 1], arrow.uint64())},
    "features-of-binaries": lambda arrow: {"p0": arrow.array([b"\xff", b"b"])},
    "features-that-are-null": lambda arrow: {"p0": arrow.array([None, 1.0])},
    "features-that-are-all-null": lambda arrow: {"p0": arrow.array([None, None])},
    "features-of-lists-and-numbers": lambda arrow: {"p0": arrow.array([[1.0], [2.0]])},
    "features-that-are-dates": lambda arrow: {"p0": arrow.array([0, 1], arrow.timestamp("s"))},
    "features-that-are-durations": lambda arrow: {"p0": arrow.array([0, 1], arrow.duration("s"))},
    "features-that-are-structs": lambda arrow: {"p0": arrow.array([{"a": 1}, {"a": 2}])},
    "features-that-are-maps": lambda arrow: {
        "p0": arrow.array([[("a", 1)], [("b", 2)]], arrow.map_(arrow.string(), arrow.int64()))
    },
    "features-that-are-decimals": lambda arrow: {"p0": arrow.array([1, 2], arrow.decimal256(70, 2))},
    "features-that-are-nan": lambda arrow: {"p0": arrow.array([float("nan"), 1.0])},
    "features-that-are-text": lambda arrow: {"p0": arrow.array(["a", "b"])},
    "metadata-of-binaries": lambda arrow: {"meta_a": arrow.array([b"\xff", b"b"])},
    "metadata-of-lists": lambda arrow: {"group_a": arrow.array([[1], [2, 3]])},
    "paths-that-are-numbers": lambda arrow: {"path": arrow.array([1, 2])},
    "paths-that-are-null": lambda arrow: {"path": arrow.array([None, "a.png"])},
    "paths-with-a-zero": lambda arrow: {"path": arrow.array(["a\0b.png", "a.png"])},
}

LISTS: dict[str, Callable[[Any], Any]] = {
    "ragged": lambda arrow: arrow.array([[1.0] * 64, [1.0] * 63]),
    "null": lambda arrow: arrow.array([[1.0] * 64, None]),
    "holding-null": lambda arrow: arrow.array([[1.0] * 64, [None] * 64]),
    "of-text": lambda arrow: arrow.array([["a"] * 64, ["b"] * 64]),
    "of-lists": lambda arrow: arrow.array([[[1.0]] * 64, [[1.0]] * 64]),
    "empty": lambda arrow: arrow.array([[], []], arrow.list_(arrow.float64())),
    "of-nan": lambda arrow: arrow.array([[float("nan")] * 64] * 2),
}


def _parquet_bomb(folder: Path) -> list[str]:
    import numpy as np
    import pyarrow
    from pyarrow import parquet as file

    column = np.zeros(8_000_000)
    made = {"y": np.zeros(len(column), np.int64)} | {f"p{n}": column for n in range(16)}
    file.write_table(pyarrow.table(made), folder / "data.parquet", use_dictionary=False, compression="zstd")
    return ["scan", valid.model(folder), "--data", "data.parquet", *SHAPE]


def _dictionary_bomb(folder: Path) -> list[str]:
    """Rows that all name one entry of a dictionary: a few bytes for gigabytes of rows."""
    import numpy as np
    import pyarrow
    from pyarrow import parquet as file

    rows = 30_000_000
    column = pyarrow.array(np.zeros(rows))
    made = {"y": pyarrow.array(np.zeros(rows, np.int64))} | {f"p{n}": column for n in range(4)}
    file.write_table(pyarrow.table(made), folder / "data.parquet")
    return ["scan", valid.model(folder), "--data", "data.parquet", *SHAPE]


def _long_texts(column: str) -> Maker:
    """Rows that all name one long text of a dictionary: a megabyte in the file, gigabytes once each row has its own."""

    def make(folder: Path) -> list[str]:
        import numpy as np
        import pyarrow
        from pyarrow import parquet as file

        text = pyarrow.array(["x" * (1 << 20)])
        rows = 2_000
        made = {"y": pyarrow.array(np.zeros(rows, np.int64))} | {n: pyarrow.array(np.zeros(rows)) for n in COLUMNS}
        made[column] = pyarrow.DictionaryArray.from_arrays(pyarrow.array(np.zeros(rows, np.int32)), text)
        file.write_table(pyarrow.table(made).cast(_plain_texts(pyarrow, made)), folder / "data.parquet")
        return ["scan", valid.model(folder), "--data", "data.parquet", *SHAPE]

    return make


def _plain_texts(arrow: Any, made: dict[str, Any]) -> Any:
    """A schema that does not mention dictionaries."""
    kinds = {name: getattr(array.type, "value_type", array.type) for name, array in made.items()}
    return arrow.schema(list(kinds.items()))


def _long_lists(folder: Path) -> list[str]:
    """Lists of one number again and again, which a dictionary packs into next to nothing."""
    import numpy as np
    import pyarrow
    from pyarrow import parquet as file

    lists = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(np.zeros(60_000_000)), 6_000_000)
    made = {"y": pyarrow.array(np.arange(10)), "x": lists.cast(pyarrow.list_(pyarrow.float64()))}
    file.write_table(pyarrow.table(made), folder / "data.parquet")
    return ["scan", valid.model(folder), "--data", "data.parquet", *SHAPE]


def _damaged_parquet(change: Callable[[bytes], bytes]) -> Maker:
    def make(folder: Path) -> list[str]:
        argv = parquet(lambda _: {})(folder)
        file = folder / "data.parquet"
        file.write_bytes(change(file.read_bytes()))
        return argv

    return make


PARQUET_BYTES: dict[str, Callable[[bytes], bytes]] = {
    "cut-off": lambda raw: raw[:-20],
    "that-is-empty": lambda raw: b"",
    "of-its-marks-alone": lambda raw: b"PAR1PAR1",
    "whose-footer-is-4-gigabytes": lambda raw: raw[:-8] + b"\xff\xff\xff\xffPAR1",
    "whose-footer-is-rubbish": lambda raw: raw[:-60] + b"\xff" * 52 + raw[-8:],
    "whose-pages-are-rubbish": lambda raw: raw[:4] + b"\xff" * 200 + raw[204:],
    "that-is-encrypted": lambda raw: b"PARE" + raw[4:-4] + b"PARE",
    "that-is-a-csv": lambda raw: b"y,a\n1,2\n",
}


def beside(option: str, name: str, content: bytes | None, *more: str) -> Maker:
    """A scan with a hostile file beside good data; None for a pipe."""

    def make(folder: Path) -> list[str]:
        if content is None:
            os.mkfifo(folder / name)
        else:
            (folder / name).write_bytes(content)
        return ["scan", valid.model(folder), "--data", valid.data(folder), option, name, *more]

    return make


def target(name: str, content: bytes | None, text: str) -> Maker:
    """A repair with a target that is in a file."""

    def make(folder: Path) -> list[str]:
        if content is None:
            os.mkfifo(folder / name)
        elif content:
            (folder / name).write_bytes(content)
        return ["localise", valid.model(folder), "--data", valid.data(folder), "--target", text]

    return make


def causes(value: Any) -> bytes:
    return json.dumps({"causes": value}).encode()


CAUSES: dict[str, bytes | None] = {
    "that-are-a-pipe": None,
    "that-are-no-json": b"{",
    "that-are-a-list": b"[]",
    "that-are-missing": b"{}",
    "that-are-a-number": causes(5),
    "that-are-null": causes(None),
    "without-a-rule": causes([{}]),
    "whose-rule-is-a-text": causes([{"rule": "x"}]),
    "whose-rule-is-of-no-kind": causes([{"rule": {"kind": "evil"}}]),
    "whose-rule-lacks-everything": causes([{"rule": {"kind": "pixel"}}]),
    "whose-rule-is-itself-without-end": b'{"causes": [' + b'{"rule": {"kind": "both", "rules": [' * 20_000,
    "whose-rules-are-numbers": causes([{"rule": {"kind": "both", "rules": [1, 2]}}]),
    "with-a-kind-that-is-a-list": causes([{"rule": {"kind": ["pixel"]}}]),
}

ROWS: dict[str, bytes | None] = {
    "that-are-a-pipe": None,
    "that-are-not-utf8": b"\xff\xfe\n",
    "of-5000-digits": b"9" * 5000,
    "in-arabic-digits": "٣\n٤\n".encode(),
    "that-are-negative": b"-1\n",
    "that-are-text": b"row\nx\n",
    "of-two-columns": b"a,b\n1,2\n",
    "of-zero-bytes": bytes(100),
    "that-steer-the-terminal": b"row\n\x1b[2J\n",
    "beyond-the-data": b"100000\n",
    "of-nothing": b"\n\n",
}

CLASSES: dict[str, bytes | None] = {
    "that-are-a-pipe": None,
    "that-are-not-utf8": b"\xff\xfe\n" * 10,
    "that-are-too-many": b"\n".join(f"c{n}".encode() for n in range(100_000)),
    "of-a-megabyte-each": b"\n".join(bytes([48 + n]) * 1_000_000 for n in range(10)),
}

CASES = [
    *(Case(name, "csv", "type", table(content)) for name, content in TABLES.items()),
    *(Case(name, "csv", "damage", pack(content)) for name, content in PACKED.items()),
    Case("gz-that-unpacks-to-3-gigabytes", "csv", "bomb", _bomb),
    *(Case(f"parquet-{name}", "parquet", "type", parquet(columns)) for name, columns in PARQUETS.items()),
    *(Case(f"parquet-lists-{name}", "parquet", "type", lists_alone(values)) for name, values in LISTS.items()),
    *(Case(f"parquet-{name}", "parquet", "damage", _damaged_parquet(make)) for name, make in PARQUET_BYTES.items()),
    Case("parquet-that-unpacks-to-a-gigabyte", "parquet", "bomb", _parquet_bomb),
    Case("parquet-two-thousand-labels-of-a-megabyte", "parquet", "size", _long_texts("y")),
    Case("parquet-lists-of-six-million-numbers", "parquet", "size", _long_lists),
    Case("parquet-of-30-million-rows-in-a-dictionary", "parquet", "bomb", _dictionary_bomb),
    *(
        Case(f"causes-{name}", "causes", "type", target("scan.json", content, "cause:scan.json:1"))
        for name, content in CAUSES.items()
    ),
    *(
        Case(f"rows-{name}", "rows", "type", target("rows.csv", content, "rows:rows.csv"))
        for name, content in ROWS.items()
    ),
    *(
        Case(f"class-names-{name}", "classes", "type", beside("--classes", "names.txt", content), exits=(2, 3))
        for name, content in CLASSES.items()
    ),
]
