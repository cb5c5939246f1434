"""An application stores the offsets of its group itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from roquet.errors import ConfigError, ResponseError, RoquetError, StoreError
from roquet.protocol.headers.pull import COMMIT_OFFSET
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from tests.client.cluster import FakeBroker, FakeCluster
from tests.client.consumers import (
    OTHER_CLIENT,
    bodies,
    consumer,
    fill,
    ordered,
    queue,
    reset,
    stored,
)


@pytest.mark.parametrize("is_ordered", [False, True])
def test_nothing_is_stored_but_by_commit(
    cluster: FakeCluster, broker: FakeBroker, is_ordered: bool
) -> None:
    """Neither in time, nor with pulls, nor at a rebalance, nor at the end."""
    other = cluster.sim.host(OTHER_CLIENT)

    async def join() -> None:
        async with consumer(cluster, host=other, ordered=is_ordered, auto_commit=False):
            await asyncio.sleep(20)

    async def consume() -> None:
        async with consumer(cluster, ordered=is_ordered, auto_commit=False) as c:
            await bodies(c, 6)
            await asyncio.sleep(20)
            assert stored(broker) == {}
            await c.commit()
            assert stored(broker) == {0: 3, 1: 3}
            for number in range(2):
                broker.store("T", number, b"later")
            await bodies(c, 2)
            other.start(join)
            await asyncio.sleep(10)
            assert queue(1) not in c.assigned()
            assert stored(broker) == {0: 3, 1: 3}
        assert stored(broker) == {0: 3, 1: 3}

    fill(broker, 6, queues=2)
    cluster.run(consume)
    cluster.sim.run_for(30)
    assert not any(
        int(request.fields["sysFlag"]) & COMMIT_OFFSET
        for request in broker.requests[RequestCode.PULL_MESSAGE]
    )


@pytest.mark.parametrize("is_ordered", [False, True])
def test_a_pull_under_way_does_not_undo_the_last_commit(
    cluster: FakeCluster, broker: FakeBroker, is_ordered: bool
) -> None:
    """The next pull leaves while the message is handled, with the offset from before it."""
    broker.commits_late_s = 0.01

    async def consume() -> None:
        for number in range(3):
            async with consumer(cluster, ordered=is_ordered) as c:
                await asyncio.sleep(1)
                broker.store("T", 0, b"%d" % number)
                assert await bodies(c, 1) == [b"%d" % number]

    fill(broker, 0)
    cluster.run(consume)
    cluster.sim.run_for(1)
    assert stored(broker) == {0: 3}


def test_a_commit_that_a_pull_undid_is_repeated(cluster: FakeCluster, broker: FakeBroker) -> None:
    """By the application's own commit, too; and it does not wait for the pull."""
    broker.commits_late_s = 0.01

    async def consume() -> None:
        async with consumer(cluster) as c:
            await bodies(c, 2)
            broker.store("T", 0, b"last")
            await bodies(c, 1)
            began_s = cluster.sim.now_s
            await c.commit()
            assert cluster.sim.now_s - began_s < broker.commits_late_s
            assert stored(broker) == {0: 3}
            await asyncio.sleep(0.1)
            assert stored(broker) == {0: 2}
            await asyncio.sleep(5)
            assert stored(broker) == {0: 3}

    fill(broker, 2)
    cluster.run(consume)


def test_a_pull_from_before_a_seek_does_not_undo_it(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    broker.commits_late_s = 0.01

    async def consume() -> None:
        async with consumer(cluster) as c:
            await bodies(c, 3)
            broker.store("T", 0, b"last")
            await bodies(c, 1)
            await c.seek(queue(0), 0)
        await asyncio.sleep(1)
        assert stored(broker) == {0: 0}

    fill(broker, 3)
    cluster.run(consume)


def test_what_was_not_committed_comes_again(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster, auto_commit=False) as c:
            await bodies(c, 2)
            await c.commit()
            await bodies(c, 2)
        async with consumer(cluster, auto_commit=False) as c:
            assert await bodies(c, 2) == [b"2", b"3"]

    fill(broker, 4)
    cluster.run(consume)


def test_only_what_is_settled_is_committed(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster, auto_commit=False) as c:
            messages = await c.get_many(4)
            for message in messages[1:]:
                message.ack()
            await c.commit()
            assert stored(broker).get(0, 0) == 0
            messages[0].ack()
            await c.commit()
            assert stored(broker) == {0: 4}

    fill(broker, 4)
    cluster.run(consume)


@pytest.mark.parametrize("auto_commit", [False, True])
def test_offsets_that_are_named_are_stored_whatever_was_stored(
    cluster: FakeCluster, broker: FakeBroker, auto_commit: bool
) -> None:
    async def consume() -> None:
        async with consumer(cluster, auto_commit=auto_commit) as c:
            await bodies(c, 4)
            await c.commit()
            for offset in (3, 1, 9):
                await c.commit({queue(0): offset})
                assert stored(broker) == {0: offset}
            assert c.position(queue(0)) == 4

    fill(broker, 4)
    cluster.run(consume)


@pytest.mark.parametrize(
    "offsets",
    [{queue(0): 1, queue(7): 1}, {queue(0): -1}, {queue(0): None}, {"T": 1}, [queue(0)], 5],
)
def test_offsets_that_are_none_are_refused_and_nothing_is_stored(
    cluster: FakeCluster, broker: FakeBroker, offsets: Any
) -> None:
    async def consume() -> None:
        async with consumer(cluster, auto_commit=False) as c:
            await bodies(c, 1)
            with pytest.raises(ConfigError):
                await c.commit(offsets)
            assert stored(broker) == {}

    fill(broker, 1)
    cluster.run(consume)


def test_a_commit_fails_if_one_offset_cannot_be_stored_and_the_others_are(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster, auto_commit=False) as c:
            await bodies(c, 2)
            await c.commit()
            broker.store("T", 0, b"2")
            broker.store("T", 1, b"3")
            await bodies(c, 2)
            broker.script[RequestCode.UPDATE_CONSUMER_OFFSET] = [ResponseCode.SYSTEM_ERROR]
            with pytest.raises(ResponseError):
                await c.commit()
            assert sorted(stored(broker).values()) == [1, 2]
            await c.commit()
            assert stored(broker) == {0: 2, 1: 2}
            broker.host.kill()
            with pytest.raises(RoquetError):
                await c.commit({queue(0): 0})
            cluster.restart(broker)

    fill(broker, 2, queues=2)
    cluster.run(consume)


def test_a_seek_stores_nothing_and_the_next_commit_even_a_lower_offset(
    cluster: FakeCluster, broker: FakeBroker, tmp_path: Path
) -> None:
    async def consume(options: Mapping[str, Any]) -> None:
        async with consumer(cluster, auto_commit=False, **options) as c:
            await bodies(c, 4)
            await c.commit()
            await c.seek(queue(0), 1)
            assert await c.committed(queue(0)) == 4
            await c.commit()
            assert await c.committed(queue(0)) == 1

    fill(broker, 4)
    cluster.run(lambda: consume({}))
    cluster.run(lambda: consume({"broadcast": True, "offsets_folder": tmp_path}))


def test_a_member_that_broadcasts_stores_its_file_by_commit_only(
    cluster: FakeCluster, broker: FakeBroker, tmp_path: Path
) -> None:
    async def consume(expected: list[bytes], *, commits: bool) -> None:
        async with consumer(
            cluster, auto_commit=False, broadcast=True, offsets_folder=tmp_path
        ) as c:
            assert await bodies(c, 2) == expected
            await asyncio.sleep(10)
            if commits:
                await c.commit()

    fill(broker, 4)
    cluster.run(lambda: consume([b"0", b"1"], commits=True))
    cluster.run(lambda: consume([b"2", b"3"], commits=False))
    cluster.run(lambda: consume([b"2", b"3"], commits=False))


def test_a_file_that_cannot_be_written_fails_the_commit(
    cluster: FakeCluster, broker: FakeBroker, tmp_path: Path
) -> None:
    async def consume() -> None:
        async with consumer(
            cluster, auto_commit=False, broadcast=True, offsets_folder=tmp_path / "file"
        ) as c:
            await bodies(c, 1)
            (tmp_path / "file").write_text("in the way of the folder")
            with pytest.raises(StoreError):
                await c.commit()

    fill(broker, 1)
    cluster.run(consume)


def test_an_offset_outside_the_queue_is_left_to_the_application(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster, auto_commit=False) as c:
            await asyncio.sleep(12)
            assert stored(broker) == {0: 500}
            broker.store("T", 0, b"new")
            assert await bodies(c, 1) == [b"new"]
            await c.commit()
            assert stored(broker) == {0: 4}

    fill(broker, 3)
    broker.offsets["G", "T", 0] = 500
    cluster.run(consume)


def test_a_reset_by_an_administrator_is_stored(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster, auto_commit=False) as c:
            await bodies(c, 3)
            reset(broker, {queue(0): 1})
            assert await bodies(c, 2) == [b"1", b"2"]
            assert stored(broker) == {0: 1}

    fill(broker, 3)
    cluster.run(consume)


def test_in_order_a_message_that_was_settled_late_is_committed_while_its_lock_is_held(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    other = cluster.sim.host(OTHER_CLIENT)

    async def join() -> None:
        async with ordered(cluster, host=other, auto_commit=False):
            await asyncio.sleep(100)

    async def consume() -> None:
        async with ordered(cluster, auto_commit=False) as c:
            messages = await c.get_many(2)
            other.start(join)
            await asyncio.sleep(5)
            assert queue(1) not in c.assigned()
            for message in messages:
                message.ack()
            await c.commit()
            assert stored(broker) == {0: 1, 1: 1}

    fill(broker, 4, queues=2)
    cluster.run(consume)


def test_with_auto_commit_an_offset_need_not_wait(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            await bodies(c, 2)
            await c.commit()
            assert stored(broker) == {0: 2}
            await c.commit()
            assert len(broker.requests[RequestCode.UPDATE_CONSUMER_OFFSET]) == 2, (
                "one of T, one of the retry topic: nothing has changed since"
            )

    fill(broker, 2)
    cluster.run(consume)
