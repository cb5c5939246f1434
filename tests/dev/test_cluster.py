"""The cluster for tests and laptops, in this process, on real ports."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import roquet
from roquet.broker.metadata.state_files import TOPICS
from roquet.dev import Cluster
from roquet.errors import ClusterStateError, ConfigError, NotWritten, StoreError
from tests.interop import wire
from tests.interop.processes import SEND_MS_MAX


async def send(cluster: Cluster, topic: str, body: bytes, **fields: Any) -> roquet.SendResult:
    async with roquet.Producer(cluster.name_server, "group", timeout_ms=SEND_MS_MAX) as producer:
        return await producer.send(roquet.Message(topic, body, **fields))


async def received(cluster: Cluster, topic: str) -> list[bytes]:
    """What a new group gets of it within 5 s."""
    async with roquet.Consumer(
        cluster.name_server, f"{topic}-group", topic, "earliest"
    ) as consumer:
        return [message.body for message in await consumer.get_many(timeout_ms=5000)]


async def test_it_is_ready_at_once_and_leaves_nothing_behind() -> None:
    before = set(threading.enumerate())
    async with Cluster() as cluster:
        folder = cluster.store_folder()
        sent = await send(cluster, "topic", b"body")
        assert (sent.status, folder.exists()) == (roquet.SendStatus.SEND_OK, True)
    assert not folder.parent.parent.exists()
    assert [
        thread
        for thread in threading.enumerate()
        if thread not in before and thread.name.startswith("roquet")
    ] == []


def test_blocking_code_uses_it_with_a_plain_with() -> None:
    with Cluster() as cluster:
        asyncio.run(send(cluster, "orders", b"one"))

        assert asyncio.run(received(cluster, "orders")) == [b"one"]


async def test_a_folder_of_the_users_own_stays_with_its_messages(tmp_path: Path) -> None:
    for number in range(2):
        async with (
            Cluster(tmp_path) as cluster,
            roquet.Producer(cluster.name_server, "group", timeout_ms=SEND_MS_MAX) as producer,
        ):
            sent = await producer.send(
                "topic", b"%d" % number, queue=roquet.MessageQueue("topic", "dev", 0)
            )
            assert sent.queue_offset == number


def test_it_takes_messages_and_deletes_none_however_full_the_drive_is() -> None:
    with Cluster() as cluster:
        rules = cluster.ask(lambda broker: broker.config.store.retention)
        assert rules.full_above == 1
        assert rules.files_to_go([0] * 10, 1, 4, 1.0, asked=False) == 0


def test_what_cannot_start_leaves_no_name_server_behind(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        second = Cluster(tmp_path)
        with pytest.raises(StoreError, match="in use by another broker"):
            second.start()
        assert second.port == 0
        assert wire.accepts(cluster.name_server)


def test_a_broker_that_cannot_save_its_tables_leaves_no_name_server_behind(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.start()
    address = cluster.name_server
    topics = cluster.store_folder() / "config" / TOPICS
    topics.unlink(missing_ok=True)
    topics.mkdir(parents=True)
    with pytest.raises(NotWritten, match="Is a directory"):
        cluster.stop()
    assert not wire.accepts(address)


def test_stopped_twice_it_stays_stopped_and_it_starts_again(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.start()
    address = cluster.name_server
    cluster.stop()
    cluster.stop()
    assert not wire.accepts(address)
    cluster.start()
    assert wire.accepts(cluster.name_server)
    cluster.stop()


async def test_a_topic_is_at_every_broker() -> None:
    async with Cluster(brokers=2) as cluster:
        assert cluster.brokers == ("broker-a", "broker-b")
        cluster.create_topic("orders", queues=2)
        async with roquet.Producer(cluster.name_server, "group") as producer:
            queues = await producer.queues("orders")

    assert sorted((queue.broker_name, queue.queue_id) for queue in queues) == [
        ("broker-a", 0),
        ("broker-a", 1),
        ("broker-b", 0),
        ("broker-b", 1),
    ]


def test_a_slave_follows_when_the_cluster_is_ready_and_serves_while_the_master_is_dead() -> None:
    settings = {"brokerRole": "SYNC_MASTER", "flushDiskType": "SYNC_FLUSH"}
    with Cluster(brokers=["broker-x"], slaves=1, settings=settings) as cluster:
        sent = asyncio.run(send(cluster, "orders", b"one"))
        assert sent.status is roquet.SendStatus.SEND_OK
        cluster.kill("broker-x")

        assert (
            cluster.ask(
                lambda broker: broker.store.max_offset("orders", sent.queue.queue_id), "broker-x:1"
            )
            == 1
        )
        cluster.start("broker-x")
        cluster.stop("broker-x:1")
        cluster.start("broker-x:1")


async def test_a_delayed_message_comes_as_soon_as_its_time_is_let_pass() -> None:
    async with Cluster() as cluster:
        await send(cluster, "orders", b"later", delay_level=18)
        async with roquet.Consumer(cluster.name_server, "g", "orders", "earliest") as consumer:
            assert await consumer.get_many(timeout_ms=100) == []
            cluster.advance(2 * 60 * 60)
            assert [m.body for m in await consumer.get_many(timeout_ms=5000)] == [b"later"]


async def test_time_that_passed_stays_passed_when_a_broker_starts_again() -> None:
    async with Cluster() as cluster:
        await send(cluster, "orders", b"later", delay_level=5)  # 1 min
        cluster.advance(40)
        cluster.kill()
        cluster.advance(30)
        cluster.start("dev")

        assert await received(cluster, "orders") == [b"later"]


async def test_a_failed_message_comes_again_without_a_wait() -> None:
    async with (
        Cluster() as cluster,
        roquet.Consumer(cluster.name_server, "billing", "orders", "earliest") as consumer,
        asyncio.timeout(30),
    ):
        await send(cluster, "orders", b"one")
        (message,) = await consumer.get_many(timeout_ms=5000)
        message.retry()
        again: list[roquet.ReceivedMessage] = []
        while not again:
            cluster.advance(10)
            again = await consumer.get_many(timeout_ms=200)

        assert [(each.body, each.reconsume_times) for each in again] == [(b"one", 1)]


def test_its_delay_levels_and_settings_are_those_that_are_given() -> None:
    with Cluster(delay_levels="1s 3s", settings={"maxMessageSize": 70_000}) as cluster:
        config = cluster.ask(lambda broker: broker.config)

    assert config.delay_levels.ms == (1000, 3000)
    assert config.store.max_message_size == 70_000


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"port": 99999}, "port=99999: allowed is a number from 0 up to 65535"),
        ({"slaves": -1}, "slaves=-1: allowed is a number from 0"),
        ({"brokers": 0}, "brokers=0: allowed is 1 to 26, or names"),
        ({"brokers": ["a", "a"]}, "brokers=('a', 'a'): allowed are different names"),
        ({"brokers": ["a:1"]}, "brokers=('a:1',): allowed are different names"),
        ({"settings": {"listenPort": 1}}, "listenPort in settings: the cluster decides it"),
        ({"settings": {"maxMessageSiz": 1}}, "maxMessageSiz is no setting known here"),
        ({"settings": {"maxMessageSize": "x"}}, "maxMessageSize=x in settings"),
        ({"settings": {"brokerRole": "SLAVE"}}, "give the number of slaves as `slaves`"),
        ({"settings": {"aclEnable": True}}, "aclEnable"),
        ({"delay_levels": "soon"}, "messageDelayLevel=soon"),
        ({"delay_levels": ["1s", "5s"]}, "delay_levels=['1s', '5s']: give a text such as"),
    ],
)
def test_an_argument_that_cannot_be_used_is_named(options: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Cluster(**options)

    assert error in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_start_without_a_name_starts_what_was_killed_or_stopped() -> None:
    with Cluster(brokers=["a", "b"], slaves=1) as cluster:
        assert cluster.away() == ()
        cluster.kill("a")
        cluster.stop("b:1")
        cluster.stop("name-server")
        with cluster.pause("b"):
            assert cluster.away() == ("name-server", "a", "b:1"), "who is paused runs"
        cluster.start()
        assert cluster.away() == ()
        cluster.create_topic("orders")
        assert cluster.ask(lambda broker: "orders" in broker.parts.tables.topics.topics, "a")


def test_misuse_is_told_in_one_line() -> None:
    stopped = Cluster()
    with pytest.raises(ClusterStateError, match=r"^the cluster is not started$"):
        stopped.kill("dev")
    with Cluster(brokers=2) as cluster:
        with pytest.raises(ClusterStateError, match=r"^the cluster runs already$"):
            cluster.start()
        with pytest.raises(ConfigError, match=r"^there is no 'dev' in this cluster: allowed are"):
            cluster.pause("dev")
        with pytest.raises(ConfigError, match=r"allowed are broker-a, broker-b, name-server$"):
            cluster.pause()
        with pytest.raises(ConfigError, match=r"^seconds=-1: allowed is a number from 0$"):
            cluster.advance(-1)
        with pytest.raises(ConfigError, match=r"^queues=0: allowed is a number from 1$"):
            cluster.create_topic("orders", 0)
        with pytest.raises(ConfigError, match=r"^topic='a b': "):
            cluster.create_topic("a b")
        with (
            cluster.pause("broker-b"),
            pytest.raises(ClusterStateError, match=r"^broker-b is paused, resume it before"),
        ):
            cluster.advance(1)


def test_it_stops_however_its_programs_were_left() -> None:
    cluster = Cluster(brokers=3)
    cluster.start()
    address = cluster.name_server
    cluster.kill("broker-a")
    cluster.pause("broker-b")
    cluster.pause("name-server")
    cluster.stop()

    assert not wire.accepts(address)


def test_any_thread_may_let_it_fail() -> None:
    with Cluster() as cluster:
        worker = threading.Thread(target=cluster.kill)
        worker.start()
        worker.join()

        with pytest.raises(ClusterStateError, match="does not run"):
            cluster.kill()
