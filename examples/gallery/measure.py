"""Repair one exhibit by the command line, as a user would, and once more with `--search bias`."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from examples.gallery.exhibit import Exhibit


def measure(exhibit: Exhibit, folder: Path) -> dict[str, Any]:
    """Make the data, repair, and return the figures of the gallery. The pages are left in `folder`."""
    model = exhibit.find_model()
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "data.npz"
    if not data.exists():
        np.savez(data, allow_pickle=False, **exhibit.make_data())
    command = ["repair", str(model), "--data", str(data), "--target", exhibit.target, *exhibit.options]
    return {
        "package": f"{exhibit.package} {exhibit.version}",
        "file": model.name,
        "sha256": hashlib.sha256(model.read_bytes()).hexdigest(),
        "bytes": model.stat().st_size,
        "inputs": len(np.load(data)["y"]),
        "repair": run([*command, *exhibit.search_options], folder / "fix"),
        "bias": run([*command, "--search", "bias"], folder / "bias"),
    }


def run(command: list[str], out: Path) -> dict[str, Any]:
    """Run `arachne repair` and return its figures; where it is refused, the sentence."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run(
        [sys.executable, "-m", "arachne", *command, "-o", str(out), "--force", "-q"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    if not (out / "result.json").exists():
        return {"refused": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}"}
    return {**read_figures(json.loads((out / "result.json").read_text("utf-8"))), "processor_seconds": round(seconds)}


def read_figures(result: dict[str, Any]) -> dict[str, Any]:
    """Pick what the gallery shows from a `result.json`."""
    held_out = result["held_out"]
    names = ("inputs", "negatives", "repaired", "positives", "broken", "accuracy_before", "accuracy_after")
    return {
        "verdict": result["heading"],
        "weights": result["weights"],
        "weights_in_reach": result["localised"]["candidates"] if result["localised"] else None,
        **{name: held_out[name] for name in names},
    }
