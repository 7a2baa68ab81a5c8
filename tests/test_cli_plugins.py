"""`arachne plugins`: every plug-in with a line, and one with its options."""

from __future__ import annotations

from pathlib import Path

import pytest

from arachne.plugins.table import BACKENDS, FINDERS, LOCALISERS, OBJECTIVES, SEARCHERS, TASKS
from tests.commands import arachne


def test_every_plugin_is_listed_with_what_it_does(tmp_path: Path) -> None:
    done = arachne("plugins", "--json", cwd=tmp_path)
    listed = {(one["kind"], one["name"]): one for one in done.json["plugins"]}
    tables = (SEARCHERS, LOCALISERS, OBJECTIVES, TASKS, FINDERS, BACKENDS)
    assert list(listed) == [(table.kind, name) for table in tables for name in table.names()]
    assert all(one["summary"] for one in listed.values())
    start = next(one for one in listed["searcher", "de"]["options"] if one["name"] == "start")
    assert (start["default"], start["paper"], start["choices"]) == ("auto", "gaussian", ["auto", "gaussian", "near"])
    assert start["help"] == "Where the search starts."


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "de",
            (
                "de (searcher) Differential evolution: a population of candidate patches",
                "Chosen by --search de",
                "range. (true or false; default true; the paper's false)",
            ),
        ),
        (
            "bl",
            (
                "--include LAYER",
                "-O min_weights=… Widen a front smaller than this. (a whole number; default 0; 5 in a repair)",
                "Chosen by --localiser bl",
            ),
        ),
        ("clusters", ("its options are set in Python", "at least. (a number; default 10.0)")),
        ("onnx", ("onnx (backend)", ".onnx")),
    ],
)
def test_one_plugin_is_shown_with_its_options(tmp_path: Path, name: str, told: tuple[str, ...]) -> None:
    done = arachne("plugins", name, cwd=tmp_path)
    assert done.code == 0
    assert [text for text in told if text not in " ".join(done.out.split())] == []


def test_an_unknown_plugin_is_answered_with_a_near_one(tmp_path: Path) -> None:
    done = arachne("plugins", "spektrum", cwd=tmp_path)
    assert (done.code, done.err) == (2, "error: no plug-in named 'spektrum'; did you mean 'spectrum'?\n")


@pytest.mark.parametrize(
    ("command", "flag", "spelling"),
    [
        (
            "repair",
            "--population=9",
            "--population is an option of the searchers 'de' and 'front': write -O population=",
        ),
        ("repair", "--no-clip", "--no-clip is an option of the searcher 'de': write -O clip=false"),
        ("localise", "--min-weights=3", "an option of the localisers 'bl' and 'gl': write -O min_weights=VALUE"),
        ("compare", "--folds=3", "write -O folds=VALUE"),
        ("evaluate", "--group-size=9", "write -O group_size=VALUE"),
        ("choose", "--group-size=9", "write -O group_size=VALUE"),
        ("scan", "--population=9", "no option named '--population'"),
    ],
)
def test_a_flag_that_was_a_plugins_option_is_answered_with_how_it_is_given(
    tmp_path: Path, command: str, flag: str, spelling: str
) -> None:
    done = arachne(command, "missing.onnx", flag, cwd=tmp_path)
    assert (done.code, spelling in done.err.splitlines()[-1]) == (2, True), done.err
