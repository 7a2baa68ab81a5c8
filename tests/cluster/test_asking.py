"""Asking for a cluster: what is told, what is refused in one sentence, and connections that are encrypted."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import arachne
from arachne.cluster import starting
from arachne.cluster.starting import join_cluster, on_cluster
from arachne.data.labelled import LabelledData
from arachne.errors import ClusterError, PluginUnavailableError, UsageError
from arachne.model import registry
from tests.cluster.processes import PATIENCE, Processes
from tests.commands import arachne as command

if TYPE_CHECKING:
    from distributed import Client

pytestmark = pytest.mark.backend("onnx")
pytest.importorskip("distributed")


def test_workers_and_a_cluster_together_are_refused(model_file: Path, data: LabelledData) -> None:
    with pytest.raises(UsageError, match="not both"):
        arachne.repair(model_file, data, "top:1", workers=2, cluster="tcp://127.0.0.1:8786")


def test_a_cluster_without_workers_is_refused(model_file: Path, data: LabelledData) -> None:
    with pytest.raises(UsageError, match="one worker at least, got 0; leave it out"):
        arachne.repair(model_file, data, "top:1", workers=0)


def test_more_workers_than_a_machine_can_bear_are_refused(model_file: Path, data: LabelledData) -> None:
    with pytest.raises(UsageError, match=r"bears \d+ workers at most, got 100,000; give fewer"):
        arachne.repair(model_file, data, "top:1", workers=100_000)


def test_a_scheduler_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "CONNECT_SECONDS", 1)
    told = r"no scheduler answers at 'tcp://127\.0\.0\.1:1'"
    with pytest.raises(ClusterError, match=told), join_cluster("tcp://127.0.0.1:1", print):
        pass


def test_what_is_neither_an_address_nor_a_file_is_refused(tmp_path: Path) -> None:
    told = "such as tcp://host:8786, or the file a scheduler writes, got 'here'"
    with pytest.raises(UsageError, match=told), join_cluster("here", print):
        pass


def test_without_dask_one_sentence_says_what_to_install(
    model_file: Path, data: LabelledData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(PluginUnavailableError, match=r"pip install 'arachne-repair\[distributed\]'"):
        arachne.repair(model_file, data, "top:1", workers=2)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--workers", "0"], "--workers takes a number from 1 to "),
        (["--workers", "2", "--cluster", "tcp://x:1"], "give one of them"),
        (["--cluster", "nowhere.json"], "a cluster is the address of its scheduler"),
    ],
)
def test_mistakes_on_the_command_line_are_told(
    words: list[str], told: str, model_file: Path, data_file: Path, tmp_path: Path
) -> None:
    for name in ("scan", "evaluate"):
        ran = command(name, model_file, "--data", data_file, *words, cwd=tmp_path)
        assert ran.code == 2
        assert told in ran.err


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Two workers of somebody else's cluster, which takes everybody."""
    with (
        Processes(tmp_path_factory.mktemp("cluster"), 2) as cluster,
        join_cluster(str(cluster.file), lambda text: None) as client,
    ):
        client.wait_for_workers(2, timeout=PATIENCE)
        yield client


def test_scan_and_localise_print_the_same_on_a_cluster(
    plain: Client, model_file: Path, data_file: Path, tmp_path: Path
) -> None:
    address = plain.scheduler.address
    for words in (["scan", "--no-causes"], ["localise", "--target", "top:1"]):
        asked: list[str | Path] = [words[0], model_file, "--data", data_file, *words[1:], "--json"]
        alone = command(*asked, cwd=tmp_path)
        shared = command(*asked, "--cluster", address, cwd=tmp_path)
        assert alone.code == shared.code == 0
        assert shared.json == alone.json
        assert f"cluster: 2 workers at {address}, dashboard at http" in shared.err
        assert f"cluster: connecting to {address}; whoever controls that scheduler can run code" in shared.err
    assert len(plain.nthreads()) == 2


def test_compare_tells_the_same_of_every_searcher_on_a_cluster(
    plain: Client, model_file: Path, data_file: Path, tmp_path: Path
) -> None:
    words: list[str | Path] = ["compare", model_file, "--data", data_file, "--target", "top:1", "--search", "bias"]
    words += ["--search", "de", "-O", "generations=3", "--max-break", "20%", "--json"]
    alone = command(*words, cwd=tmp_path)
    shared = command(*words, "--cluster", plain.scheduler.address, cwd=tmp_path)
    assert alone.code == shared.code == 0, shared.err
    found, expected = ([drop_times(row) for row in one.json["searchers"]] for one in (shared, alone))
    assert found == expected
    assert all(row["seconds"] > 0 for row in shared.json["searchers"])


def drop_times(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "seconds"}


@pytest.mark.parametrize(
    ("address", "warned"),
    [
        ("tcp://10.0.0.7:8786", True),
        ("tcp://scheduler:8786", True),
        ("tls://10.0.0.7:8786", False),
        ("tcp://127.0.0.1:8786", False),
        ("tcp://[::1]:8786", False),
        ("tcp://localhost:8786", False),
    ],
)
def test_a_plain_connection_to_another_machine_warns(address: str, warned: bool) -> None:
    told: list[str] = []
    starting.warn_of_plain(address, told.append)
    assert len(told) == warned
    assert all("not encrypted" in text and "tls://" in text for text in told)


@pytest.fixture
def certificates(tmp_path: Path) -> dict[str, str]:
    """A certificate that signs itself, as dask's configuration names it."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    words = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(words, check=True, capture_output=True)
    return {"ca": str(certificate), "certificate": str(certificate), "key": str(key)}


def test_the_tls_settings_of_dask_are_honoured(
    certificates: dict[str, str], model_file: Path, data: LabelledData, tmp_path: Path
) -> None:
    import dask

    words = ["--tls-ca-file", certificates["ca"], "--tls-cert", certificates["certificate"]]
    words += ["--tls-key", certificates["key"]]
    own = {"ca-file": "ca", "client.cert": "certificate", "client.key": "key"}
    configured: dict[str, Any] = {f"distributed.comm.tls.{name}": certificates[at] for name, at in own.items()}
    inputs, told = np.asarray(data.inputs)[:1500], list[str]()
    alone = registry.load(model_file)
    settings = dask.config.set({**configured, "distributed.comm.require-encryption": True})
    with Processes(tmp_path, 1, words, protocol="tls") as cluster:
        file = str(cluster.file)
        with settings, on_cluster(registry.load(model_file), cluster=file, tell=told.append) as shared:
            assert np.array_equal(shared.forward(inputs), alone.forward(inputs))
        assert "cluster: 1 worker at tls://127.0.0.1:" in told[1]
        refused = pytest.raises(ClusterError, match="no scheduler answers")
        with refused, join_cluster(file, told.append, patience=2):
            pass
