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
    "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx": "pip install --no-deps rapidocr_onnxruntime",
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


def look_at(path: Path) -> dict[str, Any]:
    """Ask `arachne scan --layers` about a file."""
    words = [sys.executable, "-m", "arachne", "scan", str(path), "--layers", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"refused": done.stderr.strip().splitlines()[-1].removeprefix("error: ")}
    layers = json.loads(done.stdout)
    in_reach = layers["weights"] + layers["weights_on_request"]
    out_of_reach = layers["weights_out_of_reach"]
    return {"layers": len(layers["layers"]), "in_reach": in_reach, "out_of_reach": out_of_reach}
