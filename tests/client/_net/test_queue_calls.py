"""Offsets of queues and of groups: who is asked, what is sent, and what counts as an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Final

import pytest

from roquet.client._net.broker_calls import BrokerCalls
from roquet.client._net.name_servers import NameServers
from roquet.client._net.queue_calls import (
    QueueCalls,
    checked_header,
    response_header,
    stored_offsets,
)
from roquet.client._net.route_table import RouteTable
from roquet.client._net.routes import BrokerAddress
from roquet.client._net.tasks import Tasks
from roquet.common.runtime import Runtime
from roquet.errors import ConnectionClosed, PeerError, ResponseError
from roquet.protocol.bodies.tables import BrokerData, QueueData, Route
from roquet.protocol.headers.offsets import OffsetAnswer
from roquet.protocol.json.dialect import dump_ascii
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command

QUEUE: Final = MessageQueue("T", "broker-a", 1)
PLACE: Final = {"topic": "T", "queueId": "1", "bname": "broker-a"}
MASTER: Final = BrokerAddress(0, "master:1")
SLAVE: Final = BrokerAddress(1, "slave:1")


class Broker:
    """A master and a slave, which give each request the same answer.

    `down` are the addresses that cannot be reached; `waits` holds answers up until it is set.
    """

    def __init__(self) -> None:
        self.code: int = ResponseCode.SUCCESS
        self.fields: dict[str, str] = {"offset": "7"}
        self.down: set[str] = set()
        self.asked: list[tuple[str, Command]] = []
        self.waits = asyncio.Event()
        self.waits.set()
        self.tasks = Tasks()
        routes = RouteTable(NameServers(["names:1"], self._route, Runtime().random), self.tasks)
        self.calls = QueueCalls(self._call, BrokerCalls(self._call, self._call_all, routes))

    async def _route(self, address: str, request: Command, timeout_ms: int) -> Command:
        names = ("broker-a", "broker-b")
        addresses = {at.broker_id: at.address for at in (MASTER, SLAVE)}
        brokers = tuple(BrokerData("C", name, addresses) for name in names)
        queues = tuple(QueueData(name, 4, 4, 6) for name in names)
        return request.answer(0, body=dump_ascii(Route(brokers, queues).to_json()))

    async def _call(self, address: str, request: Command, timeout_ms: int) -> Command:
        self.asked.append((address, request))
        await self.waits.wait()
        if address in self.down:
            raise ConnectionClosed(f"{address} is down")
        return request.answer(self.code, "scripted", self.fields)

    async def _call_all(self, address: str, requests: object, timeout_ms: int) -> list[Command]:
        raise AssertionError("queue calls send one request each")

    def sent(self) -> list[str]:
        """The offsets of the commits that came so far."""
        return [request.fields["commitOffset"] for _, request in self.asked]


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    broker = Broker()
    yield broker
    await broker.tasks.close()


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_the_bounds_of_a_queue_are_the_masters(broker: Broker) -> None:
    assert await broker.calls.min_offset(QUEUE, 1000) == 7
    assert await broker.calls.max_offset(QUEUE, 1000) == 7
    assert [(at, request.code, request.fields) for at, request in broker.asked] == [
        ("master:1", RequestCode.GET_MIN_OFFSET, PLACE),
        ("master:1", RequestCode.GET_MAX_OFFSET, PLACE),
    ]


async def test_an_offset_is_searched_by_its_time(broker: Broker) -> None:
    assert await broker.calls.offset_at(QUEUE, 1_700_000_000_000, 1000) == 7
    ((_, request),) = broker.asked
    assert request.code == RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    assert request.fields == {**PLACE, "timestamp": "1700000000000"}


async def test_the_slave_is_asked_while_the_master_is_down(broker: Broker) -> None:
    broker.down = {"master:1"}

    assert await broker.calls.max_offset(QUEUE, 1000) == 7
    assert [at for at, _ in broker.asked] == ["master:1", "slave:1"]


async def test_others_may_be_asked_than_those_that_are_read_from(broker: Broker) -> None:
    assert await broker.calls.min_offset(QUEUE, 1000, lambda *_: [SLAVE]) == 7
    assert await broker.calls.max_offset(QUEUE, 1000, lambda *_: [SLAVE]) == 7
    assert [at for at, _ in broker.asked] == ["slave:1", "slave:1"]


async def test_a_refusal_and_an_answer_without_an_offset_are_errors(broker: Broker) -> None:
    calls = broker.calls
    asks: list[Callable[[], Awaitable[object]]] = [
        partial(calls.min_offset, QUEUE, 1000),
        partial(calls.max_offset, QUEUE, 1000),
        partial(calls.offset_at, QUEUE, 5, 1000),
        partial(calls.committed, "G", QUEUE, 1000),
    ]
    for ask in asks:
        broker.code, broker.fields = ResponseCode.SUCCESS, {}
        with pytest.raises(PeerError, match="answer of master:1: header field offset is missing"):
            await ask()
        broker.code = ResponseCode.SYSTEM_ERROR
        with pytest.raises(ResponseError, match="master:1 answered code 1: scripted"):
            await ask()


async def test_a_group_has_an_offset_or_none(broker: Broker) -> None:
    assert await broker.calls.committed("G", QUEUE, 1000) == 7
    broker.code = ResponseCode.QUERY_NOT_FOUND
    assert await broker.calls.committed("G", QUEUE, 1000) is None
    assert [request.fields for _, request in broker.asked] == [{**PLACE, "consumerGroup": "G"}] * 2


# commits


async def test_a_commit_says_who_took_it_and_which_offset(broker: Broker) -> None:
    assert await broker.calls.commit("G", QUEUE, lambda: 5, 1000) == (MASTER, 5)
    ((_, request),) = broker.asked
    assert request.code == RequestCode.UPDATE_CONSUMER_OFFSET
    assert request.fields == {**PLACE, "consumerGroup": "G", "commitOffset": "5"}


async def test_each_try_of_a_commit_sends_the_offset_of_its_moment(broker: Broker) -> None:
    broker.down = {"master:1"}
    offsets = iter([5, 9])

    assert await broker.calls.commit("G", QUEUE, lambda: next(offsets), 1000) == (SLAVE, 9)
    assert broker.sent() == ["5", "9"]


async def test_a_refused_commit_is_an_error(broker: Broker) -> None:
    broker.code = ResponseCode.SYSTEM_ERROR

    with pytest.raises(ResponseError):
        await broker.calls.commit("G", QUEUE, lambda: 5, 1000)


async def commits(broker: Broker, *places: tuple[str, str, str]) -> list[asyncio.Task[object]]:
    """Commits of groups at brokers in topics that begin at the same time."""
    tasks: list[asyncio.Task[object]] = [
        asyncio.create_task(
            broker.calls.commit(group, MessageQueue(topic, name, number), lambda: 5, 1000)
        )
        for number, (group, name, topic) in enumerate(places)
    ]
    await turns()
    return tasks


async def test_the_first_commit_of_a_group_in_a_topic_goes_before_the_others(
    broker: Broker,
) -> None:
    broker.waits.clear()
    tasks = await commits(broker, *[("G", "broker-a", "T")] * 3)
    assert len(broker.asked) == 1

    broker.waits.set()
    await asyncio.gather(*tasks)
    assert len(broker.asked) == 3

    broker.waits.clear()
    tasks = await commits(broker, *[("G", "broker-a", "T")] * 3)
    assert len(broker.asked) == 6, "only the first ones wait"
    broker.waits.set()
    await asyncio.gather(*tasks)


async def test_other_groups_brokers_and_topics_do_not_wait_for_it(broker: Broker) -> None:
    broker.waits.clear()
    places = [
        ("G", "broker-a", "T"),
        ("H", "broker-a", "T"),
        ("G", "broker-b", "T"),
        ("G", "broker-a", "U"),
    ]

    tasks = await commits(broker, *places)

    assert len(broker.asked) == 4
    broker.waits.set()
    await asyncio.gather(*tasks)


@pytest.mark.parametrize("ends", ["fails", "is cancelled"])
async def test_a_first_commit_that_ends_otherwise_does_not_hold_up_the_others(
    broker: Broker, ends: str
) -> None:
    broker.waits.clear()
    broker.down = {"master:1", "slave:1"} if ends == "fails" else set()
    first, second = await commits(broker, *[("G", "broker-a", "T")] * 2)

    if ends == "is cancelled":
        first.cancel()
        await turns()
    broker.waits.set()
    outcomes = await asyncio.wait_for(asyncio.gather(first, second, return_exceptions=True), 5)

    if ends == "fails":
        assert [type(outcome) for outcome in outcomes] == [ConnectionClosed] * 2
    else:
        assert isinstance(outcomes[0], asyncio.CancelledError)
        assert outcomes[1] == (MASTER, 5)


# headers of answers


def test_a_header_is_read_from_an_answer_of_an_accepted_code_only() -> None:
    answer = Command(ResponseCode.QUERY_NOT_FOUND, {"offset": "7"}, remark="none")

    assert response_header(OffsetAnswer, answer, "b:1") == OffsetAnswer(7)
    codes = (ResponseCode.QUERY_NOT_FOUND,)
    assert checked_header(OffsetAnswer, answer, "b:1", codes) == OffsetAnswer(7)
    with pytest.raises(ResponseError, match="b:1 answered code 22: none"):
        checked_header(OffsetAnswer, answer, "b:1")


@pytest.mark.parametrize("fields", [{}, {"offset": "x"}, {"offset": str(2**63)}])
def test_a_header_that_cannot_be_read_breaks_the_protocol(fields: dict[str, str]) -> None:
    with pytest.raises(PeerError, match="answer of b:1: header field offset"):
        response_header(OffsetAnswer, Command(0, fields), "b:1")


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b'{"offsetTable":{"T@G":{0:5,1:0}}}', {0: 5, 1: 0}),
        (b'{"offsetTable": {"T@GG": {"0": 9}, "T@G": {"0": 5}}}', {0: 5}),
        (b'{"offsetTable":{"TT@G":{0:5},"T@GG":{0:6},"%RETRY%G@G":{0:7}}}', {}),
        (b'{"dataVersion":{"counter":1},"offsetTable":{}}', {}),
        (b'{"offsetTable":{"T@G":{}}}', {}),
    ],
)
def test_one_entry_is_read_of_a_table_of_offsets(body: bytes, found: dict[int, int]) -> None:
    assert stored_offsets(body, "G", "T") == found


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"offsetTable":{"T@G":{0:}}}'])
def test_what_is_no_table_of_offsets_is_an_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        stored_offsets(body, "G", "T")
