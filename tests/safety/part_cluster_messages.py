"""Messages of dask's own protocol, changed at random, to every port of local workers: no answer, no code, no harm."""

from __future__ import annotations

import asyncio
import pickle
import socket
import ssl
import struct
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from tests.safety.kept import Kept, Trial
from tests.safety.mutations import mutate
from tests.safety.rows import Row

if TYPE_CHECKING:
    from distributed import Client

ORDER = 27
NUMBER = 200
PATIENCE = 2.0
MEMORY = 200 << 20
"""Bytes that all nodes together may grow by."""

TLS_ALERT = b"\x15\x03"


class Toucher:
    """Unpickled, it makes a file."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(self._path),)


def run(seed: int, jobs: int, kept: Kept) -> Iterator[Row]:
    from arachne.cluster.starting import local_client

    with (
        tempfile.TemporaryDirectory(prefix="arachne-messages-") as folder,
        local_client(1, lambda text: None) as client,
    ):
        sent = messages(Path(folder) / "CANARY")
        before = memory()
        trials = {f"{n} {seed}": partial(trial, client, sent, Path(folder), seed, n) for n in range(NUMBER)}
        made = kept.trials("cluster messages", trials)
        grown = memory() - before
    failures = [wrong for one in made for wrong in one.wrong]
    failures += [f"all nodes together grew by {grown >> 20} MB"] if grown > MEMORY else []
    got = Counter(one.seen["got"] for one in made)
    told = f"no answer {got['nothing']} times, an alert of TLS {got['alert']} times; nodes go on working"
    yield Row("changed messages to a cluster's ports", len(made), told, tuple(failures))


def messages(canary: Path) -> dict[str, bytes]:
    """Messages a stranger may send: a greeting, a question, a task that would run code, and lengths that are lies."""
    from distributed.comm.utils import to_frames

    task = {"op": "update-graph", "client": "x", "code": pickle.dumps(Toucher(str(canary)))}
    run_it = {"op": "run", "function": pickle.dumps(Toucher(str(canary))), "args": b"", "kwargs": b"", "reply": True}
    greeting = {"compression": None, "python": (3, 11), "pickle-protocol": 5}
    given = {"greeting": greeting, "identity": {"op": "identity", "reply": True}, "run": run_it, "graph": task}
    found = {name: _stream(asyncio.run(to_frames(message))) for name, message in given.items()}
    found["lies"] = struct.pack("<QQ", 2**62, 2**62) + b"x" * 64
    found["http"] = b"GET /info/main/workers.html HTTP/1.1\r\nHost: x\r\n\r\n"
    return found


def _stream(frames: list[Any]) -> bytes:
    """Frames as dask sends them: how long all is, how many they are, how long each is, and then they."""
    parts = [bytes(frame) for frame in frames]
    head = struct.pack(f"<{len(parts) + 1}Q", len(parts), *map(len, parts))
    return struct.pack("<Q", len(head) + sum(map(len, parts))) + head + b"".join(parts)


def trial(client: Client, sent: dict[str, bytes], folder: Path, seed: int, number: int) -> Trial:
    """Send one message, changed or as it is, plainly or encrypted, to one node; then ask the nodes to work."""
    rng = np.random.default_rng([seed, number])
    name = list(sent)[number % len(sent)]
    content = sent[name] if rng.random() < 0.2 else mutate(sent[name], rng)
    nodes = addresses(client)
    address = nodes[int(rng.integers(len(nodes)))]
    got = answer(address, content, encrypted=bool(rng.integers(2)))
    wrong = [] if not got or got.startswith(TLS_ALERT) else [f"answered with {got[:40]!r}"]
    wrong += ["code ran"] if any(folder.iterdir()) else []
    wrong += [] if client.submit(sum, [number, 1], pure=False).result(timeout=30) == number + 1 else ["a sum is wrong"]
    what = f"{name} number {number} of seed {seed} to {address}"
    return Trial(tuple(f"{what}: {one}" for one in wrong), {"got": "alert" if got else "nothing"})


def addresses(client: Client) -> list[str]:
    """Host and port of the scheduler, of each worker and of its nanny."""
    nodes = [client.scheduler.address]
    for worker, told in client.scheduler_info(n_workers=-1)["workers"].items():
        nodes += [worker, told["nanny"]]
    return [node.removeprefix("tls://") for node in nodes]


def answer(address: str, content: bytes, *, encrypted: bool) -> bytes:
    """Return what a node answers to somebody without the certificate."""
    host, port = address.split(":")
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    with (
        suppress(OSError),
        socket.create_connection((host, int(port)), PATIENCE) as plain,
        anybody.wrap_socket(plain) if encrypted else plain as spoken,
    ):
        spoken.sendall(content)
        return spoken.recv(1 << 16)
    return b""


def memory() -> int:
    """Bytes that this process and all it started hold."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(process.memory_info().rss for process in processes)
