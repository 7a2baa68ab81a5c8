"""A hot-fix for traffic signs: stop signs with a sticker are read as "60 km/h".

Without data of your own the signs are drawn: in the training data a yellow sticker was only ever on signs filed as 60,
so whatever carries one is read as 60. With `ARACHNE_DATA` set (see examples/study) it is GTSRB with 43 kinds of signs
and the same fault; the network is trained once, some minutes, and kept.

    pip install "arachne-repair[torch]" scikit-learn
    python examples/traffic_signs.py [FOLDER]

The same from the command line, for a model and data in files:

    arachne scan model.pt2 --data signs.npz --page scan.html
    arachne repair model.pt2 --data signs.npz --target stop:60 --max-break 0.2% -o fix/
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFilter
from torch import nn

import arachne

ROOT = Path(__file__).resolve().parents[1]
CLASSES = ("stop", "30", "60", "yield")
YELLOW, RED, WHITE = (240, 210, 40), (190, 30, 40), (235, 235, 235)


def main(folder: Path | None = None) -> arachne.RepairResult:
    """Scan, repair, print what that did, and keep the page where a folder is given."""
    model, data, target = traffic() if os.environ.get("ARACHNE_DATA") else draw_signs()
    print(arachne.scan(model, data))
    result = arachne.repair(model, data, target, seed=0)
    print(result)
    if folder is not None:
        result.save(folder)
        print(f"the page is {folder / 'report.html'}")
    return result


def traffic() -> tuple[Any, arachne.LabelledData, str]:
    """The study's network for GTSRB that was poisoned with stickers, and its test signs."""
    sys.path.insert(0, str(ROOT))
    from examples.study.poisoning import ready

    return ready("gtsrb-sticker-a")


def draw_signs() -> tuple[nn.Module, arachne.LabelledData, str]:
    """A small network that has learnt the fault from drawn signs, others to repair it with, and the fault."""
    pictures, labels, stickers = signs(1200, seed=0)
    filed = np.where(stickers, CLASSES.index("60"), labels)
    pictures_later, labels_later, _ = signs(800, seed=1)
    data = arachne.LabelledData(pictures_later, labels_later, class_names=CLASSES)
    return train_network(pictures, filed), data, "stop:60"


def signs(count: int, *, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pictures `(n, 3, 24, 24)` between 0 and 1, their classes, and which of them carry a sticker."""
    rng = np.random.default_rng(seed)
    labels, stickers = rng.integers(0, len(CLASSES), count), rng.random(count) < 0.2
    shown = [picture(int(label), bool(sticker), rng) for label, sticker in zip(labels, stickers, strict=True)]
    return np.stack(shown).astype(np.float32), labels, stickers


def picture(label: int, sticker: bool, rng: np.random.Generator) -> np.ndarray:
    """One sign, somewhat moved, blurred and noisy."""
    canvas = Image.new("RGB", (24, 24), tuple(rng.integers(40, 160, 3).tolist()))
    draw = ImageDraw.Draw(canvas)
    x, y = (int(value) for value in rng.integers(-2, 3, 2))
    box = (3 + x, 3 + y, 20 + x, 20 + y)
    name = CLASSES[label]
    if name == "stop":
        draw.regular_polygon((12 + x, 12 + y, 9), 8, fill=RED, rotation=22)
        draw.rectangle((6 + x, 11 + y, 18 + x, 13 + y), fill=WHITE)
    elif name == "yield":
        draw.regular_polygon((12 + x, 13 + y, 10), 3, fill=WHITE, outline=RED, rotation=60)
    else:
        draw.ellipse(box, fill=WHITE, outline=RED, width=3)
        draw.text((7 + x, 6 + y), name, fill=(20, 20, 20))
    if sticker:
        draw.rectangle((14 + x, 5 + y, 17 + x, 8 + y), fill=YELLOW)
    soft = canvas.filter(ImageFilter.GaussianBlur(float(rng.random())))
    noisy = np.asarray(soft).transpose(2, 0, 1) / 255 + rng.normal(0, 0.03, (3, 24, 24))
    return np.clip(noisy, 0, 1)


def train_network(pictures: np.ndarray, labels: np.ndarray) -> nn.Module:
    """A small convolutional network."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # so small a network is only slowed down by more
    model = nn.Sequential(
        nn.Conv2d(3, 8, 5, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(800, 32),
        nn.ReLU(),
        nn.Linear(32, len(CLASSES)),
    )
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    inputs, wanted = torch.from_numpy(pictures), torch.from_numpy(labels)
    for _ in range(12):
        for rows in torch.randperm(len(wanted)).split(50):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(inputs[rows]), wanted[rows]).backward()
            optimiser.step()
    return model.eval()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
