"""Measure the cost of checkpoints: `python -m benchmarks.checkpoints [FOLDER]`; they are written below that folder.

Every search runs on the demo's digits and, where the study's data and models are there, on Fashion-MNIST.
"""

from __future__ import annotations

import sys
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

import arachne
from arachne.engine import repair
from arachne.errors import ArachneError, NothingWithinBudgetError
from arachne.results.checkpoint import Checkpoints
from arachne.settings import make_settings

SEARCHERS = ("de", "margin", "auto", "tune")


class Counted(Checkpoints):
    """Counts what is written."""

    written, largest = 0, 0

    def at(self, state: Any, rng: np.random.Generator) -> None:
        before = self._number
        super().at(state, rng)
        if self._number > before:
            self.written += 1
            newest = self.folder / f"search-{self._number:06}.npz"
            self.largest = max(self.largest, newest.stat().st_size)


def subjects() -> dict[str, tuple[Any, Any, str]]:
    """Models and data by name, with the mistake to repair."""
    demo = files("arachne.demo")
    found: dict[str, tuple[Any, Any, str]] = {"digits": (str(demo / "digits.onnx"), str(demo / "digits.npz"), "top:1")}
    try:
        from examples.study.subjects import load_subject, whole_test

        for name in ("fm-mlp", "fm-cnn"):
            found[name] = load_subject(name), whole_test(name), "6:0"
    except (ImportError, ArachneError, OSError) as error:
        print(f"without the study's models: {error}", file=sys.stderr)
    return found


def main(folder: Path) -> None:
    print(f"{'subject':8} {'search':6} {'steps':>6} {'search s':>9} {'written':>8} {'largest kB':>11} {'share':>7}")
    for name, (model, data, target) in subjects().items():
        backend, labelled = arachne.load(model), arachne.read_data(data)
        for searcher in SEARCHERS:
            with tempfile.TemporaryDirectory(dir=folder) as place:
                counted = Counted(Path(place) / "kept")
                try:
                    result = repair(
                        backend, labelled, target, settings=make_settings(searcher=searcher), checkpoint=counted
                    )
                except NothingWithinBudgetError as nothing:
                    result = nothing.result
            seconds = result.seconds["search"]
            print(
                f"{name:8} {searcher:6} {result.search.generations:6} {seconds:9.2f} {counted.written:8} "
                f"{counted.largest / 1000:11.1f} {counted.seconds_writing / seconds:7.2%}",
                flush=True,
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.gettempdir()))
