"""Ctrl-C while the command is still being imported: one line and exit code 130, whatever was under way."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

SIGNAL_AT_IMPORT = """
import os, signal, sys

class Interrupter:
    module = sys.argv.pop(1)

    def find_spec(self, name, path=None, target=None):
        if name == self.module:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupter())
"""

AS_MODULE = "import runpy; runpy.run_module('arachne', run_name='__main__')"
AS_SCRIPT = "from arachne.__main__ import main; main()"


@pytest.mark.parametrize("started", [AS_MODULE, AS_SCRIPT], ids=["python -m arachne", "arachne"])
@pytest.mark.parametrize(
    "module", ["arachne.cli", "click", "arachne.cli.exit", "arachne.text", "arachne.cli.scan", "numpy"]
)
def test_an_interrupt_during_an_import_ends_in_one_line(module: str, started: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SIGNAL_AT_IMPORT + started, module, "scan", "missing.onnx", "--data", "missing.npz"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (ran.returncode, ran.stdout, ran.stderr.strip()) == (130, "", "error: interrupted")


def test_an_interrupt_that_a_compiled_module_calls_an_import_error_is_still_one() -> None:
    raised = "raise ImportError('initialization failed') from KeyboardInterrupt()"
    program = SIGNAL_AT_IMPORT.replace("os.kill(os.getpid(), signal.SIGINT)", raised) + AS_SCRIPT
    ran = subprocess.run(
        [sys.executable, "-c", program, "numpy", "scan", "missing.onnx", "--data", "missing.npz"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (ran.returncode, ran.stdout, ran.stderr.strip()) == (130, "", "error: interrupted")


def test_a_command_that_ignores_interrupts_goes_on_ignoring_them() -> None:
    ignoring = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    ran = subprocess.run(
        [sys.executable, "-c", ignoring + SIGNAL_AT_IMPORT + AS_SCRIPT, "click", "--version"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("arachne, version")


def test_the_entry_imports_nothing_that_the_interpreter_has_not_loaded() -> None:
    program = "import sys; before = {*sys.modules}; import arachne.__main__; print(*sorted({*sys.modules} - before))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert set(ran.stdout.split()) <= {"__future__", "arachne", "arachne.__main__", "_signal"}
