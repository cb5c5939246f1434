"""What a group has done comes to the brokers as it is when it is sent; and where a group begins."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from roquet.client._consume.offsets import BrokerOffsets
from roquet.client._net.session import Session
from roquet.client.config import ClientConfig
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from tests.broker.harness import Client
from tests.broker.served import send, serving, started
from tests.client.cluster import NAME_SERVER, SILENCE, FakeBroker, FakeCluster
from tests.client.consumers import bodies, consumer, fill, queue, reset, stored, within
from tests.simulation.nodes import NameServerNode
from tests.simulation.simulation import Simulation

MASTER, SLAVE, NAMES = "10.0.0.1", "10.0.0.2", "10.0.0.7"
QUEUE = MessageQueue("T", "broker-a", 0)


def test_while_one_broker_does_not_answer_the_offset_at_the_next_does_not_fall() -> None:
    """Found by the simulation: a group that was at 11 went back to 5."""
    with Simulation("offsets") as sim:
        names = NameServerNode(sim.host(NAMES))
        names.start()
        sim.run_until(lambda: names.is_serving, 10)
        known = {"namesrvAddr": f"{NAMES}:9876"}
        started(sim, MASTER, **known)
        slave = started(sim, SLAVE, brokerRole="SLAVE", brokerId=1, **known)
        send(Client(sim, sim.host("10.0.0.9")), b"creates the topic")
        sim.run_for(15)

        host, taken = sim.host("10.0.0.8"), [5]
        host.boot()

        async def begin() -> tuple[Session, BrokerOffsets, asyncio.Task[None]]:
            session = await Session(
                ClientConfig(f"{NAMES}:9876", runtime=host.runtime())
            ).__aenter__()
            await session.routes.route("T")
            sim.network.isolate(MASTER)
            offsets = BrokerOffsets(session, "G")
            storing = offsets.commit(QUEUE, lambda: taken[0])
            return session, offsets, asyncio.get_running_loop().create_task(storing)

        session, offsets, storing = host.call(begin)
        sim.run_for(1)
        assert not storing.done(), "the master is asked first"
        taken[0] = 11
        sim.run_until(storing.done, 30)
        storing.result()
        assert serving(slave).parts.tables.offsets.committed("G", "T", 0) == 11
        host.call(lambda: offsets.commit(QUEUE, lambda: 10))
        assert serving(slave).parts.tables.offsets.committed("G", "T", 0) == 11, (
            "what was sent is known to be stored"
        )
        host.call(lambda: session.__aexit__(None, None, None))


def test_of_a_topic_one_queue_is_told_before_the_others(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    """Apache's broker loses one of two first offsets of a group that come at the same time."""
    broker.create("T", queues=3)
    times: list[float] = []

    def note(request: Command) -> None:
        if request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            times.append(cluster.sim.now_s)

    async def store() -> None:
        async with Session(ClientConfig(NAME_SERVER, runtime=cluster.client.runtime())) as session:
            offsets = BrokerOffsets(session, "G")
            queues = [MessageQueue("T", "broker-a", number) for number in range(3)]
            await asyncio.gather(*(offsets.commit(queue, lambda: 1) for queue in queues))
            await asyncio.gather(*(offsets.commit(queue, lambda: 2) for queue in queues))

    broker.on_request = note
    cluster.run(store)

    assert times[0] < times[1] == times[2] < times[3] == times[4] == times[5]
    assert [broker.offsets["G", "T", number] for number in range(3)] == [2, 2, 2]


# where a group begins in a young queue

ALL_OFFSETS = RequestCode.GET_ALL_CONSUMER_OFFSET


def now(cluster: FakeCluster) -> datetime:
    return datetime.fromtimestamp(cluster.client.now_ms() / 1000, UTC)


@pytest.fixture
def young(cluster: FakeCluster, broker: FakeBroker) -> FakeBroker:
    """A broker whose queue has 5 old messages of topic T, and of the present nothing."""
    broker.is_young = True
    fill(broker, 5)
    cluster.sim.run_for(10)
    return broker


def begun(
    cluster: FakeCluster, between: Callable[[], Awaitable[None]] | None = None, **options: Any
) -> list[bytes]:
    """What a group gets that begins now, and gets three messages then."""

    async def consume() -> list[bytes]:
        options.setdefault("start", now(cluster))
        await asyncio.sleep(5)
        fill(cluster.brokers[0], 3)
        if between is not None:
            await between()
        async with consumer(cluster, **options) as c:
            return [message.body for message in await within(c, 5)]

    return cluster.run(consume)


NEW, EVERYTHING = [b"0", b"1", b"2"], [b"0", b"1", b"2", b"3", b"4", b"0", b"1", b"2"]


@pytest.mark.parametrize("options", [{}, {"auto_commit": False}])
def test_from_a_time_on_a_group_gets_no_older_messages(
    cluster: FakeCluster, young: FakeBroker, options: dict[str, Any]
) -> None:
    assert begun(cluster, **options) == NEW


def test_from_a_time_on_a_group_in_order_gets_no_older_messages(
    cluster: FakeCluster, young: FakeBroker
) -> None:
    assert begun(cluster, ordered=True) == NEW[:1], "the others follow when it is settled"


def test_from_a_time_on_a_broadcasting_member_begins_as_its_file_says(
    cluster: FakeCluster, young: FakeBroker, tmp_path: Path
) -> None:
    alone: dict[str, Any] = {"broadcast": True, "offsets_folder": tmp_path}
    assert begun(cluster, **alone) == NEW
    (file,) = tmp_path.rglob("offsets.json")
    file.write_text(file.read_text().replace(":5", ":0").replace(": 5", ": 0"))
    assert begun(cluster, **alone) == [*EVERYTHING, *NEW]


def test_at_the_end_it_gets_all_as_a_topic_may_be_younger_than_its_group(
    cluster: FakeCluster, young: FakeBroker
) -> None:
    assert begun(cluster, start="latest") == EVERYTHING
    assert young.requests[ALL_OFFSETS] == [], "nobody asks what does not matter"


def test_a_group_that_ended_before_its_first_commit_begins_there_again(
    cluster: FakeCluster, young: FakeBroker
) -> None:
    since = now(cluster)
    assert begun(cluster, start=since, auto_commit=False) == NEW
    assert stored(young) == {}
    assert begun(cluster, start=since)[:3] == NEW


def test_a_group_that_has_stored_0_goes_on_there(cluster: FakeCluster, young: FakeBroker) -> None:
    """It may have begun when the queue was empty, or an administrator has reset it."""
    young.offsets["G", "T", 0] = 0
    assert begun(cluster) == EVERYTHING


@pytest.mark.parametrize("key", [("G", "T", 1), ("G", "TT", 0), ("GG", "T", 0), ("G2", "T", 0)])
def test_an_offset_of_another_queue_or_group_is_none_of_it(
    cluster: FakeCluster, young: FakeBroker, key: tuple[str, str, int]
) -> None:
    young.offsets[key] = 0
    assert begun(cluster) == NEW


def test_a_reset_to_0_of_a_running_group_is_obeyed(cluster: FakeCluster, young: FakeBroker) -> None:
    async def consume() -> list[bytes]:
        async with consumer(cluster, start=now(cluster)) as c:
            await asyncio.sleep(1)
            fill(young, 1)
            assert await bodies(c, 1) == [b"0"]
            reset(young, {queue(0): 0})
            return await bodies(c, 6)

    assert cluster.run(consume) == [b"0", b"1", b"2", b"3", b"4", b"0"]


def test_the_queues_of_a_topic_share_one_question(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster, start=now(cluster)):
            pass

    broker.is_young = True
    fill(broker, 8, queues=8)
    cluster.run(consume)
    assert len(broker.requests[ALL_OFFSETS]) == 1


def test_a_broker_that_does_not_tell_counts_as_one_that_has_an_offset(
    cluster: FakeCluster, young: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    young.script[ALL_OFFSETS] = [ResponseCode.REQUEST_CODE_NOT_SUPPORTED]
    with caplog.at_level("INFO", "roquet"):
        assert begun(cluster) == EVERYTHING
    (line,) = [line for line in caplog.messages if "does not tell" in line]
    assert "group=G queue=T@broker-a:0 error=10.0.1.1:10911 answered code 3" in line


def test_a_broker_that_is_silent_is_asked_again(cluster: FakeCluster, young: FakeBroker) -> None:
    async def consume() -> list[bytes]:
        async with consumer(cluster, start=now(cluster)) as c:
            fill(young, 1)
            return await bodies(c, 1)

    young.script[ALL_OFFSETS] = [SILENCE]
    assert cluster.run(consume) == [b"0"]
    assert len(young.requests[ALL_OFFSETS]) == 2


# the first message since a time

PULLS = RequestCode.PULL_MESSAGE


def spaced(cluster: FakeCluster, broker: FakeBroker, properties: str = "") -> datetime:
    """Three messages, 10 s apart; returns the time at which the first one is stored."""
    broker.create("T", 1)
    first = now(cluster)
    for number in range(3):
        broker.store("T", 0, b"%d" % number, properties)
        cluster.sim.run_for(10)
    return first


def since(cluster: FakeCluster, when: datetime, seconds: float = 5) -> list[bytes]:
    """What a new group gets that begins at a time."""

    async def consume() -> list[bytes]:
        async with consumer(cluster, start=when) as c:
            return [message.body for message in await within(c, seconds)]

    return cluster.run(consume)


@pytest.mark.parametrize(
    ("after_ms", "expected"),
    [(-60_000, 0), (0, 0), (1, 1), (2000, 1), (8000, 1), (10_000, 1), (20_001, 3), (86_400_000, 3)],
)
@pytest.mark.parametrize("seeks", [False, True])
def test_no_message_is_older_than_the_time(
    cluster: FakeCluster, broker: FakeBroker, after_ms: int, expected: int, seeks: bool
) -> None:
    """However near the message before it is, and also if the time is still to come."""
    when = spaced(cluster, broker) + timedelta(milliseconds=after_ms)

    async def consume() -> list[bytes]:
        async with consumer(cluster, start="latest") as c:
            await c.seek(queue(0), when)
            return [message.body for message in await within(c, 5)]

    found = cluster.run(consume) if seeks else since(cluster, when)
    assert found == [b"0", b"1", b"2"][expected:]


def test_a_message_that_the_filter_drops_is_passed_over_as_well(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    when = spaced(cluster, broker, "TAGS\x01old\x02") + timedelta(seconds=2)

    async def consume() -> None:
        async with consumer(cluster, {"T": "new"}, start=when) as c:
            await within(c, 1)

    cluster.run(consume)
    pulls = [pull.fields for pull in broker.requests[PULLS] if pull.fields["topic"] == "T"]
    asked = [(pull["queueOffset"], pull["subscription"]) for pull in pulls[:2]]
    assert asked == [("0", "*"), ("1", "new")]


def test_messages_that_are_deleted_after_the_search_are_passed_over(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    def remove(request: Command) -> None:
        if request.code == PULLS:
            broker.log.removed["T", 0] = 2

    when = spaced(cluster, broker) + timedelta(seconds=2)
    broker.on_request = remove
    assert since(cluster, when) == [b"2"]


def test_a_slave_is_asked_for_both_if_its_master_falls_silent_in_between(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    slave = cluster.broker("10.0.1.2:10911", broker_id=1, log=broker.log)
    when = spaced(cluster, broker) + timedelta(seconds=2)
    broker.script[PULLS] = [SILENCE, SILENCE]
    assert since(cluster, when, 60) == [b"1", b"2"]
    assert len(slave.requests[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP]) == 1


def test_where_a_broker_refuses_the_look_the_queue_begins_later(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    when = spaced(cluster, broker) + timedelta(seconds=2)
    broker.script[PULLS] = [ResponseCode.SYSTEM_ERROR]
    assert since(cluster, when, 60) == [b"1", b"2"]


def test_an_offset_is_taken_as_it_is(cluster: FakeCluster, broker: FakeBroker) -> None:
    spaced(cluster, broker)

    async def consume() -> list[bytes]:
        async with consumer(cluster, start="latest") as c:
            await c.seek(queue(0), 1)
            return [message.body for message in await within(c, 5)]

    assert cluster.run(consume) == [b"1", b"2"]
    assert not broker.requests[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP]
    pulls = [pull.fields for pull in broker.requests[PULLS] if pull.fields["topic"] == "T"]
    assert {pull["maxMsgNums"] for pull in pulls} == {"32"}
