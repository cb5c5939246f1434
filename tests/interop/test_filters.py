"""SQL92 filters: Apache's clients at our broker, ours at Apache's, and one store in the hands of
both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from roquet.client.consumer import Consumer
from roquet.client.pull_consumer import PullConsumer
from roquet.client.selector import Sql
from roquet.errors import ResponseError
from roquet.protocol.json.dialect import load
from tests.interop.apache import (
    PATIENT,
    ApacheBroker,
    ApacheNameServer,
    JavaClients,
    Session,
    Version,
    require_java,
    run_driver,
    wait_until,
)
from tests.interop.processes import SECONDS
from tests.interop.roquet_cluster import RoquetBroker, RoquetNameServer, create_topic

pytestmark = pytest.mark.interop

ONE_OF_EACH: Final = ("4.9.7-json", "5.5.0-binary")
ALLOWED: Final[dict[str, str | int]] = {"enablePropertyFilter": "true"}
NOTED: Final[dict[str, str | int]] = {
    **ALLOWED,
    "enableConsumeQueueExt": "true",
    "enableCalcFilterBitMap": "true",
    "mappedFileSizeConsumeQueueExt": 1 << 20,
    "mappedFileSizeCommitLog": 1 << 20,
}
SQL: Final = "number BETWEEN 3 AND 5 AND colour = 'blue' OR number = '7'"
WANTED: Final = [3, 4, 5, 7]
OFTEN: Final = ("--heartbeat", 1_000)
LINGER: Final = ("--linger", 700)


@pytest.fixture(scope="module")
def name_server() -> Iterator[RoquetNameServer]:
    with RoquetNameServer() as server:
        yield server


@pytest.fixture(scope="module", params=[ALLOWED, NOTED], ids=["plain", "noted"])
def broker(name_server: RoquetNameServer, request: pytest.FixtureRequest) -> Iterator[RoquetBroker]:
    with RoquetBroker(name_server.address, properties=request.param) as server:
        yield server


def produce(client: Session, namesrv: str, topic: str, body: str = "") -> None:
    """Ten messages, whose numbers are a property and the end of their bodies."""
    client.run(
        "produce",
        namesrv,
        topic,
        10,
        *PATIENT,
        "--body",
        body,
        "--property",
        "colour=blue,number={i}",
    ).check()


def numbers(lines: list[dict[str, Any]]) -> list[int]:
    return sorted(int(line["body"][-1]) for line in lines)


def named(what: str, kind: str, request: pytest.FixtureRequest) -> str:
    """A topic that no other test uses."""
    return "-".join((what, kind.replace(".", "-"), request.node.callspec.id.replace(".", "-")))


# Apache's clients at our broker


@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_a_push_consumer_gets_what_it_wants_from_before_it_came_and_while_its_pulls_are_held(
    broker: RoquetBroker, clients: JavaClients, kind: str, request: pytest.FixtureRequest
) -> None:
    client, topic = clients[kind], named("Push", kind, request)
    producer = clients["4.9.7-binary"]
    create_topic(broker, topic, 2)
    produce(producer, broker.namesrv, topic, "early ")
    client.begin(
        "consume", broker.namesrv, topic, f"G-{topic}", 8, SECONDS, "--sql", SQL, *OFTEN, *LINGER
    )
    client.wait_lines(4)
    produce(producer, broker.namesrv, topic, "late ")
    got = client.finish().check()
    assert numbers([line for line in got if line["body"].startswith("early")]) == WANTED
    assert numbers([line for line in got if line["body"].startswith("late")]) == WANTED


@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_a_push_consumer_that_wants_nothing_gets_nothing_and_passes_all_over(
    broker: RoquetBroker, clients: JavaClients, kind: str, request: pytest.FixtureRequest
) -> None:
    client, topic = clients[kind], named("None", kind, request)
    group = f"G-{topic}"
    create_topic(broker, topic, 1)
    produce(client, broker.namesrv, topic)
    client.begin(
        "consume", broker.namesrv, topic, group, 1, SECONDS, "--sql", "number > 20", *OFTEN, *LINGER
    )
    produce(clients["4.9.7-binary"], broker.namesrv, topic, "more ")
    wait_until(
        lambda: progress(broker, topic, group) == 20, "the group behind all that it does not want"
    )
    assert client.lines() == []
    clients["4.9.7-binary"].run(
        "produce", broker.namesrv, topic, 1, *PATIENT, "--property", "number=21"
    ).check()
    assert len(client.finish().check()) == 1


def progress(broker: RoquetBroker, topic: str, group: str) -> int:
    saved = broker.state("consumerOffset")
    return sum(load(saved)["offsetTable"].get(f"{topic}@{group}", {}).values()) if saved else 0


@pytest.mark.parametrize("version", Version)
def test_a_consumer_whose_expression_is_wrong_hears_where_when_it_starts(
    broker: RoquetBroker, version: Version, request: pytest.FixtureRequest
) -> None:
    topic = named("Wrong", version, request)
    create_topic(broker, topic, 1)
    ended = run_driver(
        version, "consume", broker.namesrv, topic, f"G-{topic}", 1, 5, "--sql", "number > > 3"
    )
    assert ended.status != 0
    (failure,) = [line for line in ended.lines if "error" in line]
    assert "CODE: 23" in failure["message"]
    assert "filter expression, position 10: expected a value" in failure["message"]


def test_filters_are_refused_where_they_are_not_allowed(
    name_server: RoquetNameServer, clients: JavaClients
) -> None:
    require_java()
    with RoquetBroker(name_server.address, name="roquet-tags", cluster="tags") as broker:
        create_topic(broker, "Refused", 1)
        ended = run_driver(
            Version.V4, "consume", broker.namesrv, "Refused", "G-Refused", 1, 5, "--sql", SQL
        )
    assert ended.status != 0
    assert any("enablePropertyFilter=true" in line.get("message", "") for line in ended.lines)


# one store, Apache's broker and ours in turn


def test_filters_and_notes_go_from_broker_to_broker(clients: JavaClients, tmp_path: Path) -> None:
    """Each finds the other's filters and notes; a group that comes back goes on with the filter it
    had.
    """
    client, store = clients["4.9.7-json"], tmp_path / "store"
    topic, group = "ToAndFro", "G-ToAndFro"
    with ApacheNameServer() as name_server:
        namesrv = name_server.address

        def consumed(expected: int) -> list[int]:
            words = (
                "consume",
                namesrv,
                topic,
                group,
                expected,
                SECONDS,
                "--sql",
                SQL,
                *OFTEN,
                *LINGER,
            )
            return numbers(client.run(*words).check())

        with ApacheBroker(namesrv, store_dir=store, properties=NOTED) as apaches:
            create_topic(apaches, topic, 1)
            produce(client, namesrv, topic)
            assert consumed(4) == WANTED
            produce(client, namesrv, topic)
            apaches.stop()
        theirs = saved_filter(store, topic, group)
        assert theirs["dead"] is True
        with RoquetBroker(
            namesrv, name="broker-a", cluster="DefaultCluster", store_dir=store, properties=NOTED
        ) as ours:
            assert consumed(4) == WANTED
            produce(client, namesrv, topic)
            ours.stop()
        mine = saved_filter(store, topic, group)
        same = (
            "bloomFilterData",
            "bornTime",
            "consumerGroup",
            "expression",
            "expressionType",
            "topic",
        )
        assert [mine[name] for name in same] == [theirs[name] for name in same]
        assert (mine["dead"], mine["clientVersion"] > theirs["clientVersion"]) == (True, True)
        with ApacheBroker(namesrv, store_dir=store, properties=NOTED) as apaches:
            assert consumed(4) == WANTED
            apaches.stop()
        assert saved_filter(store, topic, group)["bornTime"] == theirs["bornTime"]


def saved_filter(store: Path, topic: str, group: str) -> dict[str, Any]:
    table = load((store / "config" / "consumerFilter.json").read_bytes())
    data: dict[str, Any] = table["filterDataByTopic"][topic]["groupFilterData"][group]
    return data


# our clients at Apache's broker


@pytest.fixture(scope="module")
def apaches() -> Iterator[ApacheBroker]:
    require_java()
    with (
        ApacheNameServer() as name_server,
        ApacheBroker(name_server.address, properties=NOTED) as server,
    ):
        yield server


async def test_our_consumer_at_apaches_broker(apaches: ApacheBroker, clients: JavaClients) -> None:
    create_topic(apaches, "Ours", 1)
    await asyncio.to_thread(produce, clients["4.9.7-json"], apaches.namesrv, "Ours")
    got: list[int] = []
    async with (
        asyncio.timeout(SECONDS),
        Consumer(apaches.namesrv, "G-Ours", {"Ours": Sql(SQL)}, "earliest") as consumer,
    ):
        async for message in consumer:
            got.append(int(message.body))
            message.ack()
            if len(got) == 4:
                await asyncio.to_thread(produce, clients["4.9.7-json"], apaches.namesrv, "Ours")
            if len(got) == 8:
                break
    assert got == WANTED * 2


async def test_our_single_pulls_at_apaches_broker(
    apaches: ApacheBroker, clients: JavaClients
) -> None:
    create_topic(apaches, "Single", 1)
    await asyncio.to_thread(produce, clients["4.9.7-json"], apaches.namesrv, "Single")
    async with PullConsumer(apaches.namesrv) as reader:
        (queue,) = await reader.queues("Single")
        answer = await reader.pull(queue, 0, tags=Sql(SQL))
        assert [int(message.body) for message in answer.messages] == WANTED
        with pytest.raises(ResponseError) as refused:
            await reader.pull(queue, 0, tags=Sql("number > > 3"))
        assert refused.value.code == 23


async def test_our_consumer_does_not_start_with_a_wrong_expression(apaches: ApacheBroker) -> None:
    create_topic(apaches, "NotStarted", 1)
    consumer = Consumer(apaches.namesrv, "G-NotStarted", {"NotStarted": Sql("number > > 3")})
    with pytest.raises(ResponseError) as refused:
        await consumer.__aenter__()
    assert refused.value.code == 23
