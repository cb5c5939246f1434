"""A member that joins a group tells of what the others want in another way."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from roquet.client.consumer import Consumer
from roquet.client.producer import Producer
from roquet.client.selector import Sql
from roquet.protocol.remoting.codes import RequestCode
from tests.client.cluster import SILENCE, FakeBroker, FakeCluster
from tests.client.consumers import consumer, fill
from tests.client.served import NAME_SERVER, Served
from tests.simulation.simulation import Simulation

OTHERS = "the other members of the group "
HAVE_OTHERS = (
    OTHERS + "have other subscriptions: all need the same, otherwise messages are missed: group=G "
)


@pytest.fixture
def served(sim: Simulation) -> Served:
    return Served(sim, enablePropertyFilter="true")


def told(
    served: Served, caplog: pytest.LogCaptureFixture, topics: Any, **options: Any
) -> list[str]:
    """What is logged when a member joins one that wants tag a of topic T."""

    def member(number: int, topics: Any, **options: Any) -> Consumer:
        options |= {"client_id": f"10.0.9.1@{number}", "runtime": served.client.runtime()}
        return Consumer(NAME_SERVER, "G", topics, **options)

    async def join() -> None:
        async with Producer(NAME_SERVER, "P", runtime=served.client.runtime()) as producer:
            for topic in ("T", "U"):
                await producer.send(topic, b"creates it", tags="b")
        async with member(1, {"T": "a"}):
            await asyncio.sleep(1)
            async with member(2, topics, **options):
                await asyncio.sleep(60)

    served.run(join)
    return [line for line in caplog.messages if line.startswith(OTHERS)]


def test_members_that_want_the_same_are_not_told_of(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    assert told(served, caplog, {"T": "a"}) == []


@pytest.mark.parametrize(
    ("topics", "here"),
    [
        ("T", "{'T': '*'}"),
        ({"T": "a||b"}, "{'T': 'a||b'}"),
        ({"T": Sql("a")}, "{'T': Sql(expression='a')}"),
        ({"U": "*", "T": "a"}, "{'T': 'a', 'U': '*'}"),
        ("U", "{'U': '*'}"),
    ],
)
def test_other_subscriptions_are_told_once(
    served: Served, caplog: pytest.LogCaptureFixture, topics: Any, here: str
) -> None:
    assert told(served, caplog, topics) == [HAVE_OTHERS + f"here={here} others={{'T': 'a'}}"]


def test_a_member_that_broadcasts_among_others_is_told(
    served: Served, caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    assert told(served, caplog, {"T": "a"}, broadcast=True, offsets_folder=tmp_path) == [
        OTHERS + "are CLUSTERING, this one is BROADCASTING: all must be the same, "
        "otherwise messages are missed: group=G"
    ]


X = re.compile("x.*")


@pytest.mark.parametrize(
    ("first", "second", "difference"),
    [
        (X, X, None),
        ([X, "x9"], X, None),
        (X, {X: "a"}, "here={'x1': 'a'} others={'x1': '*'}"),
        ([X, "y"], X, "here={'x1': '*'} others={'x1': '*', 'y': '*'}"),
        (X, [X, "x2"], "here={'x1': '*', 'x2': '*'} others={'x1': '*'}"),
    ],
)
@pytest.mark.parametrize("namespace", [None, "N"])
def test_topics_that_one_member_finds_before_another_are_not_told_of(
    served: Served,
    caplog: pytest.LogCaptureFixture,
    first: Any,
    second: Any,
    difference: str | None,
    namespace: str | None,
) -> None:
    """Both have the pattern, and x2 is made between their starts."""

    def member(number: int, topics: Any) -> Consumer:
        wanted = dict.fromkeys(topics, "*") if isinstance(topics, list) else topics
        return Consumer(
            NAME_SERVER,
            "G",
            wanted,
            client_id=f"10.0.9.1@{number}",
            namespace=namespace,
            runtime=served.client.runtime(),
        )

    async def join() -> None:
        runtime = served.client.runtime()
        async with Producer(NAME_SERVER, "P", namespace=namespace, runtime=runtime) as producer:
            for topic in ("x1", "y"):
                await producer.send(topic, b"creates it")
            async with member(1, first):
                await producer.send("x2", b"creates it")
                await asyncio.sleep(1)
                async with member(2, second):
                    pass

    served.run(join)
    told = [line for line in caplog.messages if line.startswith(OTHERS)]
    if difference is None:
        assert told == []
    else:
        prefix = "" if namespace is None else f"{namespace}%"
        assert [line.replace(prefix, "") for line in told] == [HAVE_OTHERS + difference]


@pytest.mark.parametrize("code", [SILENCE, 1, 0])
def test_a_broker_that_does_not_tell_keeps_no_member_from_joining(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    """With code 0 it answers without a body."""

    async def join() -> float:
        began = cluster.sim.now_s
        async with consumer(cluster):
            return cluster.sim.now_s - began

    fill(broker, 0)
    broker.script[RequestCode.GET_CONSUMER_CONNECTION_LIST] = [code]
    assert cluster.run(join) < 2
    assert [line for line in caplog.messages if line.startswith(OTHERS)] == []
