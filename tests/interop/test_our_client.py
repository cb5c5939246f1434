"""Our producer and consumers against Apache's name server and broker."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from roquet.client._send.unique_key import month_of
from roquet.client.consumer import Consumer, ReceivedMessage
from roquet.client.producer import Producer, SendStatus
from roquet.client.pull_consumer import PullConsumer, PullStatus
from roquet.errors import ResponseError
from roquet.protocol.records.message import Message, MessageQueue
from tests.interop.apache import (
    PATIENT,
    ApacheBroker,
    ApacheNameServer,
    Finished,
    Version,
    mqadmin,
    require_java,
    run_driver,
    start_driver,
    wait_until,
)
from tests.interop.taken import CONSUME_SECONDS, take
from tests.interop.wire import has_topic

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


async def routed(broker: ApacheBroker, topic: str) -> None:
    """Wait until the name server knows the topic: of one that a send creates, the broker tells it
    afterwards.
    """
    await asyncio.to_thread(
        wait_until, lambda: has_topic(broker.namesrv, topic), f"a route for {topic}"
    )


async def until(reached: Callable[[], bool], seconds: float = CONSUME_SECONDS) -> None:
    """Wait until that is so."""
    async with asyncio.timeout(seconds):
        while not reached():
            await asyncio.sleep(0.1)


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


async def test_results_tell_where_the_messages_are(broker: ApacheBroker, topic: str) -> None:
    async with (
        Producer(broker.namesrv, "P", timeout_ms=TIMEOUT_MS) as producer,
        PullConsumer(broker.namesrv) as reader,
    ):
        single = await producer.send(topic, b"single")
        batch = await producer.send_batch([Message(topic, b"batch-%d" % i) for i in range(3)])
        await routed(broker, topic)
        for result in (single, *batch):
            assert result.status is SendStatus.SEND_OK
            (message, *_) = (await reader.pull(result.queue, result.queue_offset)).messages
            assert message.offset_message_id == result.offset_message_id
            assert message.message_id == result.message_id


async def test_apache_s_tools_find_a_message_by_the_id_we_gave_it(
    broker: ApacheBroker, topic: str
) -> None:
    async with Producer(broker.namesrv, "P", timeout_ms=TIMEOUT_MS) as producer:
        result = await producer.send(topic, b"find me", keys="invoice-7")
    now_ms = int(time.time() * 1000)
    made_ms = month_of(now_ms)[0] + int(result.message_id[-12:-4], 16)
    assert abs(made_ms - now_ms) < 60_000

    for command in (
        ("queryMsgByUniqueKey", "-i", result.message_id),
        ("queryMsgByKey", "-k", "invoice-7"),
    ):
        shown = await asyncio.to_thread(mqadmin, *command, "-t", topic, namesrv=broker.namesrv)
        assert result.message_id in shown.out, shown


async def test_a_batch_beyond_four_mebibytes_is_split_so_that_apache_takes_every_part(
    broker: ApacheBroker, topic: str
) -> None:
    async with Producer(broker.namesrv, "P", timeout_ms=TIMEOUT_MS) as producer:
        many = await producer.send_batch([Message(topic, b"x" * 50) for _ in range(20_000)])
        large = await producer.send_batch([Message(topic, bytes(1_300_000)) for _ in range(4)])
    assert {result.status for result in (*many, *large)} == {SendStatus.SEND_OK}
    assert len({result.offset_message_id for result in (*many, *large)}) == 20_004


async def test_a_delayed_message_comes_after_its_delay(broker: ApacheBroker, topic: str) -> None:
    async with (
        Producer(broker.namesrv, "P", timeout_ms=TIMEOUT_MS) as producer,
        Consumer(broker.namesrv, f"G-{topic}", topic, "earliest") as consumer,
    ):
        await producer.send(topic, b"at once")
        await producer.send(topic, b"in five seconds", delay_level=2)
        now, later = sorted(await take(consumer, 2), key=lambda message: message.store_time_ms)
    assert (now.body, later.body) == (b"at once", b"in five seconds")
    assert later.topic == topic
    assert 4_500 <= later.store_time_ms - later.born_time_ms < 30_000


async def test_messages_of_one_key_go_to_one_queue(broker: ApacheBroker, topic: str) -> None:
    async with Producer(broker.namesrv, "P", timeout_ms=TIMEOUT_MS) as producer:
        results = [await producer.send(topic, b"%d" % i, sharding_key="order-7") for i in range(20)]
    assert len({result.queue for result in results}) == 1
    assert [result.queue_offset for result in results] == list(range(20))


async def test_a_refusal_says_who_and_why(broker: ApacheBroker) -> None:
    async with Producer(broker.namesrv, "P", retries=0, timeout_ms=TIMEOUT_MS) as producer:
        with pytest.raises(ResponseError) as caught:
            await producer.send("SCHEDULE_TOPIC_XXXX", b"hi")
    assert caught.value.address == broker.address
    assert caught.value.code in (1, 16)


async def test_ten_thousand_sends_at_once_all_arrive(broker: ApacheBroker, topic: str) -> None:
    async with Producer(broker.namesrv, "P", timeout_ms=TIMEOUT_MS) as producer:
        results = await asyncio.gather(*(producer.send(topic, b"%d" % i) for i in range(10_000)))
    assert len({(result.queue, result.queue_offset) for result in results}) == 10_000


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


async def test_a_compressed_message_of_ours_is_read_by_us(broker: ApacheBroker, topic: str) -> None:
    async with (
        Producer(broker.namesrv, "P", timeout_ms=TIMEOUT_MS) as producer,
        Consumer(broker.namesrv, f"G-{topic}", topic) as consumer,
    ):
        await producer.send(topic, bytes(100_000))
        (message,) = await take(consumer, 1)
    assert message.body == bytes(100_000)
    assert message.sys_flag & 1


async def test_only_wanted_tags_come(broker: ApacheBroker, topic: str) -> None:
    async with Producer(broker.namesrv, "P", timeout_ms=TIMEOUT_MS) as producer:
        for tag in (
            "Aa",
            "BB",
            "c",
            "d",
        ) * 5:  # "Aa" and "BB" have the same hash code: Apache's broker sends both
            await producer.send(topic, tag.encode(), tags=tag)
    async with Consumer(broker.namesrv, f"G-{topic}", {topic: "Aa || c"}) as consumer:
        found = await take(consumer, 10)
        assert await consumer.get_many(timeout_ms=2000) == []
    assert Counter(message.body for message in found) == {b"Aa": 5, b"c": 5}


async def test_two_members_share_the_queues_and_one_takes_over_when_the_other_leaves(
    broker: ApacheBroker, topic: str
) -> None:
    group = f"G-{topic}"

    async def consume(consumer: Consumer, into: list[bytes]) -> None:
        async for message in consumer:
            async with message:
                into.append(message.body)

    def of_topic(consumer: Consumer) -> list[MessageQueue]:
        return sorted(queue for queue in consumer.assigned() if queue.topic == topic)

    async with (
        Producer(broker.namesrv, "P", timeout_ms=TIMEOUT_MS) as producer,
        asyncio.timeout(120),
    ):
        queues = sorted([(await producer.send(topic, b"first")).queue for _ in range(4)])
        assert len(queues) == 4
        one_got: list[bytes] = []
        two_got: list[bytes] = []
        async with Consumer(broker.namesrv, group, topic) as one, asyncio.TaskGroup() as tasks:
            first = tasks.create_task(consume(one, one_got))
            async with Consumer(broker.namesrv, group, topic) as two:
                second = tasks.create_task(consume(two, two_got))
                await until(lambda: len(of_topic(one)) == len(of_topic(two)) == 2)
                assert sorted(of_topic(one) + of_topic(two)) == queues
                await all_stored(broker, group)
                one_got.clear()
                two_got.clear()
                for number in range(40):
                    await producer.send(topic, b"%d" % number)
                await until(lambda: len(one_got) + len(two_got) == 40)
                assert sorted(one_got + two_got) == sorted(b"%d" % number for number in range(40))
                assert len(one_got) == len(two_got) == 20
            await second
            await until(
                lambda: of_topic(one) == queues, 5
            )  # at once, not with the next division every 20 s
            first.cancel()


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


async def test_progress_survives_a_restart_of_the_consumer(
    broker: ApacheBroker, topic: str
) -> None:
    group = f"G-{topic}"
    async with Producer(broker.namesrv, "P", timeout_ms=TIMEOUT_MS) as producer:
        for number in range(10):
            await producer.send(topic, b"%d" % number)
        async with Consumer(broker.namesrv, group, topic, "earliest") as consumer:
            first = await take(consumer, 10)
        for number in range(10, 15):
            await producer.send(topic, b"%d" % number)
        async with Consumer(broker.namesrv, group, topic, "earliest") as consumer:
            second = await take(consumer, 5)
            assert await consumer.get_many(timeout_ms=1000) == []
    assert sorted(int(message.body) for message in first) == list(range(10))
    assert sorted(int(message.body) for message in second) == list(range(10, 15))


async def test_a_failed_message_comes_again_after_ten_seconds_and_then_among_the_dead_letters(
    broker: ApacheBroker, topic: str
) -> None:
    group = f"G-{topic}"
    async with (
        Producer(broker.namesrv, "P", timeout_ms=TIMEOUT_MS) as producer,
        Consumer(broker.namesrv, group, topic, max_reconsume_times=1) as consumer,
        asyncio.timeout(120),
    ):
        sent = await producer.send(topic, b"poison", tags="A")
        tries: list[ReceivedMessage] = []
        async for message in consumer:
            async with message:
                tries.append(message)
                raise ValueError("cannot book")
            if len(tries) == 2:
                break
        await routed(broker, f"%DLQ%{group}")  # sent back for the last time
    first, again = tries
    assert (first.reconsume_times, again.reconsume_times) == (0, 1)
    assert (again.topic, again.tags, again.message_id) == (topic, "A", sent.message_id)
    assert again.queue.topic == f"%RETRY%{group}"
    assert again.store_time_ms - first.store_time_ms >= 9_500

    async with PullConsumer(broker.namesrv) as reader:
        (queue,) = await reader.queues(f"%DLQ%{group}")
        (dead,) = (await reader.pull(queue, 0, hold_ms=10_000)).messages
    assert dead.body == b"poison"


async def test_in_order_a_failed_message_comes_again_before_those_behind_it_and_then_among_the_dead_letters(
    broker: ApacheBroker, topic: str
) -> None:
    group = f"G-{topic}"
    tries: list[tuple[bytes, int]] = []
    async with Producer(broker.namesrv, "P", timeout_ms=TIMEOUT_MS) as producer:
        for body in (b"first", b"poison", b"last"):
            await producer.send(topic, body, sharding_key="one")
    async with Consumer(
        broker.namesrv, group, topic, "earliest", ordered=True, max_reconsume_times=2
    ) as consumer:
        async with asyncio.timeout(CONSUME_SECONDS):
            async for message in consumer:
                tries.append((message.body, message.reconsume_times))
                if message.body == b"poison":
                    message.retry()
                if message.body == b"last":
                    message.ack()
                    break
    assert tries == [(b"first", 0), (b"poison", 0), (b"poison", 1), (b"poison", 2), (b"last", 0)]

    async with PullConsumer(broker.namesrv) as reader:
        await routed(broker, f"%DLQ%{group}")
        (queue,) = await reader.queues(f"%DLQ%{group}")
        (dead,) = (await reader.pull(queue, 0, hold_ms=10_000)).messages
    assert dead.body == b"poison"


async def test_a_queue_that_another_member_has_locked_is_taken_when_that_leaves(
    broker: ApacheBroker, topic: str
) -> None:
    async with Producer(broker.namesrv, "P", timeout_ms=TIMEOUT_MS) as producer:
        await producer.send(topic, b"one", sharding_key="one")
        async with Consumer(broker.namesrv, f"G-{topic}", topic, "earliest", ordered=True):
            other = Consumer(broker.namesrv, f"G-{topic}", topic, "earliest", ordered=True)
            await asyncio.wait_for(other.__aenter__(), CONSUME_SECONDS)
        try:
            (message,) = await take(other, 1)
        finally:
            await other.__aexit__(None, None, None)
    assert message.body == b"one"


async def test_a_group_starts_at_a_point_in_time(broker: ApacheBroker, topic: str) -> None:
    async with (
        Producer(broker.namesrv, "P", timeout_ms=TIMEOUT_MS) as producer,
        PullConsumer(broker.namesrv) as reader,
    ):
        queue = (await producer.send(topic, b"early")).queue
        await routed(broker, topic)
        await asyncio.sleep(1.1)
        moment = datetime.now(UTC)
        await asyncio.sleep(0.1)
        await producer.send(topic, b"late", queue=queue)
        assert await reader.offset_at(queue, int(moment.timestamp() * 1000)) == 1


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


# plain access


async def test_queues_are_read_by_offset(broker: ApacheBroker, topic: str) -> None:
    async with (
        Producer(broker.namesrv, "P", timeout_ms=TIMEOUT_MS) as producer,
        PullConsumer(broker.namesrv) as reader,
    ):
        queue = (
            await producer.send_batch(
                [Message(topic, b"%d" % i, tags="AB"[i % 2]) for i in range(10)]
            )
        )[0].queue
        await routed(broker, topic)
        queues = await reader.queues(topic)
        assert queue in queues
        empty = [one for one in queues if one != queue]
        assert [(await reader.min_offset(one), await reader.max_offset(one)) for one in empty] == [
            (0, 0)
        ] * 3
        assert (await reader.min_offset(queue), await reader.max_offset(queue)) == (0, 10)

        found = await reader.pull(queue, 3, max_messages=4)
        assert [message.body for message in found.messages] == [b"3", b"4", b"5", b"6"]
        assert (found.status, found.next_offset, found.min_offset, found.max_offset) == (
            PullStatus.FOUND,
            7,
            0,
            10,
        )

        tagged = await reader.pull(queue, 0, tags="B")
        assert [message.body for message in tagged.messages] == [b"1", b"3", b"5", b"7", b"9"]
        assert (await reader.pull(queue, 0, tags="none")).status is PullStatus.NO_MATCHED

        assert (await reader.pull(queue, 10)).status is PullStatus.NO_NEW
        beyond = await reader.pull(queue, 99)
        assert (beyond.status, beyond.next_offset) == (PullStatus.OFFSET_ILLEGAL, 10)


async def test_a_held_pull_is_answered_when_a_message_comes(
    broker: ApacheBroker, topic: str
) -> None:
    async with (
        Producer(broker.namesrv, "P", timeout_ms=TIMEOUT_MS) as producer,
        PullConsumer(broker.namesrv) as reader,
    ):
        queue = (await producer.send(topic, b"first")).queue
        await routed(broker, topic)
        pull = asyncio.create_task(reader.pull(queue, 1, hold_ms=20_000))
        await asyncio.sleep(0.5)
        assert not pull.done()
        await producer.send(topic, b"second", queue=queue)
        assert [message.body for message in (await pull).messages] == [b"second"]


async def test_progress_can_be_read_and_set(broker: ApacheBroker, topic: str) -> None:
    group = f"G-{topic}"
    async with (
        Producer(broker.namesrv, "P", timeout_ms=TIMEOUT_MS) as producer,
        PullConsumer(broker.namesrv) as reader,
    ):
        queue = (await producer.send_batch([Message(topic, b"%d" % i) for i in range(5)]))[0].queue
        await routed(broker, topic)
        assert await reader.committed(group, queue) in (None, 0)
        await reader.commit(group, queue, 4)
        assert await reader.committed(group, queue) == 4
        await reader.commit(group, queue, 2)
        assert await reader.committed(group, queue) == 2


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
