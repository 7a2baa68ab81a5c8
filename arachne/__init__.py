"""Arachne repairs trained neural networks: localise, search, patch, and the evidence that it holds.

Importing this package loads nothing else; every public name is fetched when it is first used.
"""

from __future__ import annotations

__version__ = "0.1.0"
