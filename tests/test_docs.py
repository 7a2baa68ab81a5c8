"""The pages are true: snippets run, output is what is shown, names, options, exit codes and links exist.

Every page runs from top to bottom in a folder of its own that holds what `arachne demo -o .` leaves there; the README
in one that holds what its first command leaves. `tests/pages.py` tells which marks leave a block out, and why.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import arachne
from arachne import errors
from arachne.cli import COMMANDS, run
from tests.pages import PAGES, REASONS, ROOT, Block, Page, commands

CLI = ROOT / "docs" / "reference" / "cli.md"
PYTHON = ROOT / "docs" / "reference" / "python.md"
SKIPPED_LANGUAGES = ("text", "mermaid")
pytestmark = pytest.mark.backend("onnx")


def pages() -> list[Any]:
    """Every page that has something to run, marked with the backends it needs."""
    return [
        pytest.param(page, id=page.name, marks=[pytest.mark.backend(name) for name in page.needs])
        for page in map(Page.read, PAGES)
        if any(block.language not in SKIPPED_LANGUAGES for block in page.blocks)
    ]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `arachne demo` leaves."""
    folder = tmp_path_factory.mktemp("demo") / "arachne-demo"
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert run(["demo", "-o", str(folder), "-q"]) == 0
    return folder


@pytest.fixture
def workspace(request: pytest.FixtureRequest, demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder a page runs in."""
    page: Page = request.getfixturevalue("page")
    if page.name != "docs/index.md":  # which begins with making it
        shutil.copytree(demo, tmp_path / "arachne-demo" if page.name == "README.md" else tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))  # Keras leaves its settings in the user's home otherwise
    if "torch" in page.needs:
        import torch

        torch.set_num_threads(1)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


# Exporters of other people's frameworks warn about themselves.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize("page", pages())
def test_what_a_page_shows_runs(page: Page, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    namespace: dict[str, Any] = {"__name__": "page"}
    said = ""
    for block in page.blocks:
        if block.not_run is not None:
            said = ""
        elif block.file is not None:
            (workspace / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            said = run_python(block, namespace)
        elif block.language == "sh":
            said = "".join(run_command(command, block, monkeypatch) for command in commands(block.text))
        elif block.language == "text" and block.follows:
            assert_shown(block, said)
        else:
            assert_reads(block)


def run_python(block: Block, namespace: dict[str, Any]) -> str:
    """Run a snippet in the page's namespace; what it printed."""
    out = io.StringIO()
    # Line numbers of the page in tracebacks.
    code = compile("\n" * block.line + block.text, str(block.page), "exec")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        exec(code, namespace)
    return out.getvalue()


def run_command(command: str, block: Block, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run one line of a shell block; what it printed. `# exit 5` at its end is the exit code it should have."""
    wanted = re.search(r"# exit (\d+)", command)
    words = shlex.split(command, comments=True)
    with monkeypatch.context() as patched, contextlib.ExitStack() as stack:
        while "=" in words[0]:
            patched.setenv(*words.pop(0).split("=", 1))
        if words[0] in ("cmp", "python"):
            program = [sys.executable, "-I"] if words[0] == "python" else ["cmp"]
            done = subprocess.run([*program, *words[1:]], capture_output=True, text=True, check=False)
            assert words[0] == "cmp" or not done.returncode, f"{block.place}: {command}\n{done.stderr}"
            return done.stdout + done.stderr
        if words[0] == "pytest":
            return run_pytest(words[1:], block)
        assert words[0] == "arachne", f"{block.place}: '{command}' is not run; say why with <!-- not run: ... -->"
        out = io.StringIO()
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(out))
        code = run(words[1:])
    told = out.getvalue()
    assert code == int(wanted[1] if wanted else 0), f"{block.place}: {command}\nexit {code}\n{told}"
    return told


def run_pytest(words: list[str], block: Block) -> str:
    """Run tests that a page has written, in a fresh interpreter, where Arachne and this folder alone are found."""
    paths = [str(Path(arachne.__file__).parents[1])]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        check=False,
    )
    assert done.returncode == 0, (
        f"{block.place}: pytest {' '.join(words)}\n{done.stdout[-3000:]}\n{done.stderr[-1000:]}"
    )
    return done.stdout


def assert_shown(block: Block, said: str) -> None:
    """Every line of a shown output was printed; `…` stands for anything."""
    printed = [re.sub(r"\s+", " ", line).strip() for line in said.splitlines()]
    for line in block.text.splitlines():
        shown = re.sub(r"\s+", " ", line).strip()
        pattern = ".*".join(map(re.escape, shown.split("…")))
        assert any(re.fullmatch(pattern, one) for one in printed), f"{block.place}: '{line}' was not printed in\n{said}"


def assert_reads(block: Block) -> None:
    """A file shown in part or whole is well formed."""
    readers: dict[str, Callable[[str], Any]] = {
        "toml": tomllib.loads,
        "json": json.loads,
        "yaml": yaml.safe_load,
    }
    if block.language in readers:
        readers[block.language](block.text)
    else:
        assert block.language in SKIPPED_LANGUAGES, f"{block.place}: unknown language '{block.language}'"


def test_what_is_not_run_has_one_of_the_listed_reasons() -> None:
    left_out = [block for page in map(Page.read, PAGES) for block in page.blocks if block.not_run is not None]
    unknown = [f"{block.place}: {block.not_run}" for block in left_out if block.not_run not in REASONS]
    assert unknown == []
    assert {block.not_run for block in left_out} == set(REASONS), "a reason that no page uses any more"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(path: Path) -> None:
    page = Page.read(path)
    for link in page.links:
        file, _, anchor = link.partition("#")
        target = path if not file else (path.parent / file).resolve()
        assert target.exists(), f"{page.name} links to '{link}'"
        if anchor and target.suffix == ".md":
            assert anchor in Page.read(target).anchors, f"{page.name} links to '{link}'"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_of_the_repository_a_page_names_is_there(path: Path) -> None:
    page = Page.read(path)
    named = re.findall(r"`((?:arachne|backends|docs|examples|reports|scripts|tests)/[\w./-]+)`", page.prose)
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_page_is_in_the_navigation() -> None:
    # The strict build resolves the tags of the plug-ins; here only the pages matter.
    text = re.sub(r"!!\S+", "", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    listed = re.findall(r"[\w/-]+\.md", json.dumps(yaml.safe_load(text)["nav"]))
    assert sorted(listed) == sorted(
        str(page.relative_to(ROOT / "docs")) for page in PAGES if page.is_relative_to(ROOT / "docs")
    )


def test_the_workflow_on_the_page_is_the_one_to_copy() -> None:
    guides = ROOT / "docs" / "guides"
    shown = [block.text for block in Page.read(guides / "ci.md").blocks if block.language == "yaml"]
    assert shown == [(guides / "github-actions.yml").read_text(encoding="utf-8")]


def test_code_on_a_page_is_the_file_it_is_said_to_be() -> None:
    shown = [block for page in map(Page.read, PAGES) for block in page.blocks if block.source is not None]
    assert len(shown) > 5
    assert [block.place for block in shown if block.text != (ROOT / str(block.source)).read_text("utf-8")] == []


def test_no_page_has_holes_that_only_the_site_fills() -> None:
    assert [page.name for page in map(Page.read, PAGES) if "--8<--" in page.text] == []


def test_every_public_name_is_in_the_reference() -> None:
    documented = re.findall(r"^::: arachne\.(\w+)$", PYTHON.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(documented) == sorted([*arachne.__all__, "errors"])


def test_the_reference_of_commands_is_what_the_commands_say(capsys: pytest.CaptureFixture[str]) -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "make_cli_reference.py"))["fill_page"]
    page = CLI.read_text(encoding="utf-8")
    assert made(page) == page, "run: python scripts/make_cli_reference.py"
    assert set(re.findall(r"^\| `arachne (\w+)", page, re.MULTILINE)) == set(COMMANDS)


def test_every_exit_code_is_in_the_reference() -> None:
    def codes(error: type[errors.ArachneError]) -> set[int]:
        return {error.exit_code}.union(*(codes(below) for below in error.__subclasses__()))

    told = {int(code) for code in re.findall(r"\d+", str(run.__doc__))}
    listed = set(map(int, re.findall(r"^\| (\d+) \|", CLI.read_text(encoding="utf-8"), re.MULTILINE)))
    assert listed == codes(errors.ArachneError) | {0, 130, 143}
    assert told == listed


def test_the_figures_of_the_readme_are_those_of_the_demo(demo: Path) -> None:
    result = json.loads((demo / "fix" / "result.json").read_text(encoding="utf-8"))
    held_out = result["held_out"]
    figures = [
        ("digits read as seven by mistake", held_out["target_errors_before"], held_out["target_errors_after"]),
        ("accuracy", f"{held_out['accuracy_before']:.1%}", f"{held_out['accuracy_after']:.1%}"),
        ("right before, wrong now", "", f"{held_out['broken']} of {held_out['positives']}"),
        ("weights changed", "", f"{result['weights']} of {result['localised']['candidates']:,}"),
    ]
    rows = [tuple(cell.strip() for cell in line.strip("|\n").split("|")) for line in readme_table()]
    assert rows == [(name, *(str(value).replace("%", " %") for value in values)) for name, *values in figures]


def test_contributing_names_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:arachne|backends|docs|tests|scripts)/[\w./-]*)`", text)
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []


def readme_table() -> list[str]:
    """The rows of the before/after table."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = re.search(r"^\| *\| before \| after \|\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert table is not None
    return table[1].splitlines()
