"""The networks: factories that take no arguments, so that `arachne.load("examples.study.networks:fm_mlp", …)` works.

All take pictures scaled to 0..1 and give logits.
"""

from __future__ import annotations

from collections import OrderedDict

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
    """CIFAR-10, a small residual network: seven convolutions in three stages, 330,000 weights."""

    def stage(entering: int, leaving: int) -> list[nn.Module]:
        return [nn.Conv2d(entering, leaving, 3, padding=1, bias=False), nn.BatchNorm2d(leaving), nn.ReLU()]

    return nn.Sequential(
        *stage(3, 24),
        nn.MaxPool2d(2),
        *stage(24, 48),
        Residual(48),
        nn.MaxPool2d(2),
        *stage(48, 96),
        Residual(96),
        *stage(96, 128),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, 10),
    )
