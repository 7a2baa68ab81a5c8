"""The exported suite on Keras, on whichever framework Keras runs; `KERAS_BACKEND` chooses."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import cast

import pytest

from arachne.testing import BackendConformance
from arachne.testing.checks.suite import MakeBackend


@pytest.mark.backend("keras")
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")
class TestKeras(BackendConformance):
    UNSUPPORTED = {  # noqa: RUF012
        "conv2d": "Keras refuses a stride together with a dilation",
        "conv_transpose2d": "Keras has no groups in transposed convolutions, and pads them by the word 'same' alone",
        "lstm_two_biases": "Keras stores one bias in an LSTM",
    }

    @pytest.fixture
    def make_backend(self, networks_in: Callable[[str], ModuleType]) -> MakeBackend:
        return cast("MakeBackend", networks_in("keras").build)
