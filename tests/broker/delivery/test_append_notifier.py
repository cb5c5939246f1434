"""Who is told of new records, and how far: as far as a reader may see them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import pytest

from roquet.broker.config.broker import BrokerConfig
from roquet.broker.config.store import FlushDisk, StoreSettings
from roquet.broker.delivery.ack_gate import AckGate
from roquet.broker.delivery.append_notifier import AppendNotifier
from roquet.broker.delivery.long_polls import LongPolls
from roquet.protocol.remoting.command import Command
from roquet.replication.client import HaClient
from roquet.replication.log import VisibleLog
from roquet.replication.server import HaServer
from roquet.replication.slave import Phase
from roquet.storage.store import Store
from roquet.transport.connection import Connection
from tests.replication.memory_log import MemoryLog
from tests.simulation.simulation import Simulation
from tests.storage.records import append_one
from tests.storage.small_stores import config
from tests.transport.stub_transport import StubTransport

T = TypeVar("T")

ADDRESS: Final = "10.0.0.1"
HA_PORT: Final = 10912
AT_ONCE_S: Final = 0.1
"""Much less than the time after which a master looks at its log by itself."""
ANSWER: Final = Command(0).encode()


class Master:
    """A master's store with the parts that its notifier tells, and a slave that copies its log.

    Queue 0 has a record, which everybody has seen.

    :param settings: of the store.
    """

    def __init__(self, sim: Simulation, *, syncs: bool = False, **settings: object) -> None:
        self.sim = sim
        self.host = sim.host(ADDRESS)
        self.host.boot()
        self.long_polls = LongPolls(lambda: sim.now_s * 1000, 10)
        self.store = Store(
            config(Path("/store"), **settings),
            self.host.now_ms,
            self.host.disk,
            watched=self.long_polls.queues,
        )
        self.store.open()
        flush = FlushDisk.SYNC_FLUSH if syncs else FlushDisk.ASYNC_FLUSH
        broker_config = BrokerConfig(store=StoreSettings(flush_disk_type=flush))
        self.ack_gate = AckGate(broker_config, self.store.log, None, lambda: sim.now_s * 1000)
        self.ha_server = HaServer(VisibleLog(self.store))
        self.notifier = AppendNotifier(
            self.store, self.long_polls, self.ack_gate, self.ha_server, syncs=syncs
        )
        self.fetches: list[int] = []
        """The queue ids of held pulls that looked for records."""
        self.copy = MemoryLog(self.store.log.file_size)
        self.append()
        self.flush()
        self.do(self.notifier.visible_end_grew)
        self._follow()

    def _follow(self) -> None:
        self.host.call(lambda: self.ha_server.listen("0.0.0.0", HA_PORT))
        slave = HaClient(self.copy, lambda: None)

        async def follow() -> None:
            slave.set_master(f"{ADDRESS}:{HA_PORT}")

        self.sim.host("10.0.0.2").call(follow)
        self.sim.run_until(lambda: slave.phase is Phase.FOLLOWING, 10)
        assert self.is_copied

    def do(self, work: Callable[[], T]) -> T:
        """Do something inside the master's process."""

        async def inside() -> T:
            return work()

        return self.host.call(inside)

    def append(self, queue_id: int = 0) -> None:
        self.do(lambda: append_one(self.store, self.store.queue("T", queue_id), b"body"))
        self.do(self.store.end_turn)

    def flush(self) -> None:
        log = self.store.log
        self.do(log.sync_work(log.end))
        log.synced(log.end)

    def hold_pull(self, queue_id: int) -> None:
        """Let a pull wait that finds nothing, whatever comes."""
        queue = self.store.queue("T", queue_id)

        def fetch_again(_: bool) -> None:
            self.fetches.append(queue_id)

        connection, _ = self.connect()
        at = queue.max_offset
        self.do(lambda: self.long_polls.hold(connection, queue, at, 60_000, fetch_again))

    def connect(self) -> tuple[Connection, StubTransport]:
        """A client."""

        def accept() -> tuple[Connection, StubTransport]:
            connection = Connection({})
            return connection, StubTransport(connection)

        return self.do(accept)

    @property
    def is_copied(self) -> bool:
        """Whether the slave gets all records before the master looks at its log by itself."""
        self.sim.run_for(AT_ONCE_S)
        return self.copy.end == self.store.log.end


def test_the_records_of_a_turn_are_told_at_its_end(sim: Simulation) -> None:
    master = Master(sim)
    for queue_id in range(3):
        master.hold_pull(queue_id)
    master.append(1)
    assert (master.fetches, master.is_copied) == ([], False)

    master.do(master.notifier.turn_ended)

    assert (master.fetches, master.is_copied) == ([1], True)


def test_records_in_memory_are_told_once_they_are_in_the_file(sim: Simulation) -> None:
    master = Master(sim, pooled=True)
    master.hold_pull(1)
    master.append(1)
    master.do(master.notifier.turn_ended)
    assert (master.fetches, master.is_copied) == ([], False)

    master.do(master.notifier.commit)

    assert (master.fetches, master.is_copied) == ([1], True)


def test_records_that_must_be_durable_are_told_once_they_are(sim: Simulation) -> None:
    master = Master(sim, syncs=True, reads_only_durable=True)
    master.hold_pull(1)
    master.append(1)
    master.do(master.notifier.turn_ended)
    assert (master.fetches, master.is_copied) == ([], False)

    master.flush()
    master.do(master.notifier.visible_end_grew)

    assert (master.fetches, master.is_copied) == ([1], True)


def test_each_record_is_told_once(sim: Simulation) -> None:
    master = Master(sim, syncs=True, reads_only_durable=True)
    for queue_id in (1, 2):
        master.hold_pull(queue_id)
        master.append(queue_id)
        master.flush()
        master.do(master.notifier.visible_end_grew)

    assert master.fetches == [1, 2]


def test_an_answer_that_waits_for_the_disk_leaves_once_the_log_is_flushed(sim: Simulation) -> None:
    master = Master(sim, syncs=True, reads_only_durable=True)
    connection, client = master.connect()
    master.append()
    assert master.ack_gate.hold(connection, ANSWER, master.store.log.end) is None
    master.flush()
    assert client.writes == []

    master.do(master.notifier.visible_end_grew)

    assert client.writes == [ANSWER]


@pytest.mark.parametrize("syncs", [True, False])
def test_only_sync_flush_asks_for_a_flush_in_each_turn(sim: Simulation, *, syncs: bool) -> None:
    master = Master(sim, syncs=syncs)
    assert not master.notifier.flush_wanted.is_set()

    master.append()
    master.do(master.notifier.turn_ended)

    assert master.notifier.flush_wanted.is_set() is syncs


def test_a_slave_without_slaves_of_its_own_tells_its_held_pulls(sim: Simulation) -> None:
    master = Master(sim)
    notifier = AppendNotifier(master.store, master.long_polls, master.ack_gate, None, syncs=False)
    master.hold_pull(1)
    master.append(1)

    master.do(notifier.turn_ended)

    assert master.fetches == [1]
