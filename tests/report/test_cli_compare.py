"""`arachne compare` from the command line, on the demo's model."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

from arachne.report.comparison import comparison_schema
from tests.commands import Ran, arachne

pytestmark = pytest.mark.backend("onnx")
ON = ("digits.onnx", "--data", "digits.npz", "--target", "*:7")
QUICK = ("--search", "margin", "--search", "de", "-O", "population=16", "-O", "generations=6", "-O", "steps=32")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compare")
    for name in ("digits.onnx", "digits.npz"):
        (folder / name).write_bytes(resources.files("arachne.demo").joinpath(name).read_bytes())
    return folder


@pytest.fixture(scope="module")
def compared(folder: Path) -> Ran:
    done = arachne("compare", *ON, "-o", "cmp", "--max-break", "1%", *QUICK, cwd=folder)
    assert done.code == 0, done.err
    return done


def test_table_page_and_file_tell_the_same(compared: Ran, folder: Path) -> None:
    told = json.loads((folder / "cmp" / "compare.json").read_text(encoding="utf-8"))
    jsonschema.validate(told, comparison_schema(), jsonschema.Draft202012Validator)
    assert [row["searcher"] for row in told["searchers"]] == ["margin", "de"]
    assert [row["localiser"] for row in told["searchers"]] == ["contrast", "bl"]
    assert told["budget"] == 0.01
    html = (folder / "cmp" / "compare.html").read_text(encoding="utf-8")
    assert len(html) < 5_000_000
    for row in told["searchers"]:
        assert row["held_out"] is not None
        counts = f"{row['held_out']['repaired']} of {row['held_out']['negatives']}"
        assert counts in compared.out
        assert counts in html
    assert told["sentences"][0] in " ".join(compared.out.split())
    assert told["data"]["seen"]["hashes"]
    assert "hashes" not in html
    assert "arachne compare digits.onnx --data digits.npz --target &#39;*:7&#39;" in html


def test_progress_is_told_without_a_terminal(compared: Ran) -> None:
    assert "1 of 2: margin …\n" in compared.err
    assert re.search(r"margin: held out, \d+ of 42 repaired and \d+ of 393 broken, [\d.]+ s\n", compared.err)
    assert compared.err.endswith("open cmp/compare.html in a browser\n")


def test_searchers_that_repaired_as_many_are_not_passed_over(folder: Path) -> None:
    ran = arachne("compare", *ON, "--search", "erase", "--search", "low-rank", "--json", cwd=folder)
    first, second = (row["held_out"]["repaired"] for row in ran.json["searchers"])
    assert first == second
    assert (
        "'erase' and 'low-rank' repaired as many held-out inputs and broke as few: 40 of 42" in ran.json["sentences"][0]
    )


def test_the_same_command_gives_the_same_but_for_times(compared: Ran, folder: Path) -> None:
    again = arachne("compare", *ON, "--max-break", "1%", *QUICK, "--json", "--quiet", cwd=folder)
    assert again.err == ""
    other = again.json
    told = json.loads((folder / "cmp" / "compare.json").read_text(encoding="utf-8"))
    del told["command"]
    for row in (*told["searchers"], *other["searchers"]):
        row["seconds"] = 0
    assert other == told


def test_an_option_goes_to_the_searchers_that_have_it_and_to_no_others(folder: Path) -> None:
    refused = arachne("compare", *ON, "--search", "margin", "-O", "patience=6", cwd=folder)
    assert refused.code == 2
    assert (
        refused.err
        == "error: patience is an option of the searcher 'de', not of the searcher 'margin'; --search de chooses it\n"
    )
    named = ("--search", "margin", "--search", "de", "-O", "margin.population=9")
    wrong = arachne("compare", *ON, *named, cwd=folder)
    assert wrong.code == 2
    assert "the searcher 'margin' has no option 'population'" in wrong.err
    useless = arachne("compare", *ON, "--search", "margin", "--alpha", "3", cwd=folder)
    assert useless.code == 2
    assert "the search 'margin' finds the same patch with any alpha" in useless.err
    unknown = arachne("compare", *ON, "--search", "margn", cwd=folder)
    assert unknown.code == 2
    assert "no searcher named 'margn'; did you mean 'margin'?" in unknown.err
    nothing = arachne("compare", *ON[:-1], "0:9", *QUICK, cwd=folder)
    assert nothing.code == 5
