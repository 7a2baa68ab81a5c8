"""Valid files of every kind, small, for attacks to start from."""

from __future__ import annotations

import json
import os
import shutil
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

CACHE = "ARACHNE_SAFETY_CACHE"
"""The environment variable that names the folder in which costly files are kept between cases."""

KEY = bytes(range(32))
"""The key with which checkpoints are marked in the processes that meet hostile files."""


def model(folder: Path, name: str = "net.onnx") -> str:
    """The demo's small ONNX network for 8x8 digits."""
    return _copy("digits.onnx", folder / name)


def data(folder: Path, name: str = "data.npz", rows: int = 60) -> str:
    """Some of the demo's labelled digits."""
    with np.load(str(files("arachne.demo") / "digits.npz")) as stored:
        np.savez(folder / name, x=stored["x"][:rows], y=stored["y"][:rows])
    return name


def pixels(rows: int = 4) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Some of the demo's digits as pictures `(rows, 8, 8)`."""
    with np.load(str(files("arachne.demo") / "digits.npz")) as stored:
        first = np.asarray(stored["x"][:rows], dtype=np.float64).reshape(rows, 8, 8)
    scaled: np.ndarray[tuple[int, ...], np.dtype[np.uint8]] = (255 * first / first.max()).astype(np.uint8)
    return scaled


def result(folder: Path, name: str = "fix") -> str:
    """The folder of a small finished repair, with its model and data beside it as `net.onnx` and `data.npz`."""
    return _run_repair(folder, name, "--search", "margin")


def front(folder: Path, name: str = "fix") -> str:
    """Make the result of a repair that left a front to choose from."""
    return _run_repair(folder, name, "--search", "margin", "--max-break", "1%")


def delta(folder: Path, name: str = "patch.json") -> str:
    """A patch that changes a whole tensor by a matrix of rank one, for `net.onnx` beside it."""
    _run_repair(folder, "fix", "--search", "erase", target="*:7", rows=1797)
    shutil.move(folder / "fix" / "patch.json", folder / name)
    shutil.rmtree(folder / "fix")
    return name


def _run_repair(folder: Path, name: str, *options: str, target: str = "top:1", rows: int = 600) -> str:
    from arachne.cli import run

    model(folder)
    data(folder, rows=rows)
    kept = Path(os.environ[CACHE]) / "-".join(["fix", *options]).replace("%", "")
    if not kept.exists():
        given = ["net.onnx", "--data", "data.npz", "--target", target, *options, "-o", name, "--quiet"]
        code = run(["repair", *given])
        if code != 0:
            raise RuntimeError(f"the repair that a case starts from failed with exit {code}")
        shutil.copytree(folder / name, kept.with_name(f"{kept.name}-{os.getpid()}"))
        kept.with_name(f"{kept.name}-{os.getpid()}").rename(kept)
    else:
        shutil.copytree(kept, folder / name)
    return name


def int8_model(folder: Path, name: str = "int8.onnx") -> str:
    """The demo's network with its weights and activations in whole numbers."""
    import onnx
    from onnxruntime import quantization

    class Calibration(quantization.CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
        def __init__(self, entry: str, rows: Any) -> None:
            self._left = [{entry: rows}]

        def get_next(self) -> Any:
            return self._left.pop() if self._left else None

    source = folder / model(folder, "float.onnx")
    with np.load(str(files("arachne.demo") / "digits.npz")) as stored:
        rows = np.asarray(stored["x"][:64], np.float32)
    calibration = Calibration(onnx.load(source).graph.input[0].name, rows)
    quantization.quantize_static(str(source), str(folder / name), calibration, per_channel=True)
    source.unlink()
    return name


DETECTION = ("--task", "detection", "--preprocess", "scale=1/255 layout=nchw")


def detection(folder: Path) -> list[str]:
    """A detector of coloured cells, a YOLO folder `pictures`, and the command that scans them."""
    import onnx

    from tests.backends.onnx_detector import make_cell_detector, write_cells

    onnx.save(make_cell_detector(), folder / "cells.onnx")
    write_cells(folder / "pictures", 12, seed=5)
    return ["scan", "cells.onnx", "--data", "pictures", *DETECTION]


def coco(folder: Path) -> list[str]:
    """Write pictures with a file of annotations as COCO has them, `annotations.json`, beside `images`."""
    argv = detection(folder)
    (folder / "pictures" / "images").rename(folder / "images")
    names = sorted(path.name for path in (folder / "images").iterdir())
    side = 32
    images = [{"id": at, "file_name": name, "width": side, "height": side} for at, name in enumerate(names)]
    categories = [{"id": at + 1, "name": name} for at, name in enumerate(("red", "green"))]
    boxes: list[dict[str, Any]] = []
    for at, name in enumerate(names):
        for line in (folder / "pictures" / "labels" / name).with_suffix(".txt").read_text().splitlines():
            kind, x, y, width, height = map(float, line.split())
            box = [(x - width / 2) * side, (y - height / 2) * side, width * side, height * side]
            boxes.append({"id": len(boxes), "image_id": at, "category_id": int(kind) + 1, "bbox": box})
    told = {"images": images, "annotations": boxes, "categories": categories}
    (folder / "annotations.json").write_text(json.dumps(told))
    shutil.rmtree(folder / "pictures")
    return [*argv[:3], "annotations.json", *DETECTION]


RESUMED = ("repair", "net.onnx", "--data", "data.npz", "--target", "top:1", "--search", "de", "-O", "population=8",
           "-O", "generations=2", "-o", "fix", "--resume")  # fmt: skip
"""The command that goes on from what `checkpoint` leaves."""


def checkpoint(folder: Path, name: str = "search-000002.npz") -> str:
    """Interrupt a run after its first generation, and return the file of its only checkpoint."""
    from unittest import mock

    from arachne.cli import run
    from arachne.errors import Interrupted
    from arachne.results.checkpoint import Checkpoints, keeper

    model(folder)
    data(folder, rows=600)
    cache = Path(os.environ[CACHE]) / "checkpoint" if CACHE in os.environ else None
    if cache is not None and cache.exists():
        shutil.copytree(cache, folder / ".fix.arachne")
        return str(Path(".fix.arachne", "checkpoints", name))
    at = Checkpoints.at

    def interrupt(self: Checkpoints, state: Any, rng: np.random.Generator) -> None:
        at(self, state, rng)
        if len(state.history) == 2:
            raise Interrupted(2, "interrupted")

    with mock.patch.object(Checkpoints, "at", interrupt), mock.patch.object(keeper, "SHARE", 1.0):
        code = run([*RESUMED[:-1], "--quiet"])
    if code != 130:
        raise RuntimeError(f"the repair that was to be interrupted ended with exit {code}")
    kept = folder / ".fix.arachne" / "checkpoints"
    (kept / "search-000001.npz").unlink()
    if cache is not None:
        shutil.copytree(kept.parent, cache.with_name(f"checkpoint-{os.getpid()}"))
        cache.with_name(f"checkpoint-{os.getpid()}").rename(cache)
    return str((kept / name).relative_to(folder))


def patch(folder: Path, name: str = "patch.json") -> str:
    """A patch for `net.onnx`, which is put beside it."""
    result(folder)
    shutil.move(folder / "fix" / "patch.json", folder / name)
    shutil.rmtree(folder / "fix")
    return name


def _copy(name: str, path: Path) -> str:
    path.write_bytes((files("arachne.demo") / name).read_bytes())
    return path.name


def program(folder: Path, name: str = "net.pt2") -> str:
    """An exported torch program of an untrained network for 8x8 digits."""
    import torch

    _factory(folder)
    torch.manual_seed(1)
    inputs = torch.zeros(2, 1, 8, 8)
    batch = torch.export.Dim("batch")
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 8), torch.nn.ReLU(), torch.nn.Linear(8, 10))
    torch.export.save(torch.export.export(network, (inputs,), dynamic_shapes=({0: batch},)), folder / name)
    return name


def state_dict(folder: Path, name: str = "net.pt") -> str:
    """The weights of the network that `networks:digits` of `FACTORY` makes, by the ending as safetensors or a zip."""
    import safetensors.torch
    import torch

    _factory(folder)
    torch.manual_seed(1)
    state = {
        "1.weight": torch.randn(8, 64),
        "1.bias": torch.randn(8),
        "3.weight": torch.randn(10, 8),
        "3.bias": torch.randn(10),
    }
    if name.endswith(".safetensors"):
        safetensors.torch.save_file(state, folder / name)
    else:
        torch.save(state, folder / name)
    return name


FACTORY = ("--model", "networks:digits")
"""Options a command needs beside `--weights` for a state dict; `state_dict` and `keras_model` write `networks.py`."""


def keras_model(folder: Path, name: str = "net.keras") -> str:
    """An untrained Keras network for 8x8 digits; with the ending `.weights.h5` its weights alone, for `FACTORY`."""
    import keras

    (folder / "networks.py").write_text(KERAS)
    keras.utils.set_random_seed(1)
    namespace: dict[str, object] = {}
    exec(KERAS, namespace)  # the text below
    network = namespace["digits"]()  # type: ignore[operator]  # a function of that text
    if name.endswith(".weights.h5"):
        network.save_weights(folder / name)
    else:
        network.save(folder / name)
    return name


KERAS = """import keras


def digits():
    return keras.Sequential([
        keras.Input((1, 8, 8), name="image"), keras.layers.Flatten(name="flat"),
        keras.layers.Dense(8, activation="relu", name="hidden"), keras.layers.Dense(10, name="scores"),
    ])
"""

TORCH = """from torch import nn


def digits():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))
"""


def _factory(folder: Path) -> None:
    (folder / "networks.py").write_text(TORCH)
