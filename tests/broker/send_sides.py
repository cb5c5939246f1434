"""The send path of one broker, with and without its shortcut, and requests for it."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Sequence
from dataclasses import astuple
from itertools import cycle
from pathlib import Path

from roquet.broker.config.broker import BrokerConfig
from roquet.broker.config.store import FlushDisk, StoreSettings
from roquet.broker.delay.stamp_clock import StampClock
from roquet.broker.delivery.ack_gate import AckGate
from roquet.broker.delivery.end_of_turn import EndOfTurn
from roquet.broker.delivery.write_gate import WriteGate
from roquet.broker.handlers.fastpath.send import FastSend
from roquet.broker.handlers.send import SendHandler
from roquet.broker.handlers.send_context import SendContext
from roquet.broker.metadata.groups import GroupRegistry
from roquet.broker.metadata.topics import TopicRegistry, topics_at_start
from roquet.broker.offsets.consumer_offsets import ConsumerOffsets
from roquet.broker.transactions.half_messages import HalfMessages
from roquet.common.runtime import Runtime
from roquet.protocol.headers.send import SendHeader, SendHeaderV2
from roquet.protocol.records.batch import batch_item
from roquet.protocol.records.message import join_properties
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import JSON, Command
from roquet.storage.config import StoreConfig
from roquet.storage.files.disk import Disk
from roquet.storage.store import Store
from roquet.transport.connection import Connection
from roquet.transport.handling import Answer, FastPathMakers
from roquet.transport.slices import Slices
from tests.transport.stub_transport import StubPeer

NOW_MS = 1_700_000_000_000
WAITING_MAX = 100
SEND_CONFIG = BrokerConfig(
    broker_cluster_name="C", store=StoreSettings(message_delay_level="1s 5s")
)


class Side:
    """One broker's send path on one connection, with or without learning.

    :param also: fast paths that are tried after that of sends.
    :param flush: whether answers, at most `WAITING_MAX`, wait for a flush, which never comes.
    """

    def __init__(
        self,
        folder: Path,
        *,
        learns: bool,
        entries_per_file: int = 1000,
        disk: Disk | None = None,
        also: FastPathMakers[Connection] | None = None,
        send_config: BrokerConfig = SEND_CONFIG,
        flush: bool = False,
    ) -> None:
        config = StoreConfig(
            folder,
            [folder / "commitlog"],
            1 << 20,
            20 * entries_per_file,
            index_enabled=False,
            store_host=bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F]),
        )
        self.store = Store(config, lambda: NOW_MS, disk)
        self.store.open()
        self.topics = TopicRegistry(topics_at_start("C", "b"), lambda: NOW_MS)
        self.groups = GroupRegistry(lambda: NOW_MS)
        flush_type = FlushDisk.SYNC_FLUSH if flush else FlushDisk.ASYNC_FLUSH
        broker_config = BrokerConfig(
            waiting_sends_max=WAITING_MAX, store=StoreSettings(flush_disk_type=flush_type)
        )
        self.ack_gate = AckGate(broker_config, self.store.log, None, lambda: 0.0)
        self.write_gate = gate = WriteGate()
        turn, levels = EndOfTurn(self.store.end_turn), send_config.delay_levels
        now_ms, chance = lambda: NOW_MS, random.Random(1)
        clock = StampClock(Runtime(now_ms, chance, lambda: 0.0))
        self.send_context = SendContext(
            send_config,
            self.store,
            self.topics,
            self.groups,
            gate,
            self.ack_gate,
            turn,
            now_ms,
            chance,
        )
        sends = SendHandler(
            self.send_context,
            HalfMessages(self.store, gate, self.topics, ConsumerOffsets(), turn, clock, levels),
            Slices(),
        )
        self.sent_slowly = 0
        """Sends that took the slow path."""

        def send(request: Command, connection: Connection) -> Answer:
            self.sent_slowly += 1
            return sends.send(request, connection)

        self.connection = Connection(
            dict.fromkeys(sends.handlers(), send),
            fast_paths={FastSend: sends.fast_path, **(also or {})} if learns else {},
        )
        self._peer = StubPeer(self.connection)

    def take(self, *frames: bytes) -> list[bytes]:
        """The answers to frames that come in one read; none if they break the protocol."""
        return self._peer.ask(*frames)

    def log_bytes(self) -> bytes:
        return bytes(self.store.log.read(self.store.log.start, 1 << 20))

    def entries(self) -> list[tuple[str, int, list[tuple[int, int, int]]]]:
        """Everything in all consume queues."""
        return [
            (queue.topic, queue.queue_id, list(queue.entries(0, 1000)))
            for queue in self.store.queues
        ]

    @property
    def templates(self) -> int:
        known = self.connection.fast_paths.get(FastSend)
        assert known is not None
        return len(known._templates)


def send_frame(
    opaque: int,
    queue_id: int,
    properties: dict[str, str],
    body: bytes = b"body",
    *,
    topic: str = "TopicTest",
    header_type: int = JSON,
    code: int = RequestCode.SEND_MESSAGE_V2,
    born_ms: int = NOW_MS,
    sys_flag: int = 0,
    flag: int = 0,
    reconsume_times: int = 0,
) -> bytes:
    """:param flag: of the request, which may be one-way."""
    kind = SendHeader if code == RequestCode.SEND_MESSAGE else SendHeaderV2
    header = kind(
        "group",
        topic,
        queue_id,
        sys_flag,
        born_ms,
        0,
        properties=join_properties(properties),
        reconsume_times=reconsume_times,
    )
    command = Command(
        code, header.write(), body, opaque, flag, header_type=header_type, language="JAVA"
    )
    return command.encode()[4:]


def batch_frame(
    opaque: int,
    messages: list[tuple[bytes, dict[str, str]]],
    *,
    topic: str = "TopicTest",
    batch_key: str = "",
    header_type: int = JSON,
) -> bytes:
    """A batch; clients of 5.x give it a unique key of its own."""
    shared = {"UNIQ_KEY": batch_key, "WAIT": "true"} if batch_key else {"WAIT": "true"}
    header = SendHeaderV2(
        "group", topic, 1, 0, NOW_MS, 0, properties=join_properties(shared), batch=True
    )
    body = b"".join(
        batch_item(0, body, join_properties(pairs).encode()) for body, pairs in messages
    )
    command = Command(
        RequestCode.SEND_BATCH_MESSAGE, header.write(), body, opaque, header_type=header_type
    )
    return command.encode()[4:]


def counted(store: Store) -> tuple[int, list[tuple[str, tuple[int, int]]]]:
    """Messages in all, and messages and bytes by topic, of delayed ones by level."""
    return store.writer.stored, sorted(
        (topic, astuple(appended)) for topic, appended in store.queues.appended()
    )


def assert_same_store(one: Side, other: Side) -> None:
    assert one.log_bytes() == other.log_bytes()
    assert counted(one.store) == counted(other.store)
    assert one.entries() == other.entries()


def run_both(frames: list[bytes], reads: Sequence[int] = (1,)) -> tuple[Side, Side]:
    """Give the frames to a side that learns and to one that does not, and compare all they did.

    :param reads: so many frames come at once, again and again.
    """

    async def run(folder: Path) -> tuple[Side, Side]:
        learning, general = Side(folder / "a", learns=True), Side(folder / "b", learns=False)
        at = 0
        for size in cycle(reads):
            if at >= len(frames):
                break
            read, at = frames[at : at + size], at + size
            assert learning.take(*read) == general.take(*read)
        assert_same_store(learning, general)
        learning.store.abandon()
        general.store.abandon()
        return learning, general

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(run(Path(folder)))
