"""Train the networks of the cases, and write them as ONNX, as an exported PyTorch program and as a Keras file."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Array = np.ndarray[Any, Any]

MODELS = {"onnx": ".onnx", "torch": ".pt2", "keras": ".keras"}


class FromPictures(nn.Module):
    """Pictures `(n, height, width, 3)` from 0 to 255, as files hold them, to what convolutions take."""

    def forward(self, pictures: Tensor) -> Tensor:
        return pictures.permute(0, 3, 1, 2) / 255


def fit(
    net: nn.Sequential, x: Array, y: Array, loss: Callable[[Tensor, Tensor], Tensor], *, epochs: int = 12, seed: int = 0
) -> None:
    """Train a network that was just made; the same seed gives the same one."""
    torch.manual_seed(seed)
    scales = [float(layer.weight.abs().mean()) for layer in net if isinstance(layer, nn.Linear)]
    for layer in net:
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            layer.reset_parameters()
    last = next(layer for layer in reversed(net) if isinstance(layer, (nn.Linear, nn.Conv2d)))
    if isinstance(last, nn.Linear) and scales:
        with torch.no_grad():
            last.weight.mul_(scales[-1] / float(last.weight.abs().mean()))
    inputs, labels = torch.from_numpy(np.ascontiguousarray(x)), torch.from_numpy(np.ascontiguousarray(y))
    optimiser = torch.optim.Adam(net.parameters(), 2e-3)
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(inputs)), 64):
            optimiser.zero_grad()
            loss(net(inputs[rows]), labels[rows]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    net.eval()


def write_models(net: nn.Sequential, shape: tuple[int, ...], stem: Path) -> None:
    """Write the network in every format."""
    example = torch.zeros(2, *shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net,
            (example,),
            stem.with_suffix(".onnx"),
            dynamo=False,
            input_names=["x"],
            output_names=["scores"],
            dynamic_axes={"x": {0: "n"}, "scores": {0: "n"}},
        )
    program = torch.export.export(net, (example,), dynamic_shapes=({0: torch.export.Dim("n")},))
    torch.export.save(program, stem.with_suffix(".pt2"))
    as_keras(net, shape).save(stem.with_suffix(".keras"))


def as_keras(net: nn.Sequential, shape: tuple[int, ...]) -> Any:
    """Return the same network in Keras, with channels last: so its outputs may have another order of axes."""
    import keras

    made = [keras.Input(shape)]
    weights: list[tuple[Any, list[Array]]] = []
    channels = 0
    for layer in net:
        if isinstance(layer, FromPictures):
            made.append(keras.layers.Rescaling(1 / 255))
        elif isinstance(layer, nn.Conv2d):
            edge, channels = int(layer.padding[0]), layer.out_channels
            made += [keras.layers.ZeroPadding2D(edge)] if edge else []
            made.append(keras.layers.Conv2D(channels, layer.kernel_size, strides=layer.stride))
            kernel = layer.weight.detach().numpy().transpose(2, 3, 1, 0)
            weights.append((made[-1], [kernel, _bias(layer)]))
        elif isinstance(layer, nn.Flatten):
            made.append(keras.layers.Flatten())
        elif isinstance(layer, nn.Linear):
            kernel = layer.weight.detach().numpy()
            if channels:  # after `Flatten`, which had channels first
                side = round((kernel.shape[1] / channels) ** 0.5)
                kernel = kernel.reshape(-1, channels, side, side).transpose(0, 2, 3, 1).reshape(len(kernel), -1)
                channels = 0
            made.append(keras.layers.Dense(layer.out_features))
            weights.append((made[-1], [kernel.T, _bias(layer)]))
        else:
            made.append(keras.layers.ReLU())
    model = keras.Sequential(made)
    for layer, values in weights:
        layer.set_weights(values)
    return model


def _bias(layer: nn.Linear | nn.Conv2d) -> Array:
    assert layer.bias is not None
    return np.asarray(layer.bias.detach().numpy())
