"""Seeds of the mutation run: a valid file of each kind and the command that reads it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from tests.safety import valid
from tests.safety.case import SERVERS
from tests.safety.cases_masks import SEGMENTATION, write_pictures
from tests.safety.cases_tflite import model as tflite_model
from tests.safety.inside import Change, in_header, in_json, in_member, in_message
from tests.safety.inside_arrays import in_about, in_arrays
from tests.safety.mutations import mutate
from tests.safety.seeds_copies import COPIES


@dataclass(frozen=True)
class Seed:
    """A valid file and a command.

    Attributes:
        name: What it is.
        kind: The kind of file, as in `Case`.
        make: Writes the files into an empty folder; returns the path of the file to change, relative to it.
        argv: The command line behind `arachne`, which succeeds on the file as it was made.
        change: How its bytes are changed.
    """

    name: str
    kind: str
    make: Callable[[Path], str]
    argv: tuple[str, ...]
    change: Change = mutate

    @property
    def server(self) -> str:
        """The process it runs in."""
        return SERVERS.get(self.kind, "core")

    @property
    def is_input(self) -> bool:
        """Whether the file to change is itself named on the command line, and not found in a folder that is."""
        return self.kind not in ("picture", "npy", "result", "config", "checkpoint", "boxes", "mask")


def _with_data(make: Callable[[Path], str]) -> Callable[[Path], str]:
    def both(folder: Path) -> str:
        valid.data(folder)
        return make(folder)

    return both


def _with_model(make: Callable[[Path], str]) -> Callable[[Path], str]:
    def both(folder: Path) -> str:
        valid.model(folder)
        return make(folder)

    return both


def _picture(ending: str) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        for number, image in enumerate(valid.pixels(3)):
            (folder / "data" / str(number)).mkdir(parents=True)
            Image.fromarray(image).save(folder / "data" / str(number) / f"a.{ending}")
        return f"data/0/a.{ending}"

    return make


def _table(folder: Path, name: str) -> str:
    rows = valid.pixels(12).reshape(12, 64) / 255
    lines = [",".join(["y", *(f"p{number}" for number in range(64))])]
    lines += [",".join([str(number % 10), *(f"{value:.3f}" for value in row)]) for number, row in enumerate(rows)]
    content = "\n".join(lines).encode()
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return name


def _parquet(folder: Path) -> str:
    from pyarrow import parquet, table

    columns = {"y": [number % 10 for number in range(12)]}
    columns |= {f"p{number}": values.tolist() for number, values in enumerate(valid.pixels(12).reshape(12, 64).T / 255)}
    parquet.write_table(table(columns), folder / "data.parquet")
    return "data.parquet"


def _arrays(folder: Path) -> str:
    (folder / "data").mkdir()
    np.save(folder / "data" / "x.npy", valid.pixels(12)[:, None].astype(np.float32))
    np.save(folder / "data" / "y.npy", np.arange(12) % 10)
    return "data/x.npy"


def _settings(folder: Path) -> str:
    valid.data(folder)
    (folder / "arachne.toml").write_text(
        'data = "data.npz"\nmemory = "1GiB"\n\n[scan]\nclasses = "0,1,2,3,4,5,6,7,8,9"\n'
    )
    return "arachne.toml"


def _of_result(name: str) -> Callable[[Path], str]:
    return lambda folder: f"{valid.result(folder)}/{name}"


def _of_front(name: str) -> Callable[[Path], str]:
    return lambda folder: f"{valid.front(folder)}/{name}"


def _scan_file(folder: Path) -> str:
    valid.model(folder)
    valid.data(folder)
    (folder / "scan.json").write_text(json.dumps({"causes": [{"target": "cause:1", "rule": RULE}]}))
    return "scan.json"


def _patch_with_rule(folder: Path) -> str:
    file = folder / valid.patch(folder)
    found = json.loads(file.read_text(encoding="utf-8"))
    found["provenance"] |= {"target": ["cause:1"], "causes": {"cause:1": RULE}}
    file.write_text(json.dumps(found), encoding="utf-8")
    return file.name


def _text_file(name: str, lines: list[str]) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        valid.model(folder)
        valid.data(folder)
        (folder / name).write_text("\n".join(lines) + "\n")
        return name

    return make


RULE = {
    "kind": "both",
    "rules": [
        {"kind": "values", "input": "", "index": [0, 1, 8], "value": [0.0, 0.0, 0.0], "least": 1},
        {"kind": "range", "input": "", "index": 20, "low": 0.0, "high": None},
        {"kind": "derived", "input": "", "layout": [1, 8, 8], "names": ["brightness", "dead rows"],
         "low": [0.0, None], "high": [None, 8.0], "unknown": 1},
        {"kind": "colour", "input": "", "layout": [1, 8, 8], "colour": [0.0], "least": 0},
    ],
}  # fmt: skip
"""A rule that most of the demo's digits follow."""

SCAN = ("scan", "net.onnx", "--data")
FLAT = ("--preprocess", "shape=1x8x8")
IMAGES = ("--preprocess", "grey scale=1/255 layout=nchw")

PROGRAM = ("scan", "net.pt2", "--data", "data.npz")
WEIGHTS = ("scan", *valid.FACTORY, "--data", "data.npz", "--weights")

TFLITE = ("scan", "net.tflite", "--data", "data.npz")

INSIDE = [
    Seed("onnx, fields", "onnx", _with_data(valid.model), (*SCAN, "data.npz"), in_message),
    Seed("pt2, description", "pt2", _with_data(valid.program), PROGRAM, in_member("model.json", in_json)),
    Seed("pt2, tables", "pt2", _with_data(valid.program), PROGRAM, in_member("weights_config.json", in_json)),
    Seed("pt, pickle", "pt", _with_data(valid.state_dict), (*WEIGHTS, "net.pt"), in_member("data.pkl")),
    Seed("safetensors, header", "safetensors", _with_data(lambda folder: valid.state_dict(folder, "net.safetensors")),
         (*WEIGHTS, "net.safetensors"), in_header),
    Seed("keras, description", "keras", _with_data(valid.keras_model), ("scan", "net.keras", "--data", "data.npz"),
         in_member("config.json", in_json)),
    Seed("keras, weights", "keras", _with_data(valid.keras_model), ("scan", "net.keras", "--data", "data.npz"),
         in_member("weights.h5")),
]  # fmt: skip
"""Models that are changed inside of an archive or a message that stays right."""

CHOOSE = ("choose", "fix")
TAKE = ("choose", "fix", "--max-break", "1%", "-o", "other")
HUB = ("report", "fix", "--hub-card", "card.md")
LOCALISE = ("localise", "net.onnx", "--data", "data.npz", "--target")
APPLY = ("apply", "patch.json", "net.onnx", "-o", "o.onnx")
EVALUATE = ("evaluate", "net.onnx", "--data", "data.npz", "--patch", "patch.json")


def _localisation(folder: Path) -> str:
    return valid.checkpoint(folder, "localised.npz")


OURS = [
    Seed("report.json, values", "result", _of_result("report.json"), ("report", "fix"), in_json),
    Seed("report.json for a hub, values", "result", _of_result("report.json"), HUB, in_json),
    Seed("report.json of a front, values", "result", _of_front("report.json"), ("report", "fix"), in_json),
    Seed("card", "result", _of_result("MODEL_CARD.md"), HUB),
    Seed("manifest", "result", _of_result("manifest.json"), ("report", "fix")),
    Seed("manifest, values", "result", _of_result("manifest.json"), ("report", "fix"), in_json),
    Seed("result.json of a front, values", "result", _of_front("result.json"), CHOOSE, in_json),
    Seed("result.json of a front, taken", "result", _of_front("result.json"), TAKE, in_json),
    Seed("report.json of a front, taken", "result", _of_front("report.json"), TAKE, in_json),
    Seed("patch of a front, taken", "result", _of_front("patch.json"), TAKE, in_json),
    Seed("front", "result", _of_front("front.npz"), CHOOSE),
    Seed("front, object", "result", _of_front("front.npz"), CHOOSE, in_about),
    Seed("front, arrays", "result", _of_front("front.npz"), CHOOSE, in_arrays),
    Seed("front, object, taken", "result", _of_front("front.npz"), TAKE, in_about),
    Seed("front, arrays, taken", "result", _of_front("front.npz"), TAKE, in_arrays),
    Seed("checkpoint, object", "checkpoint", valid.checkpoint, valid.RESUMED, in_about),
    Seed("checkpoint, arrays", "checkpoint", valid.checkpoint, valid.RESUMED, in_arrays),
    Seed("localisation, object", "checkpoint", _localisation, valid.RESUMED, in_about),
    Seed("localisation, arrays", "checkpoint", _localisation, valid.RESUMED, in_arrays),
    Seed("patch, values in show", "patch", valid.patch, ("show", "patch.json"), in_json),
    Seed("patch, values in apply", "patch", valid.patch, APPLY, in_json),
    Seed("patch, values in evaluate", "patch", valid.patch, EVALUATE, in_json),
    Seed("patch, values in log", "patch", valid.patch, ("log", "net.onnx", "--patches", "patch.json"), in_json),
    Seed("low-rank patch in show", "patch", valid.delta, ("show", "patch.json")),
    Seed("low-rank patch, values in apply", "patch", valid.delta, APPLY, in_json),
    Seed("rule in a patch", "patch", _patch_with_rule, EVALUATE, in_json),
    Seed("rule in a scan", "result", _scan_file, (*LOCALISE, "cause:scan.json:1"), in_json),
    Seed("rows", "result", _text_file("rows.txt", [str(row) for row in range(60)]), (*LOCALISE, "rows:rows.txt")),
    Seed("class names", "result", _text_file("names.txt", [f"digit {number}" for number in range(10)]),
         (*SCAN, "data.npz", "--classes", "names.txt")),
]  # fmt: skip
"""Files that Arachne itself has written, or whose form is its own."""

DETECT = ("scan", "cells.onnx", "--data", "pictures", *valid.DETECTION)
COCO = ("scan", "cells.onnx", "--data", "annotations.json", *valid.DETECTION)
ATTRIBUTES = ("scan", "net.onnx", "--data", "data.csv", "--task", "multilabel", *FLAT)
INT8 = ("scan", "int8.onnx", "--data", "data.npz")


def _pictures(name: str) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        valid.detection(folder)
        if name == "data.yaml":
            (folder / "pictures" / "classes.txt").unlink()
            (folder / "pictures" / name).write_text("path: .\nnames: {0: 'red', 1: \"green\"}\n")
        return f"pictures/{name}"

    return make


def _mask(folder: Path) -> str:
    write_pictures(folder)
    return "pictures/masks/0.png"


def _thresholds(folder: Path) -> str:
    valid.model(folder)
    _attributes(folder)
    (folder / "thresholds.txt").write_text("".join(f"{number}=0.{number + 1:02}\n" for number in range(10)))
    return "thresholds.txt"


def _annotations(folder: Path) -> str:
    valid.coco(folder)
    return "annotations.json"


def _attributes(folder: Path) -> str:
    """A table with a column of labels for each class."""
    rows = valid.pixels(12).reshape(12, 64) / 255
    lines = [",".join([*(f"y_{number}" for number in range(10)), *(f"p{number}" for number in range(64))])]
    for number, row in enumerate(rows):
        lines.append(",".join([*(str(int(number % 10 == each)) for each in range(10)), *(f"{v:.3f}" for v in row)]))
    (folder / "data.csv").write_text("\n".join(lines))
    return "data.csv"


TASKS = [
    Seed("yolo labels", "boxes", _pictures("labels/000.txt"), DETECT),
    Seed("yolo names", "boxes", _pictures("data.yaml"), DETECT),
    Seed("yolo classes", "boxes", _pictures("classes.txt"), DETECT),
    Seed("coco", "boxes", _annotations, COCO),
    Seed("coco, values", "boxes", _annotations, COCO, in_json),
    Seed("multilabel csv", "csv", _with_model(_attributes), ATTRIBUTES),
    Seed("mask", "mask", _mask, ("scan", "pixels.onnx", "--data", "pictures", *SEGMENTATION)),
    Seed("thresholds", "result", _thresholds, (*ATTRIBUTES, "--threshold", "thresholds.txt")),
    Seed("int8 onnx", "onnx", _with_data(valid.int8_model), INT8),
    Seed("int8 onnx, fields", "onnx", _with_data(valid.int8_model), INT8, in_message),
]
"""Labels of other tasks than one class for each input, and quantised models."""

SEEDS = [
    *INSIDE,
    *OURS,
    *TASKS,
    *(Seed(*one) for one in COPIES),
    Seed("onnx", "onnx", _with_data(valid.model), (*SCAN, "data.npz")),
    Seed("pt2", "pt2", _with_data(valid.program), ("scan", "net.pt2", "--data", "data.npz")),
    Seed(
        "pt", "pt", _with_data(valid.state_dict), ("scan", *valid.FACTORY, "--weights", "net.pt", "--data", "data.npz")
    ),
    Seed(
        "safetensors",
        "safetensors",
        _with_data(lambda folder: valid.state_dict(folder, "net.safetensors")),
        ("scan", *valid.FACTORY, "--weights", "net.safetensors", "--data", "data.npz"),
    ),
    Seed("tflite", "tflite", _with_data(tflite_model), TFLITE),
    Seed("keras", "keras", _with_data(valid.keras_model), ("scan", "net.keras", "--data", "data.npz")),
    Seed(
        "weights.h5",
        "h5",
        _with_data(lambda folder: valid.keras_model(folder, "net.weights.h5")),
        ("scan", *valid.FACTORY, "--backend", "keras", "--weights", "net.weights.h5", "--data", "data.npz"),
    ),
    Seed("npz", "npz", _with_model(valid.data), (*SCAN, "data.npz")),
    Seed("npy", "npy", _with_model(_arrays), (*SCAN, "data")),
    Seed("csv", "csv", _with_model(lambda folder: _table(folder, "data.csv")), (*SCAN, "data.csv", *FLAT)),
    Seed("csv.gz", "csv", _with_model(lambda folder: _table(folder, "data.csv.gz")), (*SCAN, "data.csv.gz", *FLAT)),
    Seed("parquet", "parquet", _with_model(_parquet), (*SCAN, "data.parquet", *FLAT)),
    *(
        Seed(ending, "picture", _with_model(_picture(ending)), (*SCAN, "data", *IMAGES))
        for ending in ("png", "jpg", "gif", "bmp", "tif", "webp", "ppm")
    ),
    Seed("patch in show", "patch", valid.patch, ("show", "patch.json")),
    Seed("patch in apply", "patch", valid.patch, ("apply", "patch.json", "net.onnx", "-o", "out.onnx")),
    Seed("report.json", "result", _of_result("report.json"), ("report", "fix")),
    Seed("result.json", "result", _of_result("result.json"), ("report", "fix")),
    Seed("checkpoint", "checkpoint", valid.checkpoint, valid.RESUMED),
    Seed("localisation", "checkpoint", lambda folder: valid.checkpoint(folder, "localised.npz"), valid.RESUMED),
    Seed("arachne.toml", "config", _with_model(_settings), ("scan", "net.onnx", "--config", "arachne.toml")),
]
