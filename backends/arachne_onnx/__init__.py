"""The ONNX backend: onnxruntime runs the model, and its gradients, which are ONNX graphs too.

`adapter` is the backend; `layers` tells which nodes are layers, `reader` finds the weights behind them. `normalise`
makes a `graph` of a model, `ending` finds its class scores, `running` and `sessions` run it; `trace` and `cut` answer
the engine, with the backward nodes of `derivative` and the operators' `rules`. `io` opens and saves, `surgery`
changes the bytes of a file.
"""

from __future__ import annotations

from arachne_onnx.adapter import OnnxBackend

__all__ = ["OnnxBackend"]
