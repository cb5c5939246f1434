"""What a master does for one slave, event by event.

See docs/storage/replication.md#the-bytes and docs/storage/replication.md#what-a-master-does.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from roquet.errors import ConfigError
from roquet.replication.frames import BODY_SIZE_MAX
from roquet.replication.master import (
    BURST_CHUNKS,
    Acked,
    Closed,
    Drop,
    LogMoved,
    MustDrop,
    Phase,
    Reported,
    Rules,
    SendChunk,
    SendHeartbeat,
    Slave,
    Tick,
    WriteReady,
    step,
)

FILE_SIZE = 1000
RULES = Rules(chunk_size=100)


def new_slave(log_end: int, log_start: int = 0) -> Slave:
    return Slave(RULES, FILE_SIZE, log_start, log_end, heard_ms=0, sent_ms=0)


def streaming(position: int, log_end: int) -> Slave:
    """A slave that has everything up to `position`, and is being sent the rest."""
    slave, _ = step(new_slave(log_end), Reported(position), 0)
    return slave


def test_a_silent_newcomer_is_sent_nothing() -> None:
    slave = new_slave(log_end=500)
    for event in (LogMoved(0, 600), WriteReady(), Tick()):
        slave, actions = step(slave, event, 10_000)
        assert actions == []


def test_an_empty_slave_starts_at_the_last_file() -> None:
    _, actions = step(new_slave(log_end=3050), Reported(0), 0)
    assert actions == [Acked(0), SendChunk(3000, 50)]


def test_an_empty_slave_of_a_full_last_file_waits_for_the_next() -> None:
    slave, actions = step(new_slave(log_end=3000), Reported(0), 0)
    assert (slave.next_offset, actions) == (3000, [Acked(0)])


def test_any_other_slave_starts_exactly_where_it_stands() -> None:
    _, actions = step(new_slave(log_end=3050), Reported(2017), 0)
    assert actions[:2] == [Acked(2017), SendChunk(2017, 100)]


def test_a_slave_ahead_of_the_log_is_dropped_at_once() -> None:
    slave, actions = step(new_slave(log_end=3050), Reported(3051), 0)
    assert actions == [Drop("the slave is ahead of the log: it reports 3051, the log ends at 3050")]
    assert slave.phase is Phase.GONE


def test_a_slave_that_needs_a_deleted_file_is_dropped_with_advice() -> None:
    slave, actions = step(new_slave(log_start=2000, log_end=3050), Reported(1999), 0)
    assert actions == [Drop("the slave needs 1999, the log starts at 2000: wipe its store")]
    assert slave.phase is Phase.GONE


def test_a_slave_whose_next_file_is_deleted_under_it_is_dropped() -> None:
    slave = streaming(position=500, log_end=500)
    _, actions = step(slave, LogMoved(1000, 3000), 0)
    assert actions == [Drop("the slave needs 500, the log starts at 1000: wipe its store")]


def test_a_chunk_never_crosses_a_file_and_takes_its_padding_along() -> None:
    _, actions = step(new_slave(log_end=1030), Reported(950), 0)
    assert actions[1:] == [SendChunk(950, 50), SendChunk(1000, 30)]


def test_growth_is_sent_at_once() -> None:
    slave = streaming(position=500, log_end=500)
    slave, actions = step(slave, LogMoved(0, 530), 0)
    assert actions == [SendChunk(500, 30)]
    assert slave.next_offset == 530


def test_growth_waits_while_the_last_write_has_not_left() -> None:
    slave = streaming(position=500, log_end=510)
    slave, actions = step(slave, LogMoved(0, 530), 0)
    assert actions == []
    _, actions = step(slave, WriteReady(), 0)
    assert actions == [SendChunk(510, 20)]


def test_one_slave_gets_a_burst_at_a_time() -> None:
    slave, actions = step(new_slave(log_end=5000), Reported(100), 0)
    assert len(actions) == 1 + BURST_CHUNKS
    slave, actions = step(slave, WriteReady(), 0)
    assert actions[0] == SendChunk(900, 100)


def test_an_acknowledgement_counts_once() -> None:
    slave = streaming(position=500, log_end=600)
    slave, actions = step(slave, Reported(550), 0)
    assert actions == [Acked(550)]
    _, actions = step(slave, Reported(550), 0)
    assert actions == []


def test_an_acknowledgement_never_moves_backwards() -> None:
    slave, actions = step(streaming(position=500, log_end=600), Reported(400), 0)
    assert (slave.acked, actions) == (500, [])


def test_an_acknowledgement_beyond_the_log_is_refused() -> None:
    slave, actions = step(streaming(position=500, log_end=600), Reported(601), 0)
    assert actions == [Drop("the slave is ahead of the log: it reports 601, the log ends at 600")]
    assert slave.acked == 500


def test_an_acknowledgement_of_what_was_not_sent_is_refused() -> None:
    slave = streaming(position=500, log_end=550)
    slave, _ = step(slave, LogMoved(0, 600), 0)
    _, actions = step(slave, Reported(560), 0)
    assert actions == [Drop("the slave reports 560, but was sent nothing beyond 550")]


def test_bytes_that_are_no_report_end_the_connection() -> None:
    slave, actions = step(
        streaming(position=500, log_end=600), MustDrop("the slave reports offset -1"), 0
    )
    assert (slave.phase, actions) == (Phase.GONE, [Drop("the slave reports offset -1")])


def test_a_heartbeat_with_the_next_offset_follows_five_seconds_without_a_write() -> None:
    slave = streaming(position=500, log_end=500)
    assert step(slave, Tick(), 4_999)[1] == []
    slave, actions = step(slave, Tick(), 5_000)
    assert actions == [SendHeartbeat(500)]
    slave, _ = step(slave, WriteReady(), 5_000)
    slave, _ = step(slave, Reported(500), 9_000)
    assert step(slave, Tick(), 9_999)[1] == []
    assert step(slave, Tick(), 10_000)[1] == [SendHeartbeat(500)]


def test_a_chunk_is_as_good_as_a_heartbeat() -> None:
    slave = streaming(position=500, log_end=500)
    slave, _ = step(slave, LogMoved(0, 530), 4_000)
    slave, _ = step(slave, WriteReady(), 4_000)
    assert step(slave, Tick(), 8_999)[1] == []


def test_a_slave_that_does_not_read_is_sent_no_heartbeats_on_top() -> None:
    assert step(streaming(position=500, log_end=600), Tick(), 6_000)[1] == []


def test_a_silent_newcomer_has_twenty_seconds() -> None:
    slave = new_slave(log_end=500)
    assert step(slave, Tick(), 20_000)[1] == []
    assert step(slave, Tick(), 20_001)[1] == [Drop("the slave has been silent for 20001 ms")]


def test_a_slave_that_falls_silent_is_dropped_after_twenty_seconds() -> None:
    slave = streaming(position=500, log_end=500)
    slave, _ = step(slave, Reported(500), 7_000)
    assert Drop("the slave has been silent for 20001 ms") not in step(slave, Tick(), 27_000)[1]
    assert step(slave, Tick(), 27_001)[1] == [Drop("the slave has been silent for 20001 ms")]


def test_nothing_more_is_done_for_a_slave_that_is_gone() -> None:
    gone, _ = step(streaming(position=500, log_end=600), Closed(), 0)
    assert gone.phase is Phase.GONE
    for event in (
        Reported(550),
        LogMoved(0, 700),
        WriteReady(),
        Tick(),
        Closed(),
        MustDrop("again"),
    ):
        assert step(gone, event, 60_000) == (gone, [])


def test_a_log_that_is_cut_short_is_not_sent_backwards() -> None:
    slave = replace(streaming(position=500, log_end=500), is_writing=False)
    assert step(slave, LogMoved(0, 400), 0)[1] == []


@pytest.mark.parametrize("size", [0, -1, BODY_SIZE_MAX + 1])
def test_a_chunk_size_that_no_slave_takes_is_a_configuration_error(size: int) -> None:
    with pytest.raises(ConfigError, match="haTransferBatchSize"):
        Rules(chunk_size=size)
