"""Shell completion, as bash, zsh and fish ask for it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def asked(words: str, shell: str = "bash_complete") -> list[str]:
    """What the command answers a shell that has these words, the last of them unfinished."""
    number = str(len(words.split()) - (not words.endswith(" ")))
    given = {**os.environ, "_ARACHNE_COMPLETE": shell, "COMP_WORDS": words, "COMP_CWORD": number}
    command = [sys.executable, "-m", "arachne"]
    done = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "answers"),
    [
        ("arachne re", ["plain,repair", "plain,report", "plain,revert"]),
        ("arachne repair --see", ["plain,--seed"]),
        ("arachne repair --search de", ["plain,de", "plain,deep", "plain,deepfault"]),
        ("arachne localise --localiser g", ["plain,gl"]),
        ("arachne backends --check o", ["plain,onnx"]),
        ("arachne repair --evaluator p", ["plain,plain"]),
        ("arachne repair dig", ["file,dig"]),
        ("arachne repair net.onnx --data val", ["file,val"]),
    ],
)
def test_commands_options_names_and_files_are_completed(words: str, answers: list[str]) -> None:
    assert asked(words) == answers


@pytest.mark.parametrize(
    ("shell", "line"), [("bash", "complete -o nosort"), ("zsh", "#compdef arachne"), ("fish", "complete --no-files")]
)
def test_every_shell_gets_its_script(shell: str, line: str) -> None:
    assert any(told.strip().startswith(line) for told in asked("arachne ", f"{shell}_source"))
