"""The faults that a patch was made for, as it records them; a stack was made for those of all its patches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from arachne.errors import UsageError


def recorded_faults(provenance: Mapping[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Return the targets that a patch records, and the rules of the causes among them by their names.

    Raises:
        UsageError: Patches of a stack mean different causes by one name.
    """
    targets: dict[str, None] = {}
    causes: dict[str, Any] = {}
    for part in list_origins(provenance):
        own, rules = part.get("target", ()), part.get("causes")
        texts = [own] if isinstance(own, str) else own
        if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
            raise UsageError(f"a target is a text such as '6:0', got {own!r}")
        targets |= dict.fromkeys(texts)
        for name, rule in rules.items() if isinstance(rules, Mapping) else ():
            if causes.setdefault(name, rule) != rule:
                raise UsageError(f"patches of the stack mean different causes by '{name}'")
    return list(targets), causes


def list_origins(provenance: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the provenance of each patch that a stack was put together from; that of another patch is the only one."""
    parts = provenance.get("stack")
    if not isinstance(parts, list):
        return [provenance]
    found = [part.get("provenance") for part in parts if isinstance(part, Mapping)]
    return [one for one in found if isinstance(one, Mapping)]
