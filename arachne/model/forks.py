"""Processes that a search has forked: no model runs there, because threads of frameworks do not survive a fork."""

from __future__ import annotations

import os

_forked = False


def mark_as_fork() -> None:
    """Note that this process was forked by a search."""
    global _forked
    _forked = True


def leave_model_to_parent() -> None:
    """End this process if it was forked by a search; called before a model runs."""
    if _forked:
        os._exit(0)
