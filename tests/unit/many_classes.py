"""A scan or a repair of 10,000 classes and the memory it took: `python -m tests.unit.many_classes scan`."""

from __future__ import annotations

import json
import resource
import sys
import tempfile
from pathlib import Path

import numpy as np

import arachne
from arachne.data.class_order import other_order
from arachne.report.html import render_scan
from arachne.report.objects import scan_object
from arachne.report.scan_page import scan_page
from arachne.testing import ReferenceBackend, mlp

CLASSES, INPUTS = 10_000, 300


def peak() -> int:
    """The most memory the process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(command: str) -> None:
    rng = np.random.default_rng(0)
    backend = ReferenceBackend(mlp([16, 16, CLASSES]))
    backend.forward(np.zeros((1, 16), np.float32))
    idle = peak()
    inputs = rng.standard_normal((INPUTS, 16)).astype(np.float32)
    labels = backend.predict(inputs)
    often = int(np.bincount(labels).argmax())
    weights = backend.get_weights("fc2")["weight"].copy()
    weights[often] *= 1.3  # so that other classes are read as this one
    backend.set_weights("fc2", "weight", weights)
    told = _scan(backend, inputs, labels) if command == "scan" else _repair(backend, inputs, labels, f"*:{often}")
    print(json.dumps({"bytes": peak() - idle, **told}))


def _scan(backend: ReferenceBackend, inputs: np.ndarray, labels: np.ndarray) -> dict[str, int]:
    found = arachne.scan(backend, (inputs, labels))
    other_order(found.data.labels, found.predictions, found.n_classes)
    page = render_scan(scan_page(found))
    written = scan_object(found, backend="reference")
    return {"faults": len(written["faults"]), "page": len(page), "text": len(str(found))}


def _repair(backend: ReferenceBackend, inputs: np.ndarray, labels: np.ndarray, target: str) -> dict[str, int]:
    result = arachne.repair(backend, (inputs, labels), target, seed=0, searcher="keep", max_break=0.2)
    with tempfile.TemporaryDirectory() as folder:
        result.save(Path(folder) / "fix")
        sizes = {path.name: path.stat().st_size for path in (Path(folder) / "fix").iterdir()}
        return {"weights": len(result.patch), "page": sizes["report.html"], "result": sizes["result.json"]}


if __name__ == "__main__":
    main(sys.argv[1])
