"""Networks of the usual architectures in PyTorch, small, and their ONNX files by both of torch's exporters."""

from __future__ import annotations

import io
import itertools
import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import onnx
import torch
from onnx import ModelProto
from torch import Tensor, nn
from torch.nn import functional

torch.set_num_threads(1)


class ResidualBlock(nn.Module):
    """Two convolutions around a skip connection."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.skip: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.skip = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Any:
        y = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(y + self.skip(x))


class ResNet18(nn.Module):
    """The usual eighteen layers; `width` is 64 in the original."""

    def __init__(self, width: int = 8, classes: int = 5) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.pool = nn.MaxPool2d(3, 2, 1)
        sizes = [width, width, 2 * width, 4 * width, 8 * width]
        self.stages = nn.Sequential(
            *(
                nn.Sequential(ResidualBlock(a, b, 1 if i == 0 else 2), ResidualBlock(b, b, 1))
                for i, (a, b) in enumerate(itertools.pairwise(sizes))
            )
        )
        self.fc = nn.Linear(8 * width, classes)

    def forward(self, x: Tensor) -> Any:
        x = self.stages(self.pool(functional.relu(self.bn1(self.conv1(x)))))
        return self.fc(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class InvertedResidual(nn.Module):
    """Widen, convolve each channel by itself, squeeze and excite if asked, narrow."""

    def __init__(self, before: int, after: int, stride: int, activation: Callable[[], nn.Module], excite: bool) -> None:
        super().__init__()
        wide = 3 * before
        self.widen = nn.Sequential(nn.Conv2d(before, wide, 1, bias=False), nn.BatchNorm2d(wide), activation())
        self.each = nn.Sequential(
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), activation()
        )
        squeeze = [nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, 4, 1), nn.ReLU(), nn.Conv2d(4, wide, 1), nn.Hardsigmoid()]
        self.excite = nn.Sequential(*squeeze) if excite else None
        self.narrow = nn.Sequential(nn.Conv2d(wide, after, 1, bias=False), nn.BatchNorm2d(after))
        self.skips = stride == 1 and before == after

    def forward(self, x: Tensor) -> Any:
        y = self.each(self.widen(x))
        y = self.narrow(y if self.excite is None else y * self.excite(y))
        return x + y if self.skips else y


def mobile(activation: Callable[[], nn.Module], *, excite: bool = False) -> nn.Module:
    """MobileNetV2 with ReLU6, V3 with hard swish and excitation, EfficientNet with SiLU and excitation."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1, bias=False),
        nn.BatchNorm2d(8),
        activation(),
        InvertedResidual(8, 8, 1, activation, excite),
        InvertedResidual(8, 12, 2, activation, excite),
        nn.Conv2d(12, 24, 1),
        activation(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(24, 5),
    )


def vgg() -> nn.Module:
    """VGG-11's shape: convolutions and pooling, then dense layers with dropout."""
    layers: list[nn.Module] = []
    for before, after in ((3, 8), (8, 12), (12, 12)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    head = [nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(48, 16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 5)]
    return nn.Sequential(*layers, *head)


class DenseNet(nn.Module):
    """Every layer sees all before it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(8 + 4 * i), nn.ReLU(), nn.Conv2d(8 + 4 * i, 4, 3, padding=1)) for i in range(3)
        )
        self.last = nn.Sequential(nn.BatchNorm2d(20), nn.ReLU(), nn.Conv2d(20, 10, 1), nn.AvgPool2d(2))
        self.fc = nn.Linear(10, 5)

    def forward(self, x: Tensor) -> Any:
        x = self.first(x)
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return self.fc(functional.adaptive_avg_pool2d(self.last(x), 1).flatten(1))


class ViT(nn.Module):
    """Patches, a class token, positions, two encoder layers."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, 17, width))
        layer = nn.TransformerEncoderLayer(width, 4, 32, batch_first=True, activation="gelu", norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.fc = nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Any:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        return self.fc(self.norm(self.encoder(x))[:, 0])


class Recurrent(nn.Module):
    """Tokens, an embedding, a recurrent layer, the last step."""

    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, 8)
        self.rnn = kind(8, 10, batch_first=True, **options)  # type: ignore[arg-type]  # LSTM and GRU name their mode
        self.fc = nn.Linear(20 if options.get("bidirectional") else 10, 5)

    def forward(self, x: Tensor) -> Any:
        return self.fc(self.rnn(self.embedding(x))[0][:, -1])


class TextEncoder(nn.Module):
    """BERT's shape: token and position embeddings, a mask, self-attention, a pooled first token."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertForSequenceClassification

        config = BertConfig(
            vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
            max_position_embeddings=16, num_labels=5,
        )  # fmt: skip
        self.bert = BertForSequenceClassification(config)

    def forward(self, x: Tensor) -> Any:
        return self.bert(input_ids=x, attention_mask=(x > 2).long()).logits


def images(n: int) -> Tensor:
    return torch.randn(n, 3, 32, 32)


def tokens(n: int) -> Tensor:
    return torch.randint(0, 30, (n, 9))


@dataclass(frozen=True)
class Architecture:
    """A network and inputs for it."""

    make: Callable[[], nn.Module]
    inputs: Callable[[int], Tensor]


ARCHITECTURES = {
    "mlp": Architecture(
        lambda: nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 5)),
        lambda n: torch.randn(n, 12),
    ),
    "cnn": Architecture(
        lambda: nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 8, 3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(1800, 5)
        ),
        images,
    ),
    "resnet18": Architecture(ResNet18, images),
    "mobilenet_v2": Architecture(lambda: mobile(nn.ReLU6), images),
    "mobilenet_v3": Architecture(lambda: mobile(nn.Hardswish, excite=True), images),
    "efficientnet": Architecture(lambda: mobile(nn.SiLU, excite=True), images),
    "vgg": Architecture(vgg, images),
    "densenet": Architecture(DenseNet, images),
    "vit": Architecture(ViT, images),
    "lstm": Architecture(lambda: Recurrent(nn.LSTM), tokens),
    "lstm_stacked": Architecture(lambda: Recurrent(nn.LSTM, num_layers=2, bidirectional=True), tokens),
    "gru": Architecture(lambda: Recurrent(nn.GRU), tokens),
    "rnn": Architecture(lambda: Recurrent(nn.RNN), tokens),
    "bert": Architecture(TextEncoder, tokens),
}


def make(name: str, seed: int = 0) -> nn.Module:
    """A network in evaluation mode."""
    torch.manual_seed(seed)
    return shake_weights(ARCHITECTURES[name].make())


def shake_weights(network: nn.Module) -> nn.Module:
    """The network with weights and statistics that no exporter finds equal or trivial."""
    network.eval()
    for parameter in network.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean = 0.2 * torch.randn_like(module.weight)
            module.running_var = 0.5 + torch.rand_like(module.weight)
    return network


def by_tracing(network: nn.Module, inputs: Tensor, opset: int) -> ModelProto:
    """torch's older exporter."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            (inputs,),
            file,  # type: ignore[arg-type]  # an open file works, the annotation forgets it
            dynamo=False,
            opset_version=opset,
            input_names=["input"],
            output_names=["scores"],
            dynamic_axes={"input": {0: "n"}, "scores": {0: "n"}},
        )
    return onnx.load_from_string(file.getvalue())


def by_dynamo(network: nn.Module, inputs: Tensor, opset: int) -> ModelProto:
    """torch's newer exporter."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    batch = torch.export.Dim("n", min=1, max=4096)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            network, (inputs,), dynamo=True, opset_version=opset, dynamic_shapes=({0: batch},), verbose=False
        )
    if program is None:
        raise RuntimeError("the exporter gave nothing")
    return program.model_proto
