"""SOCKETS: the slave's side. Connections and timers become events of `slave`, its actions are carried out here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from roquet.common.limited_log import LimitedLog, without_numbers
from roquet.common.units import PhysicalOffset
from roquet.errors import PeerError, StoreError
from roquet.replication import slave
from roquet.replication.frames import ChunkStream, report
from roquet.replication.log import ReplicatedLog, bytes_between

log = logging.getLogger(__name__)

TICK_S: Final = 0.5
CONNECT_TIMEOUT_S: Final = 5.0
UNREAD_MAX: Final = 64 * 1024
"""Bytes of reports, of 8 each, that may wait for a master that does not read."""


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


@dataclass(frozen=True, slots=True)
class MasterStatus:
    """How a slave stands to its master; `reason` says why it does not follow.

    `silent_ms` and `told_ms`: since the master was heard last, and told last what the slave has.
    """

    master: str | None
    phase: slave.Phase
    end: PhysicalOffset
    silent_ms: int
    told_ms: int
    bytes_per_s: int
    reason: str


class HaClient:
    """The slave's side: it follows one master at a time, and comes back when the connection ends.

    :param on_appended: told once for all that one read has added to the log.
    """

    def __init__(
        self, log: ReplicatedLog, on_appended: Callable[[], None], rules: slave.Rules | None = None
    ) -> None:
        self._log = log
        self._on_appended = on_appended
        self._state = slave.Follower(rules or slave.Rules(), log.file_size)
        self._connection: _MasterConnection | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._end_before = log.end
        self._bytes_per_s = 0
        self._limited_log = LimitedLog(logging.getLogger(__name__))

    def set_master(self, address: str | None) -> None:
        """Follow the master at `host:port`, or none; the one it follows already is not disturbed."""
        if self._timer is None:
            self._tick()
        self._feed(slave.MasterKnown(address))

    @property
    def phase(self) -> slave.Phase:
        return self._state.phase

    @property
    def master(self) -> str | None:
        """Whom it follows, or is going to."""
        return self._state.master

    def progress(self) -> MasterStatus:
        state, now_ms = self._state, _now_ms()
        silent_ms, told_ms = now_ms - state.heard_ms, now_ms - state.reported_ms
        return MasterStatus(
            state.master,
            state.phase,
            self._log.end,
            silent_ms,
            told_ms,
            self._bytes_per_s,
            state.reason,
        )

    async def close(self) -> None:
        """Stop to follow."""
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
        end, rules = self._log.end, self._state.rules
        tail_start = slave.overlap_start(self._log.start, end, self._log.file_size, rules)
        try:
            tail = bytes_between(self._log, tail_start, end)
        except OSError as error:
            self.told(connection, slave.Failed(f"cannot read the end of the own log: {error}"))
        else:
            self.told(connection, slave.Connected(end, tail))

    def told(self, connection: _MasterConnection, *events: slave.Event) -> None:
        """What one connection has to say counts for as long as it is the one in use."""
        if connection is not self._connection:
            return
        end_before = self._log.end
        try:
            for event in events:
                self._feed(event)
        except (OSError, StoreError) as error:
            self._feed(slave.Failed(f"cannot write the log: {error}"))
        if self._log.end != end_before:
            self._on_appended()

    def _feed(self, event: slave.Event) -> None:
        reason_before = self._state.reason
        self._state, actions = slave.step(self._state, event, _now_ms())
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
        now = asyncio.get_running_loop().time()
        if state.reason not in ("", reason_before):
            self._limited_log.warning(
                without_numbers(state.reason), now, "master %s: %s", state.master, state.reason
            )
        elif reason_before and not state.reason and state.phase is slave.Phase.FOLLOWING:
            text = "master %s is followed again, from %d on"
            self._limited_log.tell(logging.INFO, text, now, text, state.master, state.position)

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
        """Connect; false where that failed, which was told."""
        host, _, port = address.rpartition(":")
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                loop = asyncio.get_running_loop()
                await loop.create_connection(lambda: self, host.strip("[]"), int(port))
        except (OSError, TimeoutError, ValueError) as error:
            self._client.told(self, slave.Failed(f"cannot connect: {str(error) or 'no answer'}"))
            return False
        return True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._transport.set_write_buffer_limits(high=UNREAD_MAX)
        self._client.connected(self)

    def data_received(self, data: bytes) -> None:
        try:
            frames = self._chunks.feed(data)
        except PeerError as error:
            self._client.told(self, slave.Broken(f"the master broke the protocol: {error}"))
            return
        self._client.told(self, *frames, slave.ReadEnded())

    def connection_lost(self, exc: Exception | None) -> None:
        self._client.told(self, slave.Disconnected())
        self._lost.set_result(None)

    def pause_writing(self) -> None:
        self._client.told(
            self,
            slave.Broken(f"the master does not read: {UNREAD_MAX} bytes of reports wait for it"),
        )

    def resume_writing(self) -> None:
        """The connection is being closed."""

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def close(self) -> None:
        """An attempt that has its transport is not cancelled: uvloop would close that without `connection_lost`."""
        if self._transport is not None:
            self._transport.abort()
        else:
            self._opening.cancel()

    async def gone(self) -> None:
        """Wait until nothing is left of it."""
        await asyncio.wait([self._opening])
        if not self._opening.cancelled() and self._opening.result():
            await self._lost
