"""`arachne.__all__` is exactly what is visible, and every name in it can be fetched."""

from __future__ import annotations

import inspect

import pytest

import arachne


def test_every_public_name_is_fetched_on_first_use() -> None:
    for name in arachne.__all__:
        assert getattr(arachne, name) is not None


def test_the_names_are_sorted_and_each_has_one_home() -> None:
    homes = [name for names in arachne._HOMES.values() for name in names]
    assert sorted(homes) == sorted(arachne.__all__)
    assert len(set(homes)) == len(homes)
    assert dir(arachne) == sorted([*arachne.__all__, "__version__"])


def test_every_public_function_and_class_says_what_it_does() -> None:
    undocumented = [name for name in arachne.__all__ if not inspect.getdoc(getattr(arachne, name))]
    assert undocumented == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'reparr'"):
        arachne.reparr  # noqa: B018
