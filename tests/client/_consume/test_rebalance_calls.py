"""An application's listener is told when queues come and go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import roquet
from roquet.client.consumer import Consumer
from roquet.client.rebalance_listener import RebalanceListener
from roquet.errors import ClientStateError, ConfigError
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import RequestCode
from tests.client.cluster import NAME_SERVER, FakeBroker, FakeCluster
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
from tests.simulation.simulation import Host

LIMIT_S = 10.0
"""How long one call may take."""

Step = Callable[[frozenset[MessageQueue]], Awaitable[None]]


async def nothing(_: frozenset[MessageQueue]) -> None:
    pass


async def hang(_: frozenset[MessageQueue]) -> None:
    await asyncio.Event().wait()


async def fail(_: frozenset[MessageQueue]) -> None:
    raise RuntimeError("the application's")


class Recorder(RebalanceListener):
    """Notes the queues of T in each call, then does what a test wants."""

    def __init__(self, assigned: Step = nothing, revoked: Step = nothing) -> None:
        self.calls: list[tuple[str, list[int]]] = []
        self.ended: list[str] = []
        self._assigned = assigned
        self._revoked = revoked
        self._is_called = False
        self.consumer: Consumer

    def made(self, make: Callable[..., Consumer], *arguments: Any, **options: Any) -> Consumer:
        """The consumer to which this listens."""
        self.consumer = make(*arguments, listener=self, **options)
        return self.consumer

    async def queues_assigned(self, queues: frozenset[MessageQueue]) -> None:
        await self._note("assigned", queues, self._assigned)

    async def queues_revoked(self, queues: frozenset[MessageQueue]) -> None:
        await self._note("revoked", queues, self._revoked)

    async def _note(self, kind: str, queues: frozenset[MessageQueue], step: Step) -> None:
        of_t = frozenset(queue for queue in queues if queue.topic == "T")
        assert queues, "there is no call without queues"
        if not of_t:
            return
        assert not self._is_called, "one call at a time"
        self._is_called = True
        try:
            self.calls.append((kind, sorted(queue.queue_id for queue in of_t)))
            await step(of_t)
            self.ended.append(kind)
        finally:
            self._is_called = False


def pulls_of_t(broker: FakeBroker) -> int:
    requests = broker.requests[RequestCode.PULL_MESSAGE]
    return sum(request.fields["topic"] == "T" for request in requests)


def join_for(cluster: FakeCluster, host: Host, seconds: float, **options: Any) -> None:
    """Another member joins the group for some time."""

    async def join() -> None:
        async with consumer(cluster, host=host, **options):
            await asyncio.sleep(seconds)

    host.start(join)


# assigned


def test_a_seek_when_queues_are_assigned_counts_before_anything_is_delivered(
    cluster: FakeCluster, broker: FakeBroker, make: Callable[..., Consumer]
) -> None:
    async def seek(queues: frozenset[MessageQueue]) -> None:
        for each in sorted(queues):
            await asyncio.sleep(2)
            assert pulls_of_t(broker) == 0
            assert each in listener.consumer.assigned()
            await listener.consumer.seek(each, 3)

    async def consume() -> None:
        async with listener.made(make) as c:
            assert sorted(await bodies(c, 4)) == [b"6", b"7", b"8", b"9"]
            assert await within(c, 20) == []

    listener = Recorder(seek)
    fill(broker, 10, queues=2)
    cluster.run(consume)
    assert listener.calls == [("assigned", [0, 1]), ("revoked", [0, 1])]


def test_the_start_does_not_wait_for_the_listener(
    cluster: FakeCluster, broker: FakeBroker, make: Callable[..., Consumer]
) -> None:
    async def wait(_: frozenset[MessageQueue]) -> None:
        await released.wait()

    async def consume() -> None:
        began = cluster.sim.now_s
        async with make(listener=listener) as c:
            assert cluster.sim.now_s - began < 1
            c.pause()
            c.resume()
            assert await within(c, 5) == []
            assert pulls_of_t(broker) == 0
            released.set()
            assert await bodies(c, 1) == [b"0"]

    released = asyncio.Event()
    listener = Recorder(wait)
    fill(broker, 1)
    cluster.run(consume)


@pytest.mark.parametrize("step", [hang, fail])
def test_queues_are_consumed_although_the_listener_hangs_or_fails(
    cluster: FakeCluster,
    broker: FakeBroker,
    make: Callable[..., Consumer],
    step: Step,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def consume() -> None:
        async with make(listener=listener) as c:
            began = cluster.sim.now_s
            assert await bodies(c, 2) == [b"0", b"1"]
            assert cluster.sim.now_s - began < LIMIT_S + 1
            assert await c.committed(queue(0)) in (None, 0)
            ends.append(cluster.sim.now_s)
        assert await_offset() == 2
        ends.append(cluster.sim.now_s)

    def await_offset() -> int:
        return stored(broker).get(0, 2)  # a broadcasting member stores it in a file

    ends: list[float] = []
    listener = Recorder(step, step)
    fill(broker, 2)
    with caplog.at_level(logging.WARNING, "roquet"):
        cluster.run(consume)
    assert ends[1] - ends[0] < LIMIT_S + 2
    assert listener.calls == [("assigned", [0]), ("revoked", [0])]
    said = [
        record.getMessage()
        for record in caplog.records
        if "rebalance listener" in record.getMessage()
    ]
    assert ["Recorder.queues_assigned" in line for line in said] == [True, False]
    assert ("did not end within 10 s" in said[0]) == (step is hang)
    assert cluster.nothing_is_left()


def test_a_queue_that_is_paused_when_it_is_assigned_is_not_pulled(
    cluster: FakeCluster, broker: FakeBroker, make: Callable[..., Consumer]
) -> None:
    async def pause(queues: frozenset[MessageQueue]) -> None:
        listener.consumer.pause(*queues)

    async def consume() -> None:
        async with listener.made(make) as c:
            assert await within(c, 20) == []
            assert pulls_of_t(broker) == 0
            c.resume()
            assert await bodies(c, 1) == [b"0"]

    listener = Recorder(pause)
    fill(broker, 1)
    cluster.run(consume)


def test_of_queues_that_go_before_the_listener_is_told_it_is_not_told(
    cluster: FakeCluster, broker: FakeBroker, make: Callable[..., Consumer]
) -> None:
    class ListenerOfAll(RebalanceListener):
        async def queues_assigned(self, queues: frozenset[MessageQueue]) -> None:
            told.append({queue.topic for queue in queues})
            await asyncio.sleep(4)

        async def queues_revoked(self, queues: frozenset[MessageQueue]) -> None:
            told.append({queue.topic for queue in queues})

    async def consume() -> None:
        async with make(listener=ListenerOfAll()) as c:
            await asyncio.sleep(1)
            await c.subscribe("U")
            assert {queue.topic for queue in c.assigned()} >= {"T", "U"}
            await c.unsubscribe("U")
            await asyncio.sleep(10)
            await c.subscribe("U")
            await asyncio.sleep(10)
            await c.unsubscribe("U")

    told: list[set[str]] = []
    fill(broker, 1)
    fill(broker, 1, "U")
    cluster.run(consume)
    of_u = [topics for topics in told if "U" in topics]
    assert of_u == [{"U"}, {"U"}], "assigned and revoked the second time"
    assert "T" in told[0]
    assert "T" in told[-1]


# revoked


@pytest.mark.parametrize("is_ordered", [False, True])
def test_a_commit_when_queues_are_revoked_is_what_the_next_member_begins_with(
    cluster: FakeCluster, broker: FakeBroker, is_ordered: bool
) -> None:
    other = cluster.sim.host(OTHER_CLIENT)

    async def commit(queues: frozenset[MessageQueue]) -> None:
        assert not queues & listener.consumer.assigned()
        before = dict(stored(broker))
        await asyncio.sleep(2)
        assert stored(broker) == before, "nothing is stored before the listener has ended"
        if is_ordered:
            assert {broker.locks[each] for each in queues} == {"10.0.9.1@test"}
        await listener.consumer.commit()

    async def consume() -> None:
        async with listener.made(consumer, cluster, ordered=is_ordered, auto_commit=False) as c:
            await bodies(c, 6)
            join_for(cluster, other, 8, ordered=is_ordered, auto_commit=False)
            await asyncio.sleep(5)
            assert stored(broker) == {0: 3, 1: 3}
            assert listener.calls[1:] == [("revoked", [1])]
            broker.store("T", 0, b"more")
            await bodies(c, 1)
            await asyncio.sleep(30)  # a rebalance comes every 20 s
            assert listener.calls[2:] == [("assigned", [1])]
        assert stored(broker) == {0: 4, 1: 3}

    listener = Recorder(revoked=commit)
    fill(broker, 6, queues=2)
    cluster.run(consume)
    assert listener.calls[3:] == [("revoked", [0, 1])]
    assert cluster.nothing_is_left()


def test_what_is_settled_while_queues_are_revoked_counts(
    cluster: FakeCluster, broker: FakeBroker, make: Callable[..., Consumer]
) -> None:
    async def settle(queues: frozenset[MessageQueue]) -> None:
        assert stored(broker).get(0, 0) == 0
        for message in messages:
            message.ack()

    async def consume() -> None:
        async with make(listener=Recorder(revoked=settle)) as c:
            messages.append(await c.get())
        async with make() as c:
            assert await bodies(c, 1) == [b"1"]

    messages: list[Any] = []
    fill(broker, 2)
    cluster.run(consume)


@pytest.mark.parametrize("is_ordered", [False, True])
def test_an_offset_is_stored_after_the_listener_has_ended(
    cluster: FakeCluster, broker: FakeBroker, is_ordered: bool
) -> None:
    async def look(_: frozenset[MessageQueue]) -> None:
        await asyncio.sleep(2)
        offsets.append(stored(broker).get(0, 0))

    async def consume() -> None:
        async with consumer(cluster, ordered=is_ordered, listener=Recorder(revoked=look)) as c:
            assert await bodies(c, 1) == [b"0"]
        offsets.append(stored(broker)[0])

    offsets: list[int] = []
    fill(broker, 1)
    cluster.run(consume)
    assert offsets == [0, 1]


def test_a_lock_that_is_lost_is_told_after_the_offset_was_stored(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def look(_: frozenset[MessageQueue]) -> None:
        offsets.append(stored(broker).get(0))

    async def consume() -> None:
        async with ordered(cluster, listener=listener) as c:
            await bodies(c, 2)
            broker.locks[queue(0)] = "another member"
            await asyncio.sleep(25)
            assert queue(0) not in c.assigned()
            assert listener.calls[1:] == [("revoked", [0])]
            assert offsets == [2]
            del broker.locks[queue(0)]
            await asyncio.sleep(25)
            assert listener.calls[2:] == [("assigned", [0])]

    offsets: list[int | None] = []
    listener = Recorder(revoked=look)
    fill(broker, 2)
    cluster.run(consume)


def test_an_administrator_s_offset_is_stored_after_the_listener_s(
    cluster: FakeCluster, broker: FakeBroker, make: Callable[..., Consumer]
) -> None:
    async def commit(_: frozenset[MessageQueue]) -> None:
        await listener.consumer.commit({queue(0): 2})

    async def consume() -> None:
        async with listener.made(make) as c:
            await bodies(c, 3)
            reset(broker, {queue(0): 1})
            assert await bodies(c, 2) == [b"1", b"2"]
            assert listener.calls == [("assigned", [0]), ("revoked", [0]), ("assigned", [0])]

    listener = Recorder(revoked=commit)
    fill(broker, 3)
    cluster.run(consume)


def test_a_reset_while_a_queue_is_revoked_is_not_replaced_by_the_old_offset(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    other = cluster.sim.host(OTHER_CLIENT)

    async def be_slow(_: frozenset[MessageQueue]) -> None:
        reset(broker, {queue(1): 0})
        await asyncio.sleep(2)

    async def consume() -> None:
        async with consumer(cluster, listener=Recorder(revoked=be_slow)) as c:
            await bodies(c, 4)
            join_for(cluster, other, 60, auto_commit=False, start="latest")
            await asyncio.sleep(10)
            assert queue(1) not in c.assigned()
            assert stored(broker)[1] == 0

    fill(broker, 4, queues=2)
    cluster.run(consume)


# what a listener calls


@pytest.mark.parametrize("method", ["close", "subscribe", "unsubscribe"])
def test_a_call_that_would_wait_for_the_listener_is_refused_in_it(
    cluster: FakeCluster, broker: FakeBroker, make: Callable[..., Consumer], method: str
) -> None:
    async def call(_: frozenset[MessageQueue]) -> None:
        with pytest.raises(ClientStateError, match=rf"{method}\(\) waits for the rebalance"):
            await getattr(listener.consumer, method)(*(() if method == "close" else ("T",)))

    async def consume() -> None:
        async with listener.made(make) as c:
            await bodies(c, 1)

    listener = Recorder(call, call)
    fill(broker, 1)
    began = cluster.sim.now_s
    cluster.run(consume)
    assert listener.ended == ["assigned", "revoked"]
    assert cluster.sim.now_s - began < 3


def test_a_listener_cannot_close_the_client_that_has_the_session(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def close(_: frozenset[MessageQueue]) -> None:
        with pytest.raises(ClientStateError, match=r"close\(\) waits for the rebalance listener"):
            await clients[0].close()

    async def consume() -> None:
        runtime = cluster.client.runtime()
        async with roquet.connect(NAME_SERVER, runtime=runtime) as mq:
            clients.append(mq)
            async with mq.consumer("G", "T", start="earliest", listener=listener) as c:
                assert await bodies(c, 1) == [b"0"]
                assert mq.is_open

    clients: list[roquet.Client] = []
    listener = Recorder(close, close)
    fill(broker, 1)
    cluster.run(consume)
    assert listener.ended == ["assigned", "revoked"]


@pytest.mark.parametrize("method", ["close", "subscribe"])
def test_a_listener_that_waits_for_itself_by_another_task_is_cancelled(
    cluster: FakeCluster, broker: FakeBroker, make: Callable[..., Consumer], method: str
) -> None:
    async def call(_: frozenset[MessageQueue]) -> None:
        arguments = () if method == "close" else ("U",)
        await asyncio.sleep(1)  # the start has ended
        await asyncio.create_task(getattr(listener.consumer, method)(*arguments))

    async def consume() -> None:
        async with listener.made(make) as c:
            await asyncio.sleep(2 * LIMIT_S + 2)
            assert c.is_open == (method == "subscribe")

    listener = Recorder(call, call)
    fill(broker, 1)
    broker.create("U", 1)
    began = cluster.sim.now_s
    cluster.run(consume)
    assert cluster.sim.now_s - began < 3 * LIMIT_S
    assert cluster.nothing_is_left()


def test_a_consumer_can_be_stopped_and_closed_from_a_listener_without_waiting(
    cluster: FakeCluster, broker: FakeBroker, make: Callable[..., Consumer]
) -> None:
    async def leave(_: frozenset[MessageQueue]) -> None:
        await asyncio.sleep(1)  # the start has ended
        listener.consumer.stop()
        closing.append(asyncio.create_task(listener.consumer.close()))

    async def consume() -> None:
        async with listener.made(make) as c:
            assert await bodies(c, 1) == []
        await closing[0]

    closing: list[asyncio.Task[None]] = []
    listener = Recorder(leave)
    fill(broker, 1)
    began = cluster.sim.now_s
    cluster.run(consume)
    assert cluster.sim.now_s - began < 3
    assert listener.ended == ["assigned", "revoked"]


def test_queues_that_are_revoked_can_neither_be_moved_nor_paused(
    cluster: FakeCluster, broker: FakeBroker, make: Callable[..., Consumer]
) -> None:
    async def control(_: frozenset[MessageQueue]) -> None:
        listener.consumer.pause()
        with pytest.raises(ConfigError, match="is not assigned"):
            listener.consumer.pause(queue(0))
        with pytest.raises(ConfigError, match="is not assigned"):
            await listener.consumer.seek(queue(0), 0)

    async def consume() -> None:
        async with listener.made(make) as c:
            await bodies(c, 1)

    listener = Recorder(revoked=control)
    fill(broker, 1)
    cluster.run(consume)
    assert listener.ended == ["assigned", "revoked"]


# close, cancellation


def test_a_close_waits_for_the_call_that_is_under_way_and_then_revokes(
    cluster: FakeCluster, broker: FakeBroker, make: Callable[..., Consumer]
) -> None:
    async def be_slow(_: frozenset[MessageQueue]) -> None:
        await asyncio.sleep(4)

    async def consume() -> None:
        async with make(listener=listener):
            await asyncio.sleep(1)

    listener = Recorder(be_slow, be_slow)
    fill(broker, 1)
    cluster.run(consume)
    assert listener.ended == ["assigned", "revoked"]
    assert pulls_of_t(broker) == 0, "the queues were gone before the listener had ended"
    assert cluster.nothing_is_left()


@pytest.mark.parametrize("is_ordered", [False, True])
def test_a_close_during_a_rebalance_lets_its_listener_end(
    cluster: FakeCluster, broker: FakeBroker, is_ordered: bool
) -> None:
    other = cluster.sim.host(OTHER_CLIENT)

    async def commit(_: frozenset[MessageQueue]) -> None:
        await asyncio.sleep(8)
        await listener.consumer.commit()

    async def consume() -> None:
        async with listener.made(consumer, cluster, ordered=is_ordered, auto_commit=False) as c:
            await bodies(c, 4)
            join_for(cluster, other, 60, ordered=is_ordered, auto_commit=False)
            await asyncio.sleep(3)
            assert listener.calls[1:] == [("revoked", [1])]
            assert listener.ended == ["assigned"]
        assert stored(broker) == {0: 2, 1: 2}

    listener = Recorder(revoked=commit)
    fill(broker, 4, queues=2)
    cluster.run(consume)
    assert listener.calls[2:] == [("revoked", [0])]
    assert listener.ended == ["assigned", "revoked", "revoked"]
    assert cluster.nothing_is_left()


def test_a_close_that_is_cancelled_ends_the_listener_and_the_consumer(
    cluster: FakeCluster, broker: FakeBroker, make: Callable[..., Consumer]
) -> None:
    async def consume() -> None:
        async with make(listener=listener) as c:
            await bodies(c, 1)
            closing = asyncio.create_task(c.close())
            await asyncio.sleep(1)
            closing.cancel()
            await asyncio.wait([closing])
            assert not c.is_open

    listener = Recorder(revoked=hang)
    fill(broker, 1)
    began = cluster.sim.now_s
    cluster.run(consume)
    assert listener.calls == [("assigned", [0]), ("revoked", [0])]
    assert cluster.sim.now_s - began < 3
    assert cluster.nothing_is_left()


def test_a_listener_sees_queues_without_the_namespace(
    cluster: FakeCluster, broker: FakeBroker, make: Callable[..., Consumer]
) -> None:
    async def seek(queues: frozenset[MessageQueue]) -> None:
        for each in queues:
            await listener.consumer.seek(each, 1)

    async def consume() -> None:
        async with listener.made(make, namespace="unit") as c:
            assert await bodies(c, 1) == [b"1"]

    listener = Recorder(seek)
    fill(broker, 2, "unit%T")
    cluster.run(consume)
    assert listener.calls == [("assigned", [0]), ("revoked", [0])]


def test_a_listener_that_suppresses_its_cancellation_is_not_waited_for(
    cluster: FakeCluster, broker: FakeBroker, make: Callable[..., Consumer]
) -> None:
    async def go_on(_: frozenset[MessageQueue]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(60)

    async def consume() -> None:
        async with make(listener=Recorder(go_on)) as c:
            began = cluster.sim.now_s
            assert await bodies(c, 1) == [b"0"]
            assert cluster.sim.now_s - began < LIMIT_S + 1

    fill(broker, 1)
    cluster.run(consume)


def test_a_listener_that_ends_as_cancelled_is_told_in_the_log(
    cluster: FakeCluster,
    broker: FakeBroker,
    make: Callable[..., Consumer],
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def cancelled(_: frozenset[MessageQueue]) -> None:
        raise asyncio.CancelledError

    async def consume() -> None:
        async with make(listener=Recorder(cancelled)) as c:
            assert await bodies(c, 1) == [b"0"]

    fill(broker, 1)
    with caplog.at_level(logging.WARNING, "roquet"):
        cluster.run(consume)
    assert "rebalance listener was cancelled, the rebalance goes on: group=G" in caplog.text


def test_of_failures_in_a_row_the_first_one_is_a_warning(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    class FailingListener(RebalanceListener):
        async def queues_assigned(self, queues: frozenset[MessageQueue]) -> None:
            if fails[0]:
                await fail(queues)

    async def consume() -> None:
        async with consumer(cluster, listener=FailingListener()) as c:
            for fails[0] in (True, True, False, True, True):
                await bodies(c, 1)
                reset(broker, {queue(0): 0})
                await asyncio.sleep(5)

    fails = [True]
    fill(broker, 1)
    with caplog.at_level(logging.DEBUG, "roquet"):
        cluster.run(consume)
    levels = [
        record.levelno
        for record in caplog.records
        if "rebalance listener failed" in record.getMessage()
    ]
    first, later = logging.WARNING, logging.DEBUG
    assert levels == [first, later, later, later, first, later]
