"""The Keras backend.

`adapter` is the backend; `layers` tells which Keras layers are ours, `kinds`, `convolution` and `recurrent` how each
computes. `functional` makes a `graph` of a model, `ending` finds its class scores, `running` runs it and `watch` sees
its layers while it runs; `trace` and `cut` answer the engine, on the framework in `autodiff`. `io` opens and saves:
`config` checks what a file asks Keras to build, `archive` and `hdf5` find its weights.
"""

from __future__ import annotations

from arachne_keras import environment  # noqa: F401  # isort: skip  # first: it settles what Keras reads when imported
from arachne_keras.adapter import KerasBackend

__all__ = ["KerasBackend"]
