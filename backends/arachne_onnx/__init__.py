"""The ONNX backend: onnxruntime runs the model, and its gradients, which are ONNX graphs too."""

from __future__ import annotations

from arachne_onnx.adapter import OnnxBackend

__all__ = ["OnnxBackend"]
