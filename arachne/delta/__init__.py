"""Deltas: the bytes by which a patched model file differs from the original, for devices that apply them in place.

`arachne_delta.py` and `arachne_delta.c` are programs that go to the device; `arachne delta --tools` writes them out.
"""

from arachne.delta.arachne_delta import Delta, DeltaError, Run, read_delta
from arachne.delta.make import delta_of_result, make_delta

__all__ = ["Delta", "DeltaError", "Run", "delta_of_result", "make_delta", "read_delta"]
