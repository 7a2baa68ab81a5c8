"""The networks of the rows, trained for some seconds, with their data; those without a data set are made up.

Pictures of traffic signs, CIFAR-10 and tweets come from the study's data (`ARACHNE_DATA`), Fashion-MNIST from Debian's
package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import arachne
from arachne.data.labelled import LabelledData
from arachne.model.values import Array, Inputs, take
from benchmarks.real_sizes import networks, repairing
from benchmarks.subjects import SUBJECTS, make_subject
from examples.study import data as study

TRAINED = 6000
"""How many inputs a network is trained on, where it is trained."""

FITTED, PICTURE_NOISE, MARK = 320, 0.5, 6.0
"""How many inputs the last layer of made-up weights is fitted to, the noise in a made-up picture, and the grey of a
square in some of them."""

Made = tuple[Any, LabelledData]
"""A network, or the path of its file, and the data to repair it with."""


class Sign(nn.Module):
    """Gives -1 or 1; while training, the gradient passes where the input is small."""

    def forward(self, x: Tensor) -> Tensor:
        hard = torch.sign(x)
        return hard if not self.training else hard.detach() + x.clamp(-1, 1) - x.clamp(-1, 1).detach()


class TwoOutputs(nn.Module):
    """A network for Fashion-MNIST that gives class scores and the features they are made of."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(32, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        )
        self.hidden = nn.Linear(2304, 600)
        self.more = nn.Linear(600, 120)
        self.out = nn.Linear(120, 10)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = torch.relu(self.more(torch.relu(self.hidden(self.body(x)))))
        return self.out(features), features


def bert() -> Made:
    """BERT with 2 layers of 64 units on 1,600 tweets."""
    from transformers import BertConfig, BertForSequenceClassification

    tweets, words = _tweets()
    config = BertConfig(
        vocab_size=words, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256
    )
    config.num_labels = 3
    network = BertForSequenceClassification(config)
    ids = tweets.train[:TRAINED]
    train(network, {"input_ids": ids, "attention_mask": (ids > 0).astype(np.int64)}, tweets.train_labels[:TRAINED])
    seen = tweets.test[:1600]
    inputs = {"input_ids": seen, "attention_mask": (seen > 0).astype(np.int64)}
    return network, LabelledData(inputs, tweets.test_labels[:1600])


def binary_signs() -> Made:
    """Traffic signs at 30², two convolutions of weights and outputs ±1, and a dense layer behind 23,328 of these."""
    first, second = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 32, 2)
    for layer in (first, second):
        layer.weight = nn.Parameter(torch.sign(torch.randn(layer.weight.shape)), requires_grad=False)
    body = [first, nn.BatchNorm2d(16), Sign(), second, nn.BatchNorm2d(32), Sign(), nn.Flatten()]
    network = nn.Sequential(*body, nn.Linear(32 * 27 * 27, 43))
    return _signs(network, 30, 5000)


def biasfield() -> Made:
    """CIFAR-10, three convolutions and two dense layers, as in the competitions of verifiers."""
    body = [nn.Conv2d(3, 32, 5, 2, 2), nn.ReLU(), nn.Conv2d(32, 128, 4, 2, 1), nn.ReLU(), nn.Flatten()]
    network = nn.Sequential(*body, nn.Linear(128 * 8 * 8, 250), nn.ReLU(), nn.Linear(250, 10))
    images = study.cifar10()
    x, y = study.scale_inputs(images.train[:TRAINED]), images.train_labels[:TRAINED]
    train(network, x, y)
    return network, LabelledData(study.scale_inputs(images.test[:5000]), images.test_labels[:5000])


def signs_with_norm() -> Made:
    """Traffic signs at 48², three convolutions with batch norm and two dense layers."""
    body: list[nn.Module] = []
    for inside, width in ((3, 32), (32, 64), (64, 64)):
        body += [nn.Conv2d(inside, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)]
    return _signs(nn.Sequential(*body, nn.Flatten(), nn.Linear(2304, 256), nn.ReLU(), nn.Linear(256, 43)), 48, 3000)


def signs() -> Made:
    """Traffic signs at 48², one convolution of 16 channels and a dense layer of 512: 183 MB of inputs."""
    body = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return _signs(nn.Sequential(*body, nn.Linear(16 * 24 * 24, 512), nn.ReLU(), nn.Linear(512, 43)), 48, 6600)


def two_outputs(folder: Path, *, onnx: bool) -> Made:
    """Fashion-MNIST, two outputs, as a module or as an ONNX file."""
    network, fashion = TwoOutputs(), study.fashion()
    train(network, study.scale_inputs(fashion.train[:TRAINED]), fashion.train_labels[:TRAINED])
    data = LabelledData(study.scale_inputs(fashion.test), fashion.test_labels)
    if not onnx:
        return arachne.load(network, output="0"), data
    path = folder / "two.onnx"
    torch.onnx.export(
        network,
        (torch.zeros(2, 1, 28, 28),),
        str(path),
        dynamo=False,
        input_names=["x"],
        output_names=["scores", "features"],
        dynamic_axes={"x": {0: "n"}, "scores": {0: "n"}, "features": {0: "n"}},
    )
    return arachne.load(path, output="scores"), data


class Lstm(nn.Module):
    """An LSTM of 64 units and a dense layer named `out`."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, 64, batch_first=True)
        self.out = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.out(self.lstm(x)[0][:, -1])
        return found


def sequences() -> Made:
    """5,000 made-up sequences of 20 steps and 6 kinds, one of which was often filed as another while training."""
    from benchmarks.threads import CLASSES, WIDTH, make_sequences

    x, labels, filed = make_sequences(5000)
    network = Lstm(WIDTH, CLASSES)
    train(network, x, filed, epochs=2)
    return network, LabelledData(x, labels)


def subject(name: str, inputs: int) -> Made:
    """One of the subjects of the evaluator's benchmark, with another number of inputs."""
    return make_subject(next(one for one in SUBJECTS if one.name == name), inputs)


def vit(inputs: int) -> Made:
    """ViT-B/16 at 224² with made-up weights and pictures of 20 kinds; half of the first kind have a grey square."""
    from benchmarks.subjects import smooth

    rng = np.random.default_rng(0)
    centres = smooth(rng.standard_normal((repairing.CLASSES, 3, 224, 224), dtype=np.float32))
    kinds = rng.integers(repairing.CLASSES, size=inputs)
    pictures = np.empty((inputs, 3, 224, 224), np.float32)
    for number, kind in enumerate(kinds):
        pictures[number] = centres[kind] + PICTURE_NOISE * rng.standard_normal((3, 224, 224), dtype=np.float32)
    marked = (kinds == 0) & (rng.random(inputs) < 1 / 2)
    pictures[marked, :, :64, :64] = MARK
    return _fit_last(networks.ViT().eval(), pictures, kinds, marked, networks.CLASSES, 16)


def bert_base(inputs: int) -> Made:
    """BERT-base with made-up weights, sentences of 128 words of two kinds; a tenth of the first has other words too."""
    rng = np.random.default_rng(0)
    kinds = rng.integers(2, size=inputs)
    words = rng.integers(1, 30_000, (inputs, 128))
    words[:, ::4] = 100 * (1 + kinds[:, None]) + rng.integers(0, 100, (inputs, 32))
    marked = (kinds == 0) & (rng.random(inputs) < 1 / 10)
    words[marked, 1::4] = 20_000 + rng.integers(0, 100, (int(marked.sum()), 32))
    sentences = {"input_ids": words, "attention_mask": np.ones_like(words)}
    return _fit_last(networks.bert_base().eval(), sentences, kinds, marked, 2, 8)


def _fit_last(network: nn.Module, inputs: Inputs, kinds: Array, marked: Array, classes: int, batch: int) -> Made:
    """Fit the last layer to the first inputs; the marked ones among them are filed as the second kind."""
    from benchmarks.subjects import fit_last

    last = [layer for layer in network.modules() if isinstance(layer, nn.Linear)][-1]
    entering: list[Tensor] = []
    handle = last.register_forward_pre_hook(lambda _, given: entering.append(given[0]))
    with torch.no_grad():
        for start in range(0, FITTED, batch):
            _call(network, take(inputs, slice(start, start + batch)))
    handle.remove()
    filed = np.where(marked, 1, kinds)[:FITTED]
    fit_last(nn.Sequential(last), torch.cat(entering).numpy(), filed, classes=classes)
    return network, LabelledData(inputs, kinds)


def _signs(network: nn.Module, size: int, inputs: int) -> Made:
    from PIL import Image

    def resize(pictures: Array) -> Array:
        if size == pictures.shape[-1]:
            return study.scale_inputs(pictures)
        small = [Image.fromarray(one.transpose(1, 2, 0)).resize((size, size)) for one in pictures]
        return study.scale_inputs(np.stack([np.asarray(one).transpose(2, 0, 1) for one in small]))

    found = study.gtsrb()
    rows = np.random.default_rng(0).permutation(len(found.train))[:TRAINED]
    train(network, resize(found.train[rows]), found.train_labels[rows])
    rows = np.random.default_rng(1).permutation(len(found.test))[:inputs]
    return network, LabelledData(resize(found.test[rows]), found.test_labels[rows])


@cache
def _tweets() -> tuple[study.SubjectData, int]:
    found = study.tweets()
    return found, 1 + int(max(found.train.max(), found.test.max()))


def train(network: nn.Module, inputs: Inputs, labels: Array, epochs: int = 3) -> None:
    """Train a network for a moment by Adam."""
    network.train()
    optimiser = torch.optim.Adam(network.parameters(), 1e-3)
    for _ in range(epochs):
        order = torch.randperm(len(labels)).numpy()
        for start in range(0, len(labels), 64):
            rows = order[start : start + 64]
            optimiser.zero_grad()
            scores = _call(network, take(inputs, rows))
            torch.autograd.backward(nn.functional.cross_entropy(scores, torch.from_numpy(labels[rows])))
            optimiser.step()
    network.requires_grad_(False)
    network.eval()


def _call(network: nn.Module, inputs: Inputs) -> Tensor:
    """Return class scores, whatever else the network gives."""
    if isinstance(inputs, np.ndarray):
        found: Any = network(torch.from_numpy(inputs))
    else:
        found = network(**{name: torch.from_numpy(np.asarray(values)) for name, values in inputs.items()})
    scores: Tensor = found.logits if hasattr(found, "logits") else found[0] if isinstance(found, tuple) else found
    return scores


@dataclass(frozen=True)
class Row:
    """A repair to measure.

    Attributes:
        title: The network and its inputs, in words.
        make: Makes the network and its data; it gets a folder for files.
        before: Seconds of processor time that it took once.
        wanted: Seconds of processor time that it may take; by the clock if `by_clock`.
        wanted_bytes: How much memory it may take; None where nothing was asked.
        excluded: Layers that stay as they are.
    """

    title: str
    make: Callable[[Path], Made]
    before: float | None
    wanted: float
    wanted_bytes: float | None = None
    excluded: tuple[str, ...] = ()
    by_clock: bool = False


REPAIRS = {
    "bert": Row("BERT, 2 layers of 64, 1,600 tweets", lambda _: bert(), 140, 20),
    "binarised": Row("binarised traffic signs 30²", lambda _: binary_signs(), 106, 15, 1e9),
    "biasfield": Row("CIFAR-10, two convolutions, 5,000 inputs", lambda _: biasfield(), 48, 15, 1e9),
    "normed": Row("traffic signs 48², batch norm", lambda _: signs_with_norm(), 69, 15, 1e9),
    "two-torch": Row("Fashion-MNIST, two outputs, module", partial(two_outputs, onnx=False), 84, 20.4),
    "two-onnx": Row("Fashion-MNIST, two outputs, ONNX", partial(two_outputs, onnx=True), 13.6, 20.4),
    "signs": Row("traffic signs, conv16 + fc512", lambda _: signs(), 18, 8, 3 * 183e6),
    "lstm": Row("LSTM-64, 5,000 sequences, `--exclude out`", lambda _: sequences(), 120, 22.1, excluded=("out",)),
    "resnet18": Row("ResNet-18, 64², 1,000 seen", lambda _: subject("ResNet-18, 64×64", 2000), 118, 50),
    "resnet50": Row("ResNet-50, 224², 1,000 seen", lambda _: repairing.resnet50(2000), None, 1200, by_clock=True),
    "vit": Row("ViT-B/16, 224², 1,000 seen", lambda _: vit(2000), None, 1200, by_clock=True),
    "bert-base": Row("BERT-base, 128 words, 1,000 seen", lambda _: bert_base(2000), None, 1200, by_clock=True),
}
"""The rows by name."""
