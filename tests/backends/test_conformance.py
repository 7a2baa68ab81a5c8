"""The exported suite, run on every backend.

A new backend is a file `<name>_networks.py` beside this one and a class of four lines here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest

from arachne.backend import ModelBackend
from arachne.testing import BackendConformance, Network, ReferenceBackend
from arachne.testing.checks.suite import MakeBackend

NetworksIn = Callable[[str], ModuleType]


@pytest.mark.backend("reference")
class TestReference(BackendConformance):
    @pytest.fixture
    def make_backend(self) -> MakeBackend:
        return ReferenceBackend


class DefaultsBackend(ReferenceBackend):
    """Only the abstract operations, as a first version of a plug-in would have them."""

    _trace = ModelBackend._trace
    _cut = ModelBackend._cut  # type: ignore[assignment]  # the reference's own returns a narrower type


@pytest.mark.backend("reference")
class TestDefaults(BackendConformance):
    @pytest.fixture
    def make_backend(self) -> MakeBackend:
        return DefaultsBackend


@pytest.mark.backend("torch")
class TestTorch(BackendConformance):
    UNSUPPORTED = {"lstm_one_bias": "PyTorch stores two biases or none"}  # noqa: RUF012

    @pytest.fixture
    def make_backend(self, networks_in: NetworksIn) -> MakeBackend:
        self._networks = networks_in("torch")
        return cast("MakeBackend", self._networks.build)

    def reload(self, path: Path, backend: ModelBackend, network: Network) -> ModelBackend:
        return cast("ModelBackend", self._networks.reload(path, network))


@pytest.mark.backend("onnx")
class TestOnnx(BackendConformance):
    UNSUPPORTED = {"lstm_one_bias": "ONNX stores two biases or none"}  # noqa: RUF012

    @pytest.fixture
    def make_backend(self, networks_in: NetworksIn) -> MakeBackend:
        return cast("MakeBackend", networks_in("onnx").build)
