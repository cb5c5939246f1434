"""What a slave does to follow its master, event by event.

See docs/storage/replication.md#what-a-slave-does.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from roquet.replication.frames import Chunk, HeartbeatFrame
from roquet.replication.slave import (
    Append,
    CannotFollow,
    Close,
    Connect,
    Connected,
    Disconnected,
    Event,
    Follower,
    MasterKnown,
    Phase,
    ReadEnded,
    Report,
    Rules,
    Tick,
    overlap_start,
    step,
)

FILE_SIZE = 1000


def idle() -> Follower:
    return Follower(Rules(), FILE_SIZE)


def connecting() -> Follower:
    return step(idle(), MasterKnown("m:1"), 0)[0]


def following(end: int, overlap: bytes = b"") -> Follower:
    """A slave that has just connected, and reported its position."""
    return step(connecting(), Connected(end, overlap), 0)[0]


def after(slave: Follower, *events: Event, now_ms: int = 0) -> tuple[Follower, list[object]]:
    """The slave, and all its actions, after several events."""
    actions: list[object] = []
    for event in events:
        slave, more = step(slave, event, now_ms)
        actions += more
    return slave, actions


def chunk(offset: int, data: bytes) -> Chunk:
    return Chunk(offset, memoryview(data))


def append(offset: int, data: bytes) -> Append:
    return Append(offset, memoryview(data))


# connecting


def test_a_master_that_becomes_known_is_connected_to() -> None:
    assert step(idle(), MasterKnown("m:1"), 0)[1] == [Connect("m:1")]


def test_hearing_of_the_same_master_again_changes_nothing() -> None:
    slave = following(end=500)
    assert step(slave, MasterKnown("m:1"), 0) == (slave, [])


def test_another_master_takes_the_place_of_the_first() -> None:
    assert step(following(end=500), MasterKnown("m:2"), 0)[1] == [Close(), Connect("m:2")]


def test_without_a_master_the_connection_is_closed() -> None:
    slave, actions = step(following(end=500), MasterKnown(None), 0)
    assert (slave.phase, actions) == (Phase.IDLE, [Close()])


def test_a_master_that_goes_while_nothing_is_open_needs_no_closing() -> None:
    waiting, _ = step(connecting(), CannotFollow("refused"), 0)
    assert step(waiting, MasterKnown(None), 0)[1] == []


def test_a_slave_reports_as_soon_as_it_is_connected() -> None:
    assert step(connecting(), Connected(500, b""), 0)[1] == [Report(500)]


def test_a_connect_that_fails_is_repeated_after_five_seconds() -> None:
    slave, actions = step(connecting(), CannotFollow("refused"), 100)
    assert (slave.phase, slave.reason, actions) == (Phase.WAITING, "refused", [Close()])
    assert step(slave, Tick(), 5_099)[1] == []
    assert step(slave, Tick(), 5_100)[1] == [Connect("m:1")]


def test_a_session_that_brought_something_is_renewed_after_one_second() -> None:
    slave, _ = after(following(end=500), HeartbeatFrame(500), ReadEnded(), Disconnected())
    assert slave.reason == "the connection ended"
    assert step(slave, Tick(), 1_000)[1] == [Connect("m:1")]


def test_a_master_that_says_nothing_but_closes_is_left_alone_for_five_seconds() -> None:
    slave, _ = after(following(end=500), Disconnected())
    assert slave.reason == "the master closed the connection after our report of 500"
    assert step(slave, Tick(), 4_999)[1] == []
    assert step(slave, Tick(), 5_000)[1] == [Connect("m:1")]


def test_the_reason_of_the_last_trouble_goes_once_the_master_speaks() -> None:
    slave, _ = after(connecting(), CannotFollow("refused"))
    slave, _ = after(slave, Tick(), Connected(500, b""), now_ms=5_000)
    assert slave.reason == "refused"
    assert after(slave, HeartbeatFrame(500), ReadEnded())[0].reason == ""


# receiving


def test_bytes_for_the_end_are_appended_and_reported_once_per_read() -> None:
    _, actions = after(following(end=500), chunk(500, b"abc"), chunk(503, b"de"), ReadEnded())
    assert actions == [append(500, b"abc"), append(503, b"de"), Report(505)]


def test_a_read_without_news_is_not_reported() -> None:
    assert after(following(end=500), HeartbeatFrame(500), ReadEnded())[1] == []


def test_an_empty_log_takes_the_start_of_any_file() -> None:
    _, actions = after(following(end=0), chunk(3000, b"abc"), chunk(3003, b"d"), ReadEnded())
    assert actions == [append(3000, b"abc"), append(3003, b"d"), Report(3004)]


def test_an_empty_log_stays_at_nothing_when_the_last_file_is_empty() -> None:
    slave, actions = after(following(end=0), HeartbeatFrame(3000), ReadEnded())
    assert (slave.next_offset, actions) == (0, [])


@pytest.mark.parametrize("frame", [chunk(3500, b"abc"), HeartbeatFrame(3500)])
def test_an_empty_log_takes_nothing_from_inside_a_file(frame: Event) -> None:
    slave, actions = after(following(end=0), frame, ReadEnded())
    assert (slave.phase, actions) == (Phase.STOPPED, [Close()])
    told = "the master begins at 3500, not at the start of a 1000-byte segment"
    assert slave.reason.startswith(told)


@pytest.mark.parametrize("frame", [chunk(508, b"abc"), HeartbeatFrame(508)])
def test_a_gap_stops_the_slave(frame: Event) -> None:
    slave, actions = after(following(end=500), frame, ReadEnded())
    assert (slave.phase, actions) == (Phase.STOPPED, [Close()])
    assert slave.reason == "a gap: the master goes on at 508, we have everything before 500"


@pytest.mark.parametrize("frame", [chunk(492, b"abc"), HeartbeatFrame(492)])
def test_a_master_that_goes_back_stops_the_slave(frame: Event) -> None:
    slave, actions = after(following(end=500), frame, ReadEnded())
    assert (slave.phase, actions) == (Phase.STOPPED, [Close()])
    assert (
        slave.reason == "our log is ahead: the master goes on at 492, we have everything before 500"
    )


def test_a_slave_that_stopped_tries_no_more_until_the_master_is_another() -> None:
    slave, _ = after(following(end=500), HeartbeatFrame(508))
    assert after(slave, Tick(), MasterKnown("m:1"), chunk(500, b"abc"), now_ms=60_000) == (
        slave,
        [],
    )
    assert step(slave, MasterKnown("m:2"), 0)[1] == [Connect("m:2")]


def test_what_a_read_brings_after_a_mismatch_is_not_looked_at() -> None:
    _, actions = after(following(end=500), chunk(508, b"abc"), chunk(500, b"abc"), ReadEnded())
    assert actions == [Close()]


# the overlap


def test_the_overlap_is_what_the_rules_say() -> None:
    assert overlap_start(0, 20_500, 100_000, Rules(overlap_size=500)) == 20_000


def test_the_overlap_stays_within_the_last_file() -> None:
    assert overlap_start(0, 3_100, FILE_SIZE, Rules(overlap_size=500)) == 3_000


@pytest.mark.parametrize("end", [3_000, 3_001, 3_090])
def test_a_last_file_with_next_to_nothing_in_it_is_too_little_to_compare(end: int) -> None:
    """A master that lost power may have grown past `end` anew, in other bytes but with files of the
    same size.
    """
    assert overlap_start(0, end, FILE_SIZE, Rules(overlap_size=500)) == end - 500


def test_the_overlap_never_begins_before_the_log() -> None:
    assert overlap_start(3_000, 3_000, FILE_SIZE, Rules(overlap_size=500)) == 3_000
    assert overlap_start(3_000, 3_050, FILE_SIZE, Rules(overlap_size=500)) == 3_000


def test_the_overlap_never_asks_for_offset_0_which_means_the_last_file() -> None:
    assert overlap_start(0, 300, FILE_SIZE, Rules(overlap_size=500)) == 1


def test_without_an_overlap_the_end_is_reported() -> None:
    assert overlap_start(0, 300, FILE_SIZE, Rules(overlap_size=0)) == 300


def test_an_empty_log_has_no_overlap() -> None:
    assert overlap_start(0, 0, FILE_SIZE, Rules()) == 0


def test_the_first_report_leaves_the_overlap_out() -> None:
    assert step(connecting(), Connected(500, b"wxyz"), 0)[1] == [Report(496)]


def test_the_overlap_is_compared_and_what_follows_it_appended() -> None:
    slave, actions = after(
        following(500, b"wxyz"), chunk(496, b"wx"), ReadEnded(), chunk(498, b"yzab"), ReadEnded()
    )
    assert actions == [Report(498), append(500, b"ab"), Report(502)]
    assert slave.end == 502


def test_logs_that_differ_in_the_overlap_have_diverged() -> None:
    slave, actions = after(following(500, b"wxyz"), chunk(496, b"wxYz--"), ReadEnded())
    assert (slave.phase, actions) == (Phase.STOPPED, [Close()])
    assert slave.reason == "the logs have diverged: the bytes at offset 498 differ"


def test_a_master_that_has_nothing_for_the_overlap_shows_that_ours_is_ahead() -> None:
    slave, actions = after(
        following(500, b"wxyz"), chunk(496, b"wx"), ReadEnded(), HeartbeatFrame(498), ReadEnded()
    )
    assert slave.phase is Phase.FOLLOWING
    slave, actions = after(slave, HeartbeatFrame(498), ReadEnded())
    assert (slave.phase, actions) == (Phase.STOPPED, [Close()])
    told = (
        "our log is ahead, or the master has deleted what follows: "
        "our log ends at 500, the master has nothing from 498 on"
    )
    assert slave.reason == told


def test_a_heartbeat_before_the_first_bytes_is_no_sign_of_that() -> None:
    slave, actions = after(
        following(500, b"wxyz"), HeartbeatFrame(496), ReadEnded(), chunk(496, b"wxyz"), ReadEnded()
    )
    assert (slave.phase, actions) == (Phase.FOLLOWING, [Report(500)])


# time


def test_a_report_is_repeated_every_five_seconds() -> None:
    slave = following(end=500)
    assert step(slave, Tick(), 4_999)[1] == []
    slave, actions = step(slave, Tick(), 5_000)
    assert actions == [Report(500)]
    assert step(slave, Tick(), 9_999)[1] == []


def test_a_master_silent_for_twenty_seconds_is_left() -> None:
    slave = replace(following(end=500), reported_ms=20_000)
    assert step(slave, Tick(), 20_000)[1] == []
    slave, actions = step(slave, Tick(), 20_001)
    assert (slave.phase, actions) == (Phase.WAITING, [Close()])
    assert slave.reason == "the master has been silent for 20001 ms"
    assert step(slave, Tick(), 21_001)[1] == [Connect("m:1")]


def test_a_log_that_cannot_be_written_ends_the_session_for_five_seconds() -> None:
    slave, actions = after(
        following(end=500), chunk(500, b"abc"), CannotFollow("cannot write the log: no room")
    )
    assert actions[-1] == Close()
    assert (slave.phase, slave.reason) == (Phase.WAITING, "cannot write the log: no room")


def test_time_means_nothing_to_a_slave_without_a_master() -> None:
    assert step(idle(), Tick(), 60_000) == (idle(), [])
