"""The PyTorch backend.

`adapter` is the backend; `layers` tells which torch calls are layers. `watch` sees the calls of a pass, `running` runs
the model, `trace` and `cut` answer the engine, the latter from a recording (`tape`). `io` opens and saves: `weights`
finds tensors in files, on top of `archive` and `pickles`; `program` checks exported programs before torch builds them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arachne_torch.adapter import TorchBackend

__all__ = ["TorchBackend"]


def __getattr__(name: str) -> Any:
    """Import the adapter when it is first asked for: patching a file needs none of it."""
    if name != "TorchBackend":
        raise AttributeError(f"module 'arachne_torch' has no attribute '{name}'")
    from arachne_torch.adapter import TorchBackend

    return TorchBackend
