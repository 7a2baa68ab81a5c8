"""How much memory does a localisation take? A network of 25 million weights, in a process of its own.

python benchmarks/memory.py
"""

from __future__ import annotations

import resource
import time

import numpy as np
import torch
from torch import nn

import arachne
from arachne.data.labelled import LabelledData

WIDTH = 3_500


def resident() -> int:
    """Bytes of memory in use now."""
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * resource.getpagesize()


def peak() -> int:
    """Largest number of bytes ever in use."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Print the peak while localising, the model's own weights included, in multiples of the weights."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((400, WIDTH)).astype(np.float32)
    small = arachne.load(nn.Sequential(nn.Linear(WIDTH, 8), nn.ReLU(), nn.Linear(8, 10)))
    labels = small.predict(inputs)
    labels[:40] = (labels[:40] + 1) % 10
    arachne.localise_weights(small, LabelledData(inputs, labels), "*:*")  # everything imported and warmed up
    before = resident()
    network = nn.Sequential(
        nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10)
    )
    backend = arachne.load(network)
    weights = sum(parameter.numel() for parameter in network.parameters())
    labels = backend.predict(inputs)
    labels[:40] = (labels[:40] + 1) % 10
    start = time.perf_counter()
    found = arachne.localise_weights(backend, LabelledData(inputs, labels), "*:*")
    seconds = time.perf_counter() - start
    used = (peak() - before) / (4 * weights)
    size = f"{weights / 1e6:.1f} million weights, {len(found.suspects)} suspects"
    print(f"{size}: {seconds:.1f} s, peak memory {used:.2f} x the weights, model included")


if __name__ == "__main__":
    main()
