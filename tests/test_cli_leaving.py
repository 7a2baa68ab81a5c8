"""The exit code is the command's own, whatever becomes of its streams and whatever a library does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from arachne.cli import run

COMMANDS = {"help": ("--help",), "table": ("backends",), "object": ("backends", "--json")}
BLAS_WITHOUT_MEMORY = """
import resource
import numpy as np
from arachne.cli.exit import prepare, leave

prepare()
matrix = np.ones((700, 700))
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + 12_000_000
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
matrix @ matrix
leave(0)
"""


def arachne(*arguments: str, stdout: int, stderr: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "arachne", *arguments]
    return subprocess.run(command, stdout=stdout, stderr=stderr, text=True, check=False)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_behind_standard_output_is_the_environment(name: str) -> None:
    with Path("/dev/full").open("w") as full:
        ran = arachne(*COMMANDS[name], stdout=full.fileno())
    assert (ran.returncode, "No space left on device" in ran.stderr, ran.stderr.count("\n")) == (4, True, 1)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_reader_that_has_gone_away_is_the_environment_and_no_failed_gate(name: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ran = arachne(*COMMANDS[name], stdout=writer)
    os.close(writer)
    assert (ran.returncode, ran.stderr.count("\n"), "Traceback" in ran.stderr) == (4, 1, False), ran.stderr


def test_an_error_that_cannot_be_told_has_its_code_all_the_same() -> None:
    with Path("/dev/full").open("w") as full:
        assert arachne("show", "nothing.json", stdout=subprocess.PIPE, stderr=full.fileno()).returncode == 3
        assert arachne("nothing", stdout=subprocess.PIPE, stderr=full.fileno()).returncode == 2


def test_completions_for_a_shell_end_well() -> None:
    environment = {**os.environ, "_ARACHNE_COMPLETE": "bash_source"}
    command = [sys.executable, "-m", "arachne"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, "_arachne_completion" in ran.stdout) == (0, True), ran.stderr


def test_a_file_does_not_become_a_closed_standard_output() -> None:
    code = "import os; from arachne.cli.exit import prepare; prepare(); os.write(2, str(os.open('/', 0)).encode())"
    ran = subprocess.run([sys.executable, "-c", f"import os; os.close(1); {code}"], stderr=subprocess.PIPE, check=False)
    assert int(ran.stderr) > 2


def test_a_library_that_ends_the_process_for_want_of_memory_does_not_fail_a_gate() -> None:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", BLAS_WITHOUT_MEMORY], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 4, ran.stderr


def test_no_room_for_a_thread_is_the_environment_and_no_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("arachne.cli.cli.main", fail)
    assert run(["backends"]) == 4
    assert capsys.readouterr().err.startswith("error: out of memory;")


@pytest.mark.parametrize("megabytes", [128, 200, 600])
@pytest.mark.parametrize("command", [("scan", "none.onnx", "--data", "none.npz"), ("apply", "none.json", "none.onnx")])
def test_too_few_addresses_are_told_at_once(command: tuple[str, ...], megabytes: int) -> None:
    import resource

    limit = megabytes << 20
    light = command[0] == "apply" and megabytes > 192
    ran = subprocess.run(
        [sys.executable, "-m", "arachne", *command],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "Traceback" not in ran.stderr
    assert (ran.returncode, "of address space" in ran.stderr) == ((2, False) if light else (4, True)), ran.stderr
