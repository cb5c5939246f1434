"""Half messages over restarts: what was open is open, what had ended has ended.

See docs/storage/transactions.md#a-start-finds-open-transactions-in-the-store.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from roquet.broker.transactions.open_table import GROUP, OpenTransactions, half_with
from roquet.protocol.headers.transactions import COMMIT, ROLLBACK
from roquet.protocol.records.message import (
    CHECK_MAX_TIME_TOPIC,
    HALF_OP_TOPIC,
    HALF_TOPIC,
    join_properties,
    tag_code,
)
from tests.broker.served import serving, started
from tests.broker.transacting import (
    ADDRESS,
    PERIOD_S,
    SMALL_LOG,
    TransactionProducer,
    bodies,
    restart,
)
from tests.simulation.nodes import BrokerNode
from tests.simulation.simulation import Simulation
from tests.storage.records import append_one

LOG: Final = Path(f"/store/commitlog/{0:020}")
HALF_QUEUE: Final = Path(f"/store/consumequeue/{HALF_TOPIC}/0/{0:020}")


@pytest.mark.parametrize("way", ["stop", "kill", "crash"])
def test_open_transactions_are_open_after_a_restart_and_ended_ones_are_not(
    sim: Simulation, way: str
) -> None:
    node = started(sim, ADDRESS, flushDiskType="SYNC_FLUSH", **SMALL_LOG)
    producer = TransactionProducer(sim, node)
    committed, rolled_back = producer.half(b"committed"), producer.half(b"rolled back")
    opened, asked_about = producer.half(b"open"), producer.half(b"asked about")
    producer.end(committed, COMMIT)
    producer.end(rolled_back, ROLLBACK)
    sim.run_for(PERIOD_S)
    table = serving(node).parts.halves.open.all()
    restart(sim, node, way)
    assert [half.offset for half in serving(node).parts.halves.open.all()] == [
        half.offset for half in table
    ]
    producer.announce()
    assert [producer.end(half, COMMIT).code for half in (opened, asked_about)] == [0, 0]
    sim.run_for(2 * PERIOD_S)
    assert sorted(bodies(node)) == ["asked about", "committed", "open"]
    assert len(serving(node).parts.halves.open) == 0


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_what_ended_behind_an_open_one_has_ended_after_a_restart(
    sim: Simulation, node: BrokerNode, producer: TransactionProducer, way: str
) -> None:
    """The saved offset is before it: only its end tells."""
    producer.half(b"open")
    ended = [producer.half(b"committed"), producer.half(b"rolled back")]
    for half, kind in zip(ended, (COMMIT, ROLLBACK), strict=True):
        assert producer.end(half, kind).code == 0
    sim.run_for(11)
    restart(sim, node, way)
    assert [half.offset for half in serving(node).parts.halves.open.all()] == [0]
    assert [producer.end(half, COMMIT).code for half in ended] == [1, 1]
    producer.announce()
    sim.run_for(PERIOD_S)
    assert [record.body for _, record in producer.asked] == [b"open"]
    assert bodies(node) == ["committed"]


def test_ends_of_several_transactions_as_5x_notes_them_are_read(
    sim: Simulation, node: BrokerNode, producer: TransactionProducer
) -> None:
    for body in b"0", b"1", b"2", b"3":
        producer.half(body)
    store, tags = serving(node).store, join_properties({"TAGS": "d"}).encode()

    async def end_as_5x_does() -> None:
        append_one(
            store, store.queue(HALF_OP_TOPIC, 0), b"0,2,3,", tags, tag_code=tag_code("d"), born_ms=0
        )

    node.host.call(end_as_5x_does)
    restart(sim, node, "kill")
    assert [half.offset for half in serving(node).parts.halves.open.all()] == [1]


def test_progress_is_noted_when_the_ends_before_it_are_on_disk(sim: Simulation) -> None:
    """Else a power failure could take an end and leave the half message, and nobody would ever ask
    about that.
    """
    lazy = {"flushCommitLogThoroughInterval": 40_000, "flushCommitLogLeastPages": 100}
    node = started(
        sim, ADDRESS, **{**SMALL_LOG, **lazy, "flushConsumeQueueThoroughInterval": 1_000_000}
    )
    producer = TransactionProducer(sim, node)
    half = producer.half()
    log, offsets = serving(node).store.log, serving(node).parts.tables.offsets
    sim.run_until(lambda: log.flushed_to == log.end, 50)
    assert producer.end(half, COMMIT).code == 0
    sim.run_for(20)
    assert (offsets.committed(GROUP, HALF_TOPIC, 0) or 0, log.flushed_to < log.end) == (0, True)
    sim.run_until(lambda: log.flushed_to == log.end, 50)
    sim.run_for(11)
    assert [offsets.committed(GROUP, topic, 0) for topic in (HALF_TOPIC, HALF_OP_TOPIC)] == [1, 1]


def test_checks_of_before_a_restart_count(sim: Simulation) -> None:
    node = started(sim, ADDRESS, transactionCheckMax=2, **SMALL_LOG)
    producer = TransactionProducer(sim, node)
    producer.half()
    for _ in range(4):
        sim.run_for(PERIOD_S)
        restart(sim, node, "stop")
        producer.announce()
    assert len(producer.asked) == 2
    assert bodies(node, CHECK_MAX_TIME_TOPIC, 0) == ["body"]


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_half_messages_that_cannot_be_read_stay_open_for_a_start_that_can_read_them(
    sim: Simulation, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    """They are acknowledged: no saved offset may go past them, and those in other files are open
    meanwhile.
    """
    node = started(sim, ADDRESS, **SMALL_LOG, flushConsumeQueueThoroughInterval=1000)
    producer = TransactionProducer(sim, node)
    ended, first = producer.half(b"ended"), producer.half(b"first")
    assert producer.end(ended, ROLLBACK).code == 0
    while serving(node).store.log.end < 70_000:
        producer.end(producer.half(bytes(5000)), ROLLBACK)
    producer.half(b"second")
    sim.run_for(11)
    node.host.drive.unreadable.add(LOG)
    for _ in range(2):
        restart(sim, node, way)
        sim.run_for(11)
    assert len(serving(node).parts.halves.open) == 1
    assert len([line for line in caplog.messages if "half messages cannot be read" in line]) == 2, (
        "once for each start"
    )
    node.host.drive.unreadable.clear()
    assert producer.end(first, COMMIT).code == 0, (
        "the producer is believed as soon as it can be read"
    )
    restart(sim, node, way)
    producer.announce()
    sim.run_for(2 * PERIOD_S)
    assert [record.body for _, record in producer.asked] == [b"second"] * len(producer.asked) != []
    assert bodies(node) == ["first"]


def test_a_queue_of_half_messages_that_cannot_be_read_keeps_the_progress_before_it(
    node: BrokerNode, producer: TransactionProducer
) -> None:
    ended, opened = producer.half(b"ended"), producer.half(b"open")
    assert producer.end(ended, ROLLBACK).code == 0
    halves = serving(node).parts.halves
    node.host.drive.unreadable.add(HALF_QUEUE)

    async def load() -> None:
        halves.load()

    node.host.call(load)
    assert (len(halves.open), halves.open.halves_offset) == (0, 1)
    node.host.drive.unreadable.clear()
    assert producer.end(opened, COMMIT).code == 0
    assert (halves.open.halves_offset, bodies(node)) == (2, ["open"])


def test_half_messages_that_cannot_be_read_count_no_more_once_they_are_old(sim: Simulation) -> None:
    table = OpenTransactions(3)
    for offset in (3, 5, 7):
        table.not_read(offset)
    table.opened(half_with({}, 9, 9, 0, 0))
    assert table.halves_offset == 3
    table.forget_before(6)
    assert (table.halves_offset, table.may_be_open(5), table.may_be_open(7)) == (7, False, True)
    table.forget_before(8)
    assert table.halves_offset == 9
