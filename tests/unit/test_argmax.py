"""Nobody but `decisions/` takes an argmax of class scores."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

NOT_OF_SCORES = {
    "arachne/causes/clusters.py": "counts of predictions, mistakes of a limit",
    "arachne/causes/derived.py": "entries of a row",
    "arachne/causes/estimating.py": "counts, the first and last pixel of a patch",
    "arachne/causes/inputs.py": "gains of rules",
    "arachne/causes/interventions.py": "distances",
    "arachne/causes/items.py": "gains of rules",
    "arachne/causes/judging.py": "counts of predictions",
    "arachne/causes/wording.py": "counts",
    "arachne/data/classes.py": "one-hot labels",
    "arachne/evidence/forecast.py": "counts",
    "arachne/scoring/fast/decide.py": "deficits of candidates",
    "arachne/scoring/fast/input_order.py": "positions",
    "arachne/localise/pareto.py": "products of objectives",
    "arachne/report/direction_objects.py": "parts of a direction",
    "arachne/report/scan_page.py": "distances",
    "arachne/search/cross_fit.py": "fitness of candidates",
    "arachne/search/de.py": "deficits of candidates",
    "arachne/search/direction_search.py": "deficits and fitness of candidates",
    "arachne/search/directions.py": "entries of a direction",
    "arachne/search/front.py": "gains of candidates",
    "arachne/search/gate.py": "effects of hidden units",
    "arachne/search/pool.py": "deficits of candidates",
    "arachne/tasks/detection/candidates.py": "overlaps of boxes, and anchors of one class",
    "arachne/tasks/detection/layout.py": "anchors of each class",
    "arachne/tasks/detection/measures.py": "overlaps of boxes",
    "arachne/testing/checks/forward.py": "what predictions are checked against",
    "arachne/testing/nodes/plain.py": "values in a pooling window",
}
"""Where the largest of something else is looked for, and of what."""


def argmaxes(source: str) -> Iterator[int]:
    """The lines of a source text that use `argmax` or `argmin`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Attribute, ast.Name)):
            name = node.attr if isinstance(node, ast.Attribute) else node.id
            if name in ("argmax", "argmin", "nanargmax", "nanargmin"):
                yield node.lineno


def argmax_of_scores() -> set[str]:
    """The packages that take an argmax of class scores."""
    found = set()
    for folder in ("arachne", "backends"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            path = file.relative_to(ROOT).as_posix()
            if any(argmaxes(file.read_text("utf-8"))) and path not in NOT_OF_SCORES:
                found.add("/".join(path.split("/")[:2]))
    return found


def test_only_decisions_take_an_argmax_of_scores() -> None:
    assert argmax_of_scores() == {"arachne/decisions"}


def test_every_exempt_file_takes_one() -> None:
    assert [path for path in NOT_OF_SCORES if not any(argmaxes((ROOT / path).read_text("utf-8")))] == []


def test_an_argmax_is_found_however_it_is_written() -> None:
    assert list(argmaxes("np.argmax(a, axis=1)\na.argmin()\nfrom numpy import argmax\nargmax(a)")) == [1, 2, 4]
