"""Which backends the tests run on, and in how many processes.

A test that needs a backend is marked `@pytest.mark.backend("torch")`. By default every backend runs whose framework is
installed, and a missing one is a skip that says what to install; `--require-backend NAME` turns that skip into a
failure, `--backend NAME` leaves the tests of all others out.

A run of the whole suite, `pytest` with no file named, is shared out among processes where pytest-xdist is installed;
`-n` says how many (`-n 0`: this one alone). A run of named files or folders is in one process unless `-n` is given.
"""

from __future__ import annotations

import functools
import os

import pytest

from arachne.errors import ArachneError, did_you_mean
from arachne.model import registry

ALWAYS_THERE = "reference"

MOST_PROCESSES = 4
"""Each has every framework in memory, some 1.5 GB."""

THREADS = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"]
THREADS += ["TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("arachne")
    group.addoption("--backend", action="append", default=[], metavar="NAME", help="run the tests of this backend only")
    group.addoption("--require-backend", action="append", default=[], metavar="NAME", help="fail when it is missing")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Share a run of the whole suite out; processes that share the processors compute with one thread each."""
    option = config.option
    if not config.pluginmanager.hasplugin("xdist") or hasattr(config, "workerinput"):
        return
    whole = config.args_source is config.ArgsSource.TESTPATHS
    if whole and option.numprocesses is None and option.dist == "no" and not option.usepdb and option.capture != "no":
        processes = min(MOST_PROCESSES, _processors())
        option.numprocesses = processes if processes > 1 else 0
    if option.numprocesses:
        option.dist = "worksteal" if option.dist == "no" else option.dist
        for name in THREADS:
            os.environ.setdefault(name, "1")


def _processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "backend(name): the test runs on this backend")
    known = [ALWAYS_THERE, *registry.names()]
    for name in config.getoption("--backend") + config.getoption("--require-backend"):
        if name not in known:
            raise pytest.UsageError(f"no backend named '{name}'" + did_you_mean(name, known))


@pytest.fixture(autouse=True, scope="session")
def _state_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the key that marks checkpoints out of the home of whoever runs the tests."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = config.getoption("--backend")
    if not chosen:
        return
    left_out = [item for item in items if any(name not in chosen for name in _needs(item))]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_runtest_setup(item: pytest.Item) -> None:
    for name in _needs(item):
        problem = _problem(name)
        if problem and name in item.config.getoption("--require-backend"):
            pytest.fail(problem, pytrace=False)
        if problem:
            pytest.skip(problem)


def _needs(item: pytest.Item) -> list[str]:
    return [mark.args[0] for mark in item.iter_markers("backend")]


@functools.cache
def _problem(name: str) -> str | None:
    """Why a backend cannot run here, if it cannot."""
    if name == ALWAYS_THERE:
        return None
    try:
        registry.get(name)
    except ArachneError as error:
        return str(error)
    return None
