"""Checkpoints: the state of a search, kept on the disk so that a run that ends early can be resumed."""

from __future__ import annotations

from arachne.results.checkpoint.fields import run_fields
from arachne.results.checkpoint.files import Saved
from arachne.results.checkpoint.keeper import Checkpoints

__all__ = ["Checkpoints", "Saved", "run_fields"]
