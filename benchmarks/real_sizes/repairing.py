"""A whole repair in a process of its own: how long it takes, and where the time goes.

`fm-lstm` is trained on Fashion-MNIST, its pictures read as 28 rows, and repaired with 5,000 test pictures seen and as
many held out. The others have made-up weights with a last layer fitted to made-up inputs of 20 kinds, or 10 for the
LSTM; the inputs a network is least sure of get the class it puts second. Suspects in `resnet50` lie in its last stage.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import arachne
from arachne.adapting.side_by_side import run_side_by_side
from arachne.data.labelled import LabelledData
from arachne.errors import NothingWithinBudgetError
from arachne.model.values import Array
from arachne.settings import make_localiser, make_searcher
from benchmarks.real_sizes import networks
from benchmarks.real_sizes.localising import memory, settle_memory
from benchmarks.subjects import fit_last, on_pictures, second_where_unsure, smooth

CLASSES, NOISE = 20, 3.0
"""How many kinds of made-up pictures there are, and how much noise is in one."""


class RowsLSTM(nn.Module):
    """An LSTM of 64 units over the rows of a picture, read at its last step."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(28, 64, batch_first=True)
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.lstm(x)[0][:, -1])


def fm_lstm(n: int) -> tuple[nn.Module, LabelledData]:
    """Trained for some seconds on real pictures."""
    return on_pictures(RowsLSTM(), (28, 28), n, trained=(20_000, 2))


def resnet50(n: int) -> tuple[nn.Module, LabelledData]:
    """Made up: one pass gives the features, from which the last layer and the labels follow."""
    network, rng = networks.ResNet50().eval(), np.random.default_rng(0)
    centres = smooth(rng.standard_normal((CLASSES, 3, 224, 224), dtype=np.float32))
    kinds = rng.integers(CLASSES, size=n)
    pictures = np.stack(
        [centres[kind] + NOISE * rng.standard_normal((3, 224, 224), dtype=np.float32) for kind in kinds]
    )
    last, network.fc = network.fc, nn.Identity()  # type: ignore[assignment]
    with torch.no_grad():
        batches = (torch.from_numpy(some) for some in np.array_split(pictures, -(-n // 16)))
        features = torch.cat(list(run_side_by_side(network, batches, lambda: torch.no_grad()(network.forward))))
    network.fc = last
    alone = nn.Sequential(last)
    fit_last(alone, features.numpy()[: n // 2], kinds[: n // 2], classes=1000)
    return network, LabelledData(pictures, second_where_unsure(alone, features.numpy()))


def head(n: int) -> tuple[nn.Module, LabelledData]:
    """Made up: features around 20 centres."""
    rng = np.random.default_rng(0)
    kinds = rng.integers(CLASSES, size=n)
    centres = rng.standard_normal((CLASSES, 4096), dtype=np.float32)
    features = centres[kinds] + NOISE * rng.standard_normal((n, 4096), dtype=np.float32)
    return fit_last_layer(networks.head(), features, kinds, classes=networks.CLASSES)


def lstm(n: int) -> tuple[nn.Module, LabelledData]:
    """Made up: every tenth word of a text is one of a hundred that its kind uses."""
    rng = np.random.default_rng(0)
    kinds, words = rng.integers(10, size=n), rng.integers(0, 20_000, (n, 100))
    words[:, ::10] = 100 * kinds[:, None] + rng.integers(0, 100, (n, 10))
    return fit_last_layer(networks.TextLSTM(), words, kinds, classes=10)


def fit_last_layer(network: nn.Module, inputs: Array, kinds: Array, classes: int) -> tuple[nn.Module, LabelledData]:
    """A network with its last layer fitted to half of the inputs."""
    half = len(inputs) // 2
    fit_last(network.eval(), inputs[:half], kinds[:half], classes=classes)
    return network, LabelledData(inputs, second_where_unsure(network, inputs))


SUBJECTS: dict[str, tuple[str, Callable[[int], tuple[nn.Module, LabelledData]], int, dict[str, Any]]] = {
    "fm-lstm": ("LSTM-64 over rows of Fashion-MNIST", fm_lstm, 10_000, {}),
    "lstm": ("LSTM-256, 100 steps", lstm, 2_000, {}),
    "head": ("1,000-class head", head, 10_000, {}),
    "resnet50": ("ResNet-50, suspects in its last stage", resnet50, 2_000, {"include": ("layer4.*",)}),
}


def say_step(step: str) -> None:
    """Tell how far a long row has come."""
    print(f"{time.strftime('%H:%M:%S')} {step}", file=sys.stderr, flush=True)


def measure(subject: str, searcher: str, threads: int = 1, inputs: int | None = None) -> dict[str, Any]:
    """One row: a network and a searcher, and the localiser that a repair takes with it; half of the inputs are seen."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    _, make, n, options = SUBJECTS[subject]
    network, data = make(inputs or n)
    localiser = make_localiser("bl" if searcher == "de" else "contrast", **options)
    before, start, wall = settle_memory(), time.process_time(), time.perf_counter()
    made = make_searcher(searcher)
    try:
        result = arachne.repair(network, data, "top:1", localiser=localiser, searcher=made, seed=0, on_step=say_step)
    except NothingWithinBudgetError as error:  # it has run to its end all the same
        result = error.result
    seconds, elapsed, peak = time.process_time() - start, time.perf_counter() - wall, memory("VmHWM")
    return {
        "subject": subject,
        "searcher": searcher,
        "threads": threads,
        "seen": len(result.split.seen) + len(result.split.choose),
        "suspects": len(result.localisation.suspects),
        "processor_seconds": round(seconds, 1),
        "elapsed_seconds": round(elapsed, 1),
        "steps": {name: round(own, 1) for name, own in result.seconds.items()},
        "peak_megabytes": round((peak - before) / 2**20),
        "repaired": str(result.evidence).splitlines()[0],
    }
