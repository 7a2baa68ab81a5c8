"""The fields that must be equal in a run and in the one it continues."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from arachne.data.split import Split
from arachne.errors import CheckpointError
from arachne.model.backend import ModelBackend
from arachne.patch.in_memory import base_of
from arachne.plugins.table import SEARCHERS

HASHES = ("data", "holdout", "never_break", "training")
WHOLE = ("target", "seed", "settings", "versions")
MISSING = "nothing"
SEARCHER_NAMES = ("settings.searcher.name", "settings.searcher.members")
"""Fields that may hold names which searchers had before."""


def run_fields(backend: ModelBackend, split: Split, provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Everything a run's patch depends on, as plain values by name.

    Args:
        backend: The model with its own weights.
        split: The parts of the data, whose outcomes depend on how the machine rounds.
        provenance: What the patch will tell about its origin.
    """
    base = base_of(backend)
    fields: dict[str, Any] = {"model.sha256": base.sha256, "model.weights": base.content, "model.backend": base.backend}
    for name in HASHES:
        fields[f"{name}.sha256"] = (provenance.get(name) or {}).get("sha256")
    for name in WHOLE:
        fields |= dict(_flat(name, provenance[name]))
    fields["split"] = _split_sha256(split)
    return fields


def check_fields(before: Mapping[str, Any], now: Mapping[str, Any], where: str) -> None:
    """Refuse to continue another run.

    Raises:
        CheckpointError: A field differs; the message names it and both values.
    """
    for name in dict.fromkeys([*now, *before]):
        was, is_now = before.get(name), now.get(name)
        if name in SEARCHER_NAMES:
            was = _current_names(was)
        if was != is_now or type(was) is not type(is_now):
            raise CheckpointError(
                f"'{where}' is the checkpoint of another run: {_quote_name(name)} was {_quote_value(was)} there and is "
                f"{_quote_value(is_now)} now; give what it was, or start over",
                argument="replace",
            )


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Nested mappings as `name.key`; lists stay, tuples become lists as JSON has them."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _flat(f"{name}.{key}", one)
    else:
        yield name, _as_lists(value)


def _current_names(value: Any) -> Any:
    """Names of searchers as they are now."""
    if isinstance(value, list):
        return [_current_names(one) for one in value]
    return SEARCHERS.canonical(value) if isinstance(value, str) else value


def _as_lists(value: Any) -> Any:
    return [_as_lists(one) for one in value] if isinstance(value, (list, tuple)) else value


def _quote_name(name: str) -> str:
    return f"'{name.removeprefix('settings.').removeprefix('versions.')}'" if "." in name else f"'{name}'"


def _quote_value(value: Any) -> str:
    return MISSING if value is None else f"'{value}'" if isinstance(value, str) else str(value)


def _split_sha256(split: Split) -> str:
    """Hash which inputs are in which part, and the model's predictions for them."""
    digest = hashlib.sha256()
    for part in (split.seen, split.choose, split.held_out, split.never_break):
        for array in () if part is None else (part.rows, part.predictions, part.negatives):
            numbers = np.ascontiguousarray(array, dtype="<i8")
            digest.update(f"{numbers.shape}\0".encode() + numbers.tobytes())
        digest.update(b"\1")
    return digest.hexdigest()
