"""Rules that write TFLite's operators as ONNX, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from arachne_tflite.file import Operator
from arachne_tflite.translate import Writer
from arachne_tflite.translations import linear, pointwise, shapes, windows

Rule = Callable[[Writer, Operator], None]
"""Writes one operator."""

RULES: Mapping[str, Rule] = {**linear.RULES, **windows.RULES, **pointwise.RULES, **shapes.RULES}
"""All rules."""
