"""`arachne.__all__` is exactly what is visible, and every name in it can be fetched."""

from __future__ import annotations

import importlib.metadata
import inspect
from pathlib import Path

import pytest
import yaml

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


def test_the_version_is_that_of_the_installed_distribution() -> None:
    assert arachne.__version__ == importlib.metadata.version("arachne-repair")


def test_the_citation_file_has_what_readers_of_it_need() -> None:
    told = yaml.safe_load((Path(arachne.__file__).parents[1] / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors", "license"} <= set(told)
    assert [author["family-names"] for author in told["references"][0]["authors"]] == ["Sohn", "Kang", "Yoo"]
