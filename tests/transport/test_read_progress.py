"""Whether a peer reads, by samples of its connection."""

from __future__ import annotations

from roquet.transport.limits import SLOWEST
from roquet.transport.read_progress import PeerReadProgress

IDLE_S = 120.0
MIB = 1024 * 1024


def test_a_peer_that_takes_nothing_is_overdue_after_the_idle_time() -> None:
    progress = PeerReadProgress(0.0)
    for second in range(0, 121, 10):
        progress.sample(4 * MIB, 4 * MIB, float(second), IDLE_S)

    assert not progress.is_overdue(119.0, IDLE_S)
    assert progress.is_overdue(120.0, IDLE_S)


def test_what_is_sent_meanwhile_does_not_count_as_read() -> None:
    progress = PeerReadProgress(0.0)
    for second in range(0, 121, 10):
        progress.sample(MIB + second, MIB + second, float(second), IDLE_S)

    assert progress.is_overdue(120.0, IDLE_S)


def test_a_peer_that_takes_a_byte_a_minute_is_overdue_in_the_end() -> None:
    progress = PeerReadProgress(0.0)
    ends = [
        now
        for now in range(0, 1000, 10)
        if _is_overdue_after(progress, 4 * MIB, 4 * MIB - now // 60, float(now))
    ]

    assert ends[0] == IDLE_S + 4 * MIB / SLOWEST + 4


def test_a_slow_peer_that_reads_on_is_never_overdue() -> None:
    progress, sent = PeerReadProgress(0.0), 4 * MIB
    for second in range(0, 3600, 10):
        taken = 50_000 * second
        sent = max(sent, taken + 3 * MIB)
        assert not _is_overdue_after(progress, sent, sent - taken, float(second))


def test_a_peer_that_has_read_everything_has_all_the_time_again() -> None:
    progress = PeerReadProgress(0.0)
    assert not _is_overdue_after(progress, MIB, MIB, 0.0)
    assert not _is_overdue_after(progress, MIB, 0, 100.0)
    assert not _is_overdue_after(progress, 2 * MIB, MIB, 200.0)

    assert not _is_overdue_after(progress, 2 * MIB, MIB, 210.0)
    assert _is_overdue_after(progress, 2 * MIB, MIB, 325.0)


def _is_overdue_after(progress: PeerReadProgress, sent: int, unread: int, now: float) -> bool:
    progress.sample(sent, unread, now, IDLE_S)
    return progress.is_overdue(now, IDLE_S)
