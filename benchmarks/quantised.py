"""Repair quantised copies of a network directly, beside the repair of the float network.

    python -m benchmarks.quantised                     # measure what benchmarks/results has not, and print the table
    python -m benchmarks.quantised --only fm-trigger-b # one fault
    python -m benchmarks.quantised --print             # print the table alone

The networks and faults are the study's (`examples/study`), as far as they are trained: planted causes and natural
confusions. Each network is exported to ONNX and quantised by onnxruntime (static QDQ per channel, QOperator), and
written in Keras, converted to TFLite, and converted in whole numbers from end to end. Every copy is repaired by default
with a budget of 0.5 %; repaired and broken are of held-out inputs, judged by the runtime of that format.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import arachne
from arachne.data.labelled import LabelledData
from arachne.model.values import Array
from benchmarks.ported import as_keras
from examples.study.cases import Case, cases, open_network

RESULTS = Path(__file__).parent / "results" / "quantised.json"

BUDGET, CALIBRATED, JUDGED = 0.005, 200, 5000
"""The budget; how many inputs a quantiser looks at; how many inputs are repaired on and judged by."""

FAULTS = (
    "fm-trigger-b",
    "fm-rows-b",
    "fm-mlp-confusion-02",
    "fmc-trigger-b",
    "fm-cnn-confusion-02",
    "c10-trigger-b",
    "c10-cnn-confusion-02",
    "gtsrb-trigger-a",
    "gtsrb-cnn-confusion-02",
)
"""Planted and natural faults of each network; those that are not trained are left out, and the table says so."""

Made = tuple[Path, LabelledData]


def float_onnx(module: Any, data: LabelledData, folder: Path) -> Made:
    """Export to ONNX."""
    import torch

    torch.onnx.export(
        module.eval(),
        (torch.from_numpy(np.asarray(data.inputs)[:2]),),
        str(folder / "float.onnx"),
        dynamo=False,
        input_names=["input"],
        output_names=["scores"],
        dynamic_axes={"input": {0: "n"}, "scores": {0: "n"}},
    )
    return folder / "float.onnx", data


def static_onnx(form: str) -> Callable[[Any, LabelledData, Path], Made]:
    """Quantise with onnxruntime's static quantiser, in QDQ or QOperator form."""

    def make(module: Any, data: LabelledData, folder: Path) -> Made:
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

        class Reader(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
            def __init__(self) -> None:
                self.rows = iter(np.asarray(data.inputs)[:CALIBRATED])

            def get_next(self) -> dict[str, Array] | None:
                row = next(self.rows, None)
                return None if row is None else {"input": row[None]}

        source, _ = float_onnx(module, data, folder)
        quantize_static(
            source,
            folder / f"{form}.onnx",
            Reader(),
            quant_format=QuantFormat[form],
            per_channel=form == "QDQ",
            weight_type=QuantType.QInt8,
        )
        return folder / f"{form}.onnx", data

    return make


def tflite(whole: bool) -> Callable[[Any, LabelledData, Path], Made]:
    """Write in Keras and convert, in whole numbers or in floats."""

    def make(module: Any, data: LabelledData, folder: Path) -> Made:
        import tensorflow as tf

        backend, last = as_keras(module, data)
        last = replace(data, inputs=last.inputs)
        converter = tf.lite.TFLiteConverter.from_keras_model(backend.native)
        if whole:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
            converter.representative_dataset = lambda: ([row[None]] for row in np.asarray(last.inputs)[:CALIBRATED])
            converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
            converter.inference_input_type = converter.inference_output_type = tf.int8
        path = folder / ("int8.tflite" if whole else "float.tflite")
        path.write_bytes(converter.convert())
        return path, last

    return make


FORMS: dict[str, Callable[[Any, LabelledData, Path], Made]] = {
    "float onnx": float_onnx,
    "int8 onnx, QDQ per channel": static_onnx("QDQ"),
    "int8 onnx, QOperator": static_onnx("QOperator"),
    "float tflite": tflite(whole=False),
    "int8 tflite": tflite(whole=True),
}
"""The copies, the float one first."""


def measure(case: Case, form: str) -> dict[str, Any]:
    """Repair one fault of one copy."""
    backend, data = open_network(case.network)
    data = data.take(np.arange(min(JUDGED, len(data.labels))))
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path, given = FORMS[form](backend.native, data, Path(folder))
        began = time.process_time()
        result = arachne.repair(path, given, case.target, max_break=BUDGET, seed=0)
        found = result.evidence.held_out
        return {
            "negatives": found.negatives,
            "repaired": found.repaired,
            "positives": found.positives,
            "broken": found.broken,
            "accuracy": round(found.accuracy_before, 4),
            "weights": len(result.patch),
            "seconds": round(time.process_time() - began, 1),
        }


def missing(known: dict[str, Any], only: str) -> Iterator[tuple[Case, str]]:
    """Yield what is still to be measured."""
    found = {case.name: case for case in cases(("decide", "judge"))}
    for name in FAULTS:
        if name in found and only in name:
            yield from ((found[name], form) for form in FORMS if f"{name} | {form}" not in known)


def print_table(known: dict[str, Any]) -> None:
    """Print repaired and broken of each copy, and its share of the float repair."""
    print("| fault | copy | repaired | broken | of the float repair |\n|---|---|---|---|---|")
    for name in FAULTS:
        rows = {form: known[f"{name} | {form}"] for form in FORMS if f"{name} | {form}" in known}
        if not rows:
            print(f"| {name} | not measured: its network is not trained | | | |")
        for form, row in rows.items():
            rate = row["repaired"] / max(1, row["negatives"])
            base = rows.get("float onnx")
            reached = base and base["repaired"] / max(1, base["negatives"])
            share = f"{rate / reached:.0%}" if reached else ""
            broken = f"{row['broken']} of {row['positives']} ({row['broken'] / max(1, row['positives']):.2%})"
            print(f"| {name} | {form} | {row['repaired']} of {row['negatives']} | {broken} | {share} |")


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="Faults whose names contain this.")
    parser.add_argument("--print", action="store_true", help="Measure nothing.")
    asked = parser.parse_args()
    known: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for case, form in [] if asked.print else list(missing(known, asked.only)):
        known[f"{case.name} | {form}"] = measure(case, form)
        RESULTS.write_text(json.dumps(known, indent=1) + "\n")
        print(f"{case.name} | {form}: {known[f'{case.name} | {form}']}", flush=True)
    print_table(known)


if __name__ == "__main__":
    main()
