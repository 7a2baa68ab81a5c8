"""The JSON Schema of a patch, and a check against it that needs no package.

`schema.json` is for everybody's tools. Here only the few words it uses are understood: `type`, `required`,
`properties`, `additionalProperties`, `items`, `minItems`, `maxItems`, `enum`, `pattern`, `minimum` and `$ref`.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib import resources
from typing import Any

from arachne.errors import PatchError

SCHEMA = "arachne.patch/1"

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}


@cache
def schema() -> dict[str, Any]:
    """The schema as it ships in the package."""
    text = resources.files("arachne.patch").joinpath("schema.json").read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


def check_version(document: Any) -> None:
    """Refuse a document that is no patch, or a patch of another major version.

    Raises:
        PatchError: With the version that reads it.
    """
    name = document.get("schema") if isinstance(document, dict) else None
    if name == SCHEMA:
        return
    match = re.fullmatch(r"arachne\.patch/(\d+)(\.\d+)*", name) if isinstance(name, str) else None
    if match is None:
        raise PatchError(f'this is no patch: expected "schema": "{SCHEMA}", got {_shorten(name)}')
    raise PatchError(
        f"the patch has schema '{name}' and this version of Arachne reads '{SCHEMA}'; "
        f"use an Arachne that reads version {match[1]}"
    )


def check(value: Any, rule: dict[str, Any] | None = None, where: str = "patch") -> None:
    """Refuse a value that the schema does not allow, naming its path.

    Raises:
        PatchError: The first thing that is wrong.
    """
    rule = schema() if rule is None else rule
    if "$ref" in rule:
        rule = schema()["$defs"][rule["$ref"].rpartition("/")[2]]
    _check_type(value, rule, where)
    if "enum" in rule and value not in rule["enum"]:
        raise PatchError(f"{where} is {_shorten(value)}, expected one of {', '.join(rule['enum'])}")
    if "pattern" in rule and isinstance(value, str) and not re.search(_whole(rule["pattern"]), value):
        raise PatchError(f"{where} is {_shorten(value)}, expected {rule['pattern']}")
    if "minimum" in rule and isinstance(value, (int, float)) and value < rule["minimum"]:
        raise PatchError(f"{where} is {_shorten(value)}, expected at least {rule['minimum']}")
    if isinstance(value, dict):
        _check_members(value, rule, where)
    if isinstance(value, list) and not rule.get("minItems", 0) <= len(value) <= rule.get("maxItems", len(value)):
        raise PatchError(f"{where} has {len(value)} items, expected {_number(rule)}")
    if isinstance(value, list) and "items" in rule:
        for number, item in enumerate(value):
            check(item, rule["items"], f"{where}[{number}]")


def _check_type(value: Any, rule: dict[str, Any], where: str) -> None:
    if "type" not in rule:
        return
    allowed = [rule["type"]] if isinstance(rule["type"], str) else rule["type"]
    if isinstance(value, bool) or not any(isinstance(value, _TYPES[name]) for name in allowed):
        raise PatchError(f"{where} is {_shorten(value)}, expected {' or '.join(allowed)}")


def _check_members(value: dict[str, Any], rule: dict[str, Any], where: str) -> None:
    for name in rule.get("required", ()):
        if name not in value:
            raise PatchError(f"{where} has no '{name}'")
    properties = rule.get("properties", {})
    for name, member in value.items():
        if name in properties:
            check(member, properties[name], f"{where}.{name}")
        elif rule.get("additionalProperties") is False:
            raise PatchError(f"{where} has an unknown '{name}'; known: {', '.join(properties)}")


def _whole(pattern: str) -> str:
    """JSON Schema's `$` is the end of the text; Python's is also before a last newline."""
    return f"{pattern[:-1]}\\Z" if pattern.endswith("$") else pattern


def _number(rule: dict[str, Any]) -> str:
    low, high = rule.get("minItems", 0), rule.get("maxItems")
    return str(low) if low == high else f"at most {high}" if not low else f"{low} to {high}"


def _shorten(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "…"
