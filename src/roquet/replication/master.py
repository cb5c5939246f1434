"""PURE: what a master does for one slave.

See docs/storage/replication.md#what-a-master-does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, TypeAlias

from roquet.common.units import PhysicalOffset
from roquet.errors import ConfigError
from roquet.replication.frames import BODY_SIZE_MAX, NOTHING

BURST_CHUNKS: Final = 8
"""So many chunks go to one slave before others get their turn."""


class Phase(Enum):
    JOINING = "joining"
    """Connected, and has not said yet what it has; Apache's slave takes five seconds for that."""
    STREAMING = "streaming"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Rules:
    """Of one master for all its slaves (haTransferBatchSize, haSendHeartbeatInterval, haHousekeepingInterval)."""

    chunk_size: int = 32 * 1024
    heartbeat_ms: int = 5_000
    silence_ms_max: int = 20_000

    def __post_init__(self) -> None:
        if not 0 < self.chunk_size <= BODY_SIZE_MAX:
            raise ConfigError(
                f"haTransferBatchSize is {self.chunk_size}, a slave takes 1 to {BODY_SIZE_MAX}"
            )


@dataclass(frozen=True, slots=True)
class Slave:
    """One connection of a slave, as its master sees it.

    Keeps: while STREAMING, `acked` <= `next_offset` <= `log_end`; `acked` only grows.

    `is_writing`: what was sent last has not left yet; it is the slave's own pace that decides when it has.
    `advanced_ms`: when it acknowledged more last, or all there was.
    """

    rules: Rules
    file_size: int
    log_start: PhysicalOffset
    log_end: PhysicalOffset
    heard_ms: int
    sent_ms: int
    phase: Phase = Phase.JOINING
    next_offset: PhysicalOffset = NOTHING
    acked: PhysicalOffset = NOTHING
    is_writing: bool = False
    advanced_ms: int = 0

    def stalled_ms(self, now_ms: int) -> int:
        """For so long it has acknowledged nothing more, though there is more."""
        return now_ms - self.advanced_ms if self.acked < self.log_end else 0


def joining(
    log_start: PhysicalOffset, log_end: PhysicalOffset, file_size: int, rules: Rules, now_ms: int
) -> Slave:
    """A slave that has just connected."""
    return Slave(rules, file_size, log_start, log_end, heard_ms=now_ms, sent_ms=now_ms)


# events


@dataclass(frozen=True, slots=True)
class LogMoved:
    """Where the master's log starts and ends now; told when it grew or lost a file, and before a report is judged."""

    start: PhysicalOffset
    end: PhysicalOffset


@dataclass(frozen=True, slots=True)
class Reported:
    """The slave says: I have everything before `offset`."""

    offset: PhysicalOffset


@dataclass(frozen=True, slots=True)
class WriteReady:
    """What was sent has left, or nearly: there is room for more."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection is gone."""


@dataclass(frozen=True, slots=True)
class Broken:
    """What the slave sent is no report."""

    reason: str


Event: TypeAlias = LogMoved | Reported | WriteReady | Tick | Closed | Broken


# actions


@dataclass(frozen=True, slots=True)
class SendChunk:
    at: PhysicalOffset
    size: int


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    at: PhysicalOffset


@dataclass(frozen=True, slots=True)
class Acked:
    """The slave has more than was known so far."""

    offset: PhysicalOffset


@dataclass(frozen=True, slots=True)
class Drop:
    """End the connection, for this reason."""

    reason: str


Action: TypeAlias = SendChunk | SendHeartbeat | Acked | Drop
Step: TypeAlias = tuple[Slave, list[Action]]


def step(slave: Slave, event: Event, now_ms: int) -> Step:
    """The slave after `event`, and what to do about it, in this order."""
    match event:
        case _ if slave.phase is Phase.GONE:
            return slave, []
        case LogMoved(start, end):
            return _send(replace(slave, log_start=start, log_end=end), now_ms)
        case WriteReady():
            return _send(replace(slave, is_writing=False), now_ms)
        case Reported(offset):
            return _hear(replace(slave, heard_ms=now_ms), offset, now_ms)
        case Tick():
            return _look_at_the_clock(slave, now_ms)
        case Closed():
            return replace(slave, phase=Phase.GONE), []
        case Broken(reason):
            return _drop(slave, reason)


def _drop(slave: Slave, reason: str) -> Step:
    return replace(slave, phase=Phase.GONE), [Drop(reason)]


def _hear(slave: Slave, offset: PhysicalOffset, now_ms: int) -> Step:
    """A report beyond what was sent is never believed: a send would count as replicated by it.

    See docs/pitfalls.md#trap-s14.
    """
    if offset > slave.log_end:
        return _drop(
            slave,
            f"the slave is ahead of the log: it reports {offset}, the log ends at {slave.log_end}",
        )
    if slave.phase is Phase.JOINING:
        return _join(slave, offset, now_ms)
    if offset > slave.next_offset:
        return _drop(
            slave, f"the slave reports {offset}, but was sent nothing beyond {slave.next_offset}"
        )
    if offset <= slave.acked:
        return (replace(slave, advanced_ms=now_ms) if slave.acked >= slave.log_end else slave), []
    return replace(slave, acked=offset, advanced_ms=now_ms), [Acked(offset)]


def _join(slave: Slave, offset: PhysicalOffset, now_ms: int) -> Step:
    """An empty slave starts at the last file, any other exactly where it stands."""
    begin = offset or PhysicalOffset(slave.log_end - slave.log_end % slave.file_size)
    joined = replace(
        slave, phase=Phase.STREAMING, next_offset=begin, acked=offset, advanced_ms=now_ms
    )
    joined, actions = _send(joined, now_ms)
    return joined, [Acked(offset), *actions] if joined.phase is Phase.STREAMING else actions


def _send(slave: Slave, now_ms: int) -> Step:
    """As much as may go now. A chunk ends with its file, blank and padding included; it does split records."""
    if slave.phase is not Phase.STREAMING or slave.is_writing or slave.next_offset >= slave.log_end:
        return slave, []
    if slave.next_offset < slave.log_start:
        return _drop(
            slave,
            f"the slave needs {slave.next_offset}, the log starts at {slave.log_start}: wipe its store",
        )
    actions: list[Action] = []
    at, file_size = slave.next_offset, slave.file_size
    while at < slave.log_end and len(actions) < BURST_CHUNKS:
        size = min(slave.rules.chunk_size, slave.log_end - at, file_size - at % file_size)
        actions.append(SendChunk(at, size))
        at = PhysicalOffset(at + size)
    return replace(slave, next_offset=at, sent_ms=now_ms, is_writing=True), actions


def _look_at_the_clock(slave: Slave, now_ms: int) -> Step:
    """A slave drops a master that does not speak for long, and the other way round (docs/pitfalls.md#trap-s12)."""
    silent_ms = now_ms - slave.heard_ms
    if silent_ms > slave.rules.silence_ms_max:
        return _drop(slave, f"the slave has been silent for {silent_ms} ms")
    idle = slave.phase is Phase.STREAMING and not slave.is_writing
    if not idle or now_ms - slave.sent_ms < slave.rules.heartbeat_ms:
        return slave, []
    return replace(slave, sent_ms=now_ms, is_writing=True), [SendHeartbeat(slave.next_offset)]
