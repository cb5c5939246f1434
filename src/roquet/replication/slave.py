"""PURE: the state machine by which a slave follows its master.

The first report of a session is a little before the end of the slave's log, and the slave compares
the bytes it is sent again with its own. Without that it would not notice a master that lost the
unsynced end of its log and has since written other messages there.

See docs/storage/replication.md#what-a-slave-does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, TypeAlias

from roquet.replication.frames import NOTHING, Chunk, HeartbeatFrame

RETRY_MS: Final = 5_000
"""Pause after a failed connect, or a session that brought no bytes."""
RETRY_SOON_MS: Final = 1_000
"""Pause after a session that brought bytes."""
RETRY_LATE_MS: Final = 60_000
"""The longest pause after sessions in which the master broke the protocol. Each such session
doubles the pause. A session that lasts as long as this resets it."""
IDLE_HEARTBEATS_MAX: Final = 1
"""How many heartbeats a master may send before the bytes of the overlap. A master that has these
bytes sends at most one heartbeat before them; a second one means it does not have them."""

OVERLAP_SIZE_MIN: Final = 91
"""Bytes of the smallest overlap: the fixed part of a record. Two different records differ in it,
because it has offset, times and checksum."""


class Phase(Enum):
    """What a slave does to follow its master (docs/storage/replication.md)."""

    IDLE = "idle"
    """No master is known."""
    WAITING = "waiting"
    """For the next attempt to connect."""
    CONNECTING = "connecting"
    FOLLOWING = "following"
    STOPPED = "stopped"
    """The two logs do not fit together. Only another master or an operator can change that."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The slave's settings.

    :param report_ms: the longest pause between two slave reports.
    :param silence_ms_max: a master that sends nothing for longer is left.
    :param overlap_size: how many of its last bytes the slave asks for again to compare them;
        0: none, as Apache's slave.
    """

    report_ms: int = 5_000
    silence_ms_max: int = 20_000
    overlap_size: int = 4_096


@dataclass(frozen=True, slots=True)
class Follower:
    """The state of a slave between two events.

    Invariant: the master's next byte is the one at `next_offset`, unless the log is empty.
    `overlap` has the bytes from there to `end`, which this session has still to compare with the
    master's. Reports say `next_offset`, and so count only bytes that were compared or appended.

    :param file_size: bytes of a segment.
    :param end: the physical offset after the last byte of the slave's log.
    :param reported: the offset of the last slave report, sent at `reported_ms` (event loop's
        clock, as all times here).
    :param heard_ms: when the master's last bytes came.
    :param retry_ms: while WAITING, when to connect again.
    """

    rules: Rules
    file_size: int
    phase: Phase = Phase.IDLE
    master: str | None = None
    end: int = NOTHING
    overlap: bytes = b""
    reported: int = NOTHING
    reported_ms: int = 0
    heard_ms: int = 0
    heard_anything: bool = False
    idle_heartbeats: int = 0
    retry_ms: int = 0
    broken: int = 0
    """Sessions in which the master broke the protocol, since the last one that lasted."""
    connected_ms: int = 0
    reason: str = ""
    """Why the slave does not follow, or why its last session ended; empty while it follows."""

    @property
    def next_offset(self) -> int:
        """The physical offset of the master's next byte."""
        return self.end - len(self.overlap)


def overlap_start(log_start: int, log_end: int, file_size: int, rules: Rules) -> int:
    """Return the physical offset from which on a slave asks for its last bytes again.

    The overlap begins in the last segment, because the master may have deleted older ones, unless
    that segment has fewer than `OVERLAP_SIZE_MIN` bytes. It never begins at 0, because the report 0
    asks for the master's last segment.
    """
    if log_end == 0:
        return log_end
    latest = max(log_start, log_end - OVERLAP_SIZE_MIN)
    file_start = latest - latest % file_size
    return max(log_start, file_start, log_end - rules.overlap_size, 1)


# events; with them HeartbeatFrame and Chunk


@dataclass(frozen=True, slots=True)
class MasterKnown:
    """Follow the master at this address, or none."""

    address: str | None


@dataclass(frozen=True, slots=True)
class Connected:
    """The connection is open; the slave's log ends at `end`, with the bytes `overlap`."""

    end: int
    overlap: bytes


@dataclass(frozen=True, slots=True)
class ReadEnded:
    """All frames of one read have been handled."""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection has ended."""


@dataclass(frozen=True, slots=True)
class CannotFollow:
    """The slave cannot connect, or cannot read or write its own log."""

    reason: str


@dataclass(frozen=True, slots=True)
class PeerBroken:
    """The peer is no working master: its bytes are no frames, or it reads no reports."""

    reason: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event: TypeAlias = (
    MasterKnown
    | Connected
    | HeartbeatFrame
    | Chunk
    | ReadEnded
    | Disconnected
    | CannotFollow
    | PeerBroken
    | Tick
)


# actions


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect to the master at `host:port`."""

    address: str


@dataclass(frozen=True, slots=True)
class Append:
    """Append `data` to the slave's log, at physical offset `at`."""

    at: int
    data: memoryview


@dataclass(frozen=True, slots=True)
class Report:
    """Send a slave report: the slave has every byte before `offset`."""

    offset: int


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection, or cancel the attempt to connect."""


Action: TypeAlias = Connect | Append | Report | Close
Step: TypeAlias = tuple[Follower, list[Action]]


def step(slave: Follower, event: Event, now_ms: int) -> Step:
    """Return the state after `event`, and the actions to take, in order."""
    match event:
        case MasterKnown(address):
            return _follow(slave, address)
        case Tick():
            return _tick(slave, now_ms)
        case Connected(end, overlap) if slave.phase is Phase.CONNECTING:
            fresh = replace(
                slave, phase=Phase.FOLLOWING, end=end, overlap=overlap, idle_heartbeats=0
            )
            return _report(
                replace(fresh, heard_ms=now_ms, connected_ms=now_ms, heard_anything=False), now_ms
            )
        case CannotFollow(reason) if slave.phase in (Phase.CONNECTING, Phase.FOLLOWING):
            return _wait(slave, reason, now_ms + RETRY_MS), [Close()]
        case _ if slave.phase is not Phase.FOLLOWING:
            return slave, []
        case PeerBroken(reason):
            pause_ms = min(RETRY_MS << min(slave.broken, 10), RETRY_LATE_MS)
            return _wait(replace(slave, broken=slave.broken + 1), reason, now_ms + pause_ms), [
                Close()
            ]
        case Disconnected():
            return _disconnected(slave, now_ms), []
        case HeartbeatFrame(at):
            return _heartbeat(slave, at)
        case Chunk(at, data):
            return _chunk(slave, at, data)
        case ReadEnded():
            lasted = now_ms - slave.connected_ms >= RETRY_LATE_MS
            broken = 0 if lasted else slave.broken
            heard = replace(slave, heard_ms=now_ms, heard_anything=True, broken=broken, reason="")
            return (heard, []) if heard.next_offset == heard.reported else _report(heard, now_ms)
        case _:
            return slave, []


def _follow(slave: Follower, address: str | None) -> Step:
    """Follow another master, or none. The pauses of the former master do not apply to it."""
    if address == slave.master:
        return slave, []
    closing: list[Action] = [Close()] if slave.phase in (Phase.CONNECTING, Phase.FOLLOWING) else []
    if address is None:
        return replace(slave, phase=Phase.IDLE, master=None, broken=0, reason=""), closing
    fresh = replace(slave, phase=Phase.CONNECTING, master=address, broken=0, reason="")
    return fresh, [*closing, Connect(address)]


def _report(slave: Follower, now_ms: int) -> Step:
    return replace(slave, reported=slave.next_offset, reported_ms=now_ms), [
        Report(slave.next_offset)
    ]


def _wait(slave: Follower, reason: str, retry_ms: int) -> Follower:
    return replace(slave, phase=Phase.WAITING, reason=reason, retry_ms=retry_ms)


def _stop(slave: Follower, reason: str) -> Step:
    return replace(slave, phase=Phase.STOPPED, reason=reason), [Close()]


def _disconnected(slave: Follower, now_ms: int) -> Follower:
    """Wait for the next attempt.

    A master that refuses a slave just closes the connection, so the reason has the offset that was
    reported last: the operator can compare it with the master's log.
    """
    if slave.heard_anything:
        return _wait(slave, "the connection ended", now_ms + RETRY_SOON_MS)
    reason = f"the master closed the connection after our report of {slave.reported}"
    return _wait(slave, reason, now_ms + RETRY_MS)


def _heartbeat(slave: Follower, physical: int) -> Step:
    wrong = _why_wrong(slave, physical)
    if wrong:
        return _stop(slave, wrong)
    if not slave.overlap:
        return slave, []
    if slave.idle_heartbeats == IDLE_HEARTBEATS_MAX:
        ends = f"our log ends at {slave.end}, the master has nothing from {slave.next_offset} on"
        return _stop(slave, f"our log is ahead, or the master has deleted what follows: {ends}")
    return replace(slave, idle_heartbeats=slave.idle_heartbeats + 1), []


def _chunk(slave: Follower, physical: int, data: memoryview) -> Step:
    wrong = _why_wrong(slave, physical)
    if wrong:
        return _stop(slave, wrong)
    known = min(len(slave.overlap), len(data))
    if slave.overlap[:known] != data[:known]:
        same = next(index for index in range(known) if slave.overlap[index] != data[index])
        return _stop(slave, f"the logs have diverged: the bytes at offset {physical + same} differ")
    appended: list[Action] = [Append(physical + known, data[known:])] if known < len(data) else []
    end = max(slave.end, physical + len(data))
    return replace(slave, end=end, overlap=slave.overlap[known:], idle_heartbeats=0), appended


def _why_wrong(slave: Follower, physical: int) -> str:
    """Return why the slave cannot take bytes at offset `physical` next, or an empty text if it can.

    An empty log can begin with any segment.
    """
    if slave.end == 0:
        if not physical % slave.file_size:
            return ""
        return (
            f"the master begins at {physical}, not at the start of a {slave.file_size}-byte "
            "segment: both need the same mappedFileSizeCommitLog"
        )
    if physical == slave.next_offset:
        return ""
    where = f"the master goes on at {physical}, we have everything before {slave.next_offset}"
    return f"a gap: {where}" if physical > slave.next_offset else f"our log is ahead: {where}"


def _tick(slave: Follower, now_ms: int) -> Step:
    """Connect again, leave a silent master, or repeat the report, when its time has come.

    Apache's 4.9 slave never notices a silent master; 5.x does.
    """
    if slave.phase is Phase.WAITING and now_ms >= slave.retry_ms:
        assert slave.master is not None
        return replace(slave, phase=Phase.CONNECTING), [Connect(slave.master)]
    if slave.phase is not Phase.FOLLOWING:
        return slave, []
    silent_ms = now_ms - slave.heard_ms
    if silent_ms > slave.rules.silence_ms_max:
        return _wait(
            slave, f"the master has been silent for {silent_ms} ms", now_ms + RETRY_SOON_MS
        ), [Close()]
    if now_ms - slave.reported_ms >= slave.rules.report_ms:
        return _report(slave, now_ms)
    return slave, []
