"""One localisation in a process of its own: how many passes it costs, and how much memory beyond the model.

A pass is one forward and one backward pass of the same inputs, all in one batch, in plain torch; it is timed before and
after each localisation. Times are the processor's, of one thread. The peak is that of the resident memory during the
localisation beyond what the process with the model loaded has in use; the peak of a single input's pass, with gradients
of all weights, is told beside it.
"""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import arachne
from arachne.data.labelled import LabelledData
from arachne.localise import Bidirectional, Contrast, Fisher, Localiser, Spectrum
from arachne.model.values import Inputs, count, take
from benchmarks.real_sizes.networks import make_network

MAX_REPEATED_SECONDS, REPEATED = 1.0, 3
"""Up to how many seconds of a pass a localisation is repeated, and how often; medians are told."""

LOCALISERS: dict[str, Localiser] = {
    "contrast": Contrast(),
    "contrast, all layers": Contrast(depth="all"),
    "bl": Bidirectional(),
    "fisher": Fisher(),
    "spectrum": Spectrum(),
}


def measure(subject: str, row: str, each: int) -> dict[str, Any]:
    """One row: a network and a localiser, with `each` negatives and as many positives."""
    torch.set_num_threads(1)
    warm_up(LOCALISERS[row])
    network, inputs = make_network(subject, 2 * each)
    weights = sum(parameter.numel() for parameter in network.parameters())
    backend = arachne.load(network)
    one_pass(network, take(inputs, slice(0, 1)))
    start_of_pass = settle_memory()
    one_pass(network, take(inputs, slice(0, 1)))
    of_pass = memory("VmHWM") - start_of_pass
    labels = backend.predict(inputs)
    labels[:each] = (labels[:each] + 1) % backend.forward(take(inputs, slice(0, 1))).shape[1]
    data = LabelledData(inputs, labels)
    passes, seconds, peaks = [one_pass(network, inputs)], [], []
    for _ in range(1 if passes[0] > MAX_REPEATED_SECONDS else REPEATED):
        before = settle_memory()
        start = time.process_time()
        found = arachne.localise_weights(backend, data, "*:*", localiser=LOCALISERS[row])
        seconds.append(time.process_time() - start)
        peaks.append(memory("VmHWM") - before)
        passes.append(one_pass(network, inputs))
    unit = float(np.median(passes))
    return {
        "subject": subject,
        "localiser": row,
        "weights": weights,
        "looked_at": found.n_candidates,
        "suspects": len(found.suspects),
        "each": each,
        "pass_seconds": round(unit, 3),
        "seconds": round(float(np.median(seconds)), 3),
        "passes": round(float(np.median(seconds)) / unit, 2),
        "peak_megabytes": round(peaks[0] / 2**20, 1),
        "times_weights": round(peaks[0] / (4 * weights), 2),
        "pass_times_weights": round(of_pass / (4 * weights), 2),
    }


def warm_up(localiser: Localiser) -> None:
    """Import whatever a localiser needs, on a network of no size."""
    backend = arachne.load(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
    inputs = np.random.default_rng(0).standard_normal((12, 4)).astype(np.float32)
    labels = backend.predict(inputs)
    labels[:4] = (labels[:4] + 1) % 3
    arachne.localise_weights(backend, LabelledData(inputs, labels), "*:*", localiser=localiser)


def one_pass(network: nn.Module, inputs: Inputs) -> float:
    """The processor's seconds of a forward and backward pass of all inputs in one batch."""
    start = time.process_time()
    given = {name: torch.from_numpy(array) for name, array in inputs.items()} if isinstance(inputs, Mapping) else None
    answer = network(torch.from_numpy(inputs)) if given is None else network(**given).logits
    torch.autograd.backward(nn.functional.cross_entropy(answer, torch.zeros(count(inputs), dtype=torch.int64)))
    seconds = time.process_time() - start
    network.zero_grad(set_to_none=True)
    return seconds


def settle_memory() -> int:
    """Bytes in use now that what was freed has been given back; the peak is counted from here."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def memory(name: str) -> int:
    """A figure of `/proc/self/status` in bytes: `VmRSS` is what is in use, `VmHWM` the most that was."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])
