"""A seeded sample of messages to a cluster's ports; `python -m tests.safety cluster_messages` sends more."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

pytest.importorskip("distributed")
pytest.importorskip("cryptography")

from arachne.cluster.starting import local_client  # where dask is installed
from tests.safety.part_cluster_messages import answer, messages, trial


def test_changed_messages_get_no_answer_and_do_no_harm(tmp_path: Path) -> None:
    with local_client(1, lambda text: None) as client:
        sent = messages(tmp_path / "CANARY")
        for number in range(2 * len(sent)):
            assert trial(client, sent, tmp_path, 0, number).wrong == ()


def test_a_message_that_is_understood_would_run_code(tmp_path: Path) -> None:
    """Without certificates, the very message that is sent here runs code: the attack is a real one."""
    from distributed import LocalCluster

    sent = messages(tmp_path / "CANARY")
    with LocalCluster(n_workers=1, processes=False, dashboard_address=None, protocol="tcp") as cluster:
        address = next(iter(cluster.workers.values())).address.removeprefix("tcp://")
        answer(address, sent["greeting"] + sent["run"], encrypted=False)
        until = time.monotonic() + 60
        while not (tmp_path / "CANARY").exists() and time.monotonic() < until:
            time.sleep(0.05)
        assert (tmp_path / "CANARY").exists()
