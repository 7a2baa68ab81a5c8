"""Imports in `arachne` only point downwards: the order of its modules and packages, written once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

LEVELS = (
    ("errors", "text", "demo", "weights.storage"),
    ("decisions", "io", "plugins"),
    ("fairness", "model", "tasks"),
    ("choose.budget", "data", "scoring.statistics", "weights"),
    ("adapting", "causes", "cluster", "localise", "patch", "scoring"),
    ("delta", "evidence", "search", "testing"),
    ("choose", "report", "rivals", "settings"),
    ("results",),
    ("bench", "engine"),
    ("api", "cli"),
)
"""Everything in `arachne` from the bottom up. Each imports only from itself and from the levels below its own.

Python starts with `__init__` and `__main__`. They have no level, and nothing imports from `__main__`.
"""

STARTERS = ("__init__", "__main__")

ALONE = ("choose.budget", "scoring.statistics", "weights.storage")
"""Modules with a level of their own, below that of their folder, whose `__init__` imports nothing."""

FAST = (
    ("routes", "deficits", "input_order"),
    ("cache", "error_band", "reference_scores"),
    ("bounds", "route_choice"),
    ("local",),
    ("decide", "remote"),
    ("evaluator",),
)
"""The order inside `arachne.scoring.fast`."""


def imported_names(source: str, *, at_runtime: bool = False) -> Iterator[str]:
    """The full names of everything of `arachne` that a source text imports, for type checking too unless told else."""
    skipped: set[ast.AST] = set()
    for node in ast.walk(ast.parse(source)):
        if at_runtime and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            skipped.update(node.body)
        elif node in skipped:
            continue
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] == "arachne")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "arachne":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def sources() -> dict[str, str]:
    """Every module of `arachne` by its full name, with its source text."""
    files = sorted((ROOT / "arachne").rglob("*.py"))
    return {".".join(file.relative_to(ROOT).with_suffix("").parts): file.read_text("utf-8") for file in files}


def part_of(name: str, package: str) -> str:
    """The module or folder right below a package that a full name lies in."""
    parts = name.removeprefix(f"{package}.").split(".")
    return ".".join(parts[:2]) if ".".join(parts[:2]) in ALONE else parts[0]


def upward(modules: dict[str, str], package: str, levels: tuple[tuple[str, ...], ...]) -> list[str]:
    """Imports among the parts of a package that do not point downwards, one sentence each."""
    level = {name: number for number, names in enumerate(levels) for name in names}
    found = []
    for module, source in modules.items():
        own = part_of(module, package)
        if not module.startswith(f"{package}.") or own in STARTERS:
            continue
        if own not in level:
            found.append(f"{package}.{own} has no level; put it into tests/test_imports.py")
            continue
        for name in imported_names(source):
            other = part_of(name, package) if name.startswith(f"{package}.") else own
            if other != own and other in level and level[other] >= level[own]:
                found.append(f"{module} imports {name}, which lies beside or above it")
    return found


def test_no_module_imports_from_beside_or_above_it() -> None:
    assert upward(sources(), "arachne", LEVELS) == []


def test_the_order_names_only_what_exists() -> None:
    parts = {part_of(module, "arachne") for module in sources()}
    assert {name for names in LEVELS for name in names} <= parts


def test_nothing_imports_what_starts_the_command() -> None:
    assert not [name for name, text in sources().items() if any("__main__" in one for one in imported_names(text))]


def test_only_the_choice_of_an_evaluator_knows_the_fast_one() -> None:
    outside = {name: text for name, text in sources().items() if not name.startswith("arachne.scoring.fast")}
    knowing = {name for name, text in outside.items() if any("scoring.fast" in one for one in imported_names(text))}
    assert knowing <= {"arachne.scoring.evaluators", "arachne.cluster.worker"}


def test_inside_the_fast_evaluator_imports_point_downwards() -> None:
    assert upward(sources(), "arachne.scoring.fast", FAST) == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("arachne.model.backend", "from arachne.localise import Localiser"),
        ("arachne.scoring.fast.decide", "from arachne.localise.base import Localisation"),
        ("arachne.localise.base", "from arachne.scoring import Evaluator"),
        ("arachne.search.base", "import arachne.engine"),
        ("arachne.errors", "from arachne import model"),
        ("arachne.patch.patch", "def save(self):\n    from arachne.report.patch_text import as_text"),
        ("arachne.unheard_of", "import numpy"),
    ],
)
def test_an_import_that_points_sideways_or_upwards_is_found(module: str, line: str) -> None:
    found = upward({module: line}, "arachne", LEVELS)
    assert len(found) == 1
    assert found[0].startswith(module)


def test_no_two_modules_need_each_other() -> None:
    modules = sources()
    graph: dict[str, set[str]] = {}
    for module, source in modules.items():
        names = set(imported_names(source, at_runtime=True))
        names |= {name.rpartition(".")[0] for name in names}
        graph[module] = {name for name in names if name in modules} - {module}
    assert len(list(TopologicalSorter(graph).static_order())) == len(modules)
