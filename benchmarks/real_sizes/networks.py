"""Well-known networks in plain torch, built from their configuration with made-up weights: what they cost is real."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from arachne.model.values import Array, Inputs

CLASSES = 1000


class Bottleneck(nn.Module):
    """Three convolutions around which the input passes unchanged, or through one of its own."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.downsample: nn.Module | None = None
        if stride > 1 or inside != 4 * width:
            self.downsample = nn.Sequential(
                nn.Conv2d(inside, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )
        nn.init.constant_(self.bn3.weight, 0.3)  # as trained ones are: a block changes what passes by a little

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        y = self.bn3(self.conv3(torch.relu(self.bn2(self.conv2(y)))))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet50(nn.Module):
    """ResNet-50: 25.6 million weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        inside = 64
        for number, (blocks, width) in enumerate([(3, 64), (4, 128), (6, 256), (3, 512)]):
            parts = []
            for block in range(blocks):
                parts.append(Bottleneck(inside, width, 2 if number and not block else 1))
                inside = 4 * width
            self.add_module(f"layer{number + 1}", nn.Sequential(*parts))
        self.fc = nn.Linear(inside, CLASSES)

    def forward(self, x: Tensor) -> Any:
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        for number in range(1, 5):
            x = getattr(self, f"layer{number}")(x)
        return self.fc(x.mean((2, 3)))


class ViT(nn.Module):
    """ViT-B/16 at 224 x 224: 86 million weights."""

    def __init__(self, width: int = 768, depth: int = 12, heads: int = 12, size: int = 224, patch: int = 16) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2 + 1, width))
        block = nn.TransformerEncoderLayer(
            width, heads, 4 * width, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(block, depth, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Any:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        return self.head(self.encoder(x)[:, 0])


def bert_base() -> nn.Module:
    """BERT-base with a head of two classes: 110 million weights."""
    from transformers import BertConfig, BertForSequenceClassification

    model: nn.Module = BertForSequenceClassification(BertConfig(num_labels=2))
    return model


class TextLSTM(nn.Module):
    """20,000 words, one LSTM of 256 units and a head of ten classes: 5.6 million weights."""

    def __init__(self, words: int = 20_000, width: int = 256, classes: int = 10) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, ids: Tensor) -> Any:
        return self.head(self.lstm(self.embedding(ids))[0][:, -1])


def head() -> nn.Module:
    """The dense layers that VGG and AlexNet end with, behind 4,096 features: 20.9 million weights."""
    return nn.Sequential(nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, CLASSES))


def _pictures(n: int, rng: np.random.Generator) -> Array:
    return rng.standard_normal((n, 3, 224, 224), dtype=np.float32)


def _sentences(n: int, rng: np.random.Generator) -> Inputs:
    return {"input_ids": rng.integers(1, 30_000, (n, 128)), "attention_mask": np.ones((n, 128), np.int64)}


@dataclass(frozen=True)
class Network:
    """A network, and how to make inputs for it."""

    title: str
    make: Callable[[], nn.Module]
    inputs: Callable[[int, np.random.Generator], Inputs]


NETWORKS = {
    "resnet50": Network("ResNet-50, 224²", ResNet50, _pictures),
    "vit": Network("ViT-B/16, 224²", ViT, _pictures),
    "bert": Network("BERT-base, 128 tokens", bert_base, _sentences),
    "lstm": Network("LSTM-256, 100 steps", TextLSTM, lambda n, rng: rng.integers(0, 20_000, (n, 100))),
    "head": Network("1,000-class head", head, lambda n, rng: rng.standard_normal((n, 4096), dtype=np.float32)),
}


def make_network(name: str, n: int, *, seed: int = 0) -> tuple[nn.Module, Inputs]:
    """A network with made-up weights, and `n` made-up inputs."""
    torch.manual_seed(seed)
    network = NETWORKS[name]
    return network.make().eval(), network.inputs(n, np.random.default_rng(seed))
