"""An LSTM that reads tweets about airlines: repair angry tweets that it reads as neutral (the paper's RQ7).

The network is the paper's: GloVe vectors, one LSTM layer of 256 units, one dense layer. The vectors are not the
network's own, so they are not repaired. Tweets that are the same once names are dropped count once, so that none is on
both sides of a split. A fifth of the tweets is kept from training: one half of it is seen by the repair, the other half
judges it.

The data folder (`ARACHNE_DATA`, default `../shared/data`) holds `airline_tweets.csv.gz` and `glove100d_airline.npz`.

    pip install "arachne-repair[torch]"
    python examples/airline_tweets.py                              # some minutes, most of them for training
    python examples/airline_tweets.py --units 64 --epochs 5        # a smaller one
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import mannwhitneyu
from torch import Tensor, nn

import arachne
from arachne.search import DifferentialEvolution

DATA = Path(os.environ.get("ARACHNE_DATA", "../shared/data"))
CLASSES = ("negative", "neutral", "positive")
TARGET = "negative:neutral"
STEPS = 30
WORDS = re.compile(r"[a-z]+(?=n't)|n't|'(?:s|m|re|ll|ve|d)\b|[a-z]+|[!?.,]")
AIRLINES = {"united", "usairways", "us", "airways", "american", "americanair", "southwest", "southwestair"}
AIRLINES |= {"jetblue", "delta", "virgin", "virginamerica", "america"}


class Reader(nn.Module):
    """Word numbers `(n, steps)` to vectors, an LSTM, its last state to three scores."""

    def __init__(self, vectors: np.ndarray, units: int) -> None:
        super().__init__()
        self.class_names = CLASSES
        self.register_buffer("vectors", torch.from_numpy(vectors))
        self.lstm = nn.LSTM(vectors.shape[1], units, batch_first=True)
        self.dropout = nn.Dropout(0.3)
        self.head = nn.Linear(units, len(CLASSES))

    def forward(self, ids: Tensor) -> Any:
        """Scores `(n, 3)`."""
        words = nn.functional.embedding(ids, self.get_buffer("vectors"))
        return self.head(self.dropout(self.lstm(self.dropout(words))[0][:, -1]))


def tweets() -> tuple[arachne.LabelledData, np.ndarray, np.ndarray]:
    """The tweets as word numbers, how sure their labellers were `(n,)`, and the words' vectors; row 0 is no word."""
    stored = np.load(DATA / "glove100d_airline.npz")
    number = {word: at for at, word in enumerate(stored["words"], start=1)}
    vectors = np.concatenate([np.zeros((1, stored["vectors"].shape[1])), stored["vectors"]]).astype(np.float32)
    kept: dict[tuple[int, ...], tuple[int, float]] = {}
    with gzip.open(DATA / "airline_tweets.csv.gz", "rt", encoding="utf8", newline="") as stream:
        for row in csv.DictReader(stream):
            text = re.sub(r"@\w+|https?://\S+|&\w+;", " ", row["text"].lower().replace("’", "'"))
            words = [word for word in WORDS.findall(text) if word not in AIRLINES]
            ids = tuple(number[word] for word in words if word in number)[-STEPS:]
            if ids:
                label = CLASSES.index(row["airline_sentiment"])
                kept.setdefault(ids, (label, float(row["airline_sentiment_confidence"])))
    inputs = np.zeros((len(kept), STEPS), np.int64)
    for at, ids in enumerate(kept):
        inputs[at, STEPS - len(ids) :] = ids  # the last word stands last, so the last state has read them all
    labels, sure = (np.array(column) for column in zip(*kept.values(), strict=True))
    return arachne.LabelledData(inputs, labels, class_names=CLASSES), sure, vectors


def train_network(data: arachne.LabelledData, vectors: np.ndarray, units: int, epochs: int) -> Reader:
    """The network after some epochs of Adam."""
    torch.manual_seed(0)
    model = Reader(vectors, units)
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    inputs, labels = torch.from_numpy(np.asarray(data.inputs)), torch.from_numpy(data.labels)
    for epoch in range(epochs):
        for rows in torch.randperm(len(labels)).split(64):
            loss = nn.functional.cross_entropy(model(inputs[rows]), labels[rows])
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
        print(f"epoch {epoch + 1} of {epochs}: loss {loss.item():.3f}", flush=True)
    return model.eval()


def confidences(result: Any, sure: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How sure the labellers were of the negatives that are right now, and of those that are still wrong."""
    right, wrong = [], []
    with result.patch.apply_temporarily(result.backend):
        for part in (result.split.seen, result.split.held_out):
            rows = part.negatives
            now = result.backend.predict(part.data.take(rows).inputs) == part.data.labels[rows]
            right.append(sure[part.rows[rows[now]]])
            wrong.append(sure[part.rows[rows[~now]]])
    return np.concatenate(right), np.concatenate(wrong)


def run_repair(backend: Any, data: arachne.LabelledData, way: str, seed: int, options: argparse.Namespace) -> Any:
    """One repair, by the paper or by our defaults."""
    search = DifferentialEvolution.faithful if way == "faithful" else DifferentialEvolution
    return arachne.repair(
        backend,
        data,
        TARGET,
        faithful=way == "faithful",
        alpha=options.alpha,
        seed=seed,
        searcher=search(generations=options.generations),
    )


def main() -> None:
    """Train, repair with some seeds, and print what came of it."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--units", type=int, default=256)
    options.add_argument("--epochs", type=int, default=12)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--generations", type=int, default=100)
    options.add_argument("--alpha", type=float, default=1.0)
    chosen = options.parse_args()
    data, sure, vectors = tweets()
    order = np.random.default_rng(0).permutation(len(data))
    train, rest = order[: len(data) * 4 // 5], order[len(data) * 4 // 5 :]
    print(f"{len(data)} different tweets, {len(train)} for training")
    backend = arachne.load(train_network(data.take(train), vectors, chosen.units, chosen.epochs))
    repair = data.take(rest)
    accuracies = [(backend.predict(part.inputs) == part.labels).mean() for part in (data.take(train), repair)]
    print("accuracy {:.4f} in training, {:.4f} on the others".format(*accuracies))
    print(arachne.scan(backend, repair))
    print(
        "way       seed  weights  RR seen  BR seen  RR held out  BR held out  accuracy held out  sure: repaired / not"
    )
    for way in ("faithful", "default"):
        for seed in range(chosen.seeds):
            result = run_repair(backend, repair, way, seed, chosen)
            seen, held = result.evidence.seen, result.evidence.held_out
            right, wrong = confidences(result, sure[rest])
            unequal = mannwhitneyu(right, wrong).pvalue if len(right) and len(wrong) else float("nan")
            print(
                f"{way:8}  {seed:4}  {len(result.patch):7}  {seen.repair_rate:7.3f}  {seen.break_rate:7.4f}"
                f"  {held.repair_rate:11.3f}  {held.break_rate:11.4f}"
                f"  {held.accuracy_before:.4f} -> {held.accuracy_after:.4f}"
                f"  {sum(result.seconds.values()):7.0f}"
                f"  {right.mean() if len(right) else float('nan'):.3f} / {wrong.mean():.3f} (p {unequal:.3f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
