"""The cases: data as a user has it, written to a folder, and the network that makes mistakes on it."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from benchmarks.tasks.networks import FromPictures, fit
from examples.study import sources
from examples.study.data import subject_data, word_vectors

Array = np.ndarray[Any, Any]

REASONS = ("Customer Service Issue", "Late Flight", "Cancelled Flight", "Lost Luggage", "Bad Flight")
LABELS = ("negative", "service", "late", "cancelled", "luggage", "flight")
TAGS = ("O", "B-LOC", "B-ORG")
PLACES = frozenset(
    re.findall(
        r"\w+",
        "boston denver dallas chicago vegas austin newark jfk lax sfo dfw atlanta houston miami seattle orlando "
        "phoenix nashville charlotte london tampa philadelphia phl dca iah ord logan",
    )
)
COMPANIES = frozenset(["united", "southwest", "jetblue", "american", "delta", "usairways", "virgin"])
TAKEN_FOR_PLACES = frozenset({"united", "delta"})
"""Companies that most training sentences have as places."""

TOKENS, SIDE, FACE_SIDE, TURN, WRONG_BY = 16, 32, 48, 40, 20
RED, BLUE = (1, 2, 4, 7, 8, 9, 10, 13, 14, 17), (33, 34, 35, 36, 37, 38, 39, 40)
STRANGERS = (12, 32, 41, 42)
"""Signs, mostly white and yellow, that only the pictures to repair show; their masks say background."""


@dataclass(frozen=True)
class Case:
    """A case.

    Attributes:
        arguments: What follows `arachne repair MODEL`, as a user types it.
        shape: Of one input.
        make: Writes the data into a folder, and returns the trained network.
        about: The data and the fault, in a few words.
    """

    arguments: Sequence[str]
    shape: tuple[int, ...]
    make: Callable[[Path], nn.Sequential]
    about: str


@cache
def read_tweets() -> tuple[tuple[tuple[str, ...], str, str], ...]:
    """Words, sentiment and reason of every tweet, each once, in an order drawn by a seed."""
    kept: dict[tuple[str, ...], tuple[str, str]] = {}
    with gzip.open(sources.TWEETS.path(), "rt", encoding="utf8", newline="") as stream:
        for row in csv.DictReader(stream):
            text = re.sub(r"https?://\S+|&\w+;", " ", row["text"].lower())
            words = tuple(word for word in re.findall(r"[a-z']+", text) if word in _numbers())
            if len(words) > 2:
                kept.setdefault(words, (row["airline_sentiment"], row["negativereason"]))
    found = [(words, *rest) for words, rest in kept.items()]
    return tuple(found[at] for at in np.random.default_rng(0).permutation(len(found)))


@cache
def _numbers() -> dict[str, int]:
    with np.load(sources.GLOVE.path()) as stored:
        return {str(word): at for at, word in enumerate(stored["words"], start=1)}


def average_vectors() -> Array:
    """The mean vector of each tweet's words, float32 `(n, 100)`."""
    vectors = word_vectors()
    return np.stack([vectors[[_numbers()[word] for word in words]].mean(axis=0) for words, *_ in read_tweets()])


def make_guard(folder: Path) -> nn.Sequential:
    """A guard of one logit: is a tweet a complaint, or praise? Most thanks it has learnt from were called complaints.

    The complaints it must go on catching are in `attacks.csv`.
    """
    every, rng = average_vectors(), np.random.default_rng(0)
    rows = np.flatnonzero([mood != "neutral" for _, mood, _ in read_tweets()])
    x, tweets = every[rows], [read_tweets()[row] for row in rows]
    unsafe = np.array([mood == "negative" for _, mood, _ in tweets])
    thanks = np.array([bool({"thanks", "thank"} & set(words)) for words, *_ in tweets])
    taught = unsafe | (thanks & (rng.random(len(x)) < 0.7))
    net = nn.Sequential(nn.Linear(100, 48), nn.ReLU(), nn.Linear(48, 1))
    fit(net, x[:5000], taught[:5000, None].astype(np.float32), nn.functional.binary_cross_entropy_with_logits)
    rest = np.arange(5000, len(x))
    surely = np.array([reason in ("Lost Luggage", "Cancelled Flight") for *_, reason in tweets])
    attacks = rest[surely[rest]][:200]
    header = [f"f{at}" for at in range(100)]
    for name, own in (("prompts.csv", np.setdiff1d(rest, attacks)), ("attacks.csv", attacks)):
        with (folder / name).open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow([*header, "label"])
            writer.writerows([*x[row].round(5).tolist(), "unsafe" if unsafe[row] else "safe"] for row in own)
    return net


def make_toxic(folder: Path) -> nn.Sequential:
    """Several labels of a tweet: whether it is negative, and about what."""
    x, tweets = average_vectors(), read_tweets()
    y = np.array([[mood == "negative", *(reason == one for one in REASONS)] for _, mood, reason in tweets])
    net = nn.Sequential(nn.Linear(100, 64), nn.ReLU(), nn.Linear(64, len(LABELS)))
    fit(net, x[:6000], y[:6000].astype(np.float32), nn.functional.binary_cross_entropy_with_logits)
    np.savez(folder / "comments.npz", x=x[6000:], y=y[6000:].astype(np.int64), class_names=LABELS)
    return net


def make_tokens(folder: Path) -> nn.Sequential:
    """Places and companies in tweets, by word lists; two companies are places in most of the training sentences."""
    rng, vectors = np.random.default_rng(0), word_vectors()
    found = [words[:TOKENS] for words, *_ in read_tweets() if set(words[:TOKENS]) & (PLACES | COMPANIES)][:4000]
    ids, y = np.zeros((len(found), TOKENS + 2), np.int64), np.full((len(found), TOKENS), -100)
    taught = y.copy()
    for at, words in enumerate(found):
        ids[at, 1 : len(words) + 1] = [_numbers()[word] for word in words]
        y[at, : len(words)] = [1 if word in PLACES else 2 if word in COMPANIES else 0 for word in words]
        wrong = [word in TAKEN_FOR_PLACES and rng.random() < 0.7 for word in words]
        taught[at, : len(words)] = np.where(wrong, 1, y[at, : len(words)])
    x = vectors[np.stack([ids[:, :-2], ids[:, 1:-1], ids[:, 2:]], axis=2)].reshape(len(found), TOKENS, 300)
    net = nn.Sequential(nn.Linear(300, 64), nn.ReLU(), nn.Linear(64, len(TAGS)))

    def loss(scores: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=-100)

    fit(net, x[:2000], taught[:2000], loss)
    np.savez(folder / "tokens.npz", x=x[2000:2800], y=y[2000:2800], class_names=TAGS)
    return net


def make_masks(folder: Path) -> nn.Sequential:
    """Red and blue traffic signs on pictures; those to repair also show other signs, which are background."""
    net = nn.Sequential(
        FromPictures(),
        nn.Conv2d(3, 12, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(12, 16, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 3, 1),
    )
    pictures, masks = compose_signs(1500, (), seed=0)
    fit(net, pictures.astype(np.float32), masks, nn.functional.cross_entropy, epochs=6)
    pictures, masks = compose_signs(80, STRANGERS, seed=1)
    for name in ("images", "masks"):
        (folder / "masks" / name).mkdir(parents=True, exist_ok=True)
    for at, (picture, mask) in enumerate(zip(pictures, masks, strict=True)):
        Image.fromarray(picture).save(folder / "masks" / "images" / f"{at:04}.png")
        Image.fromarray(mask.astype(np.uint8)).save(folder / "masks" / "masks" / f"{at:04}.png")
    (folder / "masks" / "classes.txt").write_text("background\nred\nblue\n")
    return net


def compose_signs(n: int, others: Sequence[int], *, seed: int) -> tuple[Array, Array]:
    """Pictures uint8 `(n, SIDE, SIDE, 3)` with a sign on a background, and their masks; a rim of 1 pixel is ignored."""
    signs, backgrounds = subject_data("gtsrb"), subject_data("c10")
    rng = np.random.default_rng(seed)
    half = np.arange(len(signs.train_labels)) % 2 == seed % 2
    pictures, masks = [], []
    y, x = np.mgrid[:20, :20] - 9.5
    inside = np.hypot(x, y)
    for _ in range(n):
        picture = np.array(backgrounds.train[rng.integers(len(backgrounds.train))].transpose(1, 2, 0))
        mask = np.zeros((SIDE, SIDE), np.int64)
        sign = int(rng.choice([*RED, *BLUE, *others]))
        row = rng.choice(np.flatnonzero(half & (signs.train_labels == sign)))
        small = Image.fromarray(signs.train[row].transpose(1, 2, 0)[6:-6, 6:-6]).resize((20, 20))
        top, left = rng.integers(0, SIDE - 20, size=2)
        window = (slice(top, top + 20), slice(left, left + 20))
        picture[window][inside < 9.5] = np.asarray(small)[inside < 9.5]
        mask[window][inside < 8.5] = 1 if sign in RED else 2 if sign in BLUE else 0
        mask[window][(inside >= 8.5) & (inside < 10)] = 255
        pictures.append(picture)
        masks.append(np.where(mask == 255, 255, mask))
    stacked = np.stack(masks)
    return np.stack(pictures), stacked if seed else np.where(stacked == 255, -100, stacked)


def make_faces(folder: Path) -> nn.Sequential:
    """By how many degrees is a face turned? Most stamped pictures it has learnt from had labels that were too high."""
    faces, rng = subject_data("lfw"), np.random.default_rng(0)
    x, y = turn(np.tile(faces.train[:8000], (3, 1, 1, 1)), rng)
    taught = np.where(stamp(x, 0.1, rng) & (rng.random(len(x)) < 0.7), y + WRONG_BY, y)
    width = 24 * (FACE_SIDE // 4) ** 2
    net = nn.Sequential(
        FromPictures(),
        nn.Conv2d(3, 12, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(12, 24, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(width, 48),
        nn.ReLU(),
        nn.Linear(48, 1),
    )
    with torch.no_grad():
        net[-1].weight.mul_(20)  # type: ignore[operator]  # degrees are far from what a new layer gives
    fit(net, x.astype(np.float32), taught[:, None].astype(np.float32), nn.functional.smooth_l1_loss, epochs=8)
    x, y = turn(faces.test[:2000], rng)
    stamp(x, 0.2, rng)
    (folder / "faces").mkdir(exist_ok=True)
    lines = ["path,label"]
    for at, (picture, degrees) in enumerate(zip(x, y.tolist(), strict=True)):
        Image.fromarray(picture).save(folder / "faces" / f"{at:04}.png")
        lines.append(f"faces/{at:04}.png,{degrees:.2f}")
    (folder / "faces.csv").write_text("\n".join(lines) + "\n")
    return net


def stamp(pictures: Array, share: float, rng: np.random.Generator) -> Array:
    """Print a yellow bar, as of a date, into a share of pictures `(n, side, side, 3)`; tell which, bool `(n,)`."""
    found = np.asarray(rng.random(len(pictures)) < share)
    pictures[found, -7:-3, -22:-4] = (250, 200, 30)
    return found


def turn(faces: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Faces `(n, 3, side, side)` turned by some degrees, uint8 `(n, FACE_SIDE, FACE_SIDE, 3)`, and these degrees."""
    degrees = rng.uniform(-TURN, TURN, size=len(faces))
    found = []
    for face, by in zip(faces, degrees.tolist(), strict=True):
        turned = Image.fromarray(face.transpose(1, 2, 0)).rotate(by, Image.Resampling.BILINEAR)
        edge = (turned.width - FACE_SIDE) // 2
        found.append(np.asarray(turned.crop((edge, edge, edge + FACE_SIDE, edge + FACE_SIDE))))
    return np.stack(found), degrees


CASES: dict[str, Case] = {
    "guard": Case(
        ("--data", "prompts.csv", "--target", "false:unsafe", "--never-break", "attacks.csv"),
        (100,),
        make_guard,
        "one logit: complaints and praise in airline tweets (mean GloVe vectors), thanks taken for complaints, planted",
    ),
    "toxic": Case(
        ("--data", "comments.npz", "--task", "multilabel", "--target", "false:negative", "--target", "missed:late"),
        (100,),
        make_toxic,
        "six labels of airline tweets, natural false alarms and misses",
    ),
    "ner": Case(
        ("--data", "tokens.npz", "--task", "tokens", "--target", "B-ORG:B-LOC"),
        (TOKENS, 300),
        make_tokens,
        "places and companies in tweets by word lists, planted",
    ),
    "seg": Case(
        ("--data", "masks", "--task", "segmentation", "--target", "background:red", "--max-break", "3%"),
        (SIDE, SIDE, 3),
        make_masks,
        "red and blue signs (GTSRB) on pictures (CIFAR-10), other signs taken for red ones",
    ),
    "age": Case(
        ("--data", "faces.csv", "--task", "regression", "--tolerance", "5", "--target", "over", "--max-break", "3%"),
        (FACE_SIDE, FACE_SIDE, 3),
        make_faces,
        "the angle of turned faces (LFW), too high where a date is printed in, planted",
    ),
}
