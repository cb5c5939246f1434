"""Replication in the eyes of the other side's tools: 5.x's mqadmin on our brokers, `roquet ha` on
Apache's.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.interop.apache import ApacheBroker, JavaClients, Version, wait_until
from tests.interop.roquet_cluster import RoquetCluster, RoquetNameServer

pytestmark = pytest.mark.interop


def status(name_server: str) -> list[dict[str, Any]]:
    """What `roquet ha status` tells a program of the only brokers there are."""
    command = [sys.executable, "-m", "roquet.cli.main", "ha", "status", "-n", name_server, "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    (replicas,) = json.loads(ended.stdout)
    members: list[dict[str, Any]] = replicas["members"]
    return members


def ends(members: list[dict[str, Any]]) -> list[tuple[int, int | None]]:
    """The number of each broker in turn, and where its log ends; a young broker registers before it
    answers.
    """
    return [(member["broker_id"], member["end"]) for member in members]


def test_mqadmin_of_5x_shows_how_our_slave_follows(clients: JavaClients) -> None:
    with RoquetCluster() as cluster:
        client, (slave,) = clients["5.5.0-json"], cluster.slaves
        (of_master,) = client.run(
            "admin", cluster.namesrv, "haStatus", "-b", cluster.master.address
        ).check()
        end = status(cluster.namesrv)[0]["end"]
        assert re.search(rf"MasterAddr\s+{re.escape(cluster.master.address)}", of_master["out"]), (
            of_master["out"]
        )
        assert re.search(rf"MasterCommitLogMaxOffset\s+{end}", of_master["out"]), of_master["out"]
        assert re.search(r"InSyncSlaveNum(?:s|ber)?\s+1", of_master["out"]), of_master["out"]
        (of_slave,) = client.run("admin", cluster.namesrv, "haStatus", "-b", slave.address).check()
        assert str(end) in of_slave["out"], of_slave["out"]


@pytest.mark.parametrize("version", Version)
def test_we_show_how_a_slave_of_apache_follows(version: Version) -> None:
    """What 4.9 does not know is told to be unknown; where its log ends it says."""
    with (
        RoquetNameServer() as names,
        ApacheBroker(names.address, version=version),
        ApacheBroker(names.address, version=version, role="SLAVE", broker_id=1),
    ):
        wait_until(
            lambda: ends(status(names.address)) == [(0, 0), (1, 0)],
            "both brokers say where their logs end",
        )
        master, slave = status(names.address)
        if version is Version.V4:
            assert (master["status"], slave["status"]) == (None, None)
        else:
            wait_until(
                lambda: len(status(names.address)[0]["status"]["slaves"]) == 1, "the slave has come"
            )
            assert status(names.address)[1]["status"]["follower"] is not None
