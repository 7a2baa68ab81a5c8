"""The benchmark's networks in other frameworks than PyTorch, with the same weights."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn

from arachne.data.labelled import LabelledData
from arachne.model.backend import ModelBackend
from arachne.model.values import Array
from benchmarks.subjects import Lstm, Residual

Ported = tuple[ModelBackend, LabelledData]


def as_torch(module: nn.Module, data: LabelledData) -> Ported:
    """The module itself."""
    from arachne_torch import TorchBackend

    return TorchBackend.load(module), data


def as_onnx(module: nn.Module, data: LabelledData) -> Ported:
    """The module exported."""
    from arachne_onnx import OnnxBackend

    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        example = torch.from_numpy(np.asarray(data.inputs)[:2])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # The older exporter: the newer one takes an LSTM apart into its steps.
            torch.onnx.export(
                module,
                (example,),
                str(path),
                dynamo=False,
                input_names=["input"],
                output_names=["scores"],
                dynamic_axes={"input": {0: "n"}, "scores": {0: "n"}},
            )
        return OnnxBackend.load(path), data


def as_keras(module: nn.Module, data: LabelledData) -> Ported:
    """The module written again for Keras, with channels last."""
    import keras

    from arachne_keras import KerasBackend

    inputs = np.asarray(data.inputs)
    if inputs.ndim == 4:
        inputs = np.ascontiguousarray(inputs.transpose(0, 2, 3, 1))
    start = keras.Input(inputs.shape[1:])
    model = keras.Model(start, _Writer().write(module, start, ""))
    return KerasBackend.load(model), LabelledData(inputs, data.labels)


BACKENDS: dict[str, Callable[[nn.Module, LabelledData], Ported]] = {
    "torch": as_torch,
    "onnx": as_onnx,
    "keras": as_keras,
}


class _Writer:
    """Writes modules as Keras layers, which keep the modules' names with dashes for dots."""

    def __init__(self) -> None:
        self._pictures: tuple[int, ...] | None = None

    def write(self, module: nn.Module, x: Any, name: str) -> Any:
        from keras import layers as kl

        match module:
            case nn.Sequential():
                for key, part in module.named_children():
                    x = self.write(part, x, f"{name}.{key}".strip("."))
                return x
            case Residual():
                y = kl.ReLU()(self.write(module.bn1, self.write(module.conv1, x, f"{name}.conv1"), f"{name}.bn1"))
                y = self.write(module.bn2, self.write(module.conv2, y, f"{name}.conv2"), f"{name}.bn2")
                skip = x if module.skip is None else self.write(module.skip, x, f"{name}.skip")
                return kl.ReLU()(kl.Add()([y, skip]))
            case Lstm():
                return self.write(module.head, self._lstm(module.lstm, x), "head")
            case nn.Conv2d():
                return self._conv(module, x, name)
            case nn.BatchNorm2d():
                layer = kl.BatchNormalization(epsilon=module.eps, name=_name(name))
                x = layer(x)
                layer.set_weights([_array(t) for t in (module.weight, module.bias, *_moments(module))])
                return x
            case nn.ReLU():
                return kl.ReLU()(x)
            case nn.MaxPool2d():
                return kl.MaxPooling2D(module.kernel_size, module.stride)(_pad(x, module.padding, -np.inf))
            case nn.AdaptiveAvgPool2d():
                return kl.GlobalAveragePooling2D()(x)
            case nn.Flatten():
                self._pictures = tuple(x.shape[1:]) if len(x.shape) == 4 else None
                return kl.Flatten()(x)
            case nn.Linear():
                return self._dense(module, x, name)
        raise NotImplementedError(type(module).__name__)

    def _conv(self, module: nn.Conv2d, x: Any, name: str) -> Any:
        from keras import layers as kl

        layer = kl.Conv2D(
            module.out_channels, module.kernel_size, module.stride, use_bias=module.bias is not None, name=_name(name)
        )
        x = layer(_pad(x, int(module.padding[0]), 0.0))
        layer.set_weights(
            [_array(module.weight).transpose(2, 3, 1, 0), *([] if module.bias is None else [_array(module.bias)])]
        )
        return x

    def _dense(self, module: nn.Linear, x: Any, name: str) -> Any:
        from keras import layers as kl

        weight = _array(module.weight)
        if self._pictures is not None:  # flattened with its channels last
            rows, columns, channels = self._pictures
            weight = weight.reshape(-1, channels, rows, columns).transpose(0, 2, 3, 1).reshape(len(weight), -1)
            self._pictures = None
        layer = kl.Dense(module.out_features, name=_name(name))
        x = layer(x)
        layer.set_weights([weight.T, _array(module.bias)])
        return x

    def _lstm(self, module: nn.LSTM, x: Any) -> Any:
        from keras import layers as kl

        layer = kl.LSTM(module.hidden_size, name="lstm")
        x = layer(x)
        held = {name: _array(tensor) for name, tensor in module.named_parameters()}
        layer.set_weights([held["weight_ih_l0"].T, held["weight_hh_l0"].T, held["bias_ih_l0"] + held["bias_hh_l0"]])
        return x


def _pad(x: Any, padding: int | tuple[int, ...], value: float) -> Any:
    from keras import layers as kl

    if not padding:
        return x
    # Behind a function that is never negative, zeros are as good as minus infinity around a maximum.
    assert value == 0 or value == -np.inf
    return kl.ZeroPadding2D(padding)(x)


def _moments(module: nn.BatchNorm2d) -> tuple[torch.Tensor, torch.Tensor]:
    assert module.running_mean is not None
    assert module.running_var is not None
    return module.running_mean, module.running_var


def _array(tensor: torch.Tensor) -> Array:
    return np.asarray(tensor.detach().numpy())


def _name(name: str) -> str:
    return f"layer-{name.replace('.', '-')}"
