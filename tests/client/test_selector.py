"""Messages asked for by SQL92 expressions, at real brokers, and at those that do not filter like
that.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from roquet.client.consumer import Consumer
from roquet.client.pull_consumer import PullConsumer, PullStatus
from roquet.client.selector import Sql, subscription_to
from roquet.errors import ConfigError, ResponseError
from roquet.protocol.bodies.tables import Heartbeat, Subscription, parse
from roquet.protocol.filters.tags import SQL92, TAG
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from tests.broker.harness import Client
from tests.broker.served import send, serving, started
from tests.client.cluster import FakeBroker, FakeCluster
from tests.simulation.nodes import BrokerNode, NameServerNode
from tests.simulation.simulation import Simulation
from tests.storage.records import append_one

NAMES, MASTER = "10.0.0.7", "10.0.0.1"
ALLOWED = {"enablePropertyFilter": "true"}


class World:
    """Name server, broker, a topic with the numbers 0 to 9 in one queue, and a host for clients."""

    def __init__(self, sim: Simulation, **settings: object) -> None:
        self.sim = sim
        names = NameServerNode(sim.host(NAMES))
        names.start()
        sim.run_until(lambda: names.is_serving, 10)
        self.node: BrokerNode = started(sim, MASTER, namesrvAddr=f"{NAMES}:9876", **settings)
        self.peer = Client(sim, sim.host("10.0.0.9"))
        self.put(*range(10))
        sim.run_for(1)
        self.host = sim.host("10.0.0.8")
        self.host.boot()

    def put(self, *numbers: int) -> None:
        for number in numbers:
            answer = send(self.peer, b"%d" % number, properties=f"number\x01{number}")
            assert answer.code == ResponseCode.SUCCESS

    def consumer(self, sql: str) -> Consumer:
        return Consumer(
            f"{NAMES}:9876", "G", {"T": Sql(sql)}, "earliest", runtime=self.host.runtime()
        )

    def reader(self) -> PullConsumer:
        return PullConsumer(f"{NAMES}:9876", runtime=self.host.runtime())


@pytest.fixture
def sim() -> Iterator[Simulation]:
    with Simulation("selector") as sim:
        yield sim


def test_what_is_wanted_of_a_topic_becomes_a_subscription() -> None:
    assert subscription_to("T", "", 3) == Subscription("T", "*", 3, TAG)
    assert subscription_to("T", "a || b") == Subscription("T", "a || b", 0, TAG)
    assert subscription_to("T", Sql("a > 3"), 3) == Subscription("T", "a > 3", 3, SQL92)


@pytest.mark.parametrize("expression", ["", "  "])
def test_an_empty_expression_is_refused_at_once(expression: str) -> None:
    with pytest.raises(ConfigError, match="SQL92 expression for T is empty"):
        Consumer("10.0.0.1:9876", "G", {"T": Sql(expression)})


@pytest.mark.parametrize("noted", ["false", "true"])
def test_a_consumer_gets_what_its_expression_wants(sim: Simulation, noted: str) -> None:
    world = World(sim, **ALLOWED, enableConsumeQueueExt=noted, enableCalcFilterBitMap=noted)

    async def consume() -> list[int]:
        got = []
        async with world.consumer("number > 6 OR number = 2") as consumer:
            async for message in consumer:
                got.append(int(message.body))
                if len(got) == 8:
                    return got
                if len(got) == 4:
                    world.sim.loop.call_later(1, world.host.start, later)
        return got

    async def later() -> None:
        broker = serving(world.node)
        queue = broker.store.queue("T", 0)
        for number in range(10):
            append_one(broker.store, queue, b"%d" % number, b"number\x01%d" % number)
        broker.parts.turn.due()

    assert world.host.call(consume) == [2, 7, 8, 9] * 2


def test_single_pulls_may_have_an_expression(sim: Simulation) -> None:
    world = World(sim, **ALLOWED)

    async def pull() -> None:
        async with world.reader() as reader:
            (queue, *_) = await reader.queues("T")
            found = await reader.pull(queue, 0, tags=Sql("number > 6"))
            assert [int(message.body) for message in found.messages] == [7, 8, 9]
            assert found.next_offset == 10
            nothing = await reader.pull(queue, 0, tags=Sql("number > 60"))
            assert (nothing.status, nothing.next_offset) == (PullStatus.NO_MATCHED, 10)
            with pytest.raises(
                ResponseError, match="filter expression, position 9: expected a value"
            ) as refused:
                await reader.pull(queue, 0, tags=Sql("number ="))
            assert refused.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED

    world.host.call(pull)


@pytest.mark.parametrize(
    ("settings", "sql", "code", "remark"),
    [
        (
            ALLOWED,
            "number = ?",
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "position 10: '\\?' cannot stand",
        ),
        ({}, "number = 1", ResponseCode.SYSTEM_ERROR, "enablePropertyFilter=true"),
    ],
)
def test_a_consumer_that_cannot_be_served_does_not_start(
    sim: Simulation, settings: dict[str, str], sql: str, code: int, remark: str
) -> None:
    world = World(sim, **settings)

    async def start() -> None:
        with pytest.raises(ResponseError, match=remark) as refused:
            await world.consumer(sql).__aenter__()
        assert refused.value.code == code

    world.host.call(start)
    assert serving(world.node).parts.tables.consumers.groups == {}


# brokers that do as scripted


def consumer(cluster: FakeCluster) -> Consumer:
    wanted = {"T": Sql("a > 3"), "U": "x"}
    return Consumer("10.0.0.1:9876", "G", wanted, runtime=cluster.client.runtime())


def test_brokers_are_asked_for_the_expressions_and_told_them_with_heartbeats_and_pulls(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    for topic in ("T", "U"):
        broker.create(topic, 1)

    async def consume() -> None:
        async with consumer(cluster) as one:
            await one.get_many(timeout_ms=2000)

    cluster.run(consume)
    (asked,) = broker.requests[RequestCode.CHECK_CLIENT_CONFIG]
    assert b'"expressionType":"SQL92"' in asked.body
    (data,) = parse(broker.requests[RequestCode.HEART_BEAT][0].body, Heartbeat.from_json).consumers
    wanted = {each.topic: each for each in data.subscriptions}["T"]
    assert (wanted.expression, wanted.expression_type) == ("a > 3", SQL92)
    pulls = [request.fields for request in broker.requests[RequestCode.PULL_MESSAGE]]
    kinds = {
        (fields["topic"], fields["expressionType"], fields["subscription"]) for fields in pulls
    }
    assert {("T", SQL92, "a > 3"), ("U", TAG, "x")} <= kinds


def test_a_broker_that_is_too_old_is_told_of(cluster: FakeCluster, broker: FakeBroker) -> None:
    broker.create("T", 1)
    broker.version = 231

    async def start() -> None:
        with pytest.raises(ConfigError, match=r"the broker at 10.0.1.1:10911 is older than 4.1.0"):
            await consumer(cluster).__aenter__()

    cluster.run(start)


def test_who_cannot_be_asked_now_does_not_hold_up_the_others(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    broker.create("T", 1)
    away = cluster.broker("10.0.2.1:10911", "broker-b")
    away.create("T", 1)
    away.host.kill()

    async def start() -> None:
        async with consumer(cluster):
            assert len(broker.requests[RequestCode.CHECK_CLIENT_CONFIG]) == 1

    cluster.run(start)


def test_a_single_reader_asks_once_for_each_expression(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    broker.create("T", 1)

    async def pull() -> None:
        async with PullConsumer("10.0.0.1:9876", runtime=cluster.client.runtime()) as reader:
            (queue,) = await reader.queues("T")
            for sql in ("a = 1", "a = 1", "a = 2"):
                await reader.pull(queue, 0, tags=Sql(sql))
            await reader.pull(queue, 0, tags="x")

    cluster.run(pull)
    assert len(broker.requests[RequestCode.CHECK_CLIENT_CONFIG]) == 2


@pytest.mark.parametrize(
    "text",
    [
        "price > 3",
        "price>3",
        "a='b'",
        "a,b",
        "a;b",
        "a|b",
        "a & b",
        "ab*",
        "*a",
        "a IN (1)",
        "a and b",
    ],
)
def test_a_text_that_is_no_list_of_tags_is_told(text: str) -> None:
    with pytest.warns(UserWarning, match=r"^the filter of T is .* separate tags by \|\|"):
        assert subscription_to("T", text).expression == text, "it may be a tag all the same"


@pytest.mark.parametrize(
    "text",
    ["*", "", "a", "a||b", "a || b", "a||b||c", "new-paid_2", "order.created", "* || a", "in"],
)
def test_tags_are_not_told_of(text: str) -> None:
    assert subscription_to("T", text).is_by_tag
