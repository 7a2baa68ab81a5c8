"""Checkpoints: what a search has reached, kept on the disk so that a run that ends early can go on."""

from __future__ import annotations

from arachne.checkpoint.fields import run_fields
from arachne.checkpoint.files import Saved
from arachne.checkpoint.keeper import Checkpoints

__all__ = ["Checkpoints", "Saved", "run_fields"]
