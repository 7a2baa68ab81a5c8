"""A one-stage detector in the shape of a YOLOv8 export: `(n, 4 + classes, anchors)`, boxes in pixels, classes behind a
sigmoid; trained in minutes on scenes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.detection.scenes import SIDE, SIGNS, Scenes, make_scenes

STRIDE = 8
CELLS = SIDE // STRIDE


def _block(channels_in: int, channels_out: int, stride: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(channels_in, channels_out, 3, stride, 1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(channels_out), nn.SiLU())


class Detector(nn.Module):
    """A body and two branches, for classes and boxes; an anchor is a cell of 8 x 8 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _block(3, 16, 2), _block(16, 24), _block(24, 32, 2), _block(32, 48), _block(48, 64, 2), _block(64, 64)
        )
        last = nn.Conv2d(48, len(SIGNS), 1)
        nn.init.constant_(last.bias, -4.0)  # type: ignore[arg-type]
        self.classes = nn.Sequential(_block(64, 64), _block(64, 48), last)
        self.boxes = nn.Sequential(_block(64, 48), nn.Conv2d(48, 4, 1))
        place = (torch.arange(CELLS) + 0.5) * STRIDE
        rows, columns = torch.meshgrid(place, place, indexing="ij")
        self.register_buffer("centres", torch.stack([columns, rows]).reshape(1, 2, -1))

    def branches(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        """Boxes (x, y, width, height in pixels) `(n, 4, anchors)` and class logits `(n, classes, anchors)`."""
        features = self.body(pictures)
        found = self.boxes(features).flatten(2)
        centres = self.centres + STRIDE * found[:, :2]
        sizes = STRIDE * torch.exp(found[:, 2:].clamp(-4, 4))
        return torch.cat([centres, sizes], 1), self.classes(features).flatten(2)

    def forward(self, pictures: Tensor) -> Tensor:
        boxes, logits = self.branches(pictures)
        return torch.cat([boxes, torch.sigmoid(logits)], 1)


def make_detector() -> Detector:
    """The network without weights, for `--model`."""
    return Detector().eval()


def train_detector(*, scenes: int = 8000, epochs: int = 8, seed: int = 0, tell: Callable[[str], None]) -> Detector:
    """Train a detector on scenes without look-alikes."""
    torch.manual_seed(seed)
    made = make_scenes("train", scenes, seed=seed)
    pictures, targets = torch.from_numpy(made.pictures), _targets(made)
    net = Detector()
    optimiser = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=1e-3)
    steps = epochs * (scenes // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 4e-3, total_steps=steps)
    for epoch in range(epochs):
        total = 0.0
        for rows in torch.randperm(scenes)[: scenes // 64 * 64].split(64):  # type: ignore[no-untyped-call]
            loss = _loss(*net.branches(pictures[rows].float() / 255), targets[rows])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
            total += loss.item() * 64 / scenes
        tell(f"epoch {epoch + 1} of {epochs}: loss {total:.3f}")
    return net.eval()


def _targets(scenes: Scenes) -> Tensor:
    """Class (-1 for none) and box of each anchor, `(n, 5, anchors)`: those whose centre is in the middle of a box."""
    place = (torch.arange(CELLS) + 0.5) * STRIDE
    rows, columns = (grid.reshape(-1) for grid in torch.meshgrid(place, place, indexing="ij"))
    found = torch.zeros(len(scenes.boxes), 5, CELLS * CELLS)
    found[:, 0] = -1
    for at, boxes in enumerate(scenes.boxes):
        for number, x, y, width, height in boxes.tolist():
            middle_x, middle_y = x + width / 2, y + height / 2
            within = ((columns - middle_x).abs() < width / 4) & ((rows - middle_y).abs() < height / 4)
            values = torch.tensor([number, middle_x, middle_y, width, height])
            found[at, :, within] = values[:, None]
    return found


def _loss(boxes: Tensor, logits: Tensor, targets: Tensor) -> Tensor:
    """Binary cross-entropy of classes, and 1 - IoU of the boxes of anchors with one; both per anchor with a box."""
    has = targets[:, 0] >= 0
    wanted = torch.zeros_like(logits)
    rows, anchors = has.nonzero(as_tuple=True)
    wanted[rows, targets[rows, 0, anchors].long(), anchors] = 1
    classes = nn.functional.binary_cross_entropy_with_logits(logits, wanted, reduction="sum")
    found, true = boxes[rows, :, anchors], targets[rows, 1:, anchors]
    low = torch.maximum(found[:, :2] - found[:, 2:] / 2, true[:, :2] - true[:, 2:] / 2)
    high = torch.minimum(found[:, :2] + found[:, 2:] / 2, true[:, :2] + true[:, 2:] / 2)
    shared = (high - low).clamp(min=0).prod(1)
    overlap = shared / (found[:, 2:].prod(1) + true[:, 2:].prod(1) - shared)
    near = nn.functional.smooth_l1_loss(found, true, reduction="sum", beta=8.0) / 16
    return (classes + 2 * (1 - overlap).sum() + near) / max(len(rows), 1)
