"""The cluster for tests and laptops, in this process, on real ports."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import roquet
from roquet.broker.metadata.state_files import TOPICS
from roquet.errors import NotWritten, StoreError
from tests.interop.processes import SEND_MS_MAX


async def refuses_connections(cluster: roquet.dev.Cluster) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", cluster.port)
    except ConnectionRefusedError:
        return True
    writer.close()
    return False


async def test_it_is_ready_at_once_and_leaves_nothing_behind() -> None:
    async with roquet.dev.Cluster() as cluster:
        assert cluster.broker is not None
        folder = cluster.broker.config.store_folder
        async with roquet.Producer(
            cluster.name_server, "group", timeout_ms=SEND_MS_MAX
        ) as producer:
            sent = await producer.send("topic", b"body")
        assert (sent.status, folder.exists()) == (roquet.SendStatus.SEND_OK, True)
    assert not folder.parent.exists()


async def test_a_folder_of_the_users_own_stays_with_its_messages(tmp_path: Path) -> None:
    for number in range(2):
        async with (
            roquet.dev.Cluster(tmp_path) as cluster,
            roquet.Producer(cluster.name_server, "group", timeout_ms=SEND_MS_MAX) as producer,
        ):
            sent = await producer.send(
                "topic", b"%d" % number, queue=roquet.MessageQueue("topic", "dev", 0)
            )
            assert sent.queue_offset == number


async def test_it_takes_messages_and_deletes_none_however_full_the_drive_is() -> None:
    async with roquet.dev.Cluster() as cluster:
        assert cluster.broker is not None
        rules = cluster.broker.config.store.retention
        assert rules.full_above == 1
        assert rules.files_to_go([0] * 10, 1, 4, 1.0, asked=False) == 0


async def test_what_cannot_start_leaves_no_name_server_behind(tmp_path: Path) -> None:
    async with roquet.dev.Cluster(tmp_path) as cluster:
        second = roquet.dev.Cluster(tmp_path)
        with pytest.raises(StoreError, match="in use by another broker"):
            await second.start()
        assert second.port != cluster.port
        assert await refuses_connections(second)
        assert not await refuses_connections(cluster)


async def test_a_broker_that_cannot_save_its_tables_leaves_no_name_server_behind(
    tmp_path: Path,
) -> None:
    cluster = roquet.dev.Cluster(tmp_path)
    await cluster.start()
    assert cluster.broker is not None
    topics = cluster.broker.config.state_folder / TOPICS
    topics.unlink(missing_ok=True)
    topics.mkdir(parents=True)
    with pytest.raises(NotWritten, match="Is a directory"):
        await cluster.stop()
    assert await refuses_connections(cluster)


async def test_its_address_is_that_of_the_name_server() -> None:
    async with roquet.dev.Cluster() as cluster:
        assert cluster.name_server == cluster.address == f"127.0.0.1:{cluster.port}"
        assert cluster.ports == (cluster.port,)
        assert cluster.port > 0


async def test_stopped_twice_it_stays_stopped() -> None:
    cluster = roquet.dev.Cluster()
    port = await cluster.start()
    assert port == cluster.port

    await cluster.stop()
    await cluster.stop()

    assert await refuses_connections(cluster)


async def test_its_delay_levels_are_those_that_are_given() -> None:
    async with roquet.dev.Cluster(delay_levels="1s 3s") as cluster:
        assert cluster.broker is not None
        assert cluster.broker.config.delay_levels.ms == (1000, 3000)
