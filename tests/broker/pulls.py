"""The pull path of one broker on one connection, over a store full of messages."""

from __future__ import annotations

import random
from pathlib import Path

from roquet.broker.config.broker import BrokerConfig
from roquet.broker.delivery.end_of_turn import EndOfTurn
from roquet.broker.delivery.long_polls import LongPolls
from roquet.broker.delivery.read_balance import ReadBalance
from roquet.broker.delivery.write_gate import WriteGate
from roquet.broker.handlers.fastpath.pull import FastPull
from roquet.broker.handlers.pull import PullHandler
from roquet.broker.metadata.filter_registry import FilterRegistry
from roquet.broker.metadata.groups import GroupRegistry
from roquet.broker.metadata.members import ConnectedClient, Consumers
from roquet.broker.metadata.topics import TopicRegistry, topics_at_start
from roquet.broker.metrics.traffic import Traffic
from roquet.broker.offsets.consumer_offsets import ConsumerOffsets
from roquet.broker.offsets.moved_event import OffsetMovedEvents
from roquet.protocol.bodies.tables import ConsumerData, Subscription, TopicConfig
from roquet.protocol.filters.bloom import BloomShape
from roquet.protocol.filters.tags import TAG
from roquet.protocol.headers.pull import PullHeader
from roquet.protocol.records.message import Permission, tag_code
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import JSON, Command
from roquet.storage.config import StoreConfig
from roquet.storage.fetch import FetchLimits
from roquet.storage.store import Store
from roquet.transport.connection import Connection
from tests.simulation.disk import Drive
from tests.storage.records import append_one
from tests.transport.stub_transport import StubPeer

FORBID = 9999
"""A request that makes the topic one that may not be read."""
NOW_MS = 1_700_000_000_000
QUEUES = 12
PER_QUEUE = 120
FIRST_QUEUE_END = 126
"""Messages go to a queue by sevens, so some have a few more than others."""
ON_DISK = 5000
USUAL = PullHeader("group", "T", 0, 0, 32, 3, 0, 15_000, "*", 1, "TAG")


class Side:
    """Invariant: what is further than `ON_DISK` bytes behind the log's end counts as no longer in
    memory.
    """

    def __init__(
        self,
        config: BrokerConfig | None = None,
        *,
        slave_reads: bool = True,
        held_max: int = 1000,
        learns: bool = True,
    ) -> None:
        self.loop_ms = 0.0
        limits = FetchLimits(20_000, size_in_memory=4000, size_on_disk=1500)
        of_store = StoreConfig(
            Path("/s"), [Path("/s/commitlog")], 1 << 16, 20 * 50, index_enabled=False, limits=limits
        )
        self.drive = Drive(random.Random(1))
        self.store = Store(of_store, lambda: NOW_MS, self.drive.mount())
        self.store.open()
        for number in range(QUEUES * PER_QUEUE):
            queue, tag = self.store.queue("T", number // 7 % QUEUES), "ab"[number % 2]
            append_one(
                self.store, queue, b"%d" % number, f"TAGS\x01{tag}".encode(), tag_code=tag_code(tag)
            )
        self.topics = TopicRegistry(topics_at_start("C", "b"), lambda: NOW_MS)
        self.topics.update(TopicConfig("T", QUEUES, QUEUES, Permission.READ | Permission.WRITE))
        self.groups = GroupRegistry(lambda: NOW_MS)
        self.consumers: Consumers[Connection] = Consumers()
        self.offsets = ConsumerOffsets()
        self.long_polls = LongPolls(lambda: self.loop_ms, held_max)
        self.filters = FilterRegistry(BloomShape(), 86_400_000)
        self.traffic = Traffic(lambda: self.loop_ms)
        pulls = PullHandler(
            config or BrokerConfig(),
            self.store,
            self.topics,
            self.groups,
            self.consumers,
            self.offsets,
            ReadBalance(slave_reads=slave_reads, memory_size=ON_DISK),
            self.long_polls,
            self.filters,
            self.traffic,
            OffsetMovedEvents(
                self.store, WriteGate(), EndOfTurn(lambda: None), "b", lambda: NOW_MS
            ),
        )
        self.connection = Connection(
            pulls.handlers() | {FORBID: self._forbid},
            fast_paths={FastPull: pulls.fast_path} if learns else {},
        )
        self._peer = StubPeer(self.connection)
        self.subscribe("*")

    def pull(self, *frames: bytes) -> list[bytes]:
        """The answers to frames that come in one read; none if they break the protocol."""
        return self._peer.ask(*frames)

    def subscribe(self, expression: str, version: int = 1, kind: str = TAG) -> None:
        wanted = (Subscription("T", expression, version, kind),)
        self.filters.register("group", wanted, NOW_MS)
        data = ConsumerData(
            "group", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", wanted
        )
        self.consumers.register(
            self.connection, ConnectedClient("c@1", "JAVA", 399, "10.0.0.9:1", 0), data
        )

    def _forbid(self, request: Command, connection: Connection) -> Command:
        self.forbid_reading()
        return request.answer(ResponseCode.SUCCESS)

    def forbid_reading(self) -> None:
        self.topics.update(TopicConfig("T", QUEUES, QUEUES, Permission.WRITE))

    def held(self) -> list[tuple[int, int]]:
        """Queue and offset of each pull that waits."""
        return [
            (queue.queue_id, pull.offset)
            for queue in self.store.queues
            for pull in self.long_polls.queues.get(queue, ())
        ]

    def templates(self) -> int:
        known = self.connection.fast_paths.get(FastPull)
        assert known is not None
        return len(known._templates)


def pull_frame(
    opaque: int, header: PullHeader, header_type: int = JSON, code: int = RequestCode.PULL_MESSAGE
) -> bytes:
    return Command(
        code, header.write(), b"", opaque, header_type=header_type, language="JAVA"
    ).encode()[4:]
