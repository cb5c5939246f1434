"""What odd clients and drives do to a store, on real processes: nothing that was acknowledged is
lost.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.integration.ha_commands import done
from tests.interop import wire
from tests.interop.processes import wait_until
from tests.interop.roquet_cluster import RoquetBroker, RoquetCluster, RoquetNameServer
from tests.interop.stored import served

pytestmark = pytest.mark.process

TOPIC: Final = "T"
ODD: Final = [
    {"flag": str(0x80000000)},
    {"flag": str(1 << 63)},
    {"sysFlag": str(1 << 32)},
    {"bornTimestamp": str(1 << 63)},
    {"bornTimestamp": "9" * 5000},
    {"reconsumeTimes": str(1 << 31)},
    {"queueId": str(-(1 << 31))},
    {"properties": "CHECK_IMMUNITY_TIME_IN_SECONDS\x01" + "9" * 5000 + "\x02TRAN_MSG\x01true\x02"},
]
"""Numbers that do not fit a record's fields, or a property that is none."""


class Sends:
    """Invariant: `acknowledged` are the bodies that were answered with 0."""

    def __init__(self) -> None:
        self.acknowledged: list[bytes] = []
        self._count = 0

    def send(self, address: str, count: int) -> None:
        for _ in range(count):
            body = b"%d" % self._count
            self._count += 1
            if wire.ask(address, wire.SEND_MESSAGE, wire.send_fields(TOPIC), body).code == 0:
                self.acknowledged.append(body)


def bodies(address: str) -> set[bytes]:
    """Whatever stands in the records of the queue, by the numbers that were sent."""
    return {_body(data) for data in served(address, (TOPIC, 0)).values()}


def _body(record: bytes) -> bytes:
    size = int.from_bytes(record[84:88], "big")
    return record[88 : 88 + size]


@pytest.fixture
def cluster() -> Iterator[RoquetCluster]:
    with RoquetCluster(
        properties={"flushDiskType": "SYNC_FLUSH", "flushConsumeQueueThoroughInterval": 700}
    ) as cluster:
        yield cluster


def test_a_promoted_slave_has_all_that_was_acknowledged_beside_odd_clients(
    cluster: RoquetCluster,
) -> None:
    """One record that was half packed used to stop the slave's dispatch, and a promotion erased
    what came behind it.
    """
    master, slave, sends = cluster.master, cluster.slave, Sends()
    cluster.create_topic(TOPIC, 1)
    for odd in ODD:
        sends.send(master.address, 10)
        wire.ask(master.address, wire.SEND_MESSAGE, wire.send_fields(TOPIC) | odd, b"odd")
    sends.send(master.address, 10)
    assert len(sends.acknowledged) == 90
    wait_until(lambda: set(sends.acknowledged) <= bodies(slave.address), "the slave's dispatch")
    master.kill()
    done(
        "ha", "promote", slave.address, "-n", cluster.namesrv, "--role", "ASYNC_MASTER", "--fenced"
    )
    wait_until(lambda: wire.has_broker(cluster.namesrv, slave.address), "the new master")
    assert set(sends.acknowledged) <= bodies(slave.address)
    sends.send(slave.address, 10)
    assert len(sends.acknowledged) == 100
    assert set(sends.acknowledged) <= bodies(slave.address)


@pytest.fixture
def protected(tmp_path: Path) -> Iterator[Path]:
    """A folder in which files can be made undeletable."""
    probe = tmp_path / "probe"
    probe.touch()
    if (
        shutil.which("chattr") is None
        or subprocess.run(["chattr", "+i", probe], check=False).returncode
    ):
        pytest.skip("a file that cannot be deleted is NOT tested: no chattr +i here")
    subprocess.run(["chattr", "-i", probe], check=True)
    yield tmp_path
    for path in tmp_path.rglob("*"):
        if path.is_file():
            subprocess.run(["chattr", "-i", path], check=False, capture_output=True)


@pytest.mark.long
def test_one_file_that_cannot_be_deleted_costs_nothing_but_its_room(protected: Path) -> None:
    """Its retries closed a descriptor that was the log's by then, which was never synced again."""
    settings: dict[str, str | int] = {
        "flushDiskType": "SYNC_FLUSH",
        "mappedFileSizeCommitLog": 65_536,
        "diskMaxUsedSpaceRatio": 10,
        "diskSpaceCleanForciblyRatio": 10,
        "cleanResourceInterval": 1000,
    }
    with (
        RoquetNameServer() as names,
        RoquetBroker(names.address, store_dir=protected / "store", properties=settings) as broker,
    ):
        folder, sends = protected / "store" / "commitlog", Sends()
        sends.send(broker.address, 1)
        while len(list(folder.iterdir())) < 8:
            sends.send(broker.address, 50)
        held = sorted(folder.iterdir())[0]
        subprocess.run(["chattr", "+i", held], check=True)
        wait_until(lambda: "cannot be deleted" in broker.log(), "the first pass", 120)
        began_s = time.monotonic()
        while time.monotonic() - began_s < 25:
            before = len(sends.acknowledged)
            sends.send(broker.address, 50)
            assert len(sends.acknowledged) == before + 50
        assert held.exists()
        said = broker.log()
        assert said.count("cannot be deleted") == 1
        assert "Bad file descriptor" not in said
        subprocess.run(["chattr", "-i", held], check=True)
        wait_until(lambda: not held.exists(), "the deletion that works", 120)
        last = sends.acknowledged[-50:]
        broker.kill()
        broker.start()
        assert set(last) <= bodies(broker.address)
