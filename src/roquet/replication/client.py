"""SOCKETS: the slave's side of the HA stream.

Turns what happens to the connection and the timer into events of the state machine in `slave`, and
carries out the actions that it returns.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from roquet.common.limited_log import LimitedLog, without_numbers
from roquet.common.loop_time import now_ms
from roquet.errors import PeerError, StoreError
from roquet.replication import slave
from roquet.replication.frames import ChunkStream, report
from roquet.replication.log import SlaveLog, bytes_between

logger = logging.getLogger(__name__)

TICK_S: Final = 0.5
CONNECT_TIMEOUT_S: Final = 5.0
UNREAD_MAX: Final = 64 * 1024
"""Bytes of reports (8 each) in the write buffer at which a master counts as broken."""


@dataclass(frozen=True, slots=True)
class MasterStatus:
    """What a slave knows of its master.

    :param end: the physical offset at which the slave's log ends.
    :param silent_ms: ms since the master's last bytes came.
    :param reported_ms: ms since the last slave report was sent.
    :param reason: why the slave does not follow; empty while it follows.
    """

    master: str | None
    phase: slave.Phase
    end: int
    silent_ms: int
    reported_ms: int
    bytes_per_s: int
    reason: str


class HaClient:
    """Copies the log of one master at a time, and connects again when the connection ends.

    :param on_appended: called once for all bytes that one read has added to the log.
    """

    def __init__(
        self, log: SlaveLog, on_appended: Callable[[], None], rules: slave.Rules | None = None
    ) -> None:
        self._log = log
        self._on_appended = on_appended
        self._state = slave.Follower(rules or slave.Rules(), log.file_size)
        self._connection: _MasterConnection | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._end_before = log.end
        self._bytes_per_s = 0
        self._limited_log = LimitedLog(logger)

    def set_master(self, address: str | None) -> None:
        """Follow the master at `host:port`, or none; no effect if it is followed already."""
        if self._timer is None:
            self._tick()
        self._feed(slave.MasterKnown(address))

    @property
    def phase(self) -> slave.Phase:
        return self._state.phase

    @property
    def master(self) -> str | None:
        """The address of the master that is followed, or will be."""
        return self._state.master

    def status(self) -> MasterStatus:
        """Return what is known of the master."""
        state = self._state
        return MasterStatus(
            state.master,
            state.phase,
            self._log.end,
            now_ms() - state.heard_ms,
            now_ms() - state.reported_ms,
            self._bytes_per_s,
            state.reason,
        )

    async def close(self) -> None:
        """Follow no master any more; returns when the connection is closed."""
        connection = self._connection
        self._feed(slave.MasterKnown(None))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if connection is not None:
            await connection.gone()

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        self._bytes_per_s = int((self._log.end - self._end_before) / TICK_S)
        self._end_before = self._log.end
        self._feed(slave.Tick())

    def connected(self, connection: _MasterConnection) -> None:
        """Begin a session with the last bytes of the own log, which are compared first."""
        end = self._log.end
        rules = self._state.rules
        start = slave.overlap_start(self._log.start, end, self._log.file_size, rules)
        try:
            overlap = bytes_between(self._log, start, end)
        except OSError as error:
            self.handle(connection, slave.CannotFollow(f"cannot read our log: {error}"))
        else:
            self.handle(connection, slave.Connected(end, overlap))

    def handle(self, connection: _MasterConnection, *events: slave.Event) -> None:
        """Feed events of a connection to the state machine, unless it is not the current one."""
        if connection is not self._connection:
            return
        end_before = self._log.end
        try:
            for event in events:
                self._feed(event)
        except (OSError, StoreError) as error:
            self._feed(slave.CannotFollow(f"cannot write the log: {error}"))
        if self._log.end != end_before:
            self._on_appended()

    def _feed(self, event: slave.Event) -> None:
        """Pass an event to the state machine and carry out its actions."""
        reason_before = self._state.reason
        self._state, actions = slave.step(self._state, event, now_ms())
        for action in actions:
            match action:
                case slave.Append(at, data):
                    self._log.replicate(at, data)
                case slave.Report(offset):
                    self._current.write(report(offset))
                case slave.Connect(address):
                    self._connection = _MasterConnection(self, address)
                case slave.Close():
                    self._current.close()
                    self._connection = None
        state = self._state
        if state.reason not in ("", reason_before):
            text = "not following the master"
            if state.phase is slave.Phase.STOPPED:
                text = "replication stopped until an operator acts or the master changes "
                text += "(docs/guide/replication.md)"
            text += ": master=%s state=%s reason=%s"
            kind = without_numbers(state.reason)
            phase = state.phase.value
            self._limited_log.warning(kind, text, state.master, phase, state.reason)
        elif reason_before and not state.reason and state.phase is slave.Phase.FOLLOWING:
            text = "following the master again: master=%s offset=%d"
            self._limited_log.tell(logging.INFO, text, text, state.master, state.next_offset)

    @property
    def _current(self) -> _MasterConnection:
        assert self._connection is not None
        return self._connection


class _MasterConnection(asyncio.Protocol):
    """The connection to one master, from the attempt to its end."""

    def __init__(self, client: HaClient, address: str) -> None:
        loop = asyncio.get_running_loop()
        self._client = client
        self._chunks = ChunkStream()
        self._transport: asyncio.Transport | None = None
        self._opening = loop.create_task(self._open(address))
        self._lost: asyncio.Future[None] = loop.create_future()

    async def _open(self, address: str) -> bool:
        """Connect; returns False if that failed, after telling the client why."""
        host, _, port = address.rpartition(":")
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                loop = asyncio.get_running_loop()
                await loop.create_connection(lambda: self, host.strip("[]"), int(port))
        except (OSError, TimeoutError, ValueError) as error:
            self._client.handle(
                self, slave.CannotFollow(f"cannot connect: {str(error) or 'no answer'}")
            )
            return False
        return True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport has this interface, but is not a subclass of it.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=UNREAD_MAX)
        self._client.connected(self)

    def data_received(self, data: bytes) -> None:
        try:
            frames = self._chunks.feed(data)
        except PeerError as error:
            self._client.handle(self, slave.PeerBroken(f"the master broke the protocol: {error}"))
            return
        self._client.handle(self, *frames, slave.ReadEnded())

    def connection_lost(self, _: Exception | None) -> None:
        self._client.handle(self, slave.Disconnected())
        self._lost.set_result(None)

    def pause_writing(self) -> None:
        reason = f"the master does not read: {UNREAD_MAX} bytes of reports wait for it"
        self._client.handle(self, slave.PeerBroken(reason))

    def resume_writing(self) -> None:
        """Do nothing: `pause_writing` has closed the connection."""

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def close(self) -> None:
        """Close the connection, or cancel the attempt to connect."""
        # If the attempt already has its transport, it is aborted instead of cancelled: uvloop
        # would close the transport of a cancelled attempt without calling `connection_lost`.
        if self._transport is not None:
            self._transport.abort()
        else:
            self._opening.cancel()

    async def gone(self) -> None:
        """Wait until the attempt has ended and the connection is closed."""
        await asyncio.wait([self._opening])
        if not self._opening.cancelled() and self._opening.result():
            await self._lost
