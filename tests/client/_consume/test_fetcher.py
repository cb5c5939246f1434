"""How queues are pulled, from a master and its slaves."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial

import pytest

from roquet.client._consume.pull_flow import PrefetchLimits
from roquet.protocol.headers.pull import COMMIT_OFFSET
from roquet.protocol.remoting.codes import RequestCode
from tests.client.cluster import FakeBroker, FakeCluster
from tests.client.consumers import bodies, consumer, fill, stored


def test_no_more_is_taken_than_the_limits_allow(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster, limits=PrefetchLimits(count_max=100)) as c:
            await asyncio.sleep(10)
            pulls = len(broker.requests[RequestCode.PULL_MESSAGE])
            async with c.batch(1000) as messages:
                assert 100 < len(messages) <= 132
            await asyncio.sleep(3)
            assert len(broker.requests[RequestCode.PULL_MESSAGE]) > pulls

    fill(broker, 1000)
    cluster.run(consume)


def test_a_total_is_shared_by_the_queues_that_the_member_has_now(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    """There are 4 queues; after another topic came, 8."""

    async def consume() -> None:
        limits = PrefetchLimits(total_count_max=800)
        async with consumer(cluster, ["T", "later"], limits=limits, batch_size=1) as c:
            await asyncio.sleep(10)
            of_each = 800 // len(c.assigned()) + 1
            async with c.batch(5000) as messages:
                assert len(messages) == 4 * of_each
            broker.create("later", 4)
            await asyncio.sleep(40)
            fewer = 800 // len(c.assigned()) + 1
            assert fewer < of_each
            async with c.batch(5000):
                pass
            await asyncio.sleep(10)
            assert 3 * fewer < len(await c.get_many(5000)) <= 4 * fewer

    fill(broker, 4000, queues=4)
    cluster.run(consume)


def test_a_broker_that_gives_the_same_again_is_asked_once_a_second_and_nothing_piles_up(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    """It was asked without pause, each answer was handed over, and counted until the queue had no
    room any more.
    """

    async def consume() -> list[bytes]:
        async with consumer(cluster) as c:
            await asyncio.sleep(10)
            asked = [
                one
                for one in broker.requests[RequestCode.PULL_MESSAGE]
                if one.fields["topic"] == "T"
            ]
            assert len(asked) <= 11
            return [message.body for message in await c.get_many(1000)]

    fill(broker, 3)
    broker.stands_still = True
    assert cluster.run(consume) == [b"0", b"1", b"2"]


def test_what_is_twice_in_one_answer_is_handed_over_once_and_told_once(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def consume() -> list[bytes]:
        async with consumer(cluster) as c:
            found = await bodies(c, 4)
            broker.store("T", 0, b"new")
            found += await bodies(c, 1)
            await asyncio.sleep(30)
            found += [message.body for message in await c.get_many(10, timeout_ms=100)]
            assert stored(broker) == {0: 5}
            return found

    fill(broker, 4)
    broker.pull_max = 2
    broker.is_repeating = True
    assert cluster.run(consume) == [b"0", b"1", b"2", b"3", b"new"]
    warnings = [line for line in caplog.messages if "twice in one answer" in line]
    assert len(warnings) == 1
    assert warnings[0].endswith(
        f"queue=T@broker-a:0 broker={broker.address} messages=2 first_offset=0"
    )


def test_another_message_with_an_offset_that_came_is_handed_over(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    """A broker that gave an offset to two messages keeps both: neither is lost here."""

    async def consume() -> list[bytes]:
        async with consumer(cluster) as c:
            return await bodies(c, 3)

    fill(broker, 3)
    records = broker.log.queues["T", 0]
    records[1] = replace(records[1], queue_offset=records[0].queue_offset)
    assert cluster.run(consume) == [b"0", b"1", b"2"]


def test_an_illegal_offset_is_reset_after_ten_seconds(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    """And is not stored any more until then, even where the broker has set it back by itself."""

    async def consume() -> list[bytes]:
        async with consumer(cluster) as c:
            broker.offsets["G", "T", 0] = 3
            await asyncio.sleep(9)
            assert stored(broker) == {0: 3}
            assert (
                len(
                    [
                        one
                        for one in broker.requests[RequestCode.PULL_MESSAGE]
                        if one.fields["topic"] == "T"
                    ]
                )
                == 1
            )
            found = await bodies(c, 1)
            assert stored(broker) == {0: 3}, "backwards"
            broker.store("T", 0, b"new")
            return found

    fill(broker, 3)
    broker.offsets["G", "T", 0] = 500
    cluster.sim.loop.call_later(60, lambda: broker.store("T", 0, b"new"))
    assert cluster.run(consume) == [b"new"]


def test_a_pull_that_fails_is_said_once_and_tried_each_second(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def consume() -> list[bytes]:
        async with consumer(cluster) as c:
            return await bodies(c, 1)

    fill(broker, 1)
    broker.script[RequestCode.PULL_MESSAGE] = [1] * 4
    with caplog.at_level(logging.WARNING):
        assert cluster.run(consume) == [b"0"]
    assert (
        len(
            [
                line
                for line in caplog.messages
                if line.startswith("pull failed, will be retried: queue=T@broker-a:0")
            ]
        )
        == 1
    )


def test_a_broker_that_does_not_hold_pulls_is_asked_once_a_second(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster):
            broker.script[RequestCode.PULL_MESSAGE] = []
            await asyncio.sleep(20)

    fill(broker, 0)
    broker.holds = False
    cluster.run(consume)
    topic_pulls = [
        one for one in broker.requests[RequestCode.PULL_MESSAGE] if one.fields["topic"] == "T"
    ]
    assert 19 <= len(topic_pulls) <= 22


def test_a_pull_with_messages_is_followed_by_the_interval_that_is_set(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster, pull_interval_ms=2000, batch_size=1) as c:
            await asyncio.sleep(9)
            first = len(await c.get_many(100))
            assert 4 <= first <= 5
            await bodies(c, 10 - first)
            await asyncio.sleep(5)
            broker.store("T", 0, b"later")
            assert (await c.get(timeout_ms=1000)).body == b"later"

    fill(broker, 10)
    cluster.run(consume)


# master and slave


@pytest.fixture
def slave(cluster: FakeCluster, broker: FakeBroker) -> FakeBroker:
    return cluster.broker("10.0.1.2:10911", broker_id=1, log=broker.log)


def pulls_of(broker: FakeBroker, topic: str = "T") -> int:
    return sum(
        request.fields["topic"] == topic for request in broker.requests[RequestCode.PULL_MESSAGE]
    )


def test_the_broker_that_the_last_answer_suggested_is_pulled_from(
    cluster: FakeCluster, broker: FakeBroker, slave: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            await bodies(c, 40)
            before = pulls_of(slave)
            slave.suggested_broker_id = 0
            broker.suggested_broker_id = 0
            await bodies(c, 40)
            assert pulls_of(slave) <= before + 2, "it went back to the master"

    fill(broker, 80)
    broker.pull_max = slave.pull_max = 8
    broker.suggested_broker_id = slave.suggested_broker_id = 1
    cluster.run(consume)
    assert pulls_of(slave) >= 3
    for request in slave.requests[RequestCode.PULL_MESSAGE]:
        assert not int(request.fields["sysFlag"]) & COMMIT_OFFSET, (
            "a slave stores no offset of pulls"
        )


def test_reading_goes_on_from_the_slave_when_the_master_dies_and_returns_to_it_later(
    cluster: FakeCluster, broker: FakeBroker, slave: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            assert await bodies(c, 2) == [b"0", b"1"]
            broker.host.kill()
            cluster.listed.discard(broker.address)
            slave.store("T", 0, b"replicated")
            began = cluster.sim.now_s
            assert await bodies(c, 1) == [b"replicated"]
            assert cluster.sim.now_s - began < 3
            await asyncio.sleep(6)
            assert stored(slave) == {0: 3}, "the offset is stored where it can be"

            cluster.restart(broker)
            await asyncio.sleep(60)
            assert stored(broker) == {0: 3}, "the master gets the offset that only the slave had"
            before = pulls_of(slave)
            broker.store("T", 0, b"back")
            assert await bodies(c, 1) == [b"back"]
            assert pulls_of(slave) == before

    fill(broker, 2)
    cluster.run(consume, within_s=600)


def test_a_master_that_falls_silent_holds_up_reading_for_half_a_minute_at_most(
    cluster: FakeCluster, broker: FakeBroker, slave: FakeBroker
) -> None:
    async def consume() -> list[float]:
        delays_s: list[float] = []
        async with consumer(cluster) as c:
            await bodies(c, 1)
            broker.host.crash(silently=True)  # and the name server goes on listing it
            for _ in range(20):
                slave.store("T", 0, b"hi")
                began = cluster.sim.now_s
                await bodies(c, 1)
                delays_s.append(cluster.sim.now_s - began)
                await asyncio.sleep(10)
        return delays_s

    fill(broker, 1)
    first, *later = cluster.run(consume, within_s=1000)
    assert first < 35
    assert max(later) < 4
    assert sum(delay_s > 1 for delay_s in later) < 8, "only now and then is the master tried again"


def test_a_slave_behind_the_offset_is_not_asked_without_pause(
    cluster: FakeCluster, broker: FakeBroker, slave: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            await bodies(c, 2)
            broker.host.kill()
            cluster.listed.discard(broker.address)
            slave.is_behind = True
            before = pulls_of(slave)
            await asyncio.sleep(20)
            assert pulls_of(slave) - before <= 21

    fill(broker, 2)
    cluster.run(consume)


def test_an_offset_that_no_broker_stores_is_kept_until_one_does(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            await bodies(c, 2)
            broker.host.kill()
            await asyncio.sleep(30)
            cluster.restart(broker)
            await asyncio.sleep(15)
            assert stored(broker) == {0: 2}

    fill(broker, 2)
    cluster.run(consume)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("read_from", ["slave", "slave-only"])
def test_a_consumer_may_read_from_the_slave_while_the_master_has_the_offsets(
    cluster: FakeCluster, broker: FakeBroker, slave: FakeBroker, read_from: str, ordered: bool
) -> None:
    async def consume() -> None:
        async with consumer(cluster, read_from=read_from, ordered=ordered) as c:
            assert sorted(await bodies(c, 3)) == [b"0", b"1", b"2"]

    fill(broker, 3)
    cluster.run(consume)
    assert (pulls_of(broker), pulls_of(slave) > 0) == (0, True)
    assert stored(broker)[0] == 3
    assert stored(slave) == {}


def test_a_consumer_of_the_master_reads_nothing_from_a_slave(
    cluster: FakeCluster, broker: FakeBroker, slave: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster, read_from="master") as c:
            assert sorted(await bodies(c, 3)) == [b"0", b"1", b"2"]

    fill(broker, 3)
    broker.suggested_broker_id = 1
    cluster.run(consume)
    assert pulls_of(slave) == 0


def test_a_consumer_of_slaves_goes_to_the_master_only_if_it_may(
    cluster: FakeCluster, broker: FakeBroker, slave: FakeBroker
) -> None:
    async def consume(read_from: str) -> int:
        async with consumer(cluster, read_from=read_from) as c:
            return len(await c.get_many(10, timeout_ms=5000))

    fill(broker, 3)
    cluster.listed.discard(slave.address)
    slave.host.kill()
    assert cluster.run(partial(consume, "slave-only")) == 0
    assert cluster.run(partial(consume, "slave")) == 3
