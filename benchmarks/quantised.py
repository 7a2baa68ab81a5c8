"""Repair quantised copies of a network directly, beside the repair of the float network.

    python -m benchmarks.quantised                     # measure what benchmarks/results has not, and print the tables
    python -m benchmarks.quantised --only fm-trigger-b # one fault
    python -m benchmarks.quantised --minutes 9         # begin no repair after nine minutes; the next call goes on
    python -m benchmarks.quantised --print             # print the tables alone

The networks and faults are the study's (`examples/study`), as far as they are trained: planted causes and natural
confusions. Each network is exported to ONNX and quantised by onnxruntime (static QDQ per channel, QOperator, dynamic),
and written in Keras, converted to TFLite, and converted in whole numbers from end to end. Every copy is repaired by
default with a budget of 0.5 %, on the splits of several seeds, whose counts are added; repaired and broken are of
held-out inputs, judged by the runtime of that format. *Within reach* is the most that a candidate of the search repairs
of those that break at most 0.5 % of the held-out inputs: what a search found, apart from the luck of the choice. Two
rows are of patches found elsewhere: that of the float network in its int8 copy, that of Keras in the float TFLite file.
For each copy: is the accuracy the one that a plain session of the runtime has, do only weights differ in the saved
file, does `revert` give back the file as it was?
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import arachne
from arachne.data.labelled import LabelledData
from arachne.errors import NothingWithinBudgetError
from arachne.model.values import Array
from arachne.scoring.plain import forward_with_weights
from benchmarks.ported import as_keras
from examples.study.cases import Case, cases, open_network, planted_case
from examples.study.faults import BY_NAME
from examples.study.poisoning import fault_made_by
from examples.study.subjects import cache_folder, is_trained

RESULTS = Path(__file__).parent / "results" / "quantised.json"

SEEDS = (0, 1)
"""The splits whose counts are added."""

BUDGET, CALIBRATED = 0.005, 200
"""The budget; how many inputs a quantiser looks at."""

GROUPS = {
    "FM dense, planted": ("fm-trigger-b", "fm-rows-b", "fm-gain-b"),
    "FM dense, confusions": tuple(f"fm-mlp-confusion-{rank:02}" for rank in (2, 4, 6, 8, 10)),
    "FM convnet, planted": ("fmc-trigger-b",),
    "FM convnet, confusions": ("fm-cnn-confusion-02", "fm-cnn-confusion-04"),
    "C10, planted": ("c10-gain-b", "c10-group-b"),
    "C10, confusion": ("c10-cnn-confusion-02",),
    "GTSRB, planted": ("gtsrb-trigger-b",),
}
"""Planted and natural faults of each network, all for judging. How int8 networks are searched was decided on
`fm-rows-a`, `fm-trigger-a`, `fm-gain-a` and `fm-mlp-confusion-01`. Of CIFAR-10's planted faults two are here for which
the float repair does something within the budget; in an earlier run it repaired 1 of 87 of `c10-trigger-b`."""

JUDGED = {"FM dense, planted": 5000, "FM dense, confusions": 10000, "FM convnet, planted": 5000}
"""How many inputs a repair has, one half to see and one to be judged by; 3,000 where nothing is said, for time."""

Maker = Callable[[Any, LabelledData, Path], None]


def pictures_last(data: LabelledData) -> LabelledData:
    """Put channels last, as Keras and TFLite take pictures."""
    inputs = np.asarray(data.inputs)
    return replace(data, inputs=np.ascontiguousarray(np.moveaxis(inputs, 1, -1))) if inputs.ndim == 4 else data


def float_onnx(module: Any, data: LabelledData, path: Path) -> None:
    """Export to ONNX."""
    import torch

    torch.onnx.export(
        module.eval(),
        (torch.from_numpy(np.asarray(data.inputs)[:2]),),
        str(path),
        dynamo=False,
        input_names=["input"],
        output_names=["scores"],
        dynamic_axes={"input": {0: "n"}, "scores": {0: "n"}},
    )


def static_onnx(form: str) -> Maker:
    """Quantise with onnxruntime's static quantiser, in QDQ or QOperator form."""

    def make(module: Any, data: LabelledData, path: Path) -> None:
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

        class Reader(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
            def __init__(self) -> None:
                self.rows = iter(np.asarray(data.inputs)[:CALIBRATED])

            def get_next(self) -> dict[str, Array] | None:
                row = next(self.rows, None)
                return None if row is None else {"input": row[None]}

        quantize_static(
            path.with_name("float.onnx"),
            path,
            Reader(),
            quant_format=QuantFormat[form],
            per_channel=form == "QDQ",
            weight_type=QuantType.QInt8,
        )

    return make


def dynamic_onnx(module: Any, data: LabelledData, path: Path) -> None:
    """Quantise the weights with onnxruntime's dynamic quantiser, which leaves the activations to each run."""
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(path.with_name("float.onnx"), path)


def keras(module: Any, data: LabelledData, path: Path) -> None:
    """Write in Keras."""
    as_keras(module, data)[0].native.save(path)


def tflite(whole: bool) -> Maker:
    """Convert the Keras network, in whole numbers or in floats."""

    def make(module: Any, data: LabelledData, path: Path) -> None:
        import tensorflow as tf

        converter = tf.lite.TFLiteConverter.from_keras_model(as_keras(module, data)[0].native)
        if whole:
            rows = np.asarray(pictures_last(data).inputs)[:CALIBRATED]
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
            converter.representative_dataset = lambda: ([row[None]] for row in rows)
            converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
            converter.inference_input_type = converter.inference_output_type = tf.int8
        path.write_bytes(converter.convert())

    return make


FORMS: dict[str, tuple[str, Maker]] = {
    "float onnx": ("float.onnx", float_onnx),
    "int8 onnx, QDQ per channel": ("qdq.onnx", static_onnx("QDQ")),
    "int8 onnx, QOperator": ("qoperator.onnx", static_onnx("QOperator")),
    "int8 onnx, dynamic": ("dynamic.onnx", dynamic_onnx),
    "keras": ("model.keras", keras),
    "float tflite": ("float.tflite", tflite(whole=False)),
    "int8 tflite": ("int8.tflite", tflite(whole=True)),
}
"""The copies with their files and makers, the float one first."""

CARRIED = {
    "int8 onnx, patch of float onnx": ("float onnx", "int8 onnx, QDQ per channel"),
    "float tflite, patch of keras": ("keras", "float tflite"),
}
"""Patches that are found on one copy and applied to another."""


class Copies:
    """The copies of one network and the patches found on them, in a folder of the cache."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.folder = cache_folder() / "quantised" / case.network
        self.folder.mkdir(parents=True, exist_ok=True)
        self.backend, data = open_network(case.network)
        group = next(group for group, names in GROUPS.items() if case.name in names)
        self.data = data.take(np.arange(min(len(data.labels), JUDGED.get(group, 3000))))

    def file(self, form: str) -> Path:
        """Make a copy, unless it is there."""
        name, make = FORMS[form]
        path = self.folder / name
        if not path.exists():
            if name.endswith(".onnx") and name != "float.onnx":
                self.file("float onnx")
            make(self.backend.native, self.data, path)
        return path

    def data_for(self, form: str) -> LabelledData:
        """Return the inputs as a copy takes them."""
        return self.data if "onnx" in form else pictures_last(self.data)

    def patch(self, form: str) -> Path:
        """Name the file of the patch that was found on a copy."""
        return self.folder / f"{self.case.name}.{FORMS[form][0]}.json"


def measure(case: Case, row: str, keep: Callable[[dict[str, Any]], None], parts: dict[str, Any]) -> dict[str, Any]:
    """Repair one fault of one copy, or carry a patch over; `keep` is told each split, those in `parts` are there."""
    copies = Copies(case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return carry(copies, *CARRIED[row]) if row in CARRIED else repair(copies, row, keep, parts)


def repair(
    copies: Copies, form: str, keep: Callable[[dict[str, Any]], None] | None = None, parts: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Repair one copy on several splits, add the counts, and look at the file saved by the first that found a patch."""
    path, data = copies.file(form), copies.data_for(form)
    found: dict[str, Any] = {}
    parts = {} if parts is None else parts
    for seed in SEEDS:
        if str(seed) not in parts:
            parts[str(seed)] = repair_split(copies, form, seed, save="differing" not in found)
            if keep is not None:
                keep(parts)
        for key, value in parts[str(seed)].items():
            found[key] = found.get(key, 0) + value if key in (*COUNTS, "reach", "seconds") else value
    return found | {"seeds": len(SEEDS)} | as_runtime(path, data)


def repair_split(copies: Copies, form: str, seed: int, *, save: bool) -> dict[str, Any]:
    """Repair one copy on one split."""
    path, data = copies.file(form), copies.data_for(form)
    began = time.process_time()
    try:
        result = arachne.repair(path, data, copies.case.target, max_break=BUDGET, seed=seed)
    except NothingWithinBudgetError as error:
        held_out = error.result.split.held_out
        sizes = {"negatives": len(held_out.negatives), "positives": len(held_out.positives)}
        return {**sizes, "repaired": 0, "broken": 0, "reach": within_reach(error.result), "nothing": str(error)}
    found = {**counts(result.evidence.held_out), "reach": within_reach(result)}
    found["seconds"] = round(time.process_time() - began, 1)
    return found | (saved_file(copies, form, result) if save else {})


def within_reach(result: Any) -> int:
    """Count the most held-out negatives that a candidate repairs within the budget, measured on these inputs."""
    held_out, most = result.split.held_out, 0
    for point in result.points:
        weights = point.candidate.whole_parameters(result.backend)
        scores = forward_with_weights(result.backend, weights, held_out.data.inputs)
        right = held_out.task.decide(held_out.read(scores).scores) == held_out.labels
        if np.sum(~right[held_out.positives]) <= BUDGET * len(held_out.positives):
            most = max(most, int(right[held_out.negatives].sum()))
    return most


def saved_file(copies: Copies, form: str, result: Any) -> dict[str, Any]:
    """Save a repaired copy, take the patch out again, and tell what differs."""
    path = copies.file(form)
    result.patch.save(copies.patch(form))
    after, back = (copies.folder / f"{end}{path.suffix}" for end in ("after", "back"))
    result.model.save(after)
    arachne.revert(result.patch, after, back)
    found = {
        "weights": len(result.patch),
        "reverts": path.read_bytes() == back.read_bytes() if path.suffix != ".keras" else None,
        "differing": differing(path, after) if path.suffix != ".keras" else None,
    }
    for file in (after, back):
        file.unlink()
    return found


def as_runtime(path: Path, data: LabelledData) -> dict[str, int]:
    """Count the inputs that Arachne says a file gets right, and those that a plain session of its runtime does."""
    if path.suffix not in OWN_DECISIONS:
        return {}
    right = round(arachne.scan(path, data).accuracy * len(data.labels))
    own = OWN_DECISIONS[path.suffix](path, np.asarray(data.inputs))
    return {"right": right, "right_by_runtime": int(np.sum(own == data.labels))}


def carry(copies: Copies, source: str, form: str) -> dict[str, Any]:
    """Apply the patch of one copy to another, and measure on the inputs that the repair has not seen."""
    if not copies.patch(source).exists() and "nothing" in repair(copies, source):
        return {"refused": f"nothing was found on {source}"}
    try:
        evidence = arachne.measure(copies.file(form), copies.data_for(form), patch=copies.patch(source))
    except arachne.ArachneError as error:
        return {"refused": str(error)}
    return counts(evidence.held_out)


def counts(part: Any) -> dict[str, Any]:
    """Return what was repaired and broken."""
    return {
        "negatives": part.negatives,
        "repaired": part.repaired,
        "positives": part.positives,
        "broken": part.broken,
    }


def differing(before: Path, after: Path) -> str:
    """Tell which tensors of two files differ, by dtype, after checking that nothing else does."""
    stored = [STORED[path.suffix](path) for path in (before, after)]
    if stored[0][0] != stored[1][0] or stored[0][1].keys() != stored[1][1].keys():
        return "more than weights"
    found = [one.dtype for name, one in stored[0][1].items() if not np.array_equal(one, stored[1][1][name])]
    return ", ".join(sorted({str(dtype) for dtype in found}))


def stored_onnx(path: Path) -> tuple[bytes, dict[str, Array]]:
    """Return a file without its stored tensors, and these."""
    import onnx

    model = onnx.load(path)
    tensors = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    for tensor in model.graph.initializer:
        tensor.ClearField("raw_data")
        tensor.ClearField("float_data")
        tensor.ClearField("int32_data")
    return model.SerializeToString(deterministic=True), tensors


def stored_tflite(path: Path) -> tuple[bytes, dict[str, Array]]:
    """Return a file's bytes without its stored tensors, and these, read by TensorFlow's own schema."""
    from tensorflow.lite.python import schema_py_generated as schema

    content = bytearray(path.read_bytes())
    model = schema.Model.GetRootAs(bytes(content), 0)
    kinds = {0: "float32", 1: "float16", 2: "int32", 3: "uint8", 9: "int8"}
    tensors = {}
    for number in range(model.SubgraphsLength()):
        graph = model.Subgraphs(number)
        for index in range(graph.TensorsLength()):
            tensor = graph.Tensors(index)
            table = model.Buffers(tensor.Buffer())._tab
            if field := table.Offset(4):
                start, size = table.Vector(field), table.VectorLen(field)
                held = np.frombuffer(model._tab.Bytes, np.uint8, size, start)
                tensors[f"{number}.{index}"] = held.view(kinds.get(tensor.Type(), "uint8"))
                content[start : start + size] = bytes(size)
    return bytes(content), tensors


STORED: Mapping[str, Callable[[Path], tuple[bytes, dict[str, Array]]]] = {
    ".onnx": stored_onnx,
    ".tflite": stored_tflite,
}


def decided_by_onnxruntime(path: Path, inputs: Array) -> Array:
    """Decisions of a plain session."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    rows = 1 if path.name == "dynamic.onnx" else 500
    parts = [session.run(None, {"input": inputs[start : start + rows]})[0] for start in range(0, len(inputs), rows)]
    found: Array = np.concatenate(parts)
    return np.asarray(found.argmax(axis=1))


def decided_by_litert(path: Path, inputs: Array) -> Array:
    """Decisions of a plain interpreter, one input at a time."""
    from ai_edge_litert.interpreter import Interpreter

    lite = Interpreter(str(path))
    lite.allocate_tensors()
    given, made = lite.get_input_details()[0], lite.get_output_details()[0]
    scale, zero = given["quantization"]
    found = []
    for row in inputs:
        values = np.clip(np.round(row / scale) + zero, -128, 127) if scale else row
        lite.set_tensor(given["index"], values[None].astype(given["dtype"]))
        lite.invoke()
        found.append(int(lite.get_tensor(made["index"])[0].argmax()))
    return np.array(found)


OWN_DECISIONS = {".onnx": decided_by_onnxruntime, ".tflite": decided_by_litert}


def missing(known: dict[str, Any], only: str) -> Iterator[tuple[Case, str]]:
    """Yield what is still to be measured."""
    for name in (name for names in GROUPS.values() for name in names):
        rows = [row for row in (*FORMS, *CARRIED) if f"{name} | {row}" not in known and only in f"{name} | {row}"]
        case = trained_case(name) if rows else None
        if case is not None:
            yield from ((case, row) for row in rows)


@lru_cache
def trained_case(name: str) -> Case | None:
    """Return a fault as a case; None where its network is not trained."""
    if name in BY_NAME:
        fault = BY_NAME[name]
        return planted_case(fault) if is_trained(name, fault_made_by(fault)) else None
    subject = name.partition("-confusion-")[0]
    return next((case for case in cases(("judge",), (subject,)) if case.name == name), None)


def print_tables(known: dict[str, Any]) -> None:
    """Print repaired and broken of each copy with its share of the float repair, by network and by fault."""
    print("| faults | copy | repaired | broken | of the float repair | within reach at 0.5 % | of the float one's |")
    print("|---|---|---|---|---|---|---|")
    for group, names in GROUPS.items():
        for row in (*FORMS, *CARRIED):
            pairs = {name: [known.get(f"{name} | {one}", {}) for one in (row, "float onnx")] for name in names}
            measured = [name for name, pair in pairs.items() if all("negatives" in one for one in pair)]
            if measured:
                cells = shares(total(known, measured, row), total(known, measured, "float onnx"))
                of = f" ({len(measured)} of {len(names)})" if len(measured) < len(names) else ""
                print(f"| {group}{of} | {row} | {' | '.join(cells)} |")
    print("\n| copy | faults | accuracy as the runtime's | only weights | reverts |\n|---|---|---|---|---|")
    for row in FORMS:
        found = [one for key, one in known.items() if key.endswith(f" | {row}")]
        if not found:
            continue
        print(f"| {row} | {len(found)} | {' | '.join(tally(found, check) for check in CHECKS)} |")
    rows = [row for row in (*FORMS, *CARRIED) if any(key.endswith(f" | {row}") for key in known)]
    print(f"\n| fault | {' | '.join(rows)} |\n|---|{'---|' * len(rows)}")
    faults = [name for names in GROUPS.values() for name in names]
    measured = [name for name in faults if any(f"{name} | {row}" in known for row in rows)]
    for name in measured:
        print(f"| {name} | {' | '.join(briefly(known.get(f'{name} | {row}', {})) for row in rows)} |")
    if len(measured) < len(faults):
        print(f"\nNot measured: {', '.join(name for name in faults if name not in measured)}.")
    for key, one in known.items():
        if "refused" in one:
            print(f"\n{key}: {one['refused']}")


def total(known: dict[str, Any], names: list[str], row: str) -> dict[str, int]:
    """Add the counts of some faults."""
    found = [known[f"{name} | {row}"] for name in names]
    return {key: sum(one[key] for one in found) for key in (*COUNTS, "reach") if all(key in one for one in found)}


def briefly(row: dict[str, Any]) -> str:
    """Write the shares repaired and broken, such as `.81 @ .12`."""
    if "negatives" not in row:
        return "refused" if "refused" in row else ""
    rates = row["repaired"] / max(1, row["negatives"]), 100 * row["broken"] / max(1, row["positives"])
    return " @ ".join(f"{rate:.2f}".removeprefix("0") for rate in rates)


WEIGHTS = ("float32", "int8", "int32", "int32, int8", "float32, int8")
"""The dtypes of weights and biases that may differ."""

COUNTS = ("negatives", "repaired", "positives", "broken")

CHECKS: tuple[Callable[[dict[str, Any]], bool | None], ...] = (
    lambda row: row["right"] == row["right_by_runtime"] if "right" in row else None,
    lambda row: row["differing"] in WEIGHTS if row.get("differing") is not None else None,
    lambda row: row.get("reverts"),
)
"""Is the accuracy that of the runtime, do only weights differ, does the patch revert; None where nobody asked."""


def shares(row: dict[str, Any], base: dict[str, Any]) -> list[str]:
    """Write what was repaired, broken and within reach, with the shares of what the float repair had."""
    broken = f"{row['broken']} of {row['positives']} ({row['broken'] / max(1, row['positives']):.2%})"
    repaired, reach = (_beside(row, base, key) for key in ("repaired", "reach"))
    return [repaired[0], broken, repaired[1], *reach]


def _beside(row: dict[str, Any], base: dict[str, Any], key: str) -> tuple[str, str]:
    """Write a count of the negatives, and its share of the float repair's; nothing where it was not counted."""
    if key not in row or key not in base:
        return "", ""
    rates = [one[key] / max(1, one["negatives"]) for one in (row, base)]
    return f"{row[key]} of {row['negatives']} ({rates[0]:.0%})", f"{rates[0] / rates[1]:.0%}" if rates[1] else ""


def tally(rows: list[dict[str, Any]], check: Callable[[dict[str, Any]], bool | None]) -> str:
    """Write of how many rows something holds."""
    found = [answer for row in rows if (answer := check(row)) is not None]
    return f"{sum(found)} of {len(found)}" if found else ""


def main() -> None:
    """Measure what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="Rows that contain this, such as 'fm-trigger-b | int8'.")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="Begin no repair after so many.")
    parser.add_argument("--print", action="store_true", help="Measure nothing.")
    asked = parser.parse_args()
    began = time.monotonic()
    for case, form in [] if asked.print else list(missing(read_results(), asked.only)):
        if time.monotonic() - began > 60 * asked.minutes:
            break
        key = f"{case.name} | {form}"
        splits = f"{key} | splits"
        row = measure(case, form, partial(write_result, splits), read_results().get(splits, {}))
        write_result(key, row, without=splits)
        print(f"{key}: {row}", flush=True)
    print_tables(read_results())


def read_results() -> dict[str, Any]:
    """Return what was measured, by fault and copy."""
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return found


def write_result(key: str, value: dict[str, Any], without: str = "") -> None:
    """Add a row to the results, as another slice may have left them, and leave out another."""
    known = {**read_results(), key: value}
    known.pop(without, None)
    RESULTS.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
