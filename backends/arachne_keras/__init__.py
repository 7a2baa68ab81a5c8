"""The Keras backend.

`adapter` is the backend; `layers` tells which Keras layers are ours, `kinds`, `convolution` and `recurrent` how each
computes. `functional` makes a `graph` of a model, `output_head` finds its class scores, `running` runs it and `watch`
captures its layers while it runs; `trace` and `cut` answer the engine, on the framework in `autodiff`. `io` opens and
saves: `config` checks what a file asks Keras to build, `archive` and `hdf5` find its weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arachne_keras import environment  # noqa: F401  # isort: skip  # first: it settles what Keras reads when imported

if TYPE_CHECKING:
    from arachne_keras.adapter import KerasBackend

__all__ = ["KerasBackend"]


def __getattr__(name: str) -> Any:
    """Import the adapter when it is first asked for: patching a file needs none of it."""
    if name != "KerasBackend":
        raise AttributeError(f"module 'arachne_keras' has no attribute '{name}'")
    from arachne_keras.adapter import KerasBackend

    return KerasBackend
