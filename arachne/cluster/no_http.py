"""A preload of dask: a local cluster serves no pages.

Every dask scheduler and worker opens a port for HTTP, also without a dashboard, and HTTP knows nothing of the cluster's
certificates.
"""

from __future__ import annotations

from typing import Any


def dask_setup(node: Any) -> None:
    """Close the HTTP port of a scheduler or worker; dask calls this before the node is used."""
    node.http_server.stop()
