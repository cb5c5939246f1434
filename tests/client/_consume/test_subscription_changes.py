"""A member subscribes to topics, gives them up, and follows patterns, while it runs."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from roquet.client._consume.subscription_changes import MATCH_PERIOD_S, MISSING_MAX
from roquet.client.selector import Sql
from roquet.errors import (
    AccessDenied,
    ClientStateError,
    ConfigError,
    MessageError,
    Refused,
    ResponseError,
    RoquetError,
)
from roquet.protocol.bodies.tables import Heartbeat, Subscription, parse
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from tests.client.cluster import SILENCE, FakeBroker, FakeCluster
from tests.client.consumers import (
    OTHER_CLIENT,
    bodies,
    consumer,
    fill,
    ordered,
    queue,
    stored,
    within,
)

KINDS: list[dict[str, Any]] = [{}, {"ordered": True}, {"broadcast": True}]


def told(broker: FakeBroker) -> dict[str, Subscription]:
    """The subscriptions of the group G in the last heartbeat."""
    heartbeat = parse(broker.requests[RequestCode.HEART_BEAT][-1].body, Heartbeat.from_json)
    return {each.topic: each for each in heartbeat.consumers[0].subscriptions}


@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_comes_and_goes_while_the_member_runs(
    cluster: FakeCluster, broker: FakeBroker, kind: dict[str, Any], tmp_path: Path
) -> None:
    options = {**kind, "offsets_folder": tmp_path} if "broadcast" in kind else kind

    async def consume() -> None:
        async with consumer(cluster, **options) as c:
            assert await bodies(c, 2) == [b"0", b"1"]
            await c.subscribe("U")
            assert c.subscriptions() == {"T": "*", "U": "*"}
            assert told(broker).keys() >= {"T", "U"}
            assert {each.topic for each in c.assigned()} >= {"T", "U"}
            assert await bodies(c, 2) == [b"0", b"1"]
            await c.unsubscribe("T")
            assert c.subscriptions() == {"U": "*"}
            assert told(broker).keys() - {"%RETRY%G"} == {"U"}
            assert not {each.topic for each in c.assigned()} & {"T"}
            if "broadcast" not in kind:
                assert stored(broker) == {0: 2}
            assert queue(0) not in broker.locks
            broker.store("T", 0, b"2")
            assert await within(c, 30) == []
            await c.subscribe("T")
            assert await bodies(c, 1) == [b"2"], "it goes on where it was"
            await c.unsubscribe("T")
            await c.unsubscribe("U")
            assert c.subscriptions() == {}

    fill(broker, 2)
    fill(broker, 2, "U")
    cluster.run(consume)
    assert cluster.nothing_is_left()


def test_the_brokers_know_a_subscription_before_the_queues_are_pulled(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            await asyncio.sleep(1)
            order.clear()
            await c.subscribe("U")
            await bodies(c, 1)
            codes = [code for code, topic in order if topic in ("", "U")]
            assert codes.index(RequestCode.HEART_BEAT) < codes.index(RequestCode.PULL_MESSAGE)

    order: list[tuple[int, str]] = []
    broker.on_request = lambda request: order.append(
        (request.code, request.fields.get("topic", ""))
    )
    fill(broker, 0)
    fill(broker, 1, "U")
    cluster.run(consume)


def test_another_filter_counts_for_the_following_pulls(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster, {"T": "a"}) as c:
            assert await bodies(c, 1) == [b"0"]
            await asyncio.sleep(1)
            version = told(broker)["T"].version
            await c.subscribe("T", "b")
            await asyncio.sleep(0.1)
            assert told(broker)["T"].expression == "b"
            assert told(broker)["T"].version > version
            broker.store("T", 0, b"for b", "TAGS\x01b")
            broker.store("T", 0, b"for a", "TAGS\x01a")
            assert [message.body for message in await within(c, 5)] == [b"for b"]
            assert c.subscriptions() == {"T": "b"}

    fill(broker, 1, properties="TAGS\x01a")
    cluster.run(consume)


def test_the_version_grows_even_if_the_clock_goes_back(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            versions = [told(broker)["T"].version]
            for number in range(3):
                cluster.client.clock_ahead_ms -= 3_600_000
                await c.subscribe("T", f"tag{number}")
                versions.append(told(broker)["T"].version)
            assert versions == sorted(set(versions))

    fill(broker, 0)
    cluster.run(consume)


def test_an_sql_filter_is_checked_at_the_brokers(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            broker.script[RequestCode.CHECK_CLIENT_CONFIG] = [
                ResponseCode.SUBSCRIPTION_PARSE_FAILED
            ]
            with pytest.raises(ResponseError):
                await c.subscribe("T", Sql("price >"))
            assert c.subscriptions() == {"T": "*"}
            await c.subscribe("T", Sql("price > 1"))
            assert c.subscriptions() == {"T": Sql("price > 1")}

    fill(broker, 0)
    cluster.run(consume)


@pytest.mark.parametrize(
    ("topic", "selector", "error"),
    [("", "*", MessageError), (7, "*", MessageError), ("a b", "*", MessageError),
     ("T", 5, ConfigError), ("T", Sql(""), ConfigError), ("%RETRY%G", "*", ConfigError)],
)  # fmt: skip
def test_what_cannot_be_subscribed_changes_nothing(
    cluster: FakeCluster, broker: FakeBroker, topic: Any, selector: Any, error: type[Exception]
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            with pytest.raises(error):
                await c.subscribe(topic, selector)
            for unknown in (topic if topic != "T" else "U", "%RETRY%G"):
                with pytest.raises(ConfigError, match="is not subscribed"):
                    await c.unsubscribe(unknown)
            assert c.subscriptions() == {"T": "*"}

    fill(broker, 0)
    cluster.run(consume)


def test_a_topic_that_does_not_exist_yet_is_waited_for(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            await c.subscribe("later")
            await asyncio.sleep(10)
            fill(broker, 1, "later")
            assert await bodies(c, 1) == [b"0"]

    fill(broker, 0)
    cluster.run(consume)


def test_a_subscription_that_a_broker_denies_is_taken_back(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    """Otherwise this broker would forget the member."""

    def deny(request: Command) -> None:
        if request.code == RequestCode.HEART_BEAT and b'"U"' in request.body:
            raise Refused(1, "org.apache.rocketmq.acl.common.AclException: no")

    async def consume() -> None:
        async with consumer(cluster, {"T": "a"}) as c:
            before = told(broker)["T"].version
            with pytest.raises(AccessDenied):
                await c.subscribe("U")
            assert c.subscriptions() == {"T": "a"}
            assert told(broker).keys() == {"T", "%RETRY%G"}
            assert told(broker)["T"].version == before
            assert not any(each.topic == "U" for each in c.assigned())

    broker.on_request = deny
    fill(broker, 0)
    fill(broker, 0, "U")
    cluster.run(consume)


@pytest.mark.parametrize("after_ms", [0, 1, 2, 3, 4, 5, 6, 8, 10, 20, 1000, 2999])
@pytest.mark.parametrize(
    "silent",
    [None, RequestCode.HEART_BEAT, RequestCode.GET_CONSUMER_LIST_BY_GROUP,
     RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.CHECK_CLIENT_CONFIG],
)  # fmt: skip
@pytest.mark.parametrize("is_ordered", [False, True])
def test_a_change_that_is_cancelled_is_made_or_not(
    cluster: FakeCluster, broker: FakeBroker, after_ms: int, silent: int | None, is_ordered: bool
) -> None:
    async def consume() -> None:
        async with consumer(cluster, ordered=is_ordered) as c:
            await bodies(c, 1)
            if silent is not None:
                broker.script[silent] = [SILENCE]
            change = asyncio.create_task(c.subscribe("U", Sql("a > 1")))
            await asyncio.sleep(after_ms / 1000)
            change.cancel()
            await asyncio.wait([change])
            await asyncio.sleep(60)
            assert ("U" in c.subscriptions()) == any(each.topic == "U" for each in c.assigned())
            assert ("U" in c.subscriptions()) == ("U" in told(broker))
            broker.store("T", 0, b"goes on")
            assert b"goes on" in [message.body for message in await within(c, 1)]

    fill(broker, 1)
    fill(broker, 1, "U")
    cluster.run(consume)
    assert cluster.nothing_is_left()
    assert broker.locks == {}


@pytest.mark.parametrize("after_ms", [0, 1, 2, 3, 4, 5, 8, 1000])
@pytest.mark.parametrize("is_ordered", [False, True])
def test_a_member_is_closed_while_it_subscribes(
    cluster: FakeCluster, broker: FakeBroker, after_ms: int, is_ordered: bool
) -> None:
    async def consume() -> None:
        async with consumer(cluster, ordered=is_ordered) as c:
            await bodies(c, 1)
            if after_ms == 1000:
                broker.script[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = [SILENCE] * 9
            change = asyncio.create_task(c.subscribe("U"))
            await asyncio.sleep(after_ms / 1000)
        (outcome,) = await asyncio.gather(change, return_exceptions=True)
        assert outcome is None or isinstance(outcome, ClientStateError | RoquetError)

    fill(broker, 1)
    fill(broker, 1, "U")
    cluster.run(consume)
    assert cluster.nothing_is_left()
    assert broker.locks == {}
    assert list(broker.members["G"]) == []


@pytest.mark.parametrize("after_ms", [0, 10, 50, 100, 150, 190])
def test_a_subscription_that_is_too_late_for_a_close_is_refused(
    cluster: FakeCluster, broker: FakeBroker, after_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Name servers are asked for the topic for 0.2 s, and the consumer is closed meanwhile."""

    async def consume() -> None:
        async with consumer(cluster) as c:
            change = asyncio.create_task(c.subscribe("missing"))
            await asyncio.sleep(after_ms / 1000)
        with pytest.raises(ClientStateError, match="closed"):
            await change

    fill(broker, 0)
    cluster.run(consume)
    assert cluster.nothing_is_left()
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


def test_a_consumer_that_starts_cannot_be_subscribed_yet(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def consume() -> None:
        c = consumer(cluster)
        starting = asyncio.create_task(c.start())
        await asyncio.sleep(0)
        with pytest.raises(ClientStateError, match="still starting"):
            await c.subscribe("U")
        await starting
        await c.subscribe("U")
        assert c.subscriptions() == {"T": "*", "U": "*"}
        await c.close()

    fill(broker, 0)
    fill(broker, 0, "U")
    broker.script[RequestCode.GET_CONSUMER_CONNECTION_LIST] = [SILENCE]
    cluster.run(consume)
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


def test_changes_at_once_are_all_made(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            await asyncio.gather(
                c.subscribe("U"), c.subscribe("V", "a"), c.unsubscribe("T"), c.subscribe("V", "b")
            )
            assert c.subscriptions() == {"U": "*", "V": "b"}
            assert {each.topic for each in c.assigned()} == {"U", "V", "%RETRY%G"}

    for topic in "TUV":
        fill(broker, 0, topic)
    cluster.run(consume)


def test_while_the_broker_is_down_a_subscription_is_kept_for_later(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            broker.host.kill()
            await c.subscribe("U")
            assert "U" in c.subscriptions()
            await c.unsubscribe("T")
            cluster.restart(broker)
            assert await bodies(c, 1) == [b"0"]
            assert told(broker).keys() == {"U", "%RETRY%G"}

    fill(broker, 0)
    fill(broker, 1, "U")
    cluster.run(consume)


def test_without_a_name_server_nothing_is_subscribed(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            cluster.name_server_host.kill()
            with pytest.raises(RoquetError):
                await c.subscribe("U")
            assert c.subscriptions() == {"T": "*"}
            await c.unsubscribe("T")
            assert c.subscriptions() == {}

    fill(broker, 0)
    cluster.run(consume)


def test_queues_that_are_given_up_go_to_the_member_that_still_has_the_topic(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    other = cluster.sim.host(OTHER_CLIENT)
    got: list[bytes] = []

    async def stay() -> None:
        async with ordered(cluster, host=other) as c:
            while True:
                got.append((await c.get()).body)

    async def consume() -> None:
        async with ordered(cluster, topics=["T", "U"]) as c:
            await bodies(c, 1)
            await c.unsubscribe("T")
            assert queue(0) not in broker.locks

    fill(broker, 3)
    fill(broker, 0, "U")
    cluster.run(consume)
    other.start(stay)
    cluster.sim.run_for(5)
    assert got[:1] == [b"1"]


# patterns


def test_topics_that_match_are_subscribed_when_they_appear_and_dropped_when_they_are_gone(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster, re.compile("orders-.*")) as c:
            assert c.subscriptions() == {"orders-1": "*"}
            assert await bodies(c, 1) == [b"0"]
            fill(broker, 1, "orders-2")
            fill(broker, 1, "returns")
            await asyncio.sleep(MATCH_PERIOD_S + 1)
            assert c.subscriptions() == {"orders-1": "*", "orders-2": "*"}
            assert told(broker).keys() == {"orders-1", "orders-2", "%RETRY%G"}
            assert await bodies(c, 1) == [b"0"]
            gone = cluster.topics.pop("orders-1")
            await asyncio.sleep((MISSING_MAX - 1) * MATCH_PERIOD_S)
            assert "orders-1" in c.subscriptions(), "a name server may have been restarted"
            cluster.topics["orders-1"] = gone
            await asyncio.sleep(MATCH_PERIOD_S)
            del cluster.topics["orders-1"]
            await asyncio.sleep(MISSING_MAX * MATCH_PERIOD_S)
            assert c.subscriptions() == {"orders-2": "*"}
            assert {each.topic for each in c.assigned()} == {"orders-2", "%RETRY%G"}
            assert stored(broker, "orders-1") == {0: 1}
            cluster.topics["orders-1"] = gone
            await asyncio.sleep(MATCH_PERIOD_S)
            assert c.subscriptions() == {"orders-1": "*", "orders-2": "*"}

    fill(broker, 1, "orders-1")
    cluster.run(consume, within_s=600)
    assert cluster.nothing_is_left()


def test_a_named_topic_keeps_its_own_filter_although_a_pattern_matches(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        topics = {"orders-1": "a", re.compile("orders-.*"): "b"}
        async with consumer(cluster, topics) as c:
            assert c.subscriptions() == {"orders-1": "a", "orders-2": "b"}
            with pytest.raises(ConfigError, match="orders-2 matches a pattern"):
                await c.unsubscribe("orders-2")
            await c.subscribe("orders-2", "c")
            await asyncio.sleep(2 * MATCH_PERIOD_S)
            assert c.subscriptions() == {"orders-1": "a", "orders-2": "c"}

    fill(broker, 0, "orders-1")
    fill(broker, 0, "orders-2")
    cluster.run(consume)


def test_a_pattern_that_matches_nothing_yet_waits(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster, re.compile("orders-.*")) as c:
            assert c.subscriptions() == {}
            cluster.name_server_host.crash(silently=True)
            await asyncio.sleep(MATCH_PERIOD_S + 1)
            assert c.subscriptions() == {}

    cluster.run(consume)
    assert cluster.nothing_is_left()


def test_a_new_topic_whose_filter_a_broker_refuses_is_tried_again_and_keeps_no_other_out(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def consume() -> None:
        async with consumer(cluster, {re.compile("orders-.*"): Sql("a > 1")}) as c:
            fill(broker, 0, "orders-1")
            fill(broker, 0, "orders-2")
            refused = [ResponseCode.SYSTEM_ERROR]
            broker.script[RequestCode.CHECK_CLIENT_CONFIG] = [*refused, 0, *refused]
            await asyncio.sleep(MATCH_PERIOD_S + 1)
            assert c.subscriptions() == {"orders-2": Sql("a > 1")}
            await asyncio.sleep(MATCH_PERIOD_S)
            assert c.subscriptions() == {"orders-2": Sql("a > 1")}
            await asyncio.sleep(MATCH_PERIOD_S)
            assert c.subscriptions().keys() == {"orders-1", "orders-2"}

    with caplog.at_level(logging.INFO, "roquet"):
        cluster.run(consume)
    (line,) = [line for line in caplog.messages if "cannot be subscribed yet" in line]
    assert "group=G topic=orders-1 error=" in line
