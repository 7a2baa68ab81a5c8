"""The networks: factories that take no arguments, so that `arachne.load("examples.study.networks:fm_mlp", …)` works.

They take pictures scaled to 0..1, or word numbers, and give logits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn


def fm_mlp() -> nn.Module:
    """Fashion-MNIST, 784-100-10: the paper's."""
    return nn.Sequential(
        OrderedDict(flat=nn.Flatten(), hidden=nn.Linear(784, 100), relu=nn.ReLU(), scores=nn.Linear(100, 10))
    )


def fm_cnn() -> nn.Module:
    """Fashion-MNIST, two convolutions and two dense layers."""
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(1, 16, 3, padding=1),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(16, 32, 3, padding=1),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flat=nn.Flatten(),
            hidden=nn.Linear(32 * 7 * 7, 128),
            relu3=nn.ReLU(),
            scores=nn.Linear(128, 10),
        )
    )


def c10_cnn() -> nn.Module:
    """CIFAR-10, one convolution of 16 channels and a dense layer of 512: the paper's."""
    return _conv16_fc512(side=32, classes=10)


def gtsrb_cnn() -> nn.Module:
    """GTSRB at 48 x 48, one convolution of 16 channels and a dense layer of 512: the paper's."""
    return _conv16_fc512(side=48, classes=43)


def _conv16_fc512(side: int, classes: int) -> nn.Module:
    return nn.Sequential(
        OrderedDict(
            conv=nn.Conv2d(3, 16, 3, padding=1),
            relu1=nn.ReLU(),
            pool=nn.MaxPool2d(2),
            flat=nn.Flatten(),
            hidden=nn.Linear(16 * (side // 2) ** 2, 512),
            relu2=nn.ReLU(),
            scores=nn.Linear(512, classes),
        )
    )


def c10_cnn1() -> nn.Module:
    """CIFAR-10, Apricot's CNN1 at half its width: four convolutions and three dense layers."""
    layers = OrderedDict[str, nn.Module]()
    _convolutions(layers, 3, (32, 32, None, 64, 64, None))
    layers["flat"] = nn.Flatten()
    layers["hidden1"], layers["relu7"] = nn.Linear(64 * 8 * 8, 256), nn.ReLU()
    layers["hidden2"], layers["relu8"] = nn.Linear(256, 256), nn.ReLU()
    layers["scores"] = nn.Linear(256, 10)
    return nn.Sequential(layers)


def c10_cnn2() -> nn.Module:
    """CIFAR-10, Apricot's CNN2: five convolutions with batch normalisation and one dense layer."""
    layers = OrderedDict[str, nn.Module]()
    _convolutions(layers, 3, (32, 32, None, 64, None, 128, 128, None), normalised=True)
    layers["flat"] = nn.Flatten()
    layers["scores"] = nn.Linear(128 * 4 * 4, 10)
    return nn.Sequential(layers)


def c10_cnn3() -> nn.Module:
    """CIFAR-10, Apricot's CNN3 at a quarter of its width: seven convolutions, the mean of each map, one dense layer.

    Batch normalisation lets it learn in a few epochs. Apricot's has a 1 x 1 convolution before the mean; the dense
    layer after it computes the same.
    """
    layers = OrderedDict[str, nn.Module]()
    _convolutions(layers, 3, (24, 24, 24, None, 48, 48, 48, None, 64), normalised=True)
    layers["mean"], layers["flat"] = nn.AdaptiveAvgPool2d(1), nn.Flatten()
    layers["scores"] = nn.Linear(64, 10)
    return nn.Sequential(layers)


def _convolutions(
    layers: OrderedDict[str, nn.Module], entering: int, widths: Sequence[int | None], *, normalised: bool = False
) -> None:
    """Put 3 x 3 convolutions of these widths into `layers`, each with a ReLU; None is a pooling."""
    for at, width in enumerate(widths, 1):
        if width is None:
            layers[f"pool{at}"] = nn.MaxPool2d(2)
            continue
        layers[f"conv{at}"] = nn.Conv2d(entering, width, 3, padding=1)
        if normalised:
            layers[f"norm{at}"] = nn.BatchNorm2d(width)
        layers[f"relu{at}"] = nn.ReLU()
        entering = width


def gtsrb_idsia() -> nn.Module:
    """GTSRB, three convolutions and two dense layers in the sizes of IDSIA's winner, at half its width."""
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(3, 50, 7),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(50, 75, 4),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            conv3=nn.Conv2d(75, 125, 4),
            relu3=nn.ReLU(),
            pool3=nn.MaxPool2d(2),
            flat=nn.Flatten(),
            hidden=nn.Linear(125 * 3 * 3, 300),
            relu4=nn.ReLU(),
            scores=nn.Linear(300, 43),
        )
    )


def lfw_vgg() -> nn.Module:
    """LFW gender at 64 x 64: four stages of two convolutions in the manner of VGG, small and from scratch."""
    layers: list[nn.Module] = []
    entering = 3
    for leaving in (8, 16, 32, 64):
        layers += [nn.Conv2d(entering, leaving, 3, padding=1), nn.ReLU()]
        layers += [nn.Conv2d(leaving, leaving, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        entering = leaving
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 4 * 4, 128), nn.ReLU(), nn.Linear(128, 2))


class Reader(nn.Module):
    """Word numbers `(n, steps)` to vectors, an LSTM of 256 units, its last state to three scores.

    The vectors are not trained and so not repaired; whoever trains a reader puts them in.
    """

    vectors: Tensor

    def __init__(self, words: int = 10014, size: int = 100, units: int = 256) -> None:
        super().__init__()
        self.register_buffer("vectors", torch.zeros(words, size))
        self.lstm = nn.LSTM(size, units, batch_first=True)
        self.dropout = nn.Dropout(0.3)
        self.scores = nn.Linear(units, 3)

    def forward(self, numbers: Tensor) -> Tensor:
        """Scores `(n, 3)`."""
        words = nn.functional.embedding(numbers, self.vectors)
        scores: Tensor = self.scores(self.dropout(self.lstm(self.dropout(words))[0][:, -1]))
        return scores


def tweets_lstm() -> nn.Module:
    """Tweets, one LSTM of 256 units: the paper's."""
    return Reader()


class Residual(nn.Module):
    """Two convolutions with a way around them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        """The input plus what the two convolutions make of it, same shape."""
        inner = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(x + self.norm2(self.conv2(inner)))


def c10_resnet() -> nn.Module:
    """CIFAR-10, a small residual network: eight convolutions at three sizes, 370,000 weights."""

    def stage(name: str, entering: int, leaving: int) -> dict[str, nn.Module]:
        return {
            f"{name}_conv": nn.Conv2d(entering, leaving, 3, padding=1, bias=False),
            f"{name}_norm": nn.BatchNorm2d(leaving),
            f"{name}_relu": nn.ReLU(),
        }

    layers = {
        **stage("stem", 3, 24),
        "stem_pool": nn.MaxPool2d(2),
        **stage("wide", 24, 48),
        "wide_block": Residual(48),
        "wide_pool": nn.MaxPool2d(2),
        **stage("wider", 48, 96),
        "wider_block": Residual(96),
        **stage("widest", 96, 128),
        "pool": nn.AdaptiveAvgPool2d(1),
        "flat": nn.Flatten(),
        "scores": nn.Linear(128, 10),
    }
    return nn.Sequential(OrderedDict(layers))
