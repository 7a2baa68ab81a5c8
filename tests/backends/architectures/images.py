"""Well-known image networks as torchvision has them, narrow and for small pictures with one channel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class ResidualBlock(nn.Module):
    """Two convolutions and a skip around them."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.downsample: nn.Module | None = None
        if stride > 1 or inside != outside:
            self.downsample = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x: Tensor) -> Any:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class ResNet18(nn.Module):
    """Four stages of two residual blocks."""

    def __init__(self, classes: int = 10, width: int = 8, channels: int = 1) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        inside = width
        for stage in range(4):
            outside, stride = width << stage, 1 if stage == 0 else 2
            blocks = nn.Sequential(ResidualBlock(inside, outside, stride), ResidualBlock(outside, outside, 1))
            self.add_module(f"layer{stage + 1}", blocks)
            inside = outside
        self.fc = nn.Linear(inside, classes)

    def forward(self, x: Tensor) -> Any:
        x = self.relu(self.bn1(self.conv1(x)))
        for stage in range(1, 5):
            x = self.get_submodule(f"layer{stage}")(x)
        return self.fc(torch.flatten(x.mean((2, 3)), 1))


class InvertedResidual(nn.Module):
    """Wide inside, depthwise, with a linear bottleneck."""

    def __init__(self, inside: int, outside: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = inside * expand
        self.skips = stride == 1 and inside == outside
        parts: list[nn.Module] = [nn.Conv2d(inside, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(True)]
        depthwise = nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False)
        parts = (parts if expand > 1 else []) + [depthwise, nn.BatchNorm2d(hidden), nn.ReLU6(True)]
        self.conv = nn.Sequential(*parts, nn.Conv2d(hidden, outside, 1, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x: Tensor) -> Any:
        return x + self.conv(x) if self.skips else self.conv(x)


class MobileNetV2(nn.Module):
    """Inverted residuals with depthwise convolutions."""

    def __init__(self, classes: int = 10, width: int = 8) -> None:
        super().__init__()
        parts: list[nn.Module] = [nn.Conv2d(1, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU6(True)]
        inside = width
        for expand, outside, repeats, stride in ((1, width, 1, 1), (4, 2 * width, 2, 2), (4, 3 * width, 2, 2)):
            for number in range(repeats):
                parts.append(InvertedResidual(inside, outside, stride if number == 0 else 1, expand))
                inside = outside
        parts += [nn.Conv2d(inside, 8 * width, 1, bias=False), nn.BatchNorm2d(8 * width), nn.ReLU6(True)]
        self.features = nn.Sequential(*parts)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(8 * width, classes))

    def forward(self, x: Tensor) -> Any:
        return self.classifier(nn.functional.adaptive_avg_pool2d(self.features(x), (1, 1)).flatten(1))


class VGG(nn.Module):
    """Plain convolutions and pools, then three dense layers."""

    def __init__(self, classes: int = 10, width: int = 8) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        inside = 1
        for outside in (width, 2 * width, 4 * width):
            for _ in range(2):
                parts += [nn.Conv2d(inside, outside, 3, padding=1), nn.ReLU(inplace=True)]
                inside = outside
            parts.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*parts)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        hidden: list[nn.Module] = [nn.Linear(inside, 32), nn.ReLU(True), nn.Dropout(), nn.Linear(32, 32), nn.ReLU(True)]
        self.classifier = nn.Sequential(*hidden, nn.Dropout(), nn.Linear(32, classes))
        for part in self.modules():
            if isinstance(part, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(part.weight, nonlinearity="relu")

    def forward(self, x: Tensor) -> Any:
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


class DenseLayer(nn.Module):
    """A bottleneck whose output is appended to all it was given."""

    def __init__(self, inside: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inside), nn.Conv2d(inside, 2 * growth, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(2 * growth), nn.Conv2d(2 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Any:
        y = self.conv1(torch.relu(self.norm1(x)))
        return torch.cat([x, self.conv2(torch.relu(self.norm2(y)))], 1)


class DenseNet(nn.Module):
    """Two dense blocks with a transition between them."""

    def __init__(self, classes: int = 10, growth: int = 6, depth: int = 3) -> None:
        super().__init__()
        width = 2 * growth
        parts: list[nn.Module] = [nn.Conv2d(1, width, 3, padding=1, bias=False)]
        for block in range(2):
            for _ in range(depth):
                parts.append(DenseLayer(width, growth))
                width += growth
            if block == 0:
                transition = [nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.Conv2d(width, width // 2, 1, bias=False)]
                parts += [*transition, nn.AvgPool2d(2)]
                width //= 2
        self.features = nn.Sequential(*parts, nn.BatchNorm2d(width))
        self.classifier = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Any:
        return self.classifier(torch.relu(self.features(x)).mean((2, 3)))


class ViT(nn.Module):
    """Patches, a class token, learned positions, torch's own encoder layers with packed attention."""

    def __init__(self, classes: int = 10, width: int = 24, depth: int = 2) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, 2, 2)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, 17, width) * 0.1)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.1, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Any:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        return self.head(self.encoder(x)[:, 0])
