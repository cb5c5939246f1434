"""What a broker acknowledged is there after the drive under it failed, on a real kernel."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from roquet.cli.output import DRIVE_FAILED
from roquet.client.producer import Producer, SendStatus
from roquet.errors import RoquetError
from roquet.storage.config import StoreConfig
from roquet.storage.store import Store
from tests.integration.failing_drive import FailingDrive
from tests.interop.apache import free_port
from tests.interop.processes import Program
from tests.interop.roquet_cluster import RoquetBroker, RoquetNameServer
from tests.storage.records import bodies_in

pytestmark = pytest.mark.process

TOPIC: Final = "Precious"
MIB: Final = 1 << 20
BODY_SIZE: Final = 64 * 1024
SETTINGS: Final[dict[str, str | int]] = {
    "flushDiskType": "SYNC_FLUSH",
    "mappedFileSizeCommitLog": 16 * MIB,
    "mappedFileSizeConsumeQueue": 20 * 500,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 5000,
    "defaultTopicQueueNums": 1,
    "flushConsumeQueueThoroughInterval": 700,
}
STARTS_MAX: Final = 10


@pytest.fixture
def drive(tmp_path: Path) -> Iterator[FailingDrive]:
    with FailingDrive(tmp_path) as drive:
        yield drive


class Load:
    """Invariant: `acknowledged` are the bodies that were answered SEND_OK."""

    def __init__(self, name_server: str) -> None:
        self._name_server = name_server
        self._sent = 0
        self.acknowledged: list[bytes] = []

    async def send(self, count: int) -> None:
        async with Producer(
            self._name_server, "P", retries=0, timeout_ms=3000, compress_from_size=1 << 30
        ) as producer:
            for _ in range(count):
                body = b"%08d" % self._sent + os.urandom(BODY_SIZE)
                self._sent += 1
                try:
                    result = await producer.send(TOPIC, body)
                except RoquetError:
                    continue
                if result.status is SendStatus.SEND_OK:
                    self.acknowledged.append(body)


def stored(folder: Path) -> list[bytes]:
    config = StoreConfig(
        folder, [folder / "commitlog"], 16 * MIB, 20 * 500, index_slots=1000, index_entries=5000
    )
    store = Store(config, lambda: 0)
    store.open()
    try:
        return bodies_in(store, TOPIC)
    finally:
        store.abandon()


async def test_what_was_acknowledged_is_there_after_the_drive_failed(drive: FailingDrive) -> None:
    """Neither the sync that follows the one that failed, nor the system's memory, is believed."""
    with RoquetNameServer() as names:
        broker = RoquetBroker(names.address, store_dir=drive.root / "store", properties=SETTINGS)
        with broker:
            load = Load(names.address)
            await load.send(20)
            assert len(load.acknowledged) == 20
            drive.fail()
            for _ in range(STARTS_MAX):
                await load.send(20)
                if not broker.alive:
                    break
            await asyncio.to_thread(broker.wait_end, 60)
            assert broker.status == DRIVE_FAILED, broker.log()[-4000:]
            drive.heal()
            broker.start()
            before = len(load.acknowledged)
            await load.send(5)
            assert len(load.acknowledged) == before + 5
            text = broker.log()[-8000:]
            broker.kill()
    drive.remount()
    kept = {body[:8] for body in stored(drive.root / "store")}
    lost = [body[:8] for body in load.acknowledged if body[:8] not in kept]
    assert not lost, f"of {len(load.acknowledged)}; the brokers said: {text}"


async def test_a_laptops_cluster_ends_with_the_same_code(drive: FailingDrive) -> None:
    """ASYNC_FLUSH: nobody waits for the disk, and it ends all the same."""
    cluster = Program("roquet-dev")
    with cluster:
        port = free_port()
        store = str(drive.root / "store")
        cluster.launch(
            [sys.executable, "-m", "roquet.cli.main", "dev", "--port", str(port), "--store", store]
        )
        cluster.wait_ready(lambda: "roquet dev ready" in cluster.output(), "its line")
        drive.fail()
        await Load(f"127.0.0.1:{port}").send(3)
        assert await asyncio.to_thread(cluster.wait_end, 60) == DRIVE_FAILED
        assert cluster.errors().count("CRITICAL") == 1
