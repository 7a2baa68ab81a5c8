"""How long does localisation take on well-known architectures, how much memory, and how many weights does it reach?

Each runs in a process of its own, so that its peak is its own. Sizes are those people use, weights are random.

    python benchmarks/architectures.py              # all
    python benchmarks/architectures.py resnet18 bert
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

import arachne
from arachne.data.labelled import LabelledData
from arachne.model.values import Array, Inputs, take
from tests.backends.architectures import images, sequences

N = 64
NEGATIVES = 16

torch.set_num_threads(1)  # threads that wait for each other say little about the work

rng = np.random.default_rng(0)


def pictures(size: int, channels: int = 1) -> Array:
    """Noise of the shape of pictures."""
    return rng.normal(size=(N, channels, size, size)).astype(np.float32)


def bert_base() -> nn.Module:
    """BERT with its own width, four layers deep."""
    from transformers import BertConfig, BertForSequenceClassification

    model: nn.Module = BertForSequenceClassification(BertConfig(num_hidden_layers=4, num_labels=5))
    return model


TOKENS = rng.integers(1, 20_000, size=(N, 64))
MASK = (np.arange(64)[None] < rng.integers(8, 65, N)[:, None]).astype(np.int64)

NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Inputs]]] = {
    "tabular": (
        sequences.TabularNet,
        lambda: {
            "numbers": rng.normal(size=(N, 13)).astype(np.float32),
            "category": rng.integers(0, 4, N),
        },
    ),
    "signals": (lambda: sequences.SignalNet(width=64), lambda: rng.normal(size=(N, 1, 2048)).astype(np.float32)),
    "vgg": (lambda: images.VGG(width=64), lambda: pictures(32)),
    "mobilenet_v2": (lambda: images.MobileNetV2(width=32), lambda: pictures(32)),
    "densenet": (lambda: images.DenseNet(growth=32, depth=6), lambda: pictures(32)),
    "resnet18": (lambda: images.ResNet18(width=64, channels=3), lambda: pictures(32, 3)),
    "resnet18 at 64": (lambda: images.ResNet18(width=64, channels=3), lambda: pictures(64, 3)),
    "vit": (lambda: images.ViT(width=192, depth=6), lambda: pictures(8)),
    "text_lstm": (
        lambda: sequences.TextLSTM(words=20_000, width=256),
        lambda: {"ids": TOKENS * MASK, "lengths": MASK.sum(1)},
    ),
    "bert": (bert_base, lambda: {"input_ids": TOKENS, "attention_mask": MASK}),
}


def resident() -> int:
    """Bytes of memory in use now."""
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * resource.getpagesize()


def measure(name: str) -> None:
    """Print one row."""
    torch.manual_seed(0)
    make, inputs_of = NETWORKS[name]
    inputs = inputs_of()
    network = make()
    backend = arachne.load(network)
    backend.forward(take(inputs, slice(0, 4)))
    predictions = backend.predict(inputs)
    classes = int(backend.forward(take(inputs, slice(0, 1))).shape[1])
    labels = predictions.copy()
    labels[:NEGATIVES] = (labels[:NEGATIVES] + 1) % classes
    reached = sum(info.parameters[parameter].size for info in backend.layers for parameter in info.weights)
    others = sum(entry.size for info in backend.layers for entry in info.parameters.values()) - reached
    left = sum(network.get_parameter(parameter).numel() for parameter in backend.unreachable)
    before, start = resident(), time.perf_counter()
    found = arachne.localise_weights(backend, LabelledData(inputs, labels), "*:*")
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    print(
        f"{name:16} {len(backend.layers):6} {reached:12,} {others:10,} {left:11,} {seconds:7.1f} {peak / 2**20:8.0f}"
        f" {peak / (4 * (reached + others + left)):8.1f} {len(found.suspects):8}",
        flush=True,
    )


def main(names: list[str]) -> None:
    """A row for every network, each from a process of its own."""
    print(f"localising with {NEGATIVES} negatives and as many positives, one thread")
    print("architecture     layers      weights   + biases not reached seconds  peak MB  x model suspects")
    for name in names:
        subprocess.run([sys.executable, __file__, "--one", name], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        measure(sys.argv[2])
    else:
        main(sys.argv[1:] or list(NETWORKS))
