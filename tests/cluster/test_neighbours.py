"""Another user of the machine: every port that local workers open is tried, and turns a stranger away."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from arachne.cluster import starting
from arachne.cluster.starting import check_cluster_options, join_cluster, local_client
from arachne.errors import ClusterError, PluginUnavailableError, UsageError

if TYPE_CHECKING:
    from distributed import Client
    from distributed.security import Security

pytest.importorskip("distributed")
pytest.importorskip("cryptography")

PATIENCE = 3
TLS_ALERT = b"\x15\x03"
HELLO = b"\x02\x00\x00\x00\x00\x00\x00\x00" + 8 * b"\x00"


def ports_of(client: Client) -> dict[str, str]:
    """The address of every node of a local cluster, by what it is."""
    nodes = {"scheduler": client.scheduler.address}
    for number, (worker, told) in enumerate(client.scheduler_info(n_workers=-1)["workers"].items()):
        nodes |= {f"worker {number}": worker, f"nanny {number}": told["nanny"]}
    return nodes


def listening() -> set[int]:
    """The ports on which this process, or one that it started, listens."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return {one.laddr.port for own in processes for one in own.net_connections("all") if one.status == "LISTEN"}


def answers(address: str, security: Security | None) -> bool:
    """Whether a node answers a greeting of dask's own."""
    from distributed.core import connect

    async def greet() -> None:
        told = {} if security is None else security.get_connection_args("client")
        comm = await connect(address, timeout=PATIENCE, **told)
        try:
            await comm.write({"op": "identity", "reply": True})
            await asyncio.wait_for(comm.read(), PATIENCE)
        finally:
            comm.abort()

    try:
        asyncio.run(greet())
    except (OSError, TypeError):  # dask raises the latter for an encrypted connection without a context
        return False
    return True


def test_nothing_listens_but_the_scheduler_its_workers_and_their_nannies() -> None:
    before = listening()
    with local_client(2, lambda text: None) as client:
        nodes = ports_of(client)
        assert sorted(nodes) == ["nanny 0", "nanny 1", "scheduler", "worker 0", "worker 1"]
        assert all(re.fullmatch(r"tls://127\.0\.0\.1:\d+", address) for address in nodes.values())
        assert listening() - before == {int(address.rpartition(":")[2]) for address in nodes.values()}
    assert listening() <= before


@pytest.mark.parametrize("sent", [HELLO, b"GET /info/main/workers.html HTTP/1.0\r\n\r\n"], ids=["dask", "http"])
def test_a_plain_connection_gets_no_answer(client: Client, sent: bytes) -> None:
    for address in ports_of(client).values():
        host, port = address.removeprefix("tls://").split(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as plain:
            plain.sendall(sent)
            try:
                got = plain.recv(1 << 16)
            except ConnectionResetError:
                got = b""
        assert got == b"" or got.startswith(TLS_ALERT)


def test_an_encrypted_connection_without_a_certificate_gets_no_answer(client: Client) -> None:
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    for address in ports_of(client).values():
        host, port = address.removeprefix("tls://").split(":")
        got = b""
        with (
            suppress(ssl.SSLError, ConnectionError),
            socket.create_connection((host, int(port)), PATIENCE) as plain,
            anybody.wrap_socket(plain) as secret,
        ):
            secret.sendall(HELLO)
            got = secret.recv(1 << 16)
        assert got == b""


def test_every_node_answers_those_with_the_certificate_alone(client: Client) -> None:
    from distributed.security import Security

    for address in ports_of(client).values():
        assert answers(address, client.security)
        assert not answers(address, Security.temporary())
        assert not answers(address, None)
        assert not answers(address.replace("tls://", "tcp://"), None)


@pytest.mark.parametrize("scheme", ["tcp", "tls"])
def test_a_client_without_the_certificate_is_turned_away(client: Client, scheme: str) -> None:
    address = client.scheduler.address.replace("tls://", f"{scheme}://")
    with pytest.raises(ClusterError, match="no scheduler answers"), join_cluster(address, print, patience=PATIENCE):
        pass


def test_the_key_is_in_no_file_and_on_no_command_line(client: Client) -> None:
    assert "PRIVATE KEY" in client.security.tls_client_key
    for told in client.scheduler_info(n_workers=-1)["workers"].values():
        folder = Path(told["local_directory"]).parents[1]
        assert folder.name.startswith("arachne-workers-")
        assert folder.stat().st_mode & 0o077 == 0
        files = [file for file in folder.rglob("*") if file.is_file()]
        assert not [file for file in files if b"PRIVATE KEY" in file.read_bytes()]
    for process in psutil.Process().children(recursive=True):
        assert "PRIVATE KEY" not in " ".join(process.cmdline())


def test_what_a_connection_means_is_told_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(starting, "CONNECT_SECONDS", 1)
    with pytest.raises(ClusterError), join_cluster("tcp://127.0.0.1:1", told.append):
        pass
    assert told == [
        "cluster: connecting to tcp://127.0.0.1:1; whoever controls that scheduler can run code on this machine as you"
    ]


def test_more_workers_than_a_machine_can_run_are_refused() -> None:
    with pytest.raises(UsageError, match=r"workers at most, got 100,000"):
        check_cluster_options(100_000, None)


def test_without_the_library_for_certificates_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    told = r"needs the library cryptography.*pip install 'arachne-repair\[distributed\]'"
    with pytest.raises(PluginUnavailableError, match=told), local_client(1, print):
        pass
