"""An application pauses queues, seeks in them, and asks where its group is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from roquet.client._consume.pull_flow import PrefetchLimits
from roquet.client.consumer import Consumer
from roquet.errors import ClientStateError, ConfigError, MessageError, ResponseError, RoquetError
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from tests.client.cluster import SILENCE, FakeBroker, FakeCluster
from tests.client.consumers import (
    OTHER_CLIENT,
    bodies,
    consumer,
    fill,
    ordered,
    queue,
    reset,
    stored,
    within,
)


def pulls(broker: FakeBroker) -> list[str]:
    """The offsets from which queue 0 of T was pulled."""
    return [
        request.fields["queueOffset"]
        for request in broker.requests[RequestCode.PULL_MESSAGE]
        if (request.fields["topic"], request.fields["queueId"]) == ("T", "0")
    ]


# pause, resume


def test_a_paused_queue_is_neither_pulled_nor_delivered(
    cluster: FakeCluster, broker: FakeBroker, make: Callable[..., Consumer]
) -> None:
    async def consume() -> None:
        async with make() as c:
            assert sorted(await bodies(c, 2)) == [b"0", b"1"]
            c.pause(queue(0))
            assert c.paused() == {queue(0)}
            broker.store("T", 0, b"2")  # the pull that is held brings it
            broker.store("T", 1, b"3")
            assert [message.body for message in await within(c, 5)] == [b"3"]
            asked = len(pulls(broker))
            await asyncio.sleep(40)
            assert len(pulls(broker)) == asked
            assert queue(0) in c.assigned()
            c.resume()
            assert c.paused() == frozenset()
            broker.store("T", 0, b"4")
            assert await bodies(c, 2) == [b"2", b"4"]

    fill(broker, 2, queues=2)
    cluster.run(consume)


def test_what_was_prefetched_comes_in_its_order_after_the_pause(
    cluster: FakeCluster, broker: FakeBroker, make: Callable[..., Consumer]
) -> None:
    async def consume() -> None:
        async with make() as c:
            await asyncio.sleep(1)
            c.pause()
            assert c.paused() == c.assigned()
            assert await within(c, 1) == []
            c.resume(queue(0))
            c.pause(queue(0))
            assert await within(c, 1) == []
            assert c.position(queue(0)) == 0
            c.resume(queue(0))
            assert await bodies(c, 40) == [b"%d" % number for number in range(40)]

    fill(broker, 40)
    cluster.run(consume)


def test_a_pause_lasts_over_a_rebalance_and_keeps_the_lock(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    other = cluster.sim.host(OTHER_CLIENT)

    async def join() -> None:
        async with ordered(cluster, host=other):
            await asyncio.sleep(100)

    async def consume() -> None:
        async with ordered(cluster) as c:
            c.pause()
            other.start(join)
            await asyncio.sleep(40)
            assert queue(0) in c.paused() <= c.assigned()
            assert queue(1) not in c.assigned()
            other.kill()
            del broker.locks[queue(1)]  # after a minute
            await asyncio.sleep(90)
            assert queue(1) in c.assigned()
            assert queue(1) not in c.paused(), "it went away and came back"
            assert queue(0) in c.paused()
            assert broker.locks[queue(0)] == "10.0.9.1@test"

    fill(broker, 4, queues=2)
    cluster.run(consume)


def test_a_queue_that_is_taken_away_while_it_is_paused_is_given_back_at_once(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    other = cluster.sim.host(OTHER_CLIENT)
    got: list[bytes] = []

    async def join() -> None:
        async with ordered(cluster, host=other) as c:
            got.extend(await bodies(c, 2))

    async def consume() -> None:
        async with ordered(cluster) as c:
            await asyncio.sleep(1)
            c.pause()
            assert await within(c, 1) == [], "its messages are set aside"
            other.start(join)
            assert await within(c, 5) == []
            assert got == [b"1", b"3"]

    fill(broker, 4, queues=2)
    cluster.run(consume)


def test_a_queue_that_is_not_assigned_is_named_and_none_is_paused(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            for wrong in (queue(7), "T", [queue(0)], None):
                with pytest.raises(
                    ConfigError, match=r"^queue .*(is not assigned|give a MessageQueue)"
                ):
                    c.pause(queue(0), wrong)  # type: ignore[arg-type]
                with pytest.raises(
                    ConfigError, match=r"^queue .*(is not assigned|give a MessageQueue)"
                ):
                    c.resume(wrong)  # type: ignore[arg-type]
                with pytest.raises(
                    ConfigError, match=r"^queue .*(is not assigned|give a MessageQueue)"
                ):
                    c.position(wrong)  # type: ignore[arg-type]
                with pytest.raises(
                    ConfigError, match=r"^queue .*(is not assigned|give a MessageQueue)"
                ):
                    await c.seek(wrong, 0)  # type: ignore[arg-type]
            with pytest.raises(ConfigError, match="queue T@broker-a:7 is not assigned"):
                c.pause(queue(7))
            assert c.paused() == frozenset()

    fill(broker, 0)
    cluster.run(consume)


def test_a_consumer_closes_while_all_is_paused(
    cluster: FakeCluster, broker: FakeBroker, make: Callable[..., Consumer]
) -> None:
    async def consume() -> None:
        async with make() as c:
            await bodies(c, 1)
            c.pause()
            assert await within(c, 1) == []
            closing = asyncio.create_task(c.close())
            await asyncio.sleep(0)
            c.pause()
            c.resume()
            await closing
            with pytest.raises(ClientStateError):
                c.pause()

    fill(broker, 3)
    began = cluster.sim.now_s
    cluster.run(consume)
    assert cluster.sim.now_s - began < 3
    assert cluster.nothing_is_left()


# seek


@pytest.mark.parametrize("where", ["earliest", 5, "latest", "time"])
def test_a_queue_goes_on_where_the_application_wants_it_to(
    cluster: FakeCluster, broker: FakeBroker, make: Callable[..., Consumer], where: Any
) -> None:
    async def consume() -> None:
        async with make() as c:
            assert await bodies(c, 3) == [b"0", b"1", b"2"]
            await c.seek(queue(0), since if where == "time" else where)
            expected = {"earliest": 0, 5: 5, "latest": 12, "time": 10}[where]
            assert c.position(queue(0)) == expected
            assert await c.committed(queue(0)) == expected
            broker.store("T", 0, b"12")
            assert await bodies(c, 13 - expected) == [b"%d" % at for at in range(expected, 13)]

    fill(broker, 10)
    cluster.sim.run_for(1)
    since = datetime.fromtimestamp(broker.host.now_ms() / 1000, UTC)
    cluster.sim.run_for(1)
    for number in (10, 11):
        broker.store("T", 0, b"%d" % number)
    cluster.run(consume)


@pytest.mark.parametrize("fails", [False, True])
def test_a_message_that_is_handled_during_a_seek_does_not_move_the_offset(
    cluster: FakeCluster, broker: FakeBroker, make: Callable[..., Consumer], fails: bool
) -> None:
    async def consume() -> None:
        async with make() as c:
            (handled,) = await c.get_many(1)
            assert handled.queue_offset == 0
            await c.seek(queue(0), 2)
            if fails:
                handled.retry()
            else:
                handled.ack()
            await asyncio.sleep(10)
            assert await c.committed(queue(0)) == 2
            await c.seek(queue(0), 0)
            (again,) = await c.get_many(1)
            assert again.queue_offset == 0
            await c.seek(queue(0), 0)
            again.ack()
            await asyncio.sleep(6)
            assert await c.committed(queue(0)) == 0
            assert await bodies(c, 1) == [b"0"]
            await asyncio.sleep(6)
            assert await c.committed(queue(0)) == 1

    fill(broker, 3)
    cluster.run(consume)


def test_the_pull_that_is_held_at_the_old_place_is_dropped(
    cluster: FakeCluster, broker: FakeBroker, make: Callable[..., Consumer]
) -> None:
    async def consume() -> None:
        async with make() as c:
            await bodies(c, 3)
            await asyncio.sleep(1)
            assert pulls(broker)[-1] == "3"
            began = cluster.sim.now_s
            await c.seek(queue(0), 1)
            assert await bodies(c, 2) == [b"1", b"2"]
            assert cluster.sim.now_s - began < 1
            broker.store("T", 0, b"3")
            assert await bodies(c, 1) == [b"3"], "once, although two pulls bring it"
            assert await within(c, 20) == []

    fill(broker, 3)
    cluster.run(consume)


def test_a_handler_seeks_in_its_own_queue(
    cluster: FakeCluster, broker: FakeBroker, make: Callable[..., Consumer]
) -> None:
    async def consume() -> list[bytes]:
        async with make() as c:
            found: list[bytes] = []
            async for message in c:
                async with message:
                    found.append(message.body)
                    if len(found) == 2:
                        await c.seek(queue(0), 0)
                if len(found) == 5:
                    return found
            return found

    fill(broker, 3)
    assert cluster.run(consume) == [b"0", b"1", b"0", b"1", b"2"]


def test_in_order_the_new_place_waits_for_the_message_that_is_handled(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with ordered(cluster) as c:
            (handled,) = await c.get_many(1)
            await c.seek(queue(0), 2)
            await c.seek(queue(0), 1)
            assert await within(c, 5) == []
            handled.ack()
            (second,) = await c.get_many(1)
            assert second.body == b"1"
            assert await within(c, 5) == []

    fill(broker, 3)
    cluster.run(consume)


def test_of_two_seeks_at_once_the_last_one_counts(
    cluster: FakeCluster, broker: FakeBroker, make: Callable[..., Consumer]
) -> None:
    async def consume() -> None:
        async with make() as c:
            await bodies(c, 5)
            await asyncio.gather(*(c.seek(queue(0), offset) for offset in (4, 1, 3, 2)))
            assert await c.committed(queue(0)) == c.position(queue(0)) == 2
            assert await bodies(c, 3) == [b"2", b"3", b"4"]

    fill(broker, 5)
    cluster.run(consume)
    assert cluster.nothing_is_left()


def test_a_paused_queue_stays_paused_at_its_new_place(
    cluster: FakeCluster, broker: FakeBroker, make: Callable[..., Consumer]
) -> None:
    async def consume() -> None:
        async with make() as c:
            await asyncio.sleep(1)
            c.pause(queue(0))
            await c.seek(queue(0), 1)
            asked = len(pulls(broker))
            assert await within(c, 20) == []
            assert len(pulls(broker)) == asked
            c.resume(queue(0))
            assert await bodies(c, 1) == [b"1"]

    fill(broker, 2)
    cluster.run(consume)


def test_the_limits_count_from_the_new_place(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster, limits=PrefetchLimits(count_max=3), batch_size=4) as c:
            held = await c.get_many(4)
            assert len(held) == 4
            assert await within(c, 5) == []
            await c.seek(queue(0), 6)
            assert await bodies(c, 2) == [b"6", b"7"]

    fill(broker, 8)
    cluster.run(consume)


@pytest.mark.parametrize("where", [-1, 2**63, True, 1.5, "first", None, b"0"])
def test_a_place_that_is_none_is_refused(
    cluster: FakeCluster, broker: FakeBroker, where: Any
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            with pytest.raises(ConfigError, match=r"where is .*: give 'earliest', 'latest'"):
                await c.seek(queue(0), where)

    fill(broker, 1)
    cluster.run(consume)


def test_an_offset_beyond_the_end_becomes_the_end(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            await c.seek(queue(0), 500)
            assert await within(c, 12) == []
            assert await c.committed(queue(0)) == 3
            broker.store("T", 0, b"new")
            assert await bodies(c, 1) == [b"new"]

    fill(broker, 3)
    cluster.run(consume)


@pytest.mark.parametrize("code", [SILENCE, ResponseCode.SYSTEM_ERROR])
def test_a_place_that_no_broker_tells_changes_nothing(
    cluster: FakeCluster, broker: FakeBroker, code: int
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            await bodies(c, 1)
            broker.script[RequestCode.GET_MIN_OFFSET] = [code]
            with pytest.raises(RoquetError):
                await c.seek(queue(0), "earliest")
            assert c.position(queue(0)) == 1
            assert await bodies(c, 2) == [b"1", b"2"]

    fill(broker, 3)
    cluster.run(consume)


def test_an_offset_that_no_broker_stores_now_is_stored_later_although_it_is_lower(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            await bodies(c, 3)
            await asyncio.sleep(6)
            assert stored(broker) == {0: 3}
            broker.script[RequestCode.UPDATE_CONSUMER_OFFSET] = [ResponseCode.SYSTEM_ERROR]
            with pytest.raises(ResponseError):
                await c.seek(queue(0), 1)
            assert c.position(queue(0)) == 1
            c.pause()
            await asyncio.sleep(6)
            assert stored(broker) == {0: 1}

    fill(broker, 3)
    cluster.run(consume)


def test_a_commit_that_is_under_way_does_not_come_after_the_seek(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    """The broker is silent for the first commit, which is then tried again; the seek waits."""
    slave = cluster.broker("10.0.1.2:10911", broker_id=1, log=broker.log)
    slave.offsets = broker.offsets

    async def consume() -> None:
        async with consumer(cluster) as c:
            await bodies(c, 3)
            broker.script[RequestCode.UPDATE_CONSUMER_OFFSET] = [SILENCE]
            await asyncio.sleep(5.5)
            assert not broker.script[RequestCode.UPDATE_CONSUMER_OFFSET]
            await c.seek(queue(0), 1)
            c.pause()
            await asyncio.sleep(20)
            assert stored(broker) == {0: 1}

    fill(broker, 3)
    cluster.run(consume)


@pytest.mark.parametrize("after_ms", [0, 1, 2, 3, 5, 100, 2900])
@pytest.mark.parametrize("where", ["earliest", 1])
def test_a_seek_that_is_cancelled_leaves_one_place_or_the_other(
    cluster: FakeCluster, broker: FakeBroker, after_ms: int, where: Any
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            await bodies(c, 3)
            await asyncio.sleep(6)
            broker.script[RequestCode.UPDATE_CONSUMER_OFFSET] = [SILENCE]
            seeking = asyncio.create_task(c.seek(queue(0), where))
            await asyncio.sleep(after_ms / 1000)
            seeking.cancel()
            await asyncio.wait([seeking])
            place = c.position(queue(0))
            assert place in (0 if where == "earliest" else 1, 3)
            c.pause()
            await asyncio.sleep(12)
            assert stored(broker) == {0: place}
            c.resume()
            broker.store("T", 0, b"3")
            assert await bodies(c, 4 - place) == [b"%d" % at for at in range(place, 4)]

    fill(broker, 3)
    cluster.run(consume)
    assert cluster.nothing_is_left()


def test_a_queue_that_goes_away_during_a_seek_is_named(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    other = cluster.sim.host(OTHER_CLIENT)

    async def join() -> None:
        async with consumer(cluster, host=other):
            await asyncio.sleep(100)

    async def consume() -> None:
        async with consumer(cluster) as c:
            broker.script[RequestCode.GET_MAX_OFFSET] = [SILENCE, SILENCE]
            slow = [asyncio.create_task(c.seek(queue(number), "latest")) for number in (0, 1)]
            other.start(join)
            await asyncio.sleep(2)
            assert queue(1) not in c.assigned()
            with pytest.raises(ConfigError, match="T@broker-a:1 is not assigned"):
                await c.seek(queue(1), 0)
            for outcome in await asyncio.gather(*slow, return_exceptions=True):
                assert isinstance(outcome, RoquetError)
            assert stored(broker).get(1, 0) == 0

    fill(broker, 4, queues=2)
    cluster.run(consume)


def test_a_seek_and_a_reset_by_an_administrator_leave_one_place(
    cluster: FakeCluster, broker: FakeBroker, make: Callable[..., Consumer]
) -> None:
    async def consume() -> None:
        async with make() as c:
            await bodies(c, 3)
            reset(broker, {queue(0): 1})
            await asyncio.gather(c.seek(queue(0), 2), asyncio.sleep(0.01), return_exceptions=True)
            await asyncio.sleep(30)
            place = await c.committed(queue(0))
            assert c.position(queue(0)) == place
            assert place in (1, 2)

    fill(broker, 3)
    cluster.run(consume)


@pytest.mark.parametrize("where", [0, "earliest"])
def test_a_consumer_closes_during_a_seek(
    cluster: FakeCluster, broker: FakeBroker, make: Callable[..., Consumer], where: Any
) -> None:
    async def consume() -> None:
        async with make() as c:
            await bodies(c, 2)
            seeking = asyncio.create_task(c.seek(queue(0), where))
            await asyncio.sleep(0)
        await asyncio.gather(seeking, return_exceptions=True)

    fill(broker, 3)
    cluster.run(consume)
    assert cluster.nothing_is_left()


# where a group is


def test_the_position_is_behind_what_was_delivered_the_offset_behind_what_was_settled(
    cluster: FakeCluster, broker: FakeBroker, make: Callable[..., Consumer]
) -> None:
    async def consume() -> None:
        async with make() as c:
            first = (await c.get_many(1))[0]
            assert c.position(queue(0)) == 1
            assert await c.committed(queue(0)) is None
            assert (await c.lag())[queue(0)] == 4
            first.ack()
            assert (await c.lag())[queue(0)] == 3
            await bodies(c, 3)
            assert c.position(queue(0)) == 4
            await asyncio.sleep(6)
            assert await c.committed(queue(0)) == 4
            assert (await c.lag()).keys() == c.assigned()
            assert set((await c.lag()).values()) == {0}

    fill(broker, 4)
    cluster.run(consume)


def test_brokers_are_asked_for_the_lag_only_if_no_pull_told_it_lately(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            await bodies(c, 4)
            await asyncio.sleep(0.5)
            broker.requests.clear()
            broker.store("T", 0, b"one more")
            await asyncio.sleep(0.5)
            assert (await c.lag())[queue(0)] == 1
            assert [
                request.fields["topic"] for request in broker.requests[RequestCode.GET_MAX_OFFSET]
            ] == ["%RETRY%G"]
            c.pause()
            await asyncio.sleep(25)
            for number in range(9):
                broker.store("T", 0, b"%d" % number)
            assert (await c.lag())[queue(0)] == 10

    fill(broker, 4)
    cluster.run(consume)


def test_the_lag_is_not_known_while_a_broker_does_not_answer(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            c.pause()
            await asyncio.sleep(30)
            broker.host.kill()
            with pytest.raises(RoquetError):
                await c.lag()
            with pytest.raises(RoquetError):
                await c.committed(queue(0))
            with pytest.raises(RoquetError):
                await c.seek(queue(0), "latest")
            assert c.position(queue(0)) == 0
            cluster.restart(broker)
            await asyncio.sleep(30)
            assert (await c.lag())[queue(0)] == 4

    fill(broker, 4)
    cluster.run(consume)


def test_the_offset_of_any_queue_can_be_asked_for(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            broker.offsets["G", "T", 3] = 7
            assert await c.committed(queue(3)) == 7
            with pytest.raises(MessageError, match="MessageQueue"):
                await c.committed("T")  # type: ignore[arg-type]

    fill(broker, 0)
    cluster.run(consume)
