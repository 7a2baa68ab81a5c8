"""The PyTorch backend."""

from __future__ import annotations

from arachne_torch.adapter import TorchBackend

__all__ = ["TorchBackend"]
