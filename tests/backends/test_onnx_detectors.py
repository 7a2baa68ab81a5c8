"""Detectors as people export them: they open, and their class branch is in reach."""

from __future__ import annotations

import pytest

import arachne
from arachne.errors import UnsafeModelError
from arachne_onnx import bounds
from tests.backends.onnx_detector import make_detector

pytestmark = pytest.mark.backend("onnx")


def test_a_detector_whose_pictures_may_have_any_size_opens() -> None:
    found = arachne.load(make_detector())
    assert "class" in [layer.name for layer in found.layers]


def test_a_size_that_nothing_tells_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "ASSUMED_SIZES", (16,))  # which cannot be halved five times
    with pytest.raises(UnsafeModelError, match="whose size only its values tell"):
        arachne.load(make_detector())
