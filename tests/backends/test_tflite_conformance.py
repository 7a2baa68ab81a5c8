"""The exported suite on TFLite files, which LiteRT runs."""

from __future__ import annotations

import pytest

from tests.backends.suites import suite_of


@pytest.mark.backend("tflite")
class TestTflite(suite_of("tflite")):  # type: ignore[misc]  # found when its framework is installed
    pass
