"""Wherever a public function or value holds arrays, its docstring says their shapes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from typing import Any

import pytest

import arachne

ARRAY = re.compile(r"\bArray\b|\bndarray\b")
SHAPE = re.compile(r"`\([^`]*,[^`]*\)`|`\([^`]*\.\.\.[^`]*\)`|\bshapes?\b")
"""A tuple in backquotes, such as `(n, classes)`, or a sentence about the shape."""


def functions(named: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public functions of a name: itself, or its methods and properties."""
    if inspect.isfunction(named):
        yield named.__name__, named
    elif inspect.isclass(named):
        for name, member in vars(named).items():
            found = getattr(member, "__func__", getattr(member, "fget", member))
            if inspect.isfunction(found) and not name.startswith("_"):
                yield f"{named.__name__}.{name}", found


def entries(docstring: str) -> dict[str, str]:
    """Read what the sections `Args`, `Attributes` and `Returns` say of each name."""
    found = dict(re.findall(r"^    \*{0,2}(\w+): (.*(?:\n {8}.*)*)", docstring, re.MULTILINE))
    returned = re.search(r"^Returns:\n((?:    .*\n?)+)", docstring, re.MULTILINE)
    return found | ({"return": returned[1]} if returned else {})


def without_shapes(named: Any) -> list[str]:
    """The arrays of a public name whose shape is not told."""
    missing = []
    for name, function in functions(named):
        docstring = inspect.getdoc(function) or ""
        told, summary = entries(docstring), docstring.partition("\nArgs:")[0]
        for argument, annotation in function.__annotations__.items():
            if ARRAY.search(str(annotation)) and not SHAPE.search(told.get(argument) or summary):
                missing.append(f"{name}: {argument}")
    if inspect.isclass(named) and is_dataclass(named):
        told = entries(inspect.getdoc(named) or "")
        for field, annotation in vars(named).get("__annotations__", {}).items():
            if ARRAY.search(str(annotation)) and not field.startswith("_") and not SHAPE.search(told.get(field, "")):
                missing.append(f"{named.__name__}.{field}")
    return missing


@pytest.mark.parametrize("name", arachne.__all__)
def test_arrays_of_a_public_name_have_their_shapes_told(name: str) -> None:
    assert without_shapes(getattr(arachne, name)) == []


def test_an_array_without_a_shape_is_found() -> None:
    def scores(inputs: arachne.LabelledData, rows: Array) -> Array:  # type: ignore[name-defined]  # noqa: F821
        """Scores `(n, classes)`.

        Args:
            inputs: The data.
            rows: Which of them.
        """

    assert without_shapes(scores) == ["scores: rows"]
