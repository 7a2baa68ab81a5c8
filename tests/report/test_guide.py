"""The guides on evidence and CI say what the program does."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from arachne.cli.repair import command
from arachne.evidence import VERDICTS, Gate
from arachne.evidence.gates import NAMES

GUIDES = Path(__file__).parent.parent.parent / "docs" / "guides"
GUIDE = GUIDES / "evidence.md"
pytestmark = pytest.mark.skipif(not GUIDE.exists(), reason="the guides are not here: this is not a checkout")


def test_every_number_a_gate_may_name_is_real() -> None:
    section = (GUIDES / "ci.md").read_text(encoding="utf-8").partition("| number | meaning |")[2].partition("\n\n")[0]
    named = re.findall(r"`(\w+)(?:\[\w+\])?`", section)
    assert len(named) > 20
    assert set(named) <= set(NAMES)


def test_all_verdicts_are_explained() -> None:
    rows = re.findall(r"^\| ([a-z ]+) \| ", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(VERDICTS) <= set(rows)


def test_the_workflow_uses_options_and_gates_that_exist() -> None:
    workflow = (GUIDES / "github-actions.yml").read_text(encoding="utf-8")
    (script,) = re.findall(r"^ *(arachne repair (?:.*\\\n)*.*)$", workflow, re.MULTILINE)
    words = shlex.split(script.replace("\\\n", " "))
    known = {name for parameter in command.params for name in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= known
    gates = [words[number + 1] for number, word in enumerate(words) if word == "--fail-if"]
    assert [Gate.parse(gate).text for gate in gates] == gates
