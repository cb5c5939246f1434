"""A name server and brokers that hold what a test puts into them, on loopback, in a thread of their
own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from roquet.protocol.bodies.tables import BrokerData, QueueData, Route
from roquet.protocol.headers.offsets import QueueHeader
from roquet.protocol.headers.pull import PullHeader
from roquet.protocol.headers.route import RouteHeader
from roquet.protocol.json.dialect import dump_ascii, dump_bytes
from roquet.protocol.records.record import Record, host_bytes
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import Connection
from roquet.transport.handling import Answer
from roquet.transport.server import Server

T = TypeVar("T")
Queues = dict[tuple[str, int], list[Record]]
"""Topic and queue id -> its records, with consecutive queue offsets."""


def record(queue_id: int, offset: int, body: bytes = b"body", **changes: Any) -> Record:
    fields: dict[str, Any] = {
        "queue_id": queue_id,
        "flag": 0,
        "queue_offset": offset,
        "physical_offset": (offset * 1000),
        "sys_flag": 0,
        "born_ms": 1_700_000_000_123,
        "born_host": host_bytes("10.0.0.9", 50000),
        "store_ms": 1_700_000_000_456,
        "store_host": host_bytes("10.0.0.1", 10911),
        "reconsume_times": 0,
        "prepared_offset": 0,
        "body": body,
        "topic": "orders",
        "properties_text": f"TAGS\x01T{offset % 3}\x02KEYS\x01k{offset}\x02UNIQ_KEY\x01U{queue_id}-{offset}",
    }
    return Record(**(fields | changes))


class Broker:
    """One process of a broker. Its queues may be changed while it runs, and it can be told to
    die.
    """

    def __init__(self, broker_id: int, queues: Queues, name: str = "broker-a") -> None:
        self.broker_id = broker_id
        self.name = name
        self.queues = queues
        self.read_queues: int | None = None
        self.dies_after_pulls: int | None = None
        self.pulls = 0
        self.bounds_asked: list[Callable[[], None]] = []
        """Each is done, once, when the bounds of a queue are asked for."""
        self.commits: list[Mapping[str, str]] = []
        """The fields of all requests to commit an offset, as they came."""
        self.refuses_commits = False
        self._server = Server(
            {
                RequestCode.PULL_MESSAGE: self._pull,
                RequestCode.GET_MIN_OFFSET: lambda request, _: self._bound(request, 0),
                RequestCode.GET_MAX_OFFSET: lambda request, _: self._bound(request, 1),
                RequestCode.UPDATE_CONSUMER_OFFSET: self._commit,
            }
        )

    async def listen(self) -> str:
        return f"127.0.0.1:{await self._server.listen('127.0.0.1', 0)}"

    def queues_of(self, topic: str) -> int:
        """How many may be read: all, unless `read_queues` says otherwise."""
        return len(
            [queue_id for each, queue_id in self.queues if each == topic][: self.read_queues]
        )

    def die(self) -> None:
        self._server.stop_accepting()
        for connection in list(self._server.connections):
            connection.abort()

    async def close(self) -> None:
        await self._server.close()

    def _bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        records = self.queues.get((topic, queue_id), [])
        return (records[0].queue_offset, records[-1].queue_offset + 1) if records else (-1, 0)

    def _bound(self, request: Command, which: int) -> Answer:
        header = QueueHeader.read(request.fields)
        if self.bounds_asked:
            self.bounds_asked.pop()()
        return request.answer(
            0, fields={"offset": self._bounds(header.topic, header.queue_id)[which]}
        )

    def _commit(self, request: Command, _: Connection) -> Answer:
        self.commits.append(request.fields)
        if self.refuses_commits:
            return request.answer(ResponseCode.SYSTEM_ERROR, "commits are refused")
        return request.answer(0)

    def _pull(self, request: Command, _: Connection) -> Answer:
        header = PullHeader.read(request.fields)
        self.pulls += 1
        if self.dies_after_pulls is not None and self.pulls > self.dies_after_pulls:
            self.die()
            return None
        records = self.queues[header.topic, header.queue_id]
        first, end = self._bounds(header.topic, header.queue_id)
        at = header.queue_offset
        found = (
            [each for each in records if at <= each.queue_offset][: header.max_msg_nums]
            if at >= first
            else []
        )
        code, following = ResponseCode.SUCCESS, at + len(found)
        if not found:
            code, following = (ResponseCode.PULL_OFFSET_MOVED, first if at < first else end)
            if at == end or self.broker_id:
                code, following = ResponseCode.PULL_NOT_FOUND, at
        fields = {
            "suggestWhichBrokerId": 0,
            "nextBeginOffset": following,
            "minOffset": max(first, 0),
            "maxOffset": end,
        }
        return request.answer(code, fields=fields, body=b"".join(each.encode() for each in found))


class StandIn:
    """A cluster of the brokers given; the name server lists those in `listed`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, brokers: Sequence[Broker]) -> None:
        self._loop = loop
        self.brokers = brokers
        self.listed = list(brokers)
        self.routes_asked: list[Callable[[], None]] = []
        """Each is done, once, after a route was asked for and answered."""
        self.name_server = ""
        self._addresses: dict[Broker, str] = {}
        self._server = Server(
            {
                RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
                RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._topics,
                RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._own_topics,
            }
        )

    async def start(self) -> None:
        self._addresses = {broker: await broker.listen() for broker in self.brokers}
        self.name_server = f"127.0.0.1:{await self._server.listen('127.0.0.1', 0)}"

    async def close(self) -> None:
        await self._server.close()
        for broker in self.brokers:
            await broker.close()
        await asyncio.sleep(0)

    def do(self, work: Callable[[], T]) -> T:
        """Do something to a broker, in the thread where it runs."""

        async def done() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result()

    def _topics(self, request: Command, _: Connection) -> Answer:
        own = [
            "broker-a",
            "DefaultCluster",
            "DefaultCluster_REPLY_TOPIC",
            "SCHEDULE_TOPIC_XXXX",
            "TBW102",
        ]
        names = sorted({topic for broker in self.listed for topic, _ in broker.queues} | set(own))
        return request.answer(0, body=dump_bytes({"topicList": names}))

    def _own_topics(self, request: Command, _: Connection) -> Answer:
        return request.answer(0, body=dump_bytes({"topicList": ["DefaultCluster", "broker-a"]}))

    def _route(self, request: Command, _: Connection) -> Answer:
        topic = RouteHeader.read(request.fields).topic
        addresses: dict[str, dict[int, str]] = {}
        counts: dict[str, int] = {}
        for broker in self.listed:
            if count := broker.queues_of(topic):
                addresses.setdefault(broker.name, {})[broker.broker_id] = self._addresses[broker]
                counts[broker.name] = count
        if self.routes_asked:
            self.routes_asked.pop()()
        if not counts:
            return request.answer(ResponseCode.TOPIC_NOT_EXIST, f"no topic {topic}")
        route = Route(
            tuple(BrokerData("DefaultCluster", name, found) for name, found in addresses.items()),
            tuple(QueueData(name, count, count, 6) for name, count in counts.items()),
        )
        return request.answer(0, body=dump_ascii(route.to_json()))


@contextmanager
def cluster(*brokers: Broker) -> Iterator[StandIn]:
    """A running stand-in."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run(work: Awaitable[None]) -> None:
        async def done() -> None:
            await work

        asyncio.run_coroutine_threadsafe(done(), loop).result()

    stand_in = StandIn(loop, brokers)
    try:
        run(stand_in.start())
        yield stand_in
    finally:
        run(stand_in.close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
