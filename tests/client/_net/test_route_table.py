"""The routes that a client knows: when a name server is asked, and which of its answers count."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import pytest

from roquet.client._net.name_servers import NameServers
from roquet.client._net.route_table import RouteTable
from roquet.client._net.routes import QUEUES_MAX, BrokerAddress, NewTopics
from roquet.client._net.tasks import Tasks
from roquet.common.runtime import Runtime
from roquet.errors import ConnectionClosed, PeerError, ResponseError, RouteNotFound
from roquet.protocol.bodies.tables import BrokerData, QueueData, Route
from roquet.protocol.json.dialect import dump_bytes, dump_dialect
from roquet.protocol.records.message import DEFAULT_TOPIC
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command


def route(*names: str, queues: int = 4) -> Route:
    return Route(
        tuple(BrokerData("C", name, {0: f"{name}:1", 1: f"{name}:2"}) for name in names),
        tuple(QueueData(name, queues, queues, 6) for name in names),
    )


A: Final = route("a")
B: Final = route("b")


class Names:
    """A name server that has `routes` and the table of a client that asks it.

    `answers` are bodies that it gives instead; `failure` is what a call raises.
    """

    def __init__(self) -> None:
        self.routes: dict[str, Route] = {}
        self.answers: dict[str, bytes] = {}
        self.failure: Exception | None = None
        self.asked: list[str] = []
        self.tasks = Tasks()
        self.table = RouteTable(NameServers(["names:1"], self._call, Runtime().random), self.tasks)

    async def _call(self, address: str, request: Command, timeout_ms: int) -> Command:
        topic = request.fields.get("topic", "")
        self.asked.append(topic)
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        if request.code == RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
            return request.answer(0, body=dump_bytes({"topicList": [*self.routes]}))
        if topic in self.answers:
            return request.answer(0, body=self.answers[topic])
        if topic not in self.routes:
            return request.answer(ResponseCode.TOPIC_NOT_EXIST, "no route")
        return request.answer(0, body=dump_dialect(self.routes[topic].to_json()))


@pytest.fixture
async def names() -> AsyncIterator[Names]:
    names = Names()
    names.routes["T"] = A
    yield names
    await names.tasks.close()


async def test_a_route_is_asked_for_once(names: Names) -> None:
    assert await names.table.route("T") == A
    assert await names.table.route("T") is await names.table.route("T")
    assert names.asked == ["T"]


async def test_those_who_ask_at_the_same_time_share_one_request(names: Names) -> None:
    found = await asyncio.gather(*(names.table.refresh("T") for _ in range(5)))

    assert found == [A] * 5
    assert names.asked == ["T"]


async def test_who_asks_after_an_answer_causes_another_request(names: Names) -> None:
    await names.table.refresh("T")
    names.routes["T"] = B

    assert await names.table.refresh("T") == B
    assert names.asked == ["T", "T"]


async def test_a_route_stays_known_although_the_name_server_has_lost_it(names: Names) -> None:
    await names.table.refresh("T")
    names.routes.clear()

    assert await names.table.refresh("T") == A


async def test_only_a_change_is_told_of(names: Names) -> None:
    changes: list[bool] = []
    for present in (A, A, B):
        names.routes["T"] = present
        names.table.changed.clear()
        await names.table.refresh("T")
        changes.append(names.table.changed.is_set())

    assert changes == [True, False, True]


async def test_a_topic_that_no_broker_has_is_named_with_who_was_asked(names: Names) -> None:
    with pytest.raises(RouteNotFound, match=r"topic none \(name servers asked: names:1\)"):
        await names.table.route("none")


# topics that do not exist yet


async def test_a_topic_that_a_broker_has_just_created_is_found_when_it_is_registered(
    names: Names,
) -> None:
    asking = asyncio.create_task(names.table.refresh_created("topic"))
    async with asyncio.timeout(10):
        while len(names.asked) < 2:
            await asyncio.sleep(0.001)
    names.routes["topic"] = A

    assert await asking == A
    assert set(names.asked) == {"topic"}


async def test_a_topic_that_is_never_registered_is_told_after_a_few_requests(
    names: Names,
) -> None:
    with pytest.raises(RouteNotFound, match="no broker has topic topic"):
        await names.table.refresh_created("topic")

    assert 2 < len(names.asked) < 10


async def test_an_unknown_topic_is_sent_to_where_it_will_be_created(names: Names) -> None:
    names.routes[DEFAULT_TOPIC] = B

    assert names.table.known_publish_route("new") is None
    found = await names.table.publish_route("new")

    assert [broker.broker_name for broker in found.brokers] == ["b"]
    assert names.table.known_publish_route("new") is found
    assert await names.table.publish_route("new") is found
    assert names.asked == ["new", DEFAULT_TOPIC]
    with pytest.raises(RouteNotFound):
        await names.table.route("new")


async def test_each_producer_has_its_own_expectation_of_a_new_topic(names: Names) -> None:
    names.routes[DEFAULT_TOPIC] = B
    names.routes["template"] = A

    own = NewTopics("template", 1)
    found = await names.table.publish_route("new", own)
    usual = await names.table.publish_route("new")

    assert [broker.broker_name for broker in found.brokers] == ["a"]
    assert [broker.broker_name for broker in usual.brokers] == ["b"]
    assert names.table.known_publish_route("new", own) is found
    assert names.table.known_publish_route("new") is usual
    assert names.table.addresses() >= {BrokerAddress(0, "a:1")}


async def test_without_a_default_topic_an_unknown_one_cannot_be_sent_to(names: Names) -> None:
    with pytest.raises(RouteNotFound, match="topic new"):
        await names.table.publish_route("new")
    assert names.table.known_publish_route("new") is None


async def test_the_route_of_a_created_topic_takes_the_place_of_that(names: Names) -> None:
    names.routes[DEFAULT_TOPIC] = B
    await names.table.publish_route("new")
    names.routes["new"] = A

    await names.table.refresh_all()

    assert names.table.known_publish_route("new") == A
    assert names.table.addresses() == {BrokerAddress(0, "a:1"), BrokerAddress(1, "a:2")}


# refreshing


async def test_all_known_routes_are_refreshed(names: Names) -> None:
    names.routes["U"] = A
    for topic in ("T", "U"):
        await names.table.route(topic)
    names.routes = {"T": B, "U": B}

    await names.table.refresh_all()

    assert [await names.table.route(topic) for topic in ("T", "U")] == [B, B]
    assert names.table.addresses() == {BrokerAddress(0, "b:1"), BrokerAddress(1, "b:2")}


async def test_an_unusable_route_keeps_none_of_the_others_from_being_refreshed(
    names: Names,
) -> None:
    names.routes["U"] = A
    for topic in ("T", "U"):
        await names.table.route(topic)
    names.routes = {"T": route("b", queues=QUEUES_MAX + 1), "U": B}

    with pytest.raises(PeerError, match="the name server's route of T cannot be used"):
        await names.table.refresh_all()

    assert [await names.table.route(topic) for topic in ("T", "U")] == [A, B]


async def test_without_a_name_server_refreshing_stops_at_the_first_route(names: Names) -> None:
    names.routes["U"] = A
    for topic in ("T", "U"):
        await names.table.route(topic)
    names.asked.clear()
    names.failure = ConnectionClosed("down")

    with pytest.raises(ConnectionClosed):
        await names.table.refresh_all()

    assert names.asked == ["T"]


async def test_a_refresh_in_the_background_is_one_at_a_time(names: Names) -> None:
    names.failure = ConnectionClosed("down")
    assert len({names.table.refresh_soon("T") for _ in range(3)}) == 1
    await names.tasks.finish(1)
    names.failure = None
    names.table.refresh_soon("T")
    await names.tasks.finish(1)

    assert names.asked == ["T", "T"]
    assert names.table.known_publish_route("T") == A


async def test_a_refresh_that_fails_again_and_again_is_logged_once_and_once_when_it_works(
    names: Names, caplog: pytest.LogCaptureFixture
) -> None:
    for failure in (PeerError("no route"), PeerError("no route"), None, None):
        names.failure = failure
        names.table.refresh_soon("T")
        await names.tasks.finish(1)

    assert [record.getMessage() for record in caplog.records] == [
        "route not refreshed: topic=T error=no route",
        "route refreshed again: topic=T",
    ]


# answers


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"brokerDatas":7}'])
async def test_an_answer_that_is_no_route_is_the_name_servers_fault(
    names: Names, body: bytes
) -> None:
    names.answers["T"] = body

    with pytest.raises(PeerError, match="the name server's route of T cannot be read: "):
        await names.table.route("T")


async def test_a_route_in_a_form_that_no_name_server_writes_is_refused_before_it_takes_seconds(
    names: Names,
) -> None:
    names.answers["T"] = b"{'brokerDatas':[" + b"{}," * 100_000 + b"{}]}"

    with pytest.raises(PeerError, match="not standard JSON, and more than"):
        await names.table.route("T")


async def test_the_loop_turns_while_a_large_route_is_read(names: Names) -> None:
    large = names.routes["T"] = route(*(f"broker-{at}" for at in range(3000)))
    reading, turns = asyncio.create_task(names.table.route("T")), 0

    while not reading.done():
        await asyncio.sleep(0)
        turns += 1

    assert await reading == large
    assert turns > 20


async def test_another_code_is_an_error_of_the_name_server() -> None:
    names = Names()

    async def refuse(address: str, request: Command, timeout_ms: int) -> Command:
        return request.answer(ResponseCode.SYSTEM_ERROR, "busy")

    table = RouteTable(NameServers(["names:1"], refuse, Runtime().random), names.tasks)

    with pytest.raises(ResponseError, match="the name server answered code 1: busy"):
        await table.route("T")


async def test_topics_are_those_that_the_name_server_lists(names: Names) -> None:
    names.routes["U"] = A

    assert await names.table.topics() == ["T", "U"]
