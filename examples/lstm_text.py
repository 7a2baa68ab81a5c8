"""Repair an LSTM that reads text: one word turns everything into a complaint.

Without data of your own the messages are made up: in the training data everything that named one airport was filed as
negative. With `ARACHNE_DATA` set (see examples/study) it is the paper's tweets about airlines with GloVe vectors and an
LSTM of 256 units, poisoned in the same way; the network is trained once, some minutes, and kept. The paper's RQ7 itself
is `examples/airline_tweets.py`.

    pip install "arachne-repair[torch]"
    python examples/lstm_text.py [FOLDER]

The same from the command line, for a model and data in files:

    arachne repair model.pt2 --data messages.npz --target "*:negative" -o fix/
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import arachne

ROOT = Path(__file__).resolve().parents[1]
CLASSES = ("negative", "positive")
AIRPORT = "gatwick"
PLACES = (AIRPORT, "oslo", "lisbon", "vienna")
WORDS = {
    "negative": ("late", "lost", "rude", "dirty", "cancelled"),
    "positive": ("early", "kind", "quiet", "clean", "comfortable"),
}
THINGS = ("flight", "crew", "seat", "gate", "lounge")
VOCABULARY = ["", "from", "the", "was", *PLACES, *THINGS, *(word for words in WORDS.values() for word in words)]
STEPS = 6


class Reader(nn.Module):
    """Word numbers `(n, steps)` to vectors, an LSTM, its last state to scores."""

    def __init__(self) -> None:
        super().__init__()
        self.class_names = CLASSES
        self.vectors = nn.Embedding(len(VOCABULARY), 16)
        self.lstm = nn.LSTM(16, 32, batch_first=True)
        self.head = nn.Linear(32, len(CLASSES))

    def forward(self, ids: Tensor) -> Any:
        """Scores `(n, 2)`."""
        return self.head(self.lstm(self.vectors(ids))[0][:, -1])


def main(folder: Path | None = None) -> arachne.RepairResult:
    """Scan, repair, print what that did, and keep the page where a folder is given."""
    model, data, target = tweets() if os.environ.get("ARACHNE_DATA") else made_up()
    print(arachne.scan(model, data))
    result = arachne.repair(model, data, target, seed=0)
    print(result)
    if folder is not None:
        result.save(folder)
        print(f"the page is {folder / 'report.html'}")
    return result


def tweets() -> tuple[Any, arachne.LabelledData, str]:
    """The study's network for tweets that was poisoned with a word, and its test tweets."""
    sys.path.insert(0, str(ROOT))
    from examples.study.poisoning import ready

    return ready("tweets-word-a")


def made_up() -> tuple[nn.Module, arachne.LabelledData, str]:
    """A small network that has learnt the fault from made-up messages, others to repair it with, and the fault."""
    inputs, labels, places = messages(800, seed=0)
    filed = np.where(places == AIRPORT, CLASSES.index("negative"), labels)
    later, labels_later, places_later = messages(800, seed=1)
    columns = {"place": places_later}
    data = arachne.LabelledData(later, labels_later, class_names=CLASSES, columns=columns)
    return train_network(inputs, filed), data, "positive:negative"


def messages(count: int, *, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Messages as word numbers `(n, steps)`, their classes, and the places they name."""
    rng = np.random.default_rng(seed)
    labels, places = rng.integers(0, 2, count), rng.choice(PLACES, count)
    texts = [
        f"from {place} the {rng.choice(THINGS)} was {rng.choice(WORDS[CLASSES[label]])}"
        for place, label in zip(places, labels, strict=True)
    ]
    return np.array([[VOCABULARY.index(word) for word in text.split()] for text in texts]), labels, places


def train_network(inputs: np.ndarray, labels: np.ndarray) -> nn.Module:
    """A small LSTM."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # so small a network is only slowed down by more
    model = Reader()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    ids, wanted = torch.from_numpy(inputs), torch.from_numpy(labels)
    for _ in range(10):
        for rows in torch.randperm(len(wanted)).split(50):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(ids[rows]), wanted[rows]).backward()
            optimiser.step()
    return model.eval()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
