"""The model card as the Hugging Face Hub wants it: the card of a repair under a head of metadata in YAML."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from arachne.errors import UsageError
from arachne.text import printable

LIBRARIES = {"torch": "pytorch", "keras": "keras", "onnx": "onnx"}
"""The Hub's name for a backend's framework, where it has one."""

LISTS = ("tags", "language", "datasets", "base_model")
"""Keys that may be given several times."""

TASK = "other"
"""The task of a model, unless `pipeline_tag` says it."""


def hub_card(card: str, page: Mapping[str, Any], entries: Sequence[str] = ()) -> str:
    """The card with its head.

    Args:
        card: What `MODEL_CARD.md` holds.
        page: What `report.json` holds.
        entries: Further metadata, each `KEY=VALUE`: `license=mit`, `pipeline_tag=image-classification`, ...

    Raises:
        UsageError: An entry of another form, or a key twice that can be there once.
    """
    metadata = _metadata(page, _read(entries))
    # JSON is YAML too, and its quotes keep every name a text.
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in metadata.items()]
    return "\n".join(["---", *lines, "---", "", card])


def _metadata(page: Mapping[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    result = page["result"]
    library = LIBRARIES.get(result["backend"])
    tags = ["arachne", "model-repair", *given.pop("tags", [])]
    found = {**({"library_name": library} if library else {}), **given, "tags": list(dict.fromkeys(tags))}
    found["model-index"] = [{"name": _name(page), "results": [_evaluation(result, found.get("pipeline_tag", TASK))]}]
    return found


def _evaluation(result: Mapping[str, Any], task: str) -> dict[str, Any]:
    """Held-out accuracy and rates; the Hub shows them beside the model."""
    held_out, data = result["held_out"], result.get("provenance", {}).get("data", {})
    measures = {
        "accuracy": ("Accuracy, held out", held_out["accuracy_after"]),
        "repair_rate": (f"Repaired of {result['target']}, held out", held_out["repair_rate"]),
        "break_rate": ("Broken of what was right, held out", held_out["break_rate"]),
    }
    name = printable(data.get("name") or "arrays")
    return {
        "task": {"type": task},
        "dataset": {"name": name, "type": name, **({"revision": data["sha256"]} if data.get("sha256") else {})},
        "metrics": [
            {"type": kind, "value": value, "name": printable(title)}
            for kind, (title, value) in measures.items()
            if value is not None
        ],
    }


def _name(page: Mapping[str, Any]) -> str:
    model = page.get("model")
    name = model.get("name") if isinstance(model, Mapping) else model
    return printable(name or "repaired model")


def _read(entries: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for entry in entries:
        key, sign, value = (part.strip() for part in entry.partition("="))
        if not key or not sign or not value:
            raise UsageError(f"metadata of a card is KEY=VALUE, such as license=mit, got '{entry}'")
        if key in LISTS:
            found.setdefault(key, []).append(value)
        elif key in found or key == "model-index":
            raise UsageError(f"'{key}' is in the card's metadata already")
        else:
            found[key] = value
    return found
