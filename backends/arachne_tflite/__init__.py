"""The TFLite backend: LiteRT gives the scores that decide, a translation to ONNX the gradients and the candidates.

`flatbuffer` reads a file within bounds, by the tables of `schema`; `io` opens and saves. `translate` writes the file's
graph as ONNX, whose weights keep their location in the file, by the rules of `translations`. `adapter` is the
backend: the ONNX one, with the scores of `running`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arachne_tflite.adapter import TfliteBackend

__all__ = ["TfliteBackend"]


def __getattr__(name: str) -> Any:
    """Import the adapter when it is first asked for: patching a file needs none of it."""
    if name != "TfliteBackend":
        raise AttributeError(f"module 'arachne_tflite' has no attribute '{name}'")
    from arachne_tflite.adapter import TfliteBackend

    return TfliteBackend
