"""Tasks that a patch or a result names, with options that nobody would give, and labels that no task can read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.safety import valid
from tests.safety.case import Case

Maker = Callable[[Path], list[str]]

NAMES = ("single-label", "binary", "multilabel", "tokens", "segmentation", "regression", "rule", "detection")
VALUES: dict[str, Any] = {
    "null": None,
    "a-text": "x",
    "a-long-text": "9" * 100_000,
    "5000-digits": "not " + "9" * 5000,
    "an-object": {"a": 1},
    "a-list-of-lists": [[[]]],
    "a-list-of-numbers": [1, -1, 2**40],
    "a-million-texts": ["x=0.5"] * 200_000,
    "a-negative-number": -1,
    "1e300": 1e300,
    "2-to-the-63": 2**63,
    "true": True,
    "code": "networks:make",
    "a-path": "/etc/passwd",
}
FIELDS = {
    "binary": ("threshold", "classes"),
    "multilabel": ("thresholds", "threshold", "known"),
    "tokens": ("ignore", "classes"),
    "segmentation": ("ignore",),
    "regression": ("tolerance", "scale"),
    "rule": ("rule", "allowed"),
    "detection": ("threshold", "boxes", "layout", "object_names"),
}


def in_patch(task: Any, command: str = "evaluate") -> Maker:
    """A patch whose provenance names a task."""

    def make(folder: Path) -> list[str]:
        file = folder / valid.patch(folder)
        valid.data(folder)
        found = json.loads(file.read_text(encoding="utf-8"))
        found["provenance"].setdefault("settings", {})["task"] = task
        file.write_text(json.dumps(found), encoding="utf-8")
        if command == "evaluate":
            return ["evaluate", "net.onnx", "--data", "data.npz", "--patch", "patch.json"]
        return ["apply", "patch.json", "net.onnx", "-o", "out.onnx", "--data", "data.npz"]

    return make


def in_front(task: Any) -> Maker:
    """The front of a repair whose result names a task."""

    def make(folder: Path) -> list[str]:
        fix = folder / valid.front(folder)
        for name in ("result.json", "patch.json"):
            found = json.loads((fix / name).read_text(encoding="utf-8"))
            found["provenance"].setdefault("settings", {})["task"] = task
            (fix / name).write_text(json.dumps(found), encoding="utf-8")
        return ["choose", "fix", "--max-break", "1%", "-o", "other"]

    return make


def alike_names(folder: Path) -> list[str]:
    """Class names of many characters, and a target that is nearly each of them: comparing takes minutes."""
    rng = np.random.default_rng(0)
    characters = rng.choice(np.arange(0x4E00, 0x4E00 + 400), 60_000)
    names = ["".join(map(chr, rng.permutation(characters))) for _ in range(11)]
    file = folder / valid.patch(folder)
    valid.data(folder)
    found = json.loads(file.read_text(encoding="utf-8"))
    found["provenance"]["target"] = [f"{names[10]}:7"]
    file.write_text(json.dumps(found), encoding="utf-8")
    (folder / "names.txt").write_text("\n".join(names[:10]), encoding="utf-8")
    return ["evaluate", "net.onnx", "--data", "data.npz", "--patch", "patch.json", "--classes", "names.txt"]


def long_number(folder: Path) -> list[str]:
    """A patch whose target is a number of more digits than Python reads."""
    file = folder / valid.patch(folder)
    valid.data(folder)
    found = json.loads(file.read_text(encoding="utf-8"))
    found["provenance"]["target"] = [f"{'9' * 5000}:7"]
    file.write_text(json.dumps(found), encoding="utf-8")
    return ["evaluate", "net.onnx", "--data", "data.npz", "--patch", "patch.json"]


LABELS: dict[str, Any] = {
    "nan": np.full(60, np.nan),
    "infinity": np.full(60, np.inf),
    "1e308": np.full(60, 1e308),
    "complex": np.full(60, 1j),
    "2-to-the-62": np.full(60, 2**62),
    "minus-2-to-the-62": np.full(60, -(2**62)),
    "three-axes": np.zeros((60, 3, 3), np.int64),
    "no-rows": np.zeros(0, np.int64),
    "bytes": np.array([b"a"] * 60),
    "dates": np.array(["2020-01-01"] * 60, "datetime64[D]"),
    "long-texts": np.array(["x" * 10_000] * 60),
    "a-scalar": np.float64(3),
}


def labels(task: str, values: Any) -> Maker:
    """Data whose labels are not those of a task."""

    def make(folder: Path) -> list[str]:
        valid.model(folder)
        valid.data(folder)
        with np.load(folder / "data.npz") as stored:
            x = stored["x"]
        np.savez(folder / "data.npz", x=x, y=values)
        words = ["--tolerance", "0.5"] if task == "regression" else []
        return ["scan", "net.onnx", "--data", "data.npz", "--task", task, *words]

    return make


REFUSED_OR_RUN = (0, 3)

CASES = [
    Case("names-that-are-long-and-alike", "classes", "slow", alike_names),
    Case("target-of-a-number-with-5000-digits", "classes", "type", long_number),
    *(
        Case(
            f"task-{name}-with-{field}-{value}-in-a-patch",
            "task",
            "type",
            in_patch({"name": name, field: given}),
            REFUSED_OR_RUN,
        )
        for name, fields in FIELDS.items()
        for field in fields
        for value, given in VALUES.items()
    ),
    *(
        Case(f"task-that-is-{value}-in-a-patch", "task", "type", in_patch(given, "apply"), REFUSED_OR_RUN)
        for value, given in VALUES.items()
    ),
    *(Case(f"task-{name}-of-a-front", "task", "type", in_front({"name": name}), REFUSED_OR_RUN) for name in NAMES),
    *(
        Case(f"task-{name}-in-place-of-another-in-a-patch", "task", "type", in_patch({"name": name}), REFUSED_OR_RUN)
        for name in NAMES
    ),
    *(
        Case(f"labels-of-{value}-for-{name}", "task", "type", labels(name, given), REFUSED_OR_RUN)
        for name in NAMES
        for value, given in LABELS.items()
    ),
]
