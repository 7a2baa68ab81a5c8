"""The exported suite on Keras, on whichever framework Keras runs; `KERAS_BACKEND` chooses."""

from __future__ import annotations

import pytest

from tests.backends.suites import suite_of


@pytest.mark.backend("keras")
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")
class TestKeras(suite_of("keras")):  # type: ignore[misc]  # found when its framework is installed
    pass
