"""One table of plug-ins: ours are in it as our package says, others join by their entry points."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from arachne.cli.plugin_options import owners_of, plugin_options
from arachne.errors import PluginUnavailableError, UsageError
from arachne.localise import Bidirectional, Localiser
from arachne.model.backend import ModelBackend
from arachne.plugins.table import BACKENDS, LOCALISERS, SEARCHERS, TABLES, Table
from arachne.search import DifferentialEvolution, Pool, Searcher

ROOT = Path(__file__).parent.parent.parent


def test_the_entry_points_of_our_package_are_the_table() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    assert declared == {table.group: table.ours for table in TABLES}


def test_the_tables_know_what_is_ours() -> None:
    assert {"keras", "onnx", "tflite", "torch"} <= set(BACKENDS.names())
    assert all(issubclass(LOCALISERS.get(name), Localiser) for name in LOCALISERS.ours)
    assert all(issubclass(SEARCHERS.get(name), Searcher) for name in SEARCHERS.ours)
    assert all(table.get(name).name == name for table in (LOCALISERS, SEARCHERS) for name in table.ours)
    assert LOCALISERS.is_ours(Bidirectional)
    assert SEARCHERS.origin(DifferentialEvolution) is None
    assert not BACKENDS.is_ours(ModelBackend)


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no localiser named 'blx'; did you mean 'bl'"):
        LOCALISERS.get("blx")


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """A table that distributions on a folder of the path have joined."""
    info = tmp_path / "odd_ones-2.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd-ones\nVersion: 2.1\n")
    entries = ["needy = odd_needy:Needy", "faulty = odd_faulty:Faulty", "gone = odd_gone:Gone", "de = odd_needy:Needy"]
    (info / "entry_points.txt").write_text("\n".join(["[arachne.searchers]", *entries]) + "\n")
    (tmp_path / "odd_needy.py").write_text("import a_package_nobody_has\n")
    (tmp_path / "odd_faulty.py").write_text("raise RuntimeError('out of order')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return SEARCHERS


def test_a_plugin_that_lacks_a_package_says_what_to_install(table: Table) -> None:
    with pytest.raises(PluginUnavailableError, match=r"searcher 'needy' needs .* pip install a_package_nobody_has"):
        table.get("needy")


@pytest.mark.parametrize(("name", "reason"), [("faulty", "RuntimeError: out of order"), ("gone", "odd_gone")])
def test_a_plugin_that_fails_is_named_with_its_package(table: Table, name: str, reason: str) -> None:
    with pytest.raises(PluginUnavailableError, match=f"searcher '{name}' of odd-ones 2.1 cannot be imported.*{reason}"):
        table.get(name)


def test_the_names_of_ours_cannot_be_taken(table: Table) -> None:
    assert table.get("de") is DifferentialEvolution
    assert table.third_party() == ["faulty", "gone", "needy"]


def test_plugins_that_cannot_be_imported_have_no_options(table: Table) -> None:
    assert plugin_options(table, "faulty") == {}
    assert owners_of("population", table) == ["de", "front"]


@pytest.mark.parametrize("old", SEARCHERS.aliases)
def test_a_searcher_is_found_by_the_name_it_had_before(old: str) -> None:
    now = SEARCHERS.aliases[old]
    assert SEARCHERS.get(old) is SEARCHERS.get(now)
    assert SEARCHERS.canonical(old) == SEARCHERS.canonical(old.upper()) == now
    assert old not in SEARCHERS.names()
    assert Pool(members=(old,)).members == (now,)
