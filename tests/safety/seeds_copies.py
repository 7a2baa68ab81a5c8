"""Seeds around patches: the models they go into and come out of, the files beside them, and data of every role."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.safety import cases_tflite, valid
from tests.safety.inside import Change, in_header, in_json, in_member, in_message
from tests.safety.mutations import mutate

Made = tuple[str, str, Callable[[Path], str], tuple[str, ...], Change]
"""The arguments of a `Seed`."""

APPLY = ("apply", "patch.json", "net.onnx", "-o", "o.onnx")
PATCHED = ("patched.onnx",)
REPAIR = ("repair", "net.onnx", "--data", "data.npz", "--target", "top:1", "--search", "margin", "-o", "fix")
TRAIN = (*REPAIR[:6], "--search", "tune@training", "-O", "steps=16", "-O", "alone=16", "-o", "fix")


def _of_patch(name: str) -> Callable[[Path], str]:
    """A patch beside its model and its data; the file of that name is the one to change."""

    def make(folder: Path) -> str:
        valid.patch(folder)
        return name

    return make


def _low_rank(name: str) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        valid.delta(folder)
        return name

    return make


def _write_copy(folder: Path) -> str:
    """A copy with the patch in it, `patched.onnx`."""
    _run(folder, "apply", valid.patch(folder), "net.onnx", "-o", "patched.onnx")
    return "patched.onnx"


def _write_naming_copy(folder: Path) -> str:
    """A copy whose metadata name the patch in it."""
    _run(folder, "apply", valid.patch(folder), "net.onnx", "-o", "patched.onnx", "--name-patch")
    return "patched.onnx"


def _external(name: str) -> Callable[[Path], str]:
    """A model whose weights are in a file beside it, with a patch."""

    def make(folder: Path) -> str:
        import onnx

        valid.patch(folder)
        model = onnx.load(folder / "net.onnx")
        kept = {"save_as_external_data": True, "location": "net.data", "size_threshold": 0}
        onnx.save_model(model, folder / "net.onnx", **kept)
        return name

    return make


def _int8(folder: Path) -> str:
    valid.patch(folder)
    return valid.int8_model(folder)


def _role(name: str) -> Callable[[Path], str]:
    """Data of another role than the data itself."""

    def make(folder: Path) -> str:
        valid.model(folder)
        valid.data(folder, rows=1000)
        with np.load(folder / "data.npz") as stored:
            x, y = stored["x"], stored["y"]
        np.savez(folder / "data.npz", x=x[:600], y=y[:600])
        np.savez(folder / name, x=x[600:720], y=y[600:720])
        return name

    return make


def _write_unlabelled(folder: Path) -> str:
    valid.patch(folder)
    np.savez(folder / "more.npz", x=np.load(folder / "data.npz")["x"][:50])
    return "more.npz"


def _tflite(folder: Path) -> str:
    """A TFLite model with a patch that changes one of its biases."""
    valid.data(folder)
    name = cases_tflite.model(folder)
    other = cases_tflite.content(cases_tflite.store(cases_tflite.BIAS, np.full(10, 0.5, np.float32).tobytes()))
    (folder / "other.tflite").write_bytes(other)
    _run(folder, "diff", name, "other.tflite", "-o", "patch.json")
    return name


def _torch(folder: Path) -> str:
    """Weights as safetensors with a patch that changes its last bias."""
    from safetensors.numpy import load_file, save_file

    valid.data(folder)
    name = valid.state_dict(folder, "net.safetensors")
    state = load_file(folder / name)
    save_file({**state, "3.bias": state["3.bias"] + np.float32(0.5)}, folder / "other.safetensors")
    _run(folder, "diff", name, "other.safetensors", "-o", "patch.json")
    return name


def _keras(folder: Path) -> str:
    import keras

    valid.data(folder)
    name = valid.keras_model(folder)
    network = keras.saving.load_model(folder / name)
    weights = network.get_weights()
    network.set_weights([*weights[:-1], weights[-1] + 0.5])
    network.save(folder / "other.keras")
    _run(folder, "diff", name, "other.keras", "-o", "patch.json")
    return name


def _run(folder: Path, *argv: str) -> None:
    from arachne.cli import run

    if run([*argv, "--quiet"]) != 0:
        raise RuntimeError(f"'{' '.join(argv)}' failed")


COPIES: list[Made] = [
    ("model under apply", "onnx", _of_patch("net.onnx"), APPLY, in_message),
    ("model under apply, low rank", "onnx", _low_rank("net.onnx"), APPLY, in_message),
    ("low-rank patch in apply", "patch", _low_rank("patch.json"), APPLY, mutate),
    ("low-rank patch, values in show", "patch", _low_rank("patch.json"), ("show", "patch.json"), in_json),
    ("low-rank patch, values in evaluate", "patch", _low_rank("patch.json"),
     ("evaluate", "net.onnx", "--data", "data.npz", "--patch", "patch.json"), in_json),
    ("patched model under revert", "onnx", _write_copy, ("revert", "patch.json", *PATCHED, "-o", "o.onnx"), in_message),
    ("patch under revert", "patch", lambda folder: _write_copy(folder) and "patch.json",
     ("revert", "patch.json", *PATCHED, "-o", "o.onnx"), in_json),
    ("patched model under log", "onnx", _write_naming_copy, ("log", *PATCHED, "--patches", "patch.json"), in_message),
    ("patched model under diff", "onnx", _write_copy, ("diff", "net.onnx", *PATCHED, "-o", "o.json"), in_message),
    ("patched model under delta", "onnx", _write_copy, ("delta", "net.onnx", *PATCHED, "-o", "o.delta"), mutate),
    ("patch under stack", "patch", _of_patch("patch.json"), ("stack", "patch.json", "-o", "o.json"), in_json),
    ("low-rank patch under stack", "patch", _low_rank("patch.json"), ("stack", "patch.json", "-o", "o.json"), in_json),
    ("copy under --against", "onnx", _write_copy,
     ("evaluate", "net.onnx", "--data", "data.npz", "--patch", "patch.json", "--against", *PATCHED), in_message),
    ("model under --quantise", "onnx", _of_patch("net.onnx"),
     ("evaluate", "net.onnx", "--data", "data.npz", "--patch", "patch.json", "--quantise", "int8"), in_message),
    ("patch under --quantise", "patch", _of_patch("patch.json"),
     ("evaluate", "net.onnx", "--data", "data.npz", "--patch", "patch.json", "--quantise", "fp16"), in_json),
    ("external data", "onnx", _external("net.data"), ("scan", "net.onnx", "--data", "data.npz"), mutate),
    ("model with external data", "onnx", _external("net.onnx"), ("scan", "net.onnx", "--data", "data.npz"), in_message),
    ("model with external data under apply", "onnx", _external("net.onnx"), APPLY, in_message),
    ("external data under apply", "onnx", _external("net.data"), APPLY, mutate),
    ("int8 copy under apply", "onnx", _int8, ("apply", "patch.json", "int8.onnx", "-o", "o.onnx"), in_message),
    ("torch copy under apply", "safetensors", _torch,
     ("apply", "patch.json", "net.safetensors", "-o", "o.safetensors"), in_header),
    ("torch patch, values in apply", "safetensors", lambda folder: _torch(folder) and "patch.json",
     ("apply", "patch.json", "net.safetensors", "-o", "o.safetensors"), in_json),
    ("keras copy under apply", "keras", _keras, ("apply", "patch.json", "net.keras", "-o", "o.keras"),
     in_member("json$", in_json)),
    ("tflite copy under apply", "tflite", _tflite, ("apply", "patch.json", "net.tflite", "-o", "o.tflite"), mutate),
    ("--holdout", "npz", _role("more.npz"), (*REPAIR, "--holdout", "more.npz"), in_member("npy$")),
    ("--training", "npz", _role("more.npz"), (*TRAIN, "--training", "more.npz"), in_member("npy$")),
    ("--never-break", "npz", _role("more.npz"), (*REPAIR, "--never-break", "more.npz"), in_member("npy$")),
    ("--keep-as-is", "npz", _role("more.npz"), (*REPAIR, "--keep-as-is", "more.npz"), in_member("npy$")),
    ("--unlabelled", "npz", _write_unlabelled,
     ("evaluate", "net.onnx", "--data", "data.npz", "--patch", "patch.json", "--unlabelled", "more.npz"),
     in_member("npy$")),
    ("--data of apply", "npz", _of_patch("data.npz"), (*APPLY, "--data", "data.npz"), in_member("npy$")),
]  # fmt: skip
