"""A cluster for one run: a local one that is started and stopped, one that is joined, or a client in hand."""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from arachne.cluster.backend import ClusterBackend
from arachne.cluster.limits import max_workers
from arachne.cluster.models import describe_model
from arachne.errors import ClusterError, InputError, PluginUnavailableError, UsageError
from arachne.io.readers import read_object
from arachne.model.backend import ModelBackend
from arachne.text import pluralise

if TYPE_CHECKING:
    from distributed import Client
    from distributed.security import Security

LIBRARIES = ("OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "TF_NUM_INTRAOP", "TF_NUM_INTEROP", "ARACHNE")
ONE_THREAD = {f"{name}_THREADS": "1" for name in LIBRARIES}
"""Each local worker computes with one thread: there are as many workers as were asked for."""

NO_HTTP = "arachne.cluster.no_http"

ADDRESS = re.compile(r"(tcp|tls|ws|wss|ucx|inproc)://[^\s/]\S*")
"""The form of a scheduler's address."""

CONNECT_SECONDS = 20
"""Seconds after which a cluster counts as out of reach."""

Tell = Callable[[str], None]


def check_cluster_options(workers: int | None, cluster: Any) -> None:
    """Refuse options that cannot be used together, or on this machine.

    Raises:
        UsageError: Both are given, no worker, or more than a machine can run.
        PluginUnavailableError: dask is not installed.
    """
    if workers is None and cluster is None:
        return
    if workers is not None and cluster is not None:
        raise UsageError("give workers for a cluster on this machine or the cluster to join, not both")
    if workers is not None and workers < 1:
        raise UsageError(f"a cluster has one worker at least, got {workers}; leave it out to compute in this process")
    if workers is not None and workers > max_workers():
        raise UsageError(f"this machine bears {max_workers()} workers at most, got {workers:,}; give fewer")
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise PluginUnavailableError(
            "a cluster needs dask, which is not installed; pip install 'arachne-repair[distributed]'"
        ) from error


@contextmanager
def on_cluster(
    backend: ModelBackend, *, workers: int | None = None, cluster: Any = None, tell: Tell | None = None
) -> Iterator[ModelBackend]:
    """Yield a backend that runs the model on a cluster; the model's own backend if no cluster is asked for.

    Args:
        backend: The model, with the weights it was opened with.
        workers: How many processes of a local cluster to start for the duration.
        cluster: A scheduler's address, the file a scheduler writes, or a dask client, which is left open.
        tell: Called with a sentence about the cluster.

    Raises:
        UsageError: Both are given, no worker, or a model that workers cannot open.
        ClusterError: The cluster cannot be started or reached.
    """
    check_cluster_options(workers, cluster)
    if workers is None and cluster is None:
        yield backend
        return
    with tempfile.TemporaryDirectory(prefix="arachne-cluster-") as folder:
        model = describe_model(backend, Path(folder))
        tell = tell or _ignore
        with _client(workers, cluster, tell) as client:
            found = ClusterBackend(backend, client, model)
            yield found
            tell(f"cluster: {found.team.traffic.summary()}")


def _ignore(text: str) -> None:
    return


@contextmanager
def _client(workers: int | None, cluster: Any, tell: Tell) -> Iterator[Client]:
    from distributed import Client

    if isinstance(cluster, Client):
        if not cluster.nthreads():
            raise ClusterError(f"the cluster at {cluster.scheduler.address} has no workers")
        yield cluster
    elif workers is not None:
        with local_client(workers, tell) as client:
            yield client
    else:
        with join_cluster(str(cluster), tell) as client:
            yield client


@contextmanager
def local_client(workers: int, tell: Tell) -> Iterator[Client]:
    """Start a cluster of processes on this machine, and stop it when the block ends.

    Other users of the machine cannot connect to it: all its ports ask for a certificate that is made here and kept in
    memory.

    Raises:
        ClusterError: It cannot be started.
        PluginUnavailableError: The library that makes certificates is not installed.
    """
    import dask
    from distributed import Client, LocalCluster

    settings = {
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
        # dask's own would have every large array mapped anew, which takes longer than computing with it
        "distributed.nanny.pre-spawn-environ": ONE_THREAD,
        # dask looks a hundred times a second at what a worker does, which takes time from it
        "distributed.worker.profile.enabled": False,
        "distributed.admin.tick.interval": "500ms",
    }
    security = _temporary_security()
    with dask.config.set(settings), _quiet(), tempfile.TemporaryDirectory(prefix="arachne-workers-") as folder:
        try:
            cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                security=security,
                dashboard_address="127.0.0.1:0",
                scheduler_kwargs={"dashboard": False, "preload": [NO_HTTP]},
                silence_logs=logging.CRITICAL,
                memory_limit=0,
                local_directory=folder,
                env=ONE_THREAD,
                preload=["arachne.cluster.worker", NO_HTTP],
            )
        except Exception as error:
            raise ClusterError(f"the local cluster could not be started ({type(error).__name__}: {error})") from error
        client = Client(cluster, set_as_default=False)
        pids: list[int] = []
        try:
            pids = list(client.run(os.getpid).values())
            tell(f"cluster: {pluralise(workers, 'local worker')}")
            yield client
        finally:
            _end(client, cluster, pids)


def _temporary_security() -> Security:
    """Make a key and its certificate, which every connection of one local cluster has to show."""
    from distributed.security import Security

    try:
        return Security.temporary()
    except ImportError as error:
        raise PluginUnavailableError(
            "a cluster on this machine needs the library cryptography, which is not installed; "
            "pip install 'arachne-repair[distributed]'"
        ) from error


def _end(client: Client, cluster: Any, pids: list[int]) -> None:
    """Close everything, also where a worker does not listen any more."""
    with suppress(Exception):
        pids = [*pids, *(nanny.pid for nanny in cluster.workers.values() if getattr(nanny, "pid", None))]
    for pid in pids:  # a stopped process cannot close itself
        with suppress(OSError):
            os.kill(pid, signal.SIGCONT)
    with suppress(Exception):
        client.close(timeout=2)
    with suppress(Exception):
        cluster.close(timeout=5)
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


@contextmanager
def join_cluster(address: str, tell: Tell, *, patience: float | None = None) -> Iterator[Client]:
    """Connect to a running cluster for the duration of the block. TLS settings are those of dask's configuration.

    Args:
        address: Of the scheduler, or the file it writes.
        tell: Called with a sentence about the cluster.
        patience: How many seconds to wait for the scheduler, and then for a first worker; `CONNECT_SECONDS` when None.

    Raises:
        UsageError: No address of a scheduler, and no file of one.
        ClusterError: It cannot be reached, or has no workers.
    """
    from distributed import Client

    patience = CONNECT_SECONDS if patience is None else patience
    file = "://" not in address
    if file and not Path(address).is_file():
        raise UsageError(
            f"a cluster is the address of its scheduler, such as tcp://host:8786, or the file a scheduler writes, got "
            f"'{address}'"
        )
    where = _address_in(Path(address)) if file else address
    tell(f"cluster: connecting to {address}; whoever controls that scheduler can run code on this machine as you")
    with _quiet():
        try:
            client = Client(where, timeout=patience, set_as_default=False)
        except Exception as error:
            raise ClusterError(
                f"no scheduler answers at '{address}' ({type(error).__name__}: {str(error).partition(chr(10))[0]})"
            ) from error
        try:
            warn_of_plain(str(client.scheduler.address), tell)
            with suppress(TimeoutError):
                client.wait_for_workers(1, timeout=patience)
            n = len(client.nthreads())
            if not n:
                raise ClusterError(f"the cluster at {client.scheduler.address} has no workers")
            tell(
                f"cluster: {pluralise(n, 'worker')} at {client.scheduler.address}, dashboard at {client.dashboard_link}"
            )
            yield client
        finally:
            with suppress(Exception):
                client.close(timeout=5)


def warn_of_plain(address: str, tell: Tell) -> None:
    """Say once that a connection to another machine is neither encrypted nor authenticated."""
    parts = urlsplit(address)
    if parts.scheme == "tls" or not parts.hostname or _is_here(parts.hostname):
        return
    tell(
        f"warning: the connection to {address} is not encrypted, and whoever reaches that port can run code there; "
        "use tls:// on networks that others share"
    )


def _is_here(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _address_in(file: Path) -> str:
    """Read the address of a scheduler from the file it has written; nothing else in it is used.

    Raises:
        InputError: It holds none.
    """
    found = read_object(file, "address of a scheduler").get("address")
    if not isinstance(found, str) or not ADDRESS.fullmatch(found):
        raise InputError(f"'{file}' holds no address of a scheduler, such as tcp://host:8786; name a scheduler's file")
    return found


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep dask's own logs away from the user, who reads ours."""
    names = (
        "distributed",
        "distributed.client",
        "distributed.scheduler",
        "distributed.nanny",
        "distributed.core",
        "tornado",
    )
    before = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
