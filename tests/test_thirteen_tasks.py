"""The thirteen tasks are there, and each of their commands is run: on the page itself, or on the page it names."""

from __future__ import annotations

import re

import pytest

from tests.pages import ROOT, Page, commands

TASKS = Page.read(ROOT / "tests" / "thirteen_tasks.md")
SECTIONS = re.split(r"^## ", TASKS.text, flags=re.MULTILINE)[1:]


def test_there_are_thirteen() -> None:
    assert [section.partition(".")[0] for section in SECTIONS] == [str(number) for number in range(1, 14)]


@pytest.mark.parametrize("section", SECTIONS, ids=[section.splitlines()[0] for section in SECTIONS])
def test_every_command_of_a_task_is_run_somewhere(section: str) -> None:
    own = [block for block in TASKS.blocks if block.language == "sh" and block.text in section]
    assert own
    named = [Page.read((TASKS.path.parent / link).resolve()) for link in re.findall(r"\((\S+\.md)(?:#\S+)?\)", section)]
    run = {
        command
        for page in (TASKS, *named)
        for block in page.blocks
        if block.not_run is None and block.language == "sh"
        for command in commands(block.text)
    }
    wanted = {command for block in own if block.not_run != "installs packages" for command in commands(block.text)}
    assert wanted <= run
