"""Reverse-mode differentiation of an ONNX graph, as an ONNX graph."""

from __future__ import annotations

from arachne_onnx.rules import (  # noqa: F401  # importing them enters their rules
    activations,
    elementwise,
    linear,
    loops,
    normalisation,
    pooling,
    reductions,
    shaping,
)
from arachne_onnx.rules.tape import FLAT, RULES, Tape, UnknownShapeError, blocks

__all__ = ["FLAT", "RULES", "Tape", "UnknownShapeError", "blocks"]
