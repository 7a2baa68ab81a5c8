"""A device that is not there is the environment's fault, one that nobody has heard of the user's, on every backend."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from arachne.errors import EnvironmentFaultError, UsageError
from arachne.model.registry import get
from arachne.testing import mlp

BACKENDS = [pytest.param(name, marks=pytest.mark.backend(name)) for name in ("torch", "onnx", "keras")]


def model_in(name: str, networks: ModuleType) -> object:
    if name != "torch":
        found: object = networks.model_of(mlp([4, 3]))
        return found
    from torch import nn

    return nn.Linear(4, 3)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")
def test_a_missing_gpu_is_told_from_a_device_that_does_not_exist(
    name: str, networks_in: Callable[[str], ModuleType]
) -> None:
    model = model_in(name, networks_in(name))
    with pytest.raises(UsageError, match="device"):
        get(name).load(model, device="cuba")
    with pytest.raises(EnvironmentFaultError, match=r"'cuda(:99)?'"):
        get(name).load(model, device="cuda:99")  # also where there is a GPU, but not a hundred
