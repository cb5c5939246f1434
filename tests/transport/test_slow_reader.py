"""Whether a peer reads, by looks at it."""

from __future__ import annotations

from roquet.transport.limits import SLOWEST
from roquet.transport.slow_reader import SlowReader

IDLE_S = 120.0
MIB = 1024 * 1024


def test_a_peer_that_takes_nothing_is_overdue_after_the_idle_time() -> None:
    reading = SlowReader(0.0)
    for second in range(0, 121, 10):
        reading.look(4 * MIB, 4 * MIB, float(second), IDLE_S)

    assert not reading.is_overdue(119.0, IDLE_S)
    assert reading.is_overdue(120.0, IDLE_S)


def test_what_is_sent_meanwhile_does_not_count_as_read() -> None:
    reading = SlowReader(0.0)
    for second in range(0, 121, 10):
        reading.look(MIB + second, MIB + second, float(second), IDLE_S)

    assert reading.is_overdue(120.0, IDLE_S)


def test_a_peer_that_takes_a_byte_a_minute_is_overdue_in_the_end() -> None:
    reading = SlowReader(0.0)
    ends = [
        now
        for now in range(0, 1000, 10)
        if _looked(reading, 4 * MIB, 4 * MIB - now // 60, float(now))
    ]

    assert ends[0] == IDLE_S + 4 * MIB / SLOWEST + 4


def test_a_slow_peer_that_reads_on_is_never_overdue() -> None:
    reading, sent = SlowReader(0.0), 4 * MIB
    for second in range(0, 3600, 10):
        taken = 50_000 * second
        sent = max(sent, taken + 3 * MIB)
        assert not _looked(reading, sent, sent - taken, float(second))


def test_a_peer_that_has_read_everything_has_all_the_time_again() -> None:
    reading = SlowReader(0.0)
    assert not _looked(reading, MIB, MIB, 0.0)
    assert not _looked(reading, MIB, 0, 100.0)
    assert not _looked(reading, 2 * MIB, MIB, 200.0)

    assert not _looked(reading, 2 * MIB, MIB, 210.0)
    assert _looked(reading, 2 * MIB, MIB, 325.0)


def _looked(reading: SlowReader, sent: int, unread: int, now: float) -> bool:
    reading.look(sent, unread, now, IDLE_S)
    return reading.is_overdue(now, IDLE_S)
