"""A tiny detector in the shape of a YOLOv8 export: levels made larger again and joined, sizes of pictures left free."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from arachne.model.values import Array

OBJECTS = 3
LEVELS = 5
"""How many times pictures are halved; their sides are multiples of 32."""


def make_detector(seed: int = 0) -> onnx.ModelProto:
    """Outputs `(n, 4 + OBJECTS, anchors)`: boxes in pixels, and classes behind a sigmoid."""
    rng = np.random.default_rng(seed)
    constants: dict[str, Array] = {}

    def constant(name: str, values: Array) -> str:
        constants[name] = values
        return name

    def conv(name: str, source: str, channels_in: int, channels_out: int, size: int, stride: int) -> onnx.NodeProto:
        weight = rng.normal(0, 0.5, (channels_out, channels_in, size, size)).astype(np.float32)
        names = [
            source,
            constant(f"{name}.weight", weight),
            constant(f"{name}.bias", np.zeros(channels_out, np.float32)),
        ]
        return helper.make_node(
            "Conv", names, [name], name=name, strides=[stride] * 2, pads=[size // 2] * 4, kernel_shape=[size] * 2
        )

    nodes, last, channels = [], "images", 3
    for level in range(LEVELS):
        nodes += [conv(f"down{level}", last, channels, 6, 3, 2)]
        nodes += [helper.make_node("Relu", [f"down{level}"], [f"level{level}"])]
        last, channels = f"level{level}", 6
    constant("scales", np.array([1, 1, 2, 2], np.float32))
    for level in (LEVELS - 2, LEVELS - 3):
        larger, joined = f"larger{level}", f"joined{level}"
        nodes += [helper.make_node("Resize", [last, "", "scales"], [larger], mode="nearest", nearest_mode="floor")]
        nodes += [helper.make_node("Concat", [larger, f"level{level}"], [joined], axis=1)]
        last, channels = joined, channels + 6
    nodes += [conv("box", last, channels, 4, 1, 1), conv("class", last, channels, OBJECTS, 1, 1)]
    constant("box_shape", np.array([0, 4, -1]))
    constant("class_shape", np.array([0, OBJECTS, -1]))
    constant("eight", np.array(8, np.float32))
    nodes += [
        helper.make_node("Reshape", ["box", "box_shape"], ["boxes0"]),
        helper.make_node("Abs", ["boxes0"], ["boxes1"]),
        helper.make_node("Add", ["boxes1", "eight"], ["boxes"]),
        helper.make_node("Reshape", ["class", "class_shape"], ["logits"]),
        helper.make_node("Sigmoid", ["logits"], ["probabilities"]),
        helper.make_node("Concat", ["boxes", "probabilities"], ["output0"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, "height", "width"])],
        [helper.make_tensor_value_info("output0", TensorProto.FLOAT, ["batch", 4 + OBJECTS, "anchors"])],
        [numpy_helper.from_array(values, name) for name, values in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


CELL, CELLS = 8, 4
"""Pixels of a cell, and cells of a picture, each way; every cell is an anchor whose box is the cell."""

COLOURS = {"red": (230, 30, 30), "green": (30, 200, 30)}
STRANGE = (235, 70, 60)
"""The colour of what has no label, and is taken for red."""


def paint(n: int, *, seed: int) -> tuple[Array, list[list[tuple[int, int, int]]]]:
    """Pictures uint8 `(n, 32, 32, 3)`, and the class (from 0), row and column of their labelled cells."""
    rng = np.random.default_rng(seed)
    side = CELL * CELLS
    pictures = rng.integers(60, 160, (n, side, side, 3))
    labels: list[list[tuple[int, int, int]]] = []
    for picture in pictures:
        own = []
        for cell in rng.choice(CELLS * CELLS, 4, replace=False):
            kind, (row, column) = int(rng.integers(3)), divmod(int(cell), CELLS)
            colour = [*COLOURS.values(), STRANGE][kind]
            shade = np.array(colour) + rng.normal(0, 12, 3)
            picture[row * CELL : (row + 1) * CELL, column * CELL : (column + 1) * CELL] = shade
            own += [(kind, row, column)] if kind < len(COLOURS) else []
        labels.append(own)
    return np.clip(pictures, 0, 255).astype(np.uint8), labels


def make_cell_detector() -> onnx.ModelProto:
    """A detector of coloured cells, `(n, 4 + 2, 16)`, that has never met `STRANGE` and takes it for red."""
    rng = np.random.default_rng(0)
    weight = rng.normal(0, 1, (16, 3, 1, 1)) * np.ones((1, 1, CELL, CELL)) / CELL**2
    bias = rng.normal(0, 0.3, 16)
    pictures, labels = paint(300, seed=1)
    cells = pictures.reshape(len(pictures), CELLS, CELL, CELLS, CELL, 3).mean(axis=(2, 4)) / 255
    features = np.maximum(cells @ weight[:, :, 0, 0].T * CELL**2 + bias, 0)
    wanted = np.full((*features.shape[:3], 2), -4.0)
    strange = np.linalg.norm(cells * 255 - STRANGE, axis=3) < 45
    for at, own in enumerate(labels):
        for kind, row, column in own:
            wanted[at, row, column, kind] = 4
            strange[at, row, column] = False
    known = np.concatenate([features[~strange], np.ones((int((~strange).sum()), 1))], axis=1)
    head = np.linalg.lstsq(known, wanted[~strange], rcond=None)[0].T
    rows, columns = np.divmod(np.arange(CELLS * CELLS), CELLS)
    places = np.stack([columns + 0.5, rows + 0.5, np.ones(16), np.ones(16)])[None] * CELL
    constants = {
        "body.weight": weight,
        "body.bias": bias,
        "box.weight": rng.normal(0, 0.01, (4, 16, 1, 1)),
        "box.bias": np.zeros(4),
        "class.weight": head[:, :16, None, None],
        "class.bias": head[:, 16],
        "places": places,
    }
    nodes = [
        helper.make_node("Conv", ["images", "body.weight", "body.bias"], ["body"], name="body", strides=[CELL] * 2),
        helper.make_node("Relu", ["body"], ["features"]),
        helper.make_node("Conv", ["features", "box.weight", "box.bias"], ["box"], name="box"),
        helper.make_node("Conv", ["features", "class.weight", "class.bias"], ["class"], name="class"),
        helper.make_node("Reshape", ["box", "four"], ["moves"]),
        helper.make_node("Add", ["moves", "places"], ["boxes"]),
        helper.make_node("Reshape", ["class", "two"], ["logits"]),
        helper.make_node("Sigmoid", ["logits"], ["probabilities"]),
        helper.make_node("Concat", ["boxes", "probabilities"], ["output0"], axis=1),
    ]
    side = CELL * CELLS
    graph = helper.make_graph(
        nodes,
        "cells",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, side, side])],
        [helper.make_tensor_value_info("output0", TensorProto.FLOAT, ["batch", 6, CELLS * CELLS])],
        [numpy_helper.from_array(values.astype(np.float32), name) for name, values in constants.items()]
        + [numpy_helper.from_array(np.array([0, n, -1]), name) for name, n in (("four", 4), ("two", 2))],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def write_cells(folder: Path, n: int, *, seed: int) -> Path:
    """Write painted pictures as a YOLO folder."""
    pictures, labels = paint(n, seed=seed)
    for name in ("images", "labels"):
        (folder / name).mkdir(parents=True)
    (folder / "classes.txt").write_text("\n".join(COLOURS) + "\n")
    for at, (picture, own) in enumerate(zip(pictures, labels, strict=True)):
        Image.fromarray(picture).save(folder / "images" / f"{at:03}.png")
        lines = [
            f"{kind} {(column + 0.5) / CELLS} {(row + 0.5) / CELLS} {1 / CELLS} {1 / CELLS}\n"
            for kind, row, column in own
        ]
        (folder / "labels" / f"{at:03}.txt").write_text("".join(lines))
    return folder
