"""Repair two collision-avoidance networks by a rule, without a single label (ACAS Xu N2,9 and N1,9).

The networks advise an aircraft: clear of conflict (0), weak left or right (1, 2), strong left or right (3, 4). In some
states a safety property forbids advice: phi 8 of N2,9 forbids 2, 3 and 4, phi 7 of N1,9 forbids 3 and 4. Others have
repaired them with labels made up for those states (CARE, PRDNN, VeRe). Here the property is the target, and states in
which nothing may change are given as they are:

    arachne repair model.onnx --data states.npz --target "rule:not 2,3,4" --keep-as-is keep.npz --max-break 0 -o fix
    arachne evaluate model.onnx --patch fix/patch.json --data states_test.npz --keep-as-is keep_test.npz

The data folder (`ARACHNE_DATA`, default `../shared/data`) holds `arena/acas_N29.npz` and `arena/acas_N19.npz`: weights
and states that CARE (ICSE 2022) published and VeRe (ICSE 2024) used again. The test states play no part in the repair.

    pip install "arachne-repair[onnx]"
    python examples/arena_acas.py                # repairs both and writes examples/arena_acas.json; some minutes each
    python examples/arena_acas.py --table        # prints the table from that file
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

DATA = Path(os.environ.get("ARACHNE_DATA", "../shared/data")) / "arena"
RESULTS = Path(__file__).with_suffix(".json")
RULES = {"N29": "rule:not 2,3,4", "N19": "rule:not 3,4"}
PUBLISHED = {
    "N29": {"CARE": (99.31, 0.00, 168), "PRDNN": (98.37, 0.00, 24), "VeRe": (99.94, 0.22, 8.6)},
    "N19": {"CARE": (99.98, 0.01, 123), "PRDNN": (100, 0, 3.4), "VeRe": (100, 0, 5.3)},
}
"""Test states that keep the rule and test decisions that changed, in per cent, and seconds on their own machines."""


def main() -> None:
    """Repair both networks, or print what that gave."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="print the table from the committed results")
    parser.add_argument("--only", choices=RULES, help="repair one of the two")
    arguments = parser.parse_args()
    if not arguments.table:
        known = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
        for name in [arguments.only] if arguments.only else RULES:
            with tempfile.TemporaryDirectory() as folder:
                known[name] = repair(name, Path(folder))
            RESULTS.write_text(json.dumps(known, indent=1) + "\n", "utf-8")
    print(table(json.loads(RESULTS.read_text("utf-8"))))


def repair(name: str, folder: Path) -> dict[str, Any]:
    """Write model and states into a folder, repair, and measure on test states; returns the counts."""
    with np.load(DATA / f"acas_{name}.npz") as stored:
        arrays = {key: stored[key] for key in stored.files}
    onnx.save(network(arrays), folder / "model.onnx")
    sets = {"states": "counterexample", "keep": "drawndown"}
    for own, theirs in sets.items():
        for part in ("", "_test"):
            np.savez(folder / f"{own}{part}.npz", x=np.unique(arrays[f"data.{theirs}{part}"], axis=0))
    start = time.perf_counter()
    run(
        *("repair", "model.onnx", "--data", "states.npz", "--target", RULES[name], "--keep-as-is", "keep.npz"),
        *("--max-break", "0", "-o", "fix"),
        folder=folder,
    )
    seconds = time.perf_counter() - start
    tested = ("--data", "states_test.npz", "--keep-as-is", "keep_test.npz", "--json")
    told = json.loads(run("evaluate", "model.onnx", "--patch", "fix/patch.json", *tested, folder=folder))
    held_out = told["held_out"]
    return {
        "rule": RULES[name],
        "basis": told["basis"],
        "verdict": told["verdict"],
        "test_states": held_out["negatives"],
        "keep_rule_now": held_out["repaired"],
        "kept": held_out["kept"]["decisions"],
        "changed": held_out["kept"]["changed"],
        "weights": told["weights"],
        "seconds": round(seconds, 1),
    }


def run(*words: str, folder: Path) -> str:
    """Run an `arachne` command in a folder, and return what it prints."""
    print("arachne", *(f"'{word}'" if " " in word else word for word in words), file=sys.stderr, flush=True)
    done = subprocess.run([sys.executable, "-m", "arachne", *words], cwd=folder, stdout=subprocess.PIPE, check=True)
    return done.stdout.decode("utf-8")


def network(arrays: dict[str, npt.NDArray[np.float32]]) -> onnx.ModelProto:
    """The network as ONNX; its advice is the lowest output, so the last layer is negated and argmax reads it."""
    layers = sorted({key.rpartition(".")[0] for key in arrays if not key.startswith("data.")})
    nodes, weights, value = [], [], "state"
    for number, layer in enumerate(layers, 1):
        last = number == len(layers)
        sign = np.float32(-1 if last else 1)
        weights.append(numpy_helper.from_array(sign * arrays[f"{layer}.kernel"], f"fc{number}.weight"))
        weights.append(numpy_helper.from_array(sign * arrays[f"{layer}.bias"], f"fc{number}.bias"))
        out = "advice" if last else f"z{number}"
        nodes.append(helper.make_node("Gemm", [value, f"fc{number}.weight", f"fc{number}.bias"], [out], f"fc{number}"))
        if not last:
            nodes.append(helper.make_node("Relu", [out], [f"h{number}"]))
        value = f"h{number}"
    shapes = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 5]) for n in ("state", "advice")]
    graph = helper.make_graph(nodes, "acas", shapes[:1], shapes[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def table(results: dict[str, Any]) -> str:
    """The results beside published ones, as Markdown."""
    lines = [
        "| network, rule | by | test states that keep the rule | test decisions changed | seconds |",
        "|---|---|---|---|---|",
    ]
    for name, own in results.items():
        kept = f"{own['keep_rule_now']:,} of {own['test_states']:,}: {own['keep_rule_now'] / own['test_states']:.2%}"
        changed = f"{own['changed']:,} of {own['kept']:,}: {own['changed'] / own['kept']:.2%}"
        lines.append(f"| {name}, `{own['rule']}` | Arachne, no labels | {kept} | {changed} | {own['seconds']:g} |")
        for by, (repaired, broken, seconds) in PUBLISHED[name].items():
            lines.append(f"| {name} | {by}, as published | {repaired:g}% | {broken:.2f}% | {seconds:g} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
