"""Magika (Google): which type a file has, from its first and last bytes. Inputs are files of this system."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from examples.gallery.exhibit import Arrays, Exhibit, package_folder

INSTALL = "pip install magika==1.0.3"
FOLDER = "models/standard_v3_3"
SAME = ("json", "html", "css", "sql", "php", "c", "cpp", "rst", "xml", "svg", "yaml", "cmake", "png", "ttf", "csv")
OTHER = {"pl": "perl", "pm": "perl", "py": "python", "pyc": "pythonbytecode", "js": "javascript", "sh": "shell"}
MORE = {"md": "markdown", "so": "elf", "gz": "gzip", "hpp": "cpp", "cc": "cpp", "yml": "yaml"}
ENDINGS = {
    **{name: name for name in (*SAME, "tcl", "jar", "npy", "npz", "onnx", "pdf", "toml", "ini")},
    **OTHER,
    **MORE,
}
"""The model's class by the ending of a file's name."""
SMALLEST = 64  # bytes: shorter files are decided by rules, not by the model
PER_TYPE = 150
PER_PERL = 600
PART, BLOCK, PADDING = 1024, 4096, 256  # as the package's own config.min.json says


def make_data() -> Arrays:
    """Read files of this system, at most some of each type, and all of Perl's Unicode tables."""
    labels = read_labels()
    rng = np.random.default_rng(0)
    by_kind: dict[str, list[str]] = {}
    for path, label in find_files():
        by_kind.setdefault("table" if is_table(path) else label, []).append(path)
    seen: set[bytes] = set()
    inputs, numbers, tables = [], [], []
    for kind, paths in sorted(by_kind.items()):
        most = {"table": len(paths), "perl": PER_PERL}.get(kind, PER_TYPE)
        taken = 0
        for index in rng.permutation(len(paths)):
            features = read_features(Path(paths[index]))
            if taken == most or features.tobytes() in seen or features[7] == PADDING:
                continue
            seen.add(features.tobytes())
            inputs.append(features)
            numbers.append(labels.index("perl" if kind == "table" else kind))
            tables.append("yes" if kind == "table" else "no")
            taken += 1
    return {
        "x": np.stack(inputs),
        "y": np.array(numbers),
        "class_names": np.array(labels),
        "meta_unicode_table": np.array(tables),
    }


def read_labels() -> list[str]:
    """Return the model's 214 classes in order."""
    config = package_folder("magika", INSTALL) / FOLDER / "config.min.json"
    return list(json.loads(config.read_text("utf-8"))["target_labels_space"])


def find_files() -> Iterator[tuple[str, str]]:
    """Yield files whose ending says their type, in a fixed order, with the label."""
    packages = sorted(path for path in sys.path if path.endswith(("site-packages", "dist-packages")))
    for top in ("/usr/share", "/usr/lib", *packages):
        for folder, below, names in os.walk(top):
            below.sort()
            for name in sorted(names):
                path = os.path.join(folder, name)
                label = ENDINGS.get(name.rpartition(".")[2])
                if label and os.path.isfile(path) and not os.path.islink(path) and os.path.getsize(path) >= SMALLEST:
                    yield path, label


def is_table(path: str) -> bool:
    """Return whether a file is one of the tables that Perl was built with."""
    return "/unicore/" in path and path.endswith(".pl")


def read_features(path: Path) -> npt.NDArray[np.int32]:
    """Return the first and the last 1,024 bytes without white space at the ends, padded, as Magika takes them."""
    size = path.stat().st_size
    with path.open("rb") as file:
        first = file.read(BLOCK)
        file.seek(max(0, size - BLOCK))
        last = file.read(BLOCK)
    first, last = first.lstrip()[:PART], last.rstrip()[-PART:]
    features = np.full(2 * PART, PADDING, np.int32)
    features[: len(first)] = np.frombuffer(first, np.uint8)
    features[2 * PART - len(last) :] = np.frombuffer(last, np.uint8)
    return features


EXHIBIT = Exhibit(
    name="magika",
    title="Magika reads Perl's Unicode tables as Prolog",
    package="magika",
    install=INSTALL,
    model=f"magika/{FOLDER}/model.onnx",
    make_data=make_data,
    inputs="files of a Debian 12 system and of its Python packages, labelled by their endings: at most "
    f"{PER_TYPE} of each of {len(set(ENDINGS.values()))} types, {PER_PERL} of Perl, and all of Perl's own "
    "Unicode tables (`unicore/**/*.pl`)",
    target="perl:prolog",
    search_options=("-O", "sparse=true"),
    remark="`-O sparse=true` keeps to single weights, which a review can read. Without it whole matrices are tried, "
    "which takes several times as long on this network.",
)
