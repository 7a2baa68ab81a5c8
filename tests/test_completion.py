"""Shell completion, as bash, zsh and fish ask for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def complete(words: str, shell: str = "bash_complete") -> list[str]:
    """Complete these words as a shell would ask for it, the last of them unfinished."""
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
        ("arachne repair --search de", ["plain,de", "plain,deepfault"]),
        ("arachne localise --localiser g", ["plain,gl"]),
        ("arachne backends --check o", ["plain,onnx"]),
        ("arachne plugins od", ["plain,odds"]),
        ("arachne repair --search de -O p", ["plain,patience=", "plain,population="]),
        ("arachne repair --search de -O start=g", ["plain,start=gaussian"]),
        (
            "arachne repair -O localiser.",
            ["plain,localiser.biases=", "plain,localiser.count=", "plain,localiser.depth="],
        ),
        ("arachne repair -O depth=t", ["plain,depth=tail"]),
        ("arachne repair --search nobody -O ", [""]),
        ("arachne compare --search de --search ridge -O s", ["plain,scale=", "plain,start=", "plain,strengths="]),
        ("arachne localise --localiser spectrum -O formula=o", ["plain,formula=ochiai"]),
        ("arachne evaluate --objective gap:sex -O group_s", ["plain,group_size="]),
        ("arachne repair dig", ["file,dig"]),
        ("arachne repair net.onnx --data val", ["file,val"]),
    ],
)
def test_commands_options_names_and_files_are_completed(words: str, answers: list[str]) -> None:
    assert complete(words) == answers


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "replies"),
    [
        ("arachne repair --search de -O start = g", ["gaussian"]),
        ("arachne repair --search de -O start =", ["auto", "gaussian", "near"]),
        ("arachne repair --search de -O clip = true -O start = n", ["near"]),
        ("arachne localise --localiser spectrum -O formula = o", ["ochiai"]),
    ],
)
def test_bash_which_breaks_words_at_equals_signs_completes_values(
    tmp_path: Path, words: str, replies: list[str]
) -> None:
    command = tmp_path / "arachne"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m arachne "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    script = f"""
eval "$(_ARACHNE_COMPLETE=bash_source arachne)"
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_arachne_completion arachne
echo "${{COMPREPLY[*]}}"
"""
    given = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "--norc", "-c", script], env=given, capture_output=True, text=True, check=True)
    assert done.stdout.split() == replies


@pytest.mark.parametrize(
    ("shell", "line"), [("bash", "complete -o nosort"), ("zsh", "#compdef arachne"), ("fish", "complete --no-files")]
)
def test_every_shell_gets_its_script(shell: str, line: str) -> None:
    assert any(told.strip().startswith(line) for told in complete("arachne ", f"{shell}_source"))
