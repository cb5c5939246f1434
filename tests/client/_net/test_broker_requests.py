"""What brokers ask of a client, for administrators and for themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from roquet.client._consume.pull_flow import PrefetchLimits
from roquet.client._net.broker_requests import CONSUME_S_MAX, MemberCallbacks
from roquet.client._net.heartbeats import PERIOD_S
from roquet.client._net.member_calls import QueueState
from roquet.client._net.session import Session
from roquet.client.config import ClientConfig
from roquet.client.received import ReceivedMessage
from roquet.errors import CallTimeout
from roquet.protocol.bodies.tables import ConsumerData, queue_to_json
from roquet.protocol.headers.transactions import CheckTransactionHeader
from roquet.protocol.json.dialect import dump_bytes, load
from roquet.protocol.records.message import PRODUCER_GROUP, MessageQueue
from roquet.protocol.records.record import Record
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import Connection
from tests.client.cluster import CLIENT, NAME_SERVER, FakeBroker, FakeCluster
from tests.client.consumers import OTHER_CLIENT, bodies, consumer, fill, ordered, queue, stored


def ask(cluster: FakeCluster, broker: FakeBroker, request: Command) -> Command:
    """What the group's member answers to a broker."""

    async def call() -> Command:
        return await next(iter(broker.members["G"].values())).calls.call(request, 5000)

    return cluster.run(call, on=broker.host)


def test_a_member_tells_how_far_it_is(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            await bodies(c, 3)
            await asyncio.sleep(1_000)

    fill(broker, 4)
    cluster.client.start(consume)
    cluster.sim.run_for(10)
    answer = ask(
        cluster,
        broker,
        Command(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": "T", "group": "G"}),
    )
    assert answer.body == (
        b'{"consumerTable":{},"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:3}}'
    )
    running = ask(
        cluster, broker, Command(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "G"})
    )
    assert b'"cachedMsgCount":1' in running.body
    other = Command(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": "T", "group": "other"})
    assert ask(cluster, broker, other).code == ResponseCode.SYSTEM_ERROR


def running_info(cluster: FakeCluster, broker: FakeBroker, **fields: str) -> Any:
    fields = {"consumerGroup": "G", "clientId": "any"} | fields
    return load(ask(cluster, broker, Command(RequestCode.GET_CONSUMER_RUNNING_INFO, fields)).body)


def of_queue(info: Any, number: int) -> Any:
    """What a member tells of a queue of T."""
    found = {load(key)["queueId"]: state for key, state in info["mqTable"].items() if '"T"' in key}
    return found[number]


def test_an_ordered_member_tells_of_its_locks_and_of_the_message_that_is_consumed(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with ordered(cluster, limits=PrefetchLimits(total_count_max=99)) as c:
            await c.get_many(1)
            await asyncio.sleep(1_000)

    fill(broker, 5, queues=2)
    began_ms = cluster.client.now_ms()
    cluster.client.start(consume)
    cluster.sim.run_for(25)
    info = running_info(cluster, broker)
    busy, waiting = of_queue(info, 0), of_queue(info, 1)
    assert (busy["transactionMsgCount"], busy["cachedMsgCount"]) == (1, 2)
    assert (busy["transactionMsgMinOffset"], busy["cachedMsgMinOffset"]) == (0, 1)
    assert (waiting["transactionMsgCount"], waiting["cachedMsgCount"]) == (0, 2)
    for state in (busy, waiting):
        assert (state["locked"], state["droped"]) == (True, False)
        assert state["lastLockTimestamp"] >= began_ms + 20_000, "it was renewed"
    properties = info["properties"]
    assert properties["PROP_CONSUMEORDERLY"] == "true"
    assert properties["PROP_NAMESERVER_ADDR"] == "10.0.0.1:9876;"
    assert properties["allocateMessageQueueStrategy"] == "AVG"
    assert 0 <= int(properties["PROP_CONSUMER_START_TIMESTAMP"]) - began_ms < 100
    assert properties["pullThresholdForQueue"] == str(99 // len(info["mqTable"]))
    assert (properties["pullThresholdForTopic"], properties["pullThresholdSizeForTopic"]) == (
        "99",
        "-1",
    )


def test_a_member_tells_the_rates_and_failures_of_each_topic(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            for number in range(30):
                (message,) = await c.get_many(1)
                await asyncio.sleep(0.5)
                if number % 3 == 0:
                    message.retry()
                else:
                    message.ack()
            await asyncio.sleep(1_000)

    fill(broker, 30)
    cluster.client.start(consume)
    cluster.sim.run_for(20)
    status = running_info(cluster, broker)["statusTable"]
    assert set(status) == {"T", "%RETRY%G"}
    told = status["T"]
    assert told["consumeFailedMsgs"] == 10
    assert told["consumeOKTPS"] == pytest.approx(20 / 20, rel=0.1)
    assert told["consumeFailedTPS"] == pytest.approx(10 / 20, rel=0.1)
    assert told["pullTPS"] == pytest.approx(30 / 20, rel=0.1)
    assert told["consumeRT"] == pytest.approx(500, rel=0.01)
    assert told["pullRT"] > 0


def test_a_queue_that_is_kept_for_the_message_being_consumed_is_told_as_dropped(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume(**options: Any) -> None:
        async with ordered(cluster, **options) as c:
            await c.get_many(2)
            await asyncio.sleep(1_000)

    other = cluster.sim.host(OTHER_CLIENT)
    other.boot()
    fill(broker, 4, queues=2)
    cluster.client.start(consume)
    cluster.sim.run_for(5)
    other.start(lambda: consume(host=other))
    cluster.sim.run_for(5)
    state = of_queue(running_info(cluster, broker), 1)
    assert (state["droped"], state["locked"], state["tryUnlockTimes"]) == (True, True, 1)


def test_a_concurrent_member_tells_of_no_locks_and_shows_its_stacks_if_asked(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            await c.get_many(1)
            await asyncio.sleep(1_000)

    fill(broker, 2)
    cluster.client.start(consume)
    cluster.sim.run_for(5)
    plain = running_info(cluster, broker)
    state = of_queue(plain, 0)
    assert (state["locked"], state["lastLockTimestamp"]) == (False, 0)
    assert (state["transactionMsgCount"], state["cachedMsgCount"]) == (0, 2)
    assert plain["properties"]["PROP_CONSUMEORDERLY"] == "false"
    assert "jstack" not in plain
    shown = running_info(cluster, broker, jstackEnable="true")["jstack"]
    assert "task pull T@broker-a:0" in shown


def test_a_message_that_nobody_took_in_time_is_not_consumed_later(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    """The administrator was told that it was not consumed."""
    came: list[bytes] = []

    async def consume() -> None:
        async with consumer(cluster) as c:
            await asyncio.sleep(60)
            came.extend(message.body for message in await c.get_many(32, 30_000))

    async def call() -> None:
        member = next(iter(broker.members["G"].values()))
        with pytest.raises(CallTimeout):
            await member.calls.call(directly(broker), 15_000)

    fill(broker, 1)
    cluster.client.start(consume)
    cluster.sim.run_for(5)
    cluster.run(call, on=broker.host)
    cluster.sim.run_for(60)
    assert came == [b"0"]


@pytest.mark.parametrize("is_ordered", [b"false", b"true"])
@pytest.mark.parametrize(("settled_by", "result"), [("ack", b"CR_SUCCESS"), ("retry", b"CR_LATER")])
def test_a_message_that_an_administrator_wants_consumed_comes_beside_the_others(
    cluster: FakeCluster, broker: FakeBroker, settled_by: str, result: bytes, is_ordered: bytes
) -> None:
    """It is another group's, or was consumed long ago: no offset changes, and nothing is sent
    back.
    """
    came: list[ReceivedMessage] = []

    async def consume() -> None:
        async with consumer(cluster, ordered=is_ordered == b"true") as c:
            async for message in c:
                came.append(message)
                getattr(message, settled_by if message.topic == "Other" else "ack")()

    fill(broker, 2)
    cluster.client.start(consume)
    cluster.sim.run_for(10)
    record = broker.store("Other", 3, b"directly")
    fields = {
        "consumerGroup": "G",
        "clientId": f"{CLIENT}@test",
        "msgId": "m",
        "brokerName": "broker-a",
    }
    answer = ask(
        cluster, broker, Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields, record.encode())
    )
    assert answer.code == 0
    assert b'"consumeResult":"%b","order":%b' % (result, is_ordered) in answer.body
    assert [message.body for message in came] == [b"0", b"1", b"directly"]
    assert came[-1].queue == MessageQueue("Other", "broker-a", 3)
    cluster.sim.run_for(30)
    assert (
        stored(broker, "Other"),
        stored(broker),
        broker.requests[RequestCode.CONSUMER_SEND_MSG_BACK],
    ) == (
        {},
        {0: 2},
        [],
    )


def test_a_message_that_takes_too_long_or_is_for_another_group_is_not_said_to_be_consumed(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster):
            await asyncio.sleep(1_000)

    fill(broker, 1)
    cluster.client.start(consume)
    cluster.sim.run_for(10)
    body = broker.store("Other", 0, b"directly").encode()
    fields = {"consumerGroup": "other"}
    assert (
        ask(cluster, broker, Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields, body)).code == 1
    )
    with pytest.raises(CallTimeout):
        ask(
            cluster,
            broker,
            Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, {"consumerGroup": "G"}, body),
        )
    cluster.sim.run_for(30)


# what a session does with them


@dataclass
class Asked:
    """A member of G as its session knows it, and what brokers asked of it.

    `consumes` is how the application takes a message.
    """

    wakes: int = 0
    resets: list[Mapping[MessageQueue, int]] = field(default_factory=list)
    consumed: list[tuple[bytes, str]] = field(default_factory=list)
    checked: list[tuple[int, bytes]] = field(default_factory=list)
    consumes: Callable[[], Coroutine[Any, Any, bool]] = field(
        default=lambda: asyncio.sleep(0, True)
    )

    def callbacks(self) -> MemberCallbacks:
        return MemberCallbacks(
            ConsumerData("G"),
            self._wake,
            self.resets.append,
            dict[MessageQueue, QueueState],
            self._consume,
        )

    def _wake(self) -> None:
        self.wakes += 1

    async def _consume(self, record: Record, broker_name: str) -> bool:
        self.consumed.append((record.body, broker_name))
        return await self.consumes()

    def check(self, header: CheckTransactionHeader, record: Record, _: Connection) -> None:
        self.checked.append((header.commit_log_offset, record.body))


@pytest.fixture
def asked(cluster: FakeCluster, broker: FakeBroker) -> Asked:
    """In the consumer group G and the producer group P, for a thousand seconds."""
    asked = Asked()

    async def stay() -> None:
        config = ClientConfig(NAME_SERVER, client_id="me", runtime=cluster.client.runtime())
        async with Session(config) as session:
            await session.routes.route("T")
            session.membership.join_as_consumer("G", asked.callbacks())
            session.membership.join_as_producer("P", asked.check)
            await asyncio.sleep(1000)

    broker.create("T", 1)
    cluster.client.start(stay)
    cluster.sim.run_for(5)
    asked.wakes = 0
    return asked


def tell(cluster: FakeCluster, broker: FakeBroker, request: Command) -> None:
    """The broker sends the client a one-way request."""

    async def notify() -> None:
        next(iter(broker.members["G"].values())).calls.notify(request)

    cluster.run(notify, on=broker.host)
    cluster.sim.run_for(1)


def is_served(cluster: FakeCluster, broker: FakeBroker) -> bool:
    request = Command(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "G"})
    return ask(cluster, broker, request).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("fields", "wakes"), [({"consumerGroup": "G"}, 1), ({"consumerGroup": "other"}, 0), ({}, 0)]
)
def test_a_change_of_members_wakes_the_group_that_it_names(
    cluster: FakeCluster, broker: FakeBroker, asked: Asked, fields: dict[str, str], wakes: int
) -> None:
    tell(cluster, broker, Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, fields))
    assert asked.wakes == wakes
    assert is_served(cluster, broker)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"offsetTable":[{"offset":1}]}', b"\xff"])
def test_a_reset_that_cannot_be_read_resets_nothing(
    cluster: FakeCluster, broker: FakeBroker, asked: Asked, body: bytes
) -> None:
    fields = {"topic": "T", "group": "G"}
    tell(cluster, broker, Command(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, body))
    assert asked.resets == []
    assert not broker.members["G"], "it broke the protocol, and is disconnected"
    cluster.sim.run_for(PERIOD_S)
    assert is_served(cluster, broker)


@pytest.mark.parametrize(("group", "count"), [("G", 1), ("other", 0)])
def test_a_reset_is_for_the_group_that_it_names(
    cluster: FakeCluster, broker: FakeBroker, asked: Asked, group: str, count: int
) -> None:
    body = dump_bytes({"offsetTable": [{**queue_to_json(queue(0)), "offset": 7}]})
    fields = {"topic": "T", "group": group}
    tell(cluster, broker, Command(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, body))
    assert asked.resets == [{queue(0): 7}] * count


@pytest.mark.parametrize(
    "code", [RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT]
)
def test_a_group_that_this_client_is_not_in_is_named_in_the_refusal(
    cluster: FakeCluster, broker: FakeBroker, asked: Asked, code: RequestCode
) -> None:
    fields = {"consumerGroup": "other", "group": "other", "topic": "T"}
    answer = ask(cluster, broker, Command(code, fields))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "this client is not in group other" in (answer.remark or "")


# a message to consume directly


def directly(broker: FakeBroker, body: bytes | None = None) -> Command:
    data = broker.store("Other", 0, b"directly").encode() if body is None else body
    fields = {"consumerGroup": "G", "brokerName": "broker-a"}
    return Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields, data)


@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: data[:-1], lambda data: data[4:]]
)
def test_a_message_that_cannot_be_read_is_refused_and_not_consumed(
    cluster: FakeCluster, broker: FakeBroker, asked: Asked, damage: Callable[[bytes], bytes]
) -> None:
    request = directly(broker, damage(broker.store("Other", 0, b"directly").encode()))
    assert ask(cluster, broker, request).code != ResponseCode.SUCCESS
    assert asked.consumed == []
    assert is_served(cluster, broker)


@pytest.mark.parametrize("jump_ms", [-3_600_000, 0, 3_600_000])
def test_the_time_that_a_message_took_is_not_that_of_the_wall_clock(
    cluster: FakeCluster, broker: FakeBroker, asked: Asked, jump_ms: int
) -> None:
    async def consume() -> bool:
        await asyncio.sleep(2)
        cluster.client.clock_ahead_ms += jump_ms
        return True

    asked.consumes = consume
    document = load(ask(cluster, broker, directly(broker)).body)
    assert (document["consumeResult"], document["spentTimeMills"]) == ("CR_SUCCESS", 2000)
    assert asked.consumed == [(b"directly", "broker-a")]


def test_an_application_that_takes_too_long_is_not_waited_for_any_more(
    cluster: FakeCluster, broker: FakeBroker, asked: Asked
) -> None:
    ended: list[float] = []

    async def consume() -> bool:
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append(cluster.sim.now_s - began)
        return True

    asked.consumes = consume
    began = cluster.sim.now_s
    tell(cluster, broker, directly(broker))
    cluster.sim.run_for(2 * CONSUME_S_MAX)
    assert ended == [pytest.approx(CONSUME_S_MAX, abs=0.5)]
    assert is_served(cluster, broker)


# check-backs


@pytest.mark.parametrize(("group", "count"), [("P", 1), ("other", 0)])
def test_a_check_back_goes_to_the_producer_group_of_its_message(
    cluster: FakeCluster,
    broker: FakeBroker,
    asked: Asked,
    group: str,
    count: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    half = broker.store("T", 0, b"half", f"{PRODUCER_GROUP}\x01{group}")
    fields = {"tranStateTableOffset": "5", "commitLogOffset": "17"}
    tell(cluster, broker, Command(RequestCode.CHECK_TRANSACTION_STATE, fields, half.encode()))
    assert asked.checked == [(17, b"half")] * count
    warning = "check-back for a group that this client is not in: group=other"
    assert sum(warning in line for line in caplog.messages) == 1 - count
