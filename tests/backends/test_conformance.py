"""The exported suite, run on every backend.

Those of our own adapters are in their `conformance.py`.
"""

from __future__ import annotations

import pytest

from arachne.model.backend import ModelBackend
from arachne.testing import BackendConformance, ReferenceBackend
from arachne.testing.checks.suite import MakeBackend
from tests.backends.suites import suite_of


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
class TestTorch(suite_of("torch")):  # type: ignore[misc]  # found when its framework is installed
    pass


@pytest.mark.backend("onnx")
class TestOnnx(suite_of("onnx")):  # type: ignore[misc]
    pass
