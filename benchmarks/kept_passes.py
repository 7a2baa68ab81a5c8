"""Commands on one model and its data, with kept passes and without: processor time of each, in one run.

    python -m benchmarks.kept_passes            measure, and print the table
    python -m benchmarks.kept_passes --print    the table

The network is that of traffic signs with batch norm (`benchmarks.rows`), as an ONNX file with 3,000 pictures. Every
command runs in a process of its own with one thread; with kept passes, what the commands before it left is there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from benchmarks.rows.__main__ import processor_seconds
from benchmarks.rows.networks import signs_with_norm

RESULTS = Path(__file__).parent / "results" / "kept_passes.json"

COMMANDS = {
    "scan": "scan model.onnx --data data.npz --no-causes",
    "repair": "repair model.onnx --data data.npz --target top:1 -o {here}",
    "choose": "choose {here} --max-break 0.2% -o {here}-2",
    "evaluate": "evaluate model.onnx --data data.npz",
    "evaluate --patch": "evaluate model.onnx --data data.npz --patch {here}/patch.json",
}
"""The commands as typed, by the name of their row."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kept_passes", description=__doc__)
    parser.add_argument("--print", action="store_true", dest="only_print", help="measure nothing")
    if not parser.parse_args().only_print:
        RESULTS.write_text(json.dumps(measure(), indent=1) + "\n", encoding="utf-8")
    print("| command | `--no-cache` | kept passes |\n|---|---|---|")
    for name, (without, kept) in json.loads(RESULTS.read_text(encoding="utf-8")).items():
        print(f"| `{name}` | {without:.1f} s | {kept:.1f} s |")


def measure() -> dict[str, tuple[float, float]]:
    """Return the processor time of each command, without kept passes and with them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_files(folder)
        both = [run_all(folder, kept=kept) for kept in (False, True)]
    return {command: (both[0][command], both[1][command]) for command in COMMANDS}


def make_files(folder: Path) -> None:
    """Write the network and its data."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network, data = signs_with_norm()
    torch.onnx.export(
        network,
        (torch.zeros(2, 3, 48, 48),),
        str(folder / "model.onnx"),
        dynamo=False,
        input_names=["x"],
        output_names=["y"],
        dynamic_axes={"x": {0: "n"}, "y": {0: "n"}},
    )
    np.savez(folder / "data.npz", x=np.asarray(data.inputs), y=data.labels)


def run_all(folder: Path, *, kept: bool) -> dict[str, float]:
    """Run every command after the other; return seconds of processor time."""
    here = "kept" if kept else "anew"
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"}
    found = {}
    for name, line in COMMANDS.items():
        words = [*line.format(here=here).split(), "--quiet", *([] if kept else ["--no-cache"])]
        before = processor_seconds()
        command = [sys.executable, "-m", "arachne", *words]
        subprocess.run(command, check=True, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
        found[name] = round(processor_seconds() - before, 1)
        print(f"{here} {name}: {found[name]} s", file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    main()
