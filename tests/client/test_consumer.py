"""What a member of a consumer group gets, and how it is settled, from brokers that do as
scripted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from roquet.client.consumer import Consumer
from roquet.client.hook import Hook
from roquet.errors import (
    CallTimeout,
    ClientStateError,
    ConfigError,
    ConnectionClosed,
    MessageError,
)
from tests.client.cluster import CLIENT, NAME_SERVER, FakeBroker, FakeCluster
from tests.client.consumers import bodies, consumer, fill, stored
from tests.client.hooks import DeliveriesSeen

# what comes


def test_all_messages_come_in_the_order_of_their_queue(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> list[bytes]:
        async with consumer(cluster) as c:
            return await bodies(c, 100)

    fill(broker, 100)
    assert cluster.run(consume) == [b"%d" % number for number in range(100)]


def test_a_message_comes_within_moments_of_being_stored(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> float:
        async with consumer(cluster) as c:
            await asyncio.sleep(40)
            broker.store("T", 0, b"hi")
            began = cluster.sim.now_s
            await bodies(c, 1)
            return cluster.sim.now_s - began

    fill(broker, 0)
    assert cluster.run(consume) < 0.6


def test_only_wanted_tags_come_even_when_their_hash_codes_collide(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> list[bytes]:
        async with consumer(cluster, {"T": "Aa || other"}) as c:
            return [message.body for message in await c.get_many(timeout_ms=5000)]

    fill(broker, 0)
    for tag in ("Aa", "BB", "unwanted"):  # "Aa" and "BB" have the same hash code
        broker.store("T", 0, tag.encode(), f"TAGS\x01{tag}")
    assert cluster.run(consume) == [b"Aa"]
    assert stored(broker) == {0: 0}, "what was handed out last is not acknowledged"


def test_several_topics_come_each_with_its_tags(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> set[bytes]:
        async with consumer(cluster, {"T": "a", "U": "*"}) as c:
            return set(await bodies(c, 4))

    fill(broker, 2, "T", properties="TAGS\x01b")
    fill(broker, 2, "T", properties="TAGS\x01a")
    fill(broker, 2, "U")
    assert cluster.run(consume) == {b"0", b"1"}


def test_without_a_name_server_the_consumer_does_not_start(cluster: FakeCluster) -> None:
    async def consume() -> None:
        async with Consumer("10.0.0.7:9876", "G", "T", client_id=f"{CLIENT}@test"):
            pass

    cluster.sim.host("10.0.0.7").boot()
    with pytest.raises(ConnectionClosed):
        cluster.run(consume)
    assert cluster.nothing_is_left()


@pytest.mark.parametrize("topics", [[], {}])
def test_a_consumer_needs_a_topic(topics: Any) -> None:
    with pytest.raises(ConfigError):
        Consumer(NAME_SERVER, "G", topics, client_id=CLIENT)


def test_a_name_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(MessageError):
        Consumer(NAME_SERVER, "no group", "T", client_id=CLIENT)
    with pytest.raises(MessageError):
        Consumer(NAME_SERVER, "G", "no topic", client_id=CLIENT)


# settling


def test_asking_for_the_next_message_acknowledges_the_one_before(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            async for message in c:
                if message.body == b"2":
                    return

    fill(broker, 5)
    cluster.run(consume)
    assert stored(broker) == {0: 2}


def test_the_end_of_the_block_acknowledges_at_once(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            await bodies(c, 3)

    fill(broker, 5)
    cluster.run(consume)
    assert stored(broker) == {0: 3}


def test_what_was_not_acknowledged_comes_to_the_next_consumer(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> list[bytes]:
        async with consumer(cluster) as c:
            iteration = aiter(c)
            one, two, three = [
                await anext(iteration) for _ in range(3)
            ]  # asking for the next one acknowledged two
            del one, two, three
        async with consumer(cluster) as c:
            return await bodies(c, 2)

    fill(broker, 4)
    assert cluster.run(consume) == [b"2", b"3"]


def test_the_offset_waits_for_the_lowest_message_not_done(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            zero, one, two, three = await c.get_many(4)
            for message in (one, three, zero):
                message.ack()
            await asyncio.sleep(6)
            assert stored(broker) == {0: 2}
            two.ack()
            await asyncio.sleep(6)
            assert stored(broker) == {0: 4}

    fill(broker, 4)
    cluster.run(consume)


def test_several_tasks_acknowledge_only_their_own(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def first_only(c: Consumer) -> None:
        async for _ in c:
            await asyncio.sleep(1_000)

    async def consume() -> None:
        async with consumer(cluster) as c:
            stuck = asyncio.create_task(first_only(c))
            await asyncio.sleep(1)
            await bodies(c, 3)
            stuck.cancel()
            await asyncio.wait([stuck])

    fill(broker, 4)
    cluster.run(consume)
    assert stored(broker) == {} or stored(broker) == {0: 0}


def test_get_many_waits_for_the_first_and_takes_what_is_there(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            assert await c.get_many(timeout_ms=2000) == []
            fill(broker, 5)
            assert [message.body for message in await c.get_many(3, timeout_ms=30_000)] == [
                b"0",
                b"1",
                b"2",
            ]
            assert [message.body for message in await c.get_many(3)] == [b"3", b"4"]
            assert await c.get_many(timeout_ms=100) == []

    fill(broker, 0)
    cluster.run(consume)
    assert stored(broker) == {0: 0}, "nothing is acknowledged"


def test_get_waits_for_one_message_and_acknowledges_nothing(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            with pytest.raises(CallTimeout, match="no message within 2000 ms"):
                await c.get(timeout_ms=2000)
            fill(broker, 3)
            assert (await c.get(timeout_ms=30_000)).body == b"0"
            assert (await c.get()).body == b"1"
            assert (await anext(c)).body == b"2"

    fill(broker, 0)
    cluster.run(consume)
    assert stored(broker) == {0: 0}


def test_a_wait_for_a_message_that_is_cancelled_loses_none(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> list[bytes]:
        async with consumer(cluster, batch_size=1) as c:
            found: list[bytes] = []
            while len(found) < 40:
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.0003):
                        found.append((await c.get()).body)
            return found

    fill(broker, 40)
    assert cluster.run(consume) == [b"%d" % number for number in range(40)]


def test_who_waits_for_a_message_when_the_consumer_stops_is_told(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            waits = [
                asyncio.create_task(wait)
                for wait in (c.get(), c.get(60_000), c.get_many(timeout_ms=60_000))
            ]
            iteration = asyncio.ensure_future(anext(aiter(c), None))
            await asyncio.sleep(1)
            c.stop()
            for wait in waits:
                with pytest.raises(ClientStateError, match="was stopped"):
                    await wait
            assert await iteration is None
            with pytest.raises(StopAsyncIteration):
                await anext(c)

    fill(broker, 0)
    cluster.run(consume)


def test_a_loop_over_batches_ends_when_the_consumer_is_stopped(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    seen: list[bytes] = []

    async def all_batches(c: Consumer) -> None:
        while True:
            async with c.batch() as messages:
                seen.extend(message.body for message in messages)
                if len(seen) == 3:
                    c.stop()

    async def consume() -> None:
        async with consumer(cluster) as c:
            with pytest.raises(ClientStateError, match="was stopped"):
                await all_batches(c)

    fill(broker, 3)
    cluster.run(consume)
    assert seen == [b"0", b"1", b"2"]
    assert stored(broker) == {0: 3}


def test_a_message_delivered_before_the_stop_can_be_settled(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            message = await c.get()
            c.stop()
            await asyncio.sleep(1)
            message.ack()

    fill(broker, 3)
    cluster.run(consume)
    assert stored(broker) == {0: 1}


def test_the_end_of_a_batch_acknowledges_it(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            async with c.batch(3) as messages:
                assert [message.body for message in messages] == [b"0", b"1", b"2"]
                assert stored(broker) == {}
            async with c.batch(timeout_ms=100) as messages:
                assert [message.body for message in messages] == [b"3", b"4"]
            async with c.batch(timeout_ms=100) as messages:
                assert messages == []

    fill(broker, 5)
    cluster.run(consume)
    assert stored(broker) == {0: 5}


def test_a_batch_that_fails_is_delivered_again_but_for_what_was_settled(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def consume() -> list[tuple[bytes, int]]:
        async with consumer(cluster) as c:
            async with c.batch() as messages:
                messages[0].ack()
                raise ValueError("the database is down")
            again = [await c.get(60_000) for _ in range(2)]
            return sorted((message.body, message.reconsume_times) for message in again)

    fill(broker, 3)
    assert cluster.run(consume) == [(b"1", 1), (b"2", 1)]
    (line,) = [line for line in caplog.messages if "batch failed" in line]
    assert line == "batch failed: group=G messages=3"


def test_a_batch_that_is_cancelled_settles_nothing(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1), c.batch():
                    await asyncio.sleep(60)

    fill(broker, 3)
    cluster.run(consume)
    assert stored(broker) == {0: 0}


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"consume_timeout_ms": 0}, "consume_timeout_ms is 0"),
        ({"batch_size": "32"}, "batch_size is '32'"),
        ({"max_reconsume_times": 1.5}, r"max_reconsume_times is 1\.5"),
        ({"batch_size": True}, "batch_size is True"),
        ({"suspend_ms": 9}, "suspend_ms is 9: allowed are 10 to 30000"),
        ({"read_from": "slaves"}, "read_from is 'slaves': give one of 'master', 'slave'"),
        ({"pull_interval_ms": -1}, "pull_interval_ms is -1: allowed are 0 to 65535"),
        ({"pull_interval_ms": 65_536}, "pull_interval_ms is 65536: allowed are 0 to 65535"),
        ({"persist_offsets_ms": 0}, "persist_offsets_ms is 0: allowed are 10 to"),
    ],
)
def test_a_number_that_cannot_be_used_is_named(options: dict[str, Any], argument: str) -> None:
    with pytest.raises(ConfigError, match=argument):
        Consumer("ns:9876", "G", "T", **options)


def test_iteration_ends_when_the_consumer_is_closed(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> list[bytes]:
        async def iterate(c: Consumer) -> list[bytes]:
            return [message.body async for message in c]

        async with consumer(cluster) as c:
            task = asyncio.create_task(iterate(c))
            await asyncio.sleep(1)
        return await task

    fill(broker, 2)
    assert cluster.run(consume) == [b"0", b"1"]


def test_nothing_of_a_closed_consumer_is_left(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            await bodies(c, 2)
            async for message in c:
                message.retry()
                break

    fill(broker, 3)
    cluster.run(consume)
    assert cluster.nothing_is_left()
    cluster.sim.run_for(200)


# where to start


@pytest.mark.parametrize(
    ("start", "expected"), [("earliest", b"0"), ("latest", b"later"), ("time", b"2")]
)
def test_a_new_group_starts_where_it_was_told_to(
    cluster: FakeCluster, broker: FakeBroker, start: str, expected: bytes
) -> None:
    async def consume() -> list[bytes]:
        async with consumer(cluster, start=moment if start == "time" else start) as c:
            broker.store("T", 0, b"later")
            return await bodies(c, 1)

    fill(broker, 2)
    cluster.sim.run_for(10)
    moment = datetime.fromtimestamp(broker.host.now_ms() / 1000, UTC)
    broker.store("T", 0, b"2")
    assert cluster.run(consume) == [expected]


@pytest.mark.parametrize("start", ["first", "last", "Earliest", None, 0, 1_700_000_000_000])
def test_a_start_that_is_none_is_refused(start: Any) -> None:
    with pytest.raises(ConfigError, match=r"^start is .*: give 'earliest', 'latest' or a datetime"):
        Consumer("ns:9876", "G", "T", start=start)


def test_a_new_group_starts_at_the_first_message_that_is_left(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> list[bytes]:
        async with consumer(cluster) as c:
            return await bodies(c, 1)

    fill(broker, 9)
    broker.log.removed["T", 0] = 5
    assert cluster.run(consume) == [b"5"]
    assert cluster.sim.now_s < 9, "without a detour over an illegal offset"


@pytest.mark.parametrize("hooks", [(), (DeliveriesSeen(),)])
@pytest.mark.parametrize(
    ("acked", "told"),
    [
        (4, []),
        (
            1,
            [
                "consumer closed, messages that it handed out were not settled, so they come "
                "again: group=G messages=3"
            ],
        ),
    ],
)
def test_what_was_handed_out_and_not_settled_is_told_once_at_the_close(
    cluster: FakeCluster,
    broker: FakeBroker,
    caplog: pytest.LogCaptureFixture,
    hooks: Sequence[Hook],
    acked: int,
    told: list[str],
) -> None:
    """Those that wait in the prefetch buffer are not meant: nobody has seen them."""

    async def consume() -> None:
        async with consumer(cluster, hooks=hooks) as c:
            for message in (await c.get_many(4))[:acked]:
                message.ack()

    fill(broker, 9)
    with caplog.at_level(logging.WARNING, "roquet"):
        cluster.run(consume)
    assert caplog.messages == told


@pytest.mark.parametrize("hooks", [(), (DeliveriesSeen(),)])
def test_acknowledging_after_the_close_is_logged_once(
    cluster: FakeCluster,
    broker: FakeBroker,
    caplog: pytest.LogCaptureFixture,
    hooks: Sequence[Hook],
) -> None:
    async def consume() -> None:
        async with consumer(cluster, hooks=hooks) as c:
            messages = await c.get_many(4)
            messages[0].ack()
        messages[0].ack()
        messages[1].retry()
        for message in messages[2:]:
            async with message:
                pass

    fill(broker, 4)
    with caplog.at_level(logging.INFO, "roquet"):
        cluster.run(consume)
    (line,) = [line for line in caplog.messages if "acknowledged after" in line]
    assert "closed, it comes again: topic=T broker=broker-a queue=0 offset=2 msgId=" in line
    assert stored(broker) == {0: 1}


def test_who_awaits_stop_is_told_what_it_does(cluster: FakeCluster, broker: FakeBroker) -> None:
    """In other clients it leaves the group. What it returned was no more than None."""

    async def consume() -> None:
        async with consumer(cluster) as c:
            stop: Callable[[], Any] = c.stop
            with pytest.raises(ClientStateError, match=r"to leave the group, call `await consumer"):
                await stop()
            assert c.is_open

    fill(broker, 1)
    cluster.run(consume)
