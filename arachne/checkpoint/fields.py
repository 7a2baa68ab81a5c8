"""What a run must have in common with the one it continues, field by field."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from arachne.backend import ModelBackend
from arachne.data.split import Split
from arachne.errors import CheckpointError
from arachne.patch.memory import base_of

HASHES = ("data", "holdout", "never_break", "training")
WHOLE = ("target", "seed", "settings", "versions")
MISSING = "nothing"


def run_fields(backend: ModelBackend, split: Split, provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Everything a run's patch depends on, as plain values by name.

    Args:
        backend: The model with its own weights.
        split: The parts of the data, whose outcomes depend on how the machine rounds.
        provenance: What the patch will tell about its origin.
    """
    base = base_of(backend)
    told: dict[str, Any] = {"model.sha256": base.sha256, "model.weights": base.content, "model.backend": base.backend}
    for name in HASHES:
        told[f"{name}.sha256"] = (provenance.get(name) or {}).get("sha256")
    for name in WHOLE:
        told |= dict(_flat(name, provenance[name]))
    told["split"] = _split_sha256(split)
    return told


def check_fields(before: Mapping[str, Any], now: Mapping[str, Any], where: str) -> None:
    """Refuse to continue another run.

    Raises:
        CheckpointError: A field differs; the message names it and both values.
    """
    for name in dict.fromkeys([*now, *before]):
        was, is_now = before.get(name), now.get(name)
        if was != is_now or type(was) is not type(is_now):
            raise CheckpointError(
                f"'{where}' is the checkpoint of another run: {_called(name)} was {_shown(was)} there and is "
                f"{_shown(is_now)} now; give what it was, or start over",
                argument="replace",
            )


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Nested mappings as `name.key`; lists stay, tuples become lists as JSON has them."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _flat(f"{name}.{key}", one)
    else:
        yield name, _listed(value)


def _listed(value: Any) -> Any:
    return [_listed(one) for one in value] if isinstance(value, (list, tuple)) else value


def _called(name: str) -> str:
    return f"'{name.removeprefix('settings.').removeprefix('versions.')}'" if "." in name else f"'{name}'"


def _shown(value: Any) -> str:
    return MISSING if value is None else f"'{value}'" if isinstance(value, str) else str(value)


def _split_sha256(split: Split) -> str:
    """Which inputs are where, and what the model makes of them."""
    digest = hashlib.sha256()
    for part in (split.seen, split.choose, split.held_out, split.never_break):
        for array in () if part is None else (part.rows, part.predictions, part.negatives):
            numbers = np.ascontiguousarray(array, dtype="<i8")
            digest.update(f"{numbers.shape}\0".encode() + numbers.tobytes())
        digest.update(b"\1")
    return digest.hexdigest()
