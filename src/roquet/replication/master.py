"""PURE: the state machine of one slave's connection, at the master.

See docs/storage/replication.md#what-a-master-does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, TypeAlias

from roquet.errors import ConfigError
from roquet.replication.frames import BODY_SIZE_MAX, NOTHING

BURST_CHUNKS: Final = 8
"""How many chunks one slave is sent before the event loop serves others."""


class Phase(Enum):
    """What a slave's connection does."""

    JOINING = "joining"
    """Connected, no slave report yet; Apache's slave sends its first one after 5 s."""
    STREAMING = "streaming"
    """The slave has reported; it gets the log, and its reports count."""
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Rules:
    """One master's settings for all its slaves.

    :param chunk_size: bytes of the log in one frame (haTransferBatchSize).
    :param heartbeat_ms: pause after which a heartbeat is sent (haSendHeartbeatInterval).
    :param silence_ms_max: a slave that is silent for longer is dropped (haHousekeepingInterval).
    """

    chunk_size: int = 32 * 1024
    heartbeat_ms: int = 5_000
    silence_ms_max: int = 20_000

    def __post_init__(self) -> None:
        if not 0 < self.chunk_size <= BODY_SIZE_MAX:
            raise ConfigError(
                f"haTransferBatchSize is {self.chunk_size}, it must be 1 to {BODY_SIZE_MAX}"
            )


@dataclass(frozen=True, slots=True)
class Slave:
    """The master's state for one connection of a slave.

    Invariant: while STREAMING, `acked` <= `next_offset` <= `log_end`; `acked` never decreases.

    :param file_size: bytes of a segment.
    :param heard_ms: when the slave sent its last report (event loop's clock, as all times here).
    :param sent_ms: when the last frame was sent.
    :param next_offset: the physical offset of the next byte to send.
    :param begin: a slave that was empty has nothing before this physical offset; 0 for others.
    :param acked: the slave has every byte from `begin` to this physical offset.
    :param is_writing: frames are still in the write buffer; the slave's pace decides for how long.
    :param advanced_ms: when `acked` last grew, or the slave last had the whole log.
    """

    rules: Rules
    file_size: int
    log_start: int
    log_end: int
    heard_ms: int
    sent_ms: int
    begin: int = 0
    phase: Phase = Phase.JOINING
    next_offset: int = NOTHING
    acked: int = NOTHING
    is_writing: bool = False
    advanced_ms: int = 0

    def stalled_ms(self, now_ms: int) -> int:
        """Return for how many ms `acked` has not grown; 0 if the slave has the whole log."""
        return now_ms - self.advanced_ms if self.acked < self.log_end else 0


# events


@dataclass(frozen=True, slots=True)
class LogMoved:
    """The master's log now starts and ends at these physical offsets.

    Sent when the log grew or a segment was deleted, and before each report is checked.
    """

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Reported:
    """A slave report: the slave has every byte before `offset`."""

    offset: int


@dataclass(frozen=True, slots=True)
class WriteReady:
    """The write buffer has room for more frames."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection has ended."""


@dataclass(frozen=True, slots=True)
class MustDrop:
    """The peer broke the protocol, or has to give up its connection, for this reason."""

    reason: str


Event: TypeAlias = LogMoved | Reported | WriteReady | Tick | Closed | MustDrop


# actions


@dataclass(frozen=True, slots=True)
class SendChunk:
    """Send `size` bytes of the log from physical offset `at` on."""

    at: int
    size: int


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """Send a heartbeat; the next chunk begins at physical offset `at`."""

    at: int


@dataclass(frozen=True, slots=True)
class Acked:
    """The slave has acknowledged more: everything before `offset`."""

    offset: int


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the connection, for this reason."""

    reason: str


Action: TypeAlias = SendChunk | SendHeartbeat | Acked | Drop
Step: TypeAlias = tuple[Slave, list[Action]]


def step(slave: Slave, event: Event, now_ms: int) -> Step:
    """Return the state after `event`, and the actions to take, in order."""
    match event:
        case _ if slave.phase is Phase.GONE:
            return slave, []
        case LogMoved(start, end):
            return _send(replace(slave, log_start=start, log_end=end), now_ms)
        case WriteReady():
            return _send(replace(slave, is_writing=False), now_ms)
        case Reported(offset):
            return _reported(replace(slave, heard_ms=now_ms), offset, now_ms)
        case Tick():
            return _tick(slave, now_ms)
        case Closed():
            return replace(slave, phase=Phase.GONE), []
        case MustDrop(reason):
            return _drop(slave, reason)


def _drop(slave: Slave, reason: str) -> Step:
    return replace(slave, phase=Phase.GONE), [Drop(reason)]


def _reported(slave: Slave, offset: int, now_ms: int) -> Step:
    """Take a slave report, but drop a slave that reports more than it was sent.

    If such a report were believed, a SYNC_MASTER would acknowledge sends that no slave has.

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


def _join(slave: Slave, offset: int, now_ms: int) -> Step:
    """Begin to send: from the last segment to an empty slave, else from the reported offset."""
    begin = slave.begin if offset else slave.log_end - slave.log_end % slave.file_size
    joined = replace(
        slave,
        begin=begin,
        phase=Phase.STREAMING,
        next_offset=offset or begin,
        acked=offset,
        advanced_ms=now_ms,
    )
    joined, actions = _send(joined, now_ms)
    return joined, [Acked(offset), *actions] if joined.phase is Phase.STREAMING else actions


def _send(slave: Slave, now_ms: int) -> Step:
    """Send up to `BURST_CHUNKS` chunks, unless the last ones are still in the write buffer.

    A chunk never crosses a segment's end. It may split a record, and includes blanks.
    """
    if slave.phase is not Phase.STREAMING or slave.is_writing or slave.next_offset >= slave.log_end:
        return slave, []
    if slave.next_offset < slave.log_start:
        return _drop(
            slave,
            f"the slave needs {slave.next_offset}, the log starts at {slave.log_start}: "
            "wipe its store",
        )
    actions: list[Action] = []
    at = slave.next_offset
    file_size = slave.file_size
    while at < slave.log_end and len(actions) < BURST_CHUNKS:
        size = min(slave.rules.chunk_size, slave.log_end - at, file_size - at % file_size)
        actions.append(SendChunk(at, size))
        at = at + size
    return replace(slave, next_offset=at, sent_ms=now_ms, is_writing=True), actions


def _tick(slave: Slave, now_ms: int) -> Step:
    """Drop a slave that is silent for too long; send a heartbeat if nothing else was sent.

    Slaves drop a silent master (docs/pitfalls.md#trap-s12).
    """
    silent_ms = now_ms - slave.heard_ms
    if silent_ms > slave.rules.silence_ms_max:
        return _drop(slave, f"the slave has been silent for {silent_ms} ms")
    idle = slave.phase is Phase.STREAMING and not slave.is_writing
    if not idle or now_ms - slave.sent_ms < slave.rules.heartbeat_ms:
        return slave, []
    return replace(slave, sent_ms=now_ms, is_writing=True), [SendHeartbeat(slave.next_offset)]
