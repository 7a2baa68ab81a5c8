"""Rules of causes in a patch and in a scan's file: every field of every kind as something else, and too much of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.safety import valid
from tests.safety.case import Case

RULES: dict[str, dict[str, Any]] = {
    "values": {"input": "", "index": [10, 20], "value": [0.0, 0.0], "least": 1},
    "range": {"input": "", "index": 20, "low": 0.5, "high": None},
    "missing": {"input": "", "index": 20},
    "token": {"input": "", "token": 3},
    "colour": {"input": "", "layout": [1, 8, 8], "colour": [0.0], "least": 1},
    "both": {"rules": [{"kind": "missing", "input": "", "index": 2}, {"kind": "token", "input": "", "token": 3}]},
    "derived": {"input": "", "layout": [1, 8, 8], "names": ["brightness"], "low": [0.1], "high": [None], "unknown": 1},
    "columns": {"columns": ["camera"], "values": ["a"]},
    "activation": {"layer": "hidden", "read_as": 3, "direction": [0.5] * 64, "least": 0.0},
}
"""A rule of each kind for the demo's digits; `columns` has none, since they have no metadata."""

WRONG: dict[str, Any] = {
    "null": None,
    "true": True,
    "a-text": "x",
    "a-long-text": "9" * 5000,
    "an-object": {"a": 1},
    "a-negative-number": -7,
    "2-to-the-63": 2**63,
    "1e300": 1e300,
    "an-empty-list": [],
    "a-list-of-lists": [[1], [2]],
    "a-list-of-texts": ["x", "../y"],
    "a-list-of-nulls": [None, None],
    "a-list-of-minus-one": [-1],
    "a-list-of-2-to-the-40": [2**40, 2**40],
    "a-list-of-1e300": [1e300] * 64,
    "a-million-numbers": [0] * 1_000_000,
}

SHAPED: dict[str, dict[str, Any]] = {
    "values-of-one-place-a-million-times": {"kind": "values", "input": "", "index": [3] * 10**6, "value": [0] * 10**6,
                                            "least": 1},
    "values-beyond-the-input": {"kind": "values", "input": "", "index": [10**6], "value": [0], "least": 1},
    "values-of-an-input-nobody-has": {"kind": "values", "input": "x", "index": [1], "value": [0], "least": 1},
    "colour-of-a-million-channels": {"kind": "colour", "input": "", "layout": [1, 8, 8], "colour": [0] * 10**6,
                                     "least": 1},
    "colour-of-sixty-channels": {"kind": "colour", "input": "", "layout": [1, 8, 8], "colour": [0] * 60, "least": 1},
    "colour-of-another-layout": {"kind": "colour", "input": "", "layout": [3, 8, 8], "colour": [0] * 3, "least": 1},
    "derived-without-end": {"kind": "derived", "input": "", "layout": None, "names": ["length"] * 10**5,
                            "low": [0] * 10**5, "high": [None] * 10**5},
    "derived-of-a-column-nobody-has": {"kind": "derived", "input": "", "layout": None, "names": ["column 99999"],
                                       "low": [0], "high": [None]},
    "derived-of-a-negative-column": {"kind": "derived", "input": "", "layout": None, "names": ["column -1"],
                                     "low": [0], "high": [None]},
    "activation-of-another-width": {"kind": "activation", "layer": "hidden", "read_as": 3, "direction": [0.5] * 3,
                                    "least": 0},
    "activation-of-a-layer-nobody-has": {"kind": "activation", "layer": "x", "read_as": 3, "direction": [0.5] * 64,
                                         "least": 0},
    "both-of-ten-thousand": {"kind": "both", "rules": [{"kind": "missing", "input": "", "index": 2}] * 10**4},
    "something-unknown": {"kind": "missing", "input": "", "index": 2, "evil": 1},
    "a-plugin-base-class": {"kind": "__class__"},
}  # fmt: skip


def nest_rules(levels: int) -> dict[str, Any]:
    """Rules within rules, two at each level: two to the power of the levels in all."""
    rule: dict[str, Any] = {"kind": "missing", "input": "", "index": 2}
    for _ in range(levels):
        rule = {"kind": "both", "rules": [rule, rule]}
    return rule


def in_scan(rule: Any) -> Any:
    """The rule in a scan's file, asked for by `localise`."""

    def make(folder: Path) -> list[str]:
        (folder / "scan.json").write_text(json.dumps({"causes": [{"rule": rule}]}), encoding="utf-8")
        return ["localise", valid.model(folder), "--data", valid.data(folder), "--target", "cause:scan.json:1"]

    return make


def in_patch(rule: Any) -> Any:
    """The rule in a patch, asked for by `evaluate`."""

    def make(folder: Path) -> list[str]:
        file = folder / valid.patch(folder)
        found = json.loads(file.read_text(encoding="utf-8"))
        found["provenance"] |= {"target": ["cause:1"], "causes": {"cause:1": rule}}
        file.write_text(json.dumps(found), encoding="utf-8")
        return ["evaluate", "net.onnx", "--data", "data.npz", "--patch", "patch.json"]

    return make


def _fields() -> Iterator[tuple[str, dict[str, Any]]]:
    for kind, rule in RULES.items():
        for field in rule:
            yield f"{kind}-without-{field}", {"kind": kind, **{name: rule[name] for name in rule if name != field}}
            for wrong, value in WRONG.items():
                yield f"{kind}-with-{field}-{wrong}", {"kind": kind, **rule, field: value}


READ = (0, 3)
"""A range without a bound, or a token that no input has, is a rule as good as others."""

CASES = [
    *(Case(f"rule-of-{name}-in-a-scan", "rule", "type", in_scan(rule), exits=(*READ, 5)) for name, rule in _fields()),
    *(Case(f"rule-of-{name}-in-a-scan", "rule", "size", in_scan(rule)) for name, rule in SHAPED.items()),
    *(Case(f"rule-of-{name}-in-a-patch", "rule", "size", in_patch(rule)) for name, rule in SHAPED.items()),
    *(
        Case(f"rule-within-{levels}-rules-in-a-{place}", "rule", "size", make(nest_rules(levels)))
        for levels in (4, 12, 16)
        for place, make in (("scan", in_scan), ("patch", in_patch))
    ),
]
