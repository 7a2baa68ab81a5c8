"""The ONNX backend: onnxruntime runs the model, and its gradients, which are ONNX graphs too.

`adapter` is the backend; `layers` tells which nodes are layers, `reader` finds the weights behind them. `normalise`
makes a `graph` of a model, `output_head` finds its class scores, `running` and `sessions` run it; `trace` and `cut`
answer the engine, with the backward nodes of `derivative` and the operators' `rules`. `io` opens and saves, `surgery`
changes the bytes of a file.

From version 1.29 on, onnxruntime tells Microsoft about sessions and models, and keeps an identifier in the user's home.
What a model is like is nobody's business, so that is off unless the user has set the variable himself. It is read when
onnxruntime is first imported, which happens below this package.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arachne_onnx.adapter import OnnxBackend

__all__ = ["OnnxBackend"]

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


def __getattr__(name: str) -> Any:
    """Import the adapter when it is first asked for: patching a file needs none of it."""
    if name != "OnnxBackend":
        raise AttributeError(f"module 'arachne_onnx' has no attribute '{name}'")
    from arachne_onnx.adapter import OnnxBackend

    return OnnxBackend
