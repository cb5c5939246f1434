"""PURE: what a slave does to follow its master.

A slave begins a little before its own end and compares: a master that lost its unsynced tail and has grown past the
slave since would else go on as if the two logs were one (5.6, "master returns").

See docs/storage/replication.md#what-a-slave-does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, TypeAlias

from roquet.common.units import PhysicalOffset
from roquet.replication.frames import NOTHING, Chunk, Heartbeat

RETRY_MS: Final = 5_000
"""After a connect that failed, or a session that brought nothing."""
RETRY_SOON_MS: Final = 1_000
"""After a session that brought something."""
RETRY_LATE_MS: Final = 60_000
"""The longest pause after sessions in which the master broke the protocol: each doubles the one before."""
IDLE_HEARTBEATS_MAX: Final = 1
"""A master's first heartbeat may come before the bytes it has; a second one means it has none."""

TELLING_SIZE: Final = 91
"""The fixed part of a record: place, times and checksum of two different ones are not the same."""


class Phase(Enum):
    IDLE = "idle"
    """Knows no master."""
    WAITING = "waiting"
    CONNECTING = "connecting"
    FOLLOWING = "following"
    STOPPED = "stopped"
    """The two logs do not fit together; only another master, or an operator, can change that."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Times in ms.

    `overlap_size`: how many of its last bytes a slave wants to see again when it connects; 0: none, as Apache's.
    """

    report_ms: int = 5_000
    silence_ms_max: int = 20_000
    overlap_size: int = 4_096


@dataclass(frozen=True, slots=True)
class Follower:
    """A slave between two events.

    Keeps: `tail` are the last bytes before `end` that this session has not compared yet; the master's next byte is
    the one at `position`, unless the log is empty; only what was compared or appended is reported.
    """

    rules: Rules
    file_size: int
    phase: Phase = Phase.IDLE
    master: str | None = None
    end: PhysicalOffset = NOTHING
    tail: bytes = b""
    reported: PhysicalOffset = NOTHING
    reported_ms: int = 0
    heard_ms: int = 0
    heard_anything: bool = False
    idle_heartbeats: int = 0
    retry_ms: int = 0
    broken: int = 0
    """Sessions in which the master broke the protocol, since one lasted."""
    connected_ms: int = 0
    reason: str = ""
    """Why it does not follow, or did not last time; empty while all is well."""

    @property
    def position(self) -> PhysicalOffset:
        return PhysicalOffset(self.end - len(self.tail))


def overlap_start(
    log_start: PhysicalOffset, log_end: PhysicalOffset, file_size: int, rules: Rules
) -> PhysicalOffset:
    """Where the tail to compare begins: in the last file, since the master may have deleted older ones, unless that
    has too little to tell two logs apart; and never at 0, which would ask for the master's last file.
    """
    if log_end == 0:
        return log_end
    telling = max(log_start, log_end - TELLING_SIZE)
    file_start = telling - telling % file_size
    return PhysicalOffset(max(log_start, file_start, log_end - rules.overlap_size, 1))


# events; with them Heartbeat and Chunk


@dataclass(frozen=True, slots=True)
class MasterKnown:
    """Whom to follow, if anybody."""

    address: str | None


@dataclass(frozen=True, slots=True)
class Connected:
    """The connection stands; the own log ends at `end`, with the bytes `tail`."""

    end: PhysicalOffset
    tail: bytes


@dataclass(frozen=True, slots=True)
class ReadEnded:
    """All frames that one read brought have been told."""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The master ended the connection, or the network did."""


@dataclass(frozen=True, slots=True)
class Failed:
    """It did not come to a connection, or its bytes are of no use."""

    reason: str


@dataclass(frozen=True, slots=True)
class Broken:
    """What listens there is no master, or a damaged one: its bytes are no frames, or it does not read."""

    reason: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event: TypeAlias = (
    MasterKnown | Connected | Heartbeat | Chunk | ReadEnded | Disconnected | Failed | Broken | Tick
)


# actions


@dataclass(frozen=True, slots=True)
class Connect:
    address: str


@dataclass(frozen=True, slots=True)
class Append:
    at: PhysicalOffset
    data: memoryview


@dataclass(frozen=True, slots=True)
class Report:
    offset: PhysicalOffset


@dataclass(frozen=True, slots=True)
class Close:
    """End the connection, or the attempt to get one."""


Action: TypeAlias = Connect | Append | Report | Close
Step: TypeAlias = tuple[Follower, list[Action]]


def step(slave: Follower, event: Event, now_ms: int) -> Step:
    """The slave after `event`, and what to do about it, in this order."""
    match event:
        case MasterKnown(address):
            return _follow(slave, address, now_ms)
        case Tick():
            return _look_at_the_clock(slave, now_ms)
        case Connected(end, tail) if slave.phase is Phase.CONNECTING:
            fresh = replace(slave, phase=Phase.FOLLOWING, end=end, tail=tail, idle_heartbeats=0)
            return _report(
                replace(fresh, heard_ms=now_ms, connected_ms=now_ms, heard_anything=False), now_ms
            )
        case Failed(reason) if slave.phase in (Phase.CONNECTING, Phase.FOLLOWING):
            return _wait(slave, reason, now_ms + RETRY_MS), [Close()]
        case _ if slave.phase is not Phase.FOLLOWING:
            return slave, []
        case Broken(reason):
            pause_ms = min(RETRY_MS << min(slave.broken, 10), RETRY_LATE_MS)
            return _wait(replace(slave, broken=slave.broken + 1), reason, now_ms + pause_ms), [
                Close()
            ]
        case Disconnected():
            return _disconnected(slave, now_ms), []
        case Heartbeat(at):
            return _heartbeat(slave, at)
        case Chunk(at, data):
            return _chunk(slave, at, data)
        case ReadEnded():
            lasted = now_ms - slave.connected_ms >= RETRY_LATE_MS
            broken = 0 if lasted else slave.broken
            heard = replace(slave, heard_ms=now_ms, heard_anything=True, broken=broken, reason="")
            return (heard, []) if heard.position == heard.reported else _report(heard, now_ms)
        case _:
            return slave, []


def _follow(slave: Follower, address: str | None, now_ms: int) -> Step:
    """What an older master was guilty of is forgotten with it."""
    if address == slave.master:
        return slave, []
    closing: list[Action] = [Close()] if slave.phase in (Phase.CONNECTING, Phase.FOLLOWING) else []
    if address is None:
        return replace(slave, phase=Phase.IDLE, master=None, broken=0, reason=""), closing
    fresh = replace(slave, phase=Phase.CONNECTING, master=address, broken=0, reason="")
    return fresh, [*closing, Connect(address)]


def _report(slave: Follower, now_ms: int) -> Step:
    return replace(slave, reported=slave.position, reported_ms=now_ms), [Report(slave.position)]


def _wait(slave: Follower, reason: str, retry_ms: int) -> Follower:
    return replace(slave, phase=Phase.WAITING, reason=reason, retry_ms=retry_ms)


def _stop(slave: Follower, reason: str) -> Step:
    return replace(slave, phase=Phase.STOPPED, reason=reason), [Close()]


def _disconnected(slave: Follower, now_ms: int) -> Follower:
    """A master says no by closing: then only its own log, or the two ends, tell why."""
    if slave.heard_anything:
        return _wait(slave, "the connection ended", now_ms + RETRY_SOON_MS)
    return _wait(slave, f"the master closed on our report of {slave.reported}", now_ms + RETRY_MS)


def _heartbeat(slave: Follower, at: PhysicalOffset) -> Step:
    wrong = _why_wrong(slave, at)
    if wrong:
        return _stop(slave, wrong)
    if not slave.tail:
        return slave, []
    if slave.idle_heartbeats == IDLE_HEARTBEATS_MAX:
        mine = f"ours ends at {slave.end}, it has nothing from {slave.position} on"
        return _stop(slave, f"our log is ahead, or the master has cleaned what follows: {mine}")
    return replace(slave, idle_heartbeats=slave.idle_heartbeats + 1), []


def _chunk(slave: Follower, at: PhysicalOffset, data: memoryview) -> Step:
    wrong = _why_wrong(slave, at)
    if wrong:
        return _stop(slave, wrong)
    known = min(len(slave.tail), len(data))
    if slave.tail[:known] != data[:known]:
        same = next(index for index in range(known) if slave.tail[index] != data[index])
        return _stop(
            slave, f"the logs have diverged: the master's byte at {at + same} is another than ours"
        )
    appended = [Append(PhysicalOffset(at + known), data[known:])] if known < len(data) else []
    end = PhysicalOffset(max(slave.end, at + len(data)))
    return replace(slave, end=end, tail=slave.tail[known:], idle_heartbeats=0), [*appended]


def _why_wrong(slave: Follower, at: PhysicalOffset) -> str:
    """Why the master's next bytes cannot be those at `at`; empty when they can. An empty log takes any whole file."""
    if slave.end == 0:
        return (
            f"the master begins at {at}, no start of a {slave.file_size}-byte file"
            if at % slave.file_size
            else ""
        )
    if at > slave.position:
        return f"a gap: the master goes on at {at}, we have everything before {slave.position}"
    if at < slave.position:
        return f"our log is ahead: the master goes on at {at}, we have everything before {slave.position}"
    return ""


def _look_at_the_clock(slave: Follower, now_ms: int) -> Step:
    """4.9's slave never notices a master that is silent; 5.x and this one do (5.3)."""
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
