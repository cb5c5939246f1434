"""Our producer and consumers beside Apache's clients and tools, and at a slave of Apache's.

What our client does without them is in `client/`, at Apache's broker and at ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from roquet.client.consumer import Consumer
from roquet.client.producer import Producer
from roquet.client.pull_consumer import PullConsumer
from roquet.client.send_result import SendStatus
from roquet.errors import ResponseError
from roquet.protocol.records.message import Message, MessageQueue
from tests.interop.apache import (
    PATIENT,
    ApacheBroker,
    ApacheNameServer,
    Finished,
    Spoken,
    Version,
    mqadmin,
    require_java,
    run_driver,
    start_driver,
    wait_until,
)
from tests.interop.taken import CONSUME_SECONDS, take, until

pytestmark = pytest.mark.interop

TIMEOUT_MS = 20_000
"""A broker that has just started on a busy machine is slow."""


@pytest.fixture(scope="module")
def name_server() -> Iterator[ApacheNameServer]:
    require_java()
    with ApacheNameServer() as server:
        yield server


@pytest.fixture(scope="module")
def broker(name_server: ApacheNameServer) -> Iterator[ApacheBroker]:
    with ApacheBroker(name_server.address) as server:
        yield server


@pytest.fixture
def topic() -> str:
    """One that no other test uses."""
    return f"T-{uuid.uuid4().hex[:12]}"


def java_consumes(broker: ApacheBroker, topic: str, count: int) -> Finished:
    return run_driver(
        Version.V4, "consume", broker.namesrv, topic, f"java-{topic}", count, CONSUME_SECONDS
    )


async def all_stored(broker: ApacheBroker, group: str) -> None:
    """Wait until the group's progress on the broker is the end of every queue."""

    def no_lag() -> bool:
        return (
            "Diff Total: 0" in mqadmin("consumerProgress", "-g", group, namesrv=broker.namesrv).out
        )

    await asyncio.to_thread(wait_until, no_lag, f"progress of {group}", CONSUME_SECONDS)


# sending


async def test_java_consumes_what_we_send(broker: ApacheBroker, topic: str) -> None:
    async with Producer(broker.namesrv, "P", timeout_ms=TIMEOUT_MS) as producer:
        single = await producer.send(
            topic, b"single", tags="A", keys=("k1", "k2"), properties={"color": "red"}
        )
        large = await producer.send(topic, b"large " * 10_000)
        batch = await producer.send_batch(
            [Message(topic, b"batch-%d" % i, tags="B") for i in range(3)]
        )
        one_way = await producer.send_one_way(topic, b"one way")

    lines = await asyncio.to_thread(lambda: java_consumes(broker, topic, 6).check())
    by_body = {line["body"]: line for line in lines}
    assert set(by_body) == {"single", "large " * 10_000, "batch-0", "batch-1", "batch-2", "one way"}
    assert (by_body["single"]["tags"], by_body["single"]["keys"]) == ("A", "k1 k2")
    assert by_body["single"]["msgId"] == single.message_id
    assert by_body["large " * 10_000]["msgId"] == large.message_id
    assert by_body["one way"]["msgId"] == one_way
    assert [by_body[f"batch-{i}"]["msgId"] for i in range(3)] == [
        result.message_id for result in batch
    ]


def shows(tool: Callable[[], Spoken], text: str) -> bool:
    return text in tool().out


async def test_apache_s_tools_find_a_message_by_the_id_we_gave_it(
    broker: ApacheBroker, topic: str
) -> None:
    async with Producer(broker.namesrv, "P", timeout_ms=TIMEOUT_MS) as producer:
        result = await producer.send(topic, b"find me", keys="invoice-7")

    for command in (
        ("queryMsgByUniqueKey", "-i", result.message_id),
        ("queryMsgByKey", "-k", "invoice-7"),
    ):
        # On a busy machine the tool does not get its answers within the 3 s that it waits.
        tool = partial(mqadmin, *command, "-t", topic, namesrv=broker.namesrv)
        await asyncio.to_thread(wait_until, partial(shows, tool, result.message_id), command[0])


# consuming


async def test_we_consume_what_java_sends(broker: ApacheBroker, topic: str) -> None:
    def produce() -> list[dict[str, str]]:
        words = ("produce", broker.namesrv, topic, 8, *PATIENT, "--tag", "A,B", "--keys", "key")
        return run_driver(Version.V4, *words).check()

    sent = await asyncio.to_thread(produce)
    async with Consumer(broker.namesrv, f"G-{topic}", topic) as consumer:
        found = await take(consumer, 8)
    assert sorted(message.message_id for message in found) == sorted(line["msgId"] for line in sent)
    assert sorted(message.body for message in found) == [b"message-%d" % i for i in range(8)]
    assert Counter(message.tags for message in found) == {"A": 4, "B": 4}
    assert {message.body: message.keys for message in found}[b"message-4"] == ("key4",)


async def test_we_and_java_share_a_group(broker: ApacheBroker, topic: str) -> None:
    group = f"G-{topic}"
    async with (
        Producer(broker.namesrv, "P", timeout_ms=TIMEOUT_MS) as producer,
        Consumer(broker.namesrv, group, topic) as ours,
    ):
        await producer.send(topic, b"creates the topic")
        await take(ours, 1)
        await all_stored(broker, group)
        await until(lambda: sum(queue.topic == topic for queue in ours.assigned()) == 4)
        with start_driver(
            Version.V4, "consume", broker.namesrv, topic, group, 10, CONSUME_SECONDS
        ) as java:
            await until(lambda: sum(queue.topic == topic for queue in ours.assigned()) == 2)
            for number in range(20):
                await producer.send(topic, b"%d" % number)
            ours_got = [message.body for message in await take(ours, 10)]
            theirs = await asyncio.to_thread(lambda: java.finish(CONSUME_SECONDS).check())
    both = [*ours_got, *(str(line["body"]).encode() for line in theirs)]
    assert sorted(both) == sorted(b"%d" % number for number in range(20))


async def test_apache_s_tools_see_the_members_of_our_group_and_its_lag(
    broker: ApacheBroker, topic: str
) -> None:
    group = f"G-{topic}"
    async with (
        Producer(broker.namesrv, "P-" + topic, timeout_ms=TIMEOUT_MS) as producer,
        Consumer(broker.namesrv, group, topic) as consumer,
    ):
        await producer.send(topic, b"hi")
        await take(consumer, 1)
        connection = await asyncio.to_thread(
            mqadmin, "consumerConnection", "-g", group, namesrv=broker.namesrv
        )
        await all_stored(broker, group)
        status = await asyncio.to_thread(
            mqadmin, "consumerStatus", "-g", group, namesrv=broker.namesrv
        )
        producers = await asyncio.to_thread(
            mqadmin, "producerConnection", "-g", "P-" + topic, "-t", topic, namesrv=broker.namesrv
        )
    assert "PYTHON" in connection.out
    assert "V4_9_8" in connection.out
    assert f"%RETRY%{group}" in connection.out
    assert "V4_9_8" in status.out, status
    assert "is OK" in status.out or "Same subscription in the same group" in status.out, status
    assert "PYTHON" in producers.out


async def test_apache_s_tools_set_our_group_back_while_it_consumes(
    broker: ApacheBroker, topic: str
) -> None:
    group = f"G-{topic}"
    async with (
        Producer(broker.namesrv, "P", timeout_ms=TIMEOUT_MS) as producer,
        Consumer(broker.namesrv, group, topic, "earliest") as consumer,
    ):
        since_ms = int(time.time() * 1000) - 1000
        for number in range(8):
            await producer.send(topic, b"%d" % number)
        first = await take(consumer, 8)
        await all_stored(broker, group)  # of every queue: Apache's tool needs that
        reset = ("resetOffsetByTime", "-g", group, "-t", topic, "-s", since_ms)
        shown = await asyncio.to_thread(mqadmin, *reset, namesrv=broker.namesrv)
        again = await take(consumer, 8)
    assert sorted(message.body for message in again) == sorted(message.body for message in first), (
        shown
    )


# master and slave


async def slave_has(name_server: str, topic: str, count: int) -> None:
    """Wait until the slave has the topic's settings, which it copies every 10 s, and so many
    messages.
    """
    async with PullConsumer(name_server, read_from="slave") as reader:
        queues = await reader.queues(topic)
        found = 0
        while found < count:
            await asyncio.sleep(0.5)
            with contextlib.suppress(ResponseError):  # topic not known yet
                found = sum([(await reader.pull(queue, 0)).max_offset for queue in queues])


async def committed(
    reader: PullConsumer, group: str, queues: list[MessageQueue], wanted: int
) -> None:
    """Wait until the group's progress in these queues adds up to that."""
    found = 0
    while found < wanted:
        await asyncio.sleep(0.5)
        found = sum([await reader.committed(group, queue) or 0 for queue in queues])


async def test_reading_goes_on_from_the_slave_when_the_master_is_killed_and_returns_to_it(
    topic: str,
) -> None:
    require_java()
    group = f"G-{topic}"
    with (
        ApacheNameServer() as names,
        ApacheBroker(names.address) as master,
        ApacheBroker(names.address, role="SLAVE", broker_id=1) as slave,
    ):
        await asyncio.to_thread(
            mqadmin,
            "updateTopic",
            "-t",
            topic,
            "-b",
            master.address,
            "-r",
            4,
            "-w",
            4,
            namesrv=names.address,
        )
        async with (
            Consumer(names.address, group, topic, "earliest", batch_size=4) as consumer,
            asyncio.timeout(180),
        ):
            async with Producer(names.address, "P", timeout_ms=TIMEOUT_MS) as producer:
                for number in range(40):
                    await producer.send(topic, b"%d" % number)
            found = {int(message.body) for message in await take(consumer, 10)}
            await slave_has(names.address, topic, 40)
            async with Consumer(
                names.address, f"S-{topic}", topic, "earliest", read_from="slave-only"
            ) as of_slave:
                assert len(await take(of_slave, 40)) == 40
            master.kill()
            while found != set(range(40)):
                found |= {int(message.body) for message in await take(consumer, 1)}

            async with PullConsumer(names.address) as reader:
                queues = await reader.queues(topic)
                assert len(queues) == 4
                assert sum([await reader.max_offset(queue) for queue in queues]) == 40
                await committed(
                    reader, group, queues, 40
                )  # stored on the slave, since there is no master

            await asyncio.to_thread(master.start)
            async with Producer(names.address, "P", timeout_ms=TIMEOUT_MS) as producer:
                await producer.send(topic, b"40")
                while 40 not in found:
                    found |= {int(message.body) for message in await take(consumer, 1)}
            async with PullConsumer(names.address, read_from="master") as reader:
                await committed(
                    reader, group, queues, 41
                )  # the master learns what only the slave knew
        assert slave.alive


async def test_a_message_that_one_broker_does_not_store_safely_goes_to_the_other(
    topic: str,
) -> None:
    """A synchronous master without a slave says SLAVE_NOT_AVAILABLE, and has the message."""
    require_java()
    with (
        ApacheNameServer() as names,
        ApacheBroker(names.address, name="alone", role="SYNC_MASTER"),
        ApacheBroker(names.address, name="safe"),
    ):
        await asyncio.to_thread(
            mqadmin, "updateTopic", "-t", topic, "-c", "DefaultCluster", namesrv=names.address
        )
        statuses = set()
        async with Producer(names.address, "P", timeout_ms=TIMEOUT_MS) as producer:
            for number in range(4):
                statuses.add((await producer.send(topic, b"%d" % number)).status)
        assert SendStatus.SLAVE_NOT_AVAILABLE in statuses
        async with Producer(
            names.address,
            "P",
            timeout_ms=TIMEOUT_MS,
            retry_another_broker_when_not_stored=True,
        ) as producer:
            for number in range(4):
                result = await producer.send(topic, b"%d" % number)
                assert (result.status, result.queue.broker_name) == (SendStatus.SEND_OK, "safe")
