"""SOCKETS: the master's side of the HA stream.

Turns what happens to connections and timers into events of the state machine in `master`, and
carries out the actions that it returns.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import Final, cast

from roquet.common.bounded_dict import BoundedDict
from roquet.common.limited_log import LimitedLog, without_numbers
from roquet.common.listeners import Listeners
from roquet.common.loop_time import now_ms
from roquet.common.shared_places import network_of
from roquet.errors import PeerError
from roquet.replication import master
from roquet.replication.admission import Admission, Candidate
from roquet.replication.frames import NOTHING, ReportStream, header
from roquet.replication.log import ReplicatedLog
from roquet.replication.log_age import LogAgeSamples

logger = logging.getLogger(__name__)

TICK_S: Final = 0.5
"""Pause between two samples of lag and speed, and between two checks for silent slaves."""
CLOSE_TIMEOUT_S: Final = 1.0
"""How long a slave may take to read what was written to it before the server closed."""
WRITE_BUFFER_MAX: Final = 1024 * 1024
"""Bytes in one slave's write buffer above which it is sent no more."""
DISCONNECTED_MAX: Final = 16
"""For how many hosts `HaServer` remembers why their last slave disconnected."""
ENDED: Final = "the connection ended"
LASTING_MS: Final = 5_000
"""The end of a slave's connection that lasted for so long is always logged (once a minute)."""

_GONE: Final = ("0.0.0.0", 0)
"""The address of a peer that reset its connection before the loop called `connection_made`: the
system does not know the address any more, and `connection_lost` is called next."""


@dataclass(frozen=True, slots=True)
class SlaveFollow:
    """What the master knows of one slave.

    :param sent: the slave was sent every byte before this physical offset.
    :param acked: it has reported every byte before this one.
    :param lag: its lag in bytes.
    :param lag_ms: its lag in ms: for how long the master has had the next byte that the slave
        lacks, as far as this server knows.
    :param silent_ms: ms since its last report.
    :param reason: why it disconnected; empty while it is connected.
    """

    address: str
    phase: master.Phase
    sent: int
    acked: int
    lag: int
    lag_ms: int
    silent_ms: int
    bytes_per_s: int = 0
    reason: str = ""


class HaServer:
    """Sends the master's log to any number of slaves, to each at its own pace.

    Invariant: `replicated_to` is the highest offset that one of the `slave_count` slaves which are
    streaming now has acknowledged.

    :param admission: the rules by which connections are accepted; by default up to 64 from any
        address. The protocol has no authentication: the report of any peer is believed.
    """

    def __init__(
        self,
        log: ReplicatedLog,
        rules: master.Rules | None = None,
        admission: Admission | None = None,
    ) -> None:
        self.log = log
        self.acked = Listeners[[]]()
        """Called when a slave has acknowledged more."""
        self.rules = rules or master.Rules()
        self.admission = admission or Admission()
        self.replicated_to = NOTHING
        self.slave_count = 0
        self._copies: list[tuple[int, int]] = []
        """What streaming slaves have: from one physical offset to another, the furthest first."""
        self._begins: BoundedDict[str, int] = BoundedDict(DISCONNECTED_MAX)
        """By host: where the copy of a slave begins that was empty. It may report again, over
        another connection, while a send waits that is older than its copy."""
        self._connections: dict[_SlaveConnection, None] = {}
        self._disconnected: dict[str, tuple[SlaveFollow, int]] = {}
        self._log_age = LogAgeSamples()
        self._limited_log = LimitedLog(logger)
        self._listener: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def listen(self, host: str, port: int) -> int:
        """Start to accept connections.

        :param port: 0 lets the system choose one.
        :returns: the port.
        """
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: _SlaveConnection(self), host, port)
        self._tick()
        return int(self._listener.sockets[0].getsockname()[1])

    def notify_growth(self) -> None:
        """Tell all connections that the log grew or a segment was deleted; called once a turn."""
        for connection in list(self._connections):
            connection.check_log()

    def slaves(self) -> list[SlaveFollow]:
        """Return all connected slaves, then per host the last one that disconnected."""
        live = [connection.status() for connection in self._connections]
        return live + [
            replace(last, silent_ms=now_ms() - heard_ms)
            for last, heard_ms in self._disconnected.values()
        ]

    @property
    def why_no_slave(self) -> str:
        """Why no slave counts as a replica; only valid while `slave_count` is 0."""
        if self._connections:
            count = len(self._connections)
            return f"no connected slave has sent a slave report yet, connected: {count}"
        if not self._disconnected:
            return "no slave is connected"
        *_, (last, _) = self._disconnected.values()
        return f"no slave is connected, the last one, {last.address}, disconnected: {last.reason}"

    def age_ms(self, physical: int) -> int:
        """Return for how many ms the log has had the byte at `physical`; 0 if it has not."""
        return 0 if physical >= self.log.end else self._log_age.age_ms(physical, now_ms())

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        self._log_age.note(self.log.end, now_ms())
        self.notify_growth()
        for connection in list(self._connections):
            connection.tick()

    def opened(self, connection: _SlaveConnection) -> bool:
        """Return whether a new connection is accepted; if not, log it (at most once a minute).

        If there are `connections_max` already, another one is closed, or this one
        (`Admission.to_close`).
        """
        if self._is_closed:
            return False
        if not self.admission.allows(connection.host):
            why_not = "its address is not one of haAllowedAddresses"
        elif not self._has_room_for(connection):
            why_not = f"too many are connected, haConnectionsMax={self.admission.connections_max}"
        else:
            self._connections[connection] = None
            return True
        text = "slave refused: peer=%s reason=%s"
        self._limited_log.warning(why_not, text, connection.address, why_not)
        return False

    def _has_room_for(self, newcomer: _SlaveConnection) -> bool:
        """Return whether there is room, if necessary after closing a less useful connection."""
        there = [each for each in self._connections if not each.transport.is_closing()]
        if len(there) < self.admission.connections_max:
            return True
        index = self.admission.to_close(
            [each.candidate for each in there],
            network_of(newcomer.host),
            self.rules.silence_ms_max,
        )
        if index is not None:
            there[index].make_room()
        return index is not None

    def joined(self, connection: _SlaveConnection) -> None:
        """Log a slave's first report: a SYNC_MASTER acknowledges sends by its reports from now on.

        The protocol has no authentication, so the log names every peer whose reports count.
        """
        text = "slave joined, its reports now count for SYNC_MASTER acknowledgements: "
        text += "peer=%s acked=%d"
        if connection.slave.begin:
            self._begins[connection.host] = connection.slave.begin
        kind, acked = f"joined {connection.host}", connection.slave.acked
        self._limited_log.tell(logging.INFO, kind, text, connection.address, acked)

    def moved(self) -> None:
        """Update what slaves have after one of them joined, reported or left."""
        streaming = [
            (-each.slave.acked, each.slave.begin)
            for each in self._connections
            if each.slave.phase is master.Phase.STREAMING
        ]
        self._copies = [(begin, -acked) for acked, begin in sorted(streaming)]
        self.slave_count = len(streaming)
        self.replicated_to = self._copies[0][1] if self._copies else NOTHING

    def has_copy(self, end: int) -> bool:
        """Whether a slave that is streaming now has the record that ends at physical offset `end`.

        A slave that was empty begins with the master's last segment. Its reports say nothing about
        records before that: they may be in no other copy yet. No record crosses a segment's end.
        """
        for begin, acked in self._copies:
            if acked < end:
                return False
            if begin < end:
                return True
        return False

    def begin_of(self, host: str) -> int:
        """Where the copy of the slave on a host begins, as far as this master knows."""
        return self._begins.get(host, 0)

    def note_end(self, connection: _SlaveConnection, last: SlaveFollow) -> None:
        """Log and remember the end of a connection.

        A peer that never sent a report was no slave. It is logged as such and not remembered, so
        that `why_no_slave` and `slaves` name slaves only.

        Logged at most once a minute: per host, if the slave had acknowledged bytes and had stayed
        `LASTING_MS` or longer; otherwise per reason. The connection of a slave that acknowledged
        nothing is not logged if it ends for the same reason as the host's last one. Numbers in a
        reason do not count.
        """
        if not connection.has_reported:
            text = "connection to the HA port ended, no slave: peer=%s reason=%s"
            # Another kind than that of a slave that disconnects for the same reason.
            kind = f"no slave: {without_numbers(last.reason)}"
            self._limited_log.warning(kind, text, last.address, last.reason)
            return
        before = self._disconnected.pop(connection.host, None)
        self._disconnected[connection.host] = last, connection.slave.heard_ms
        if len(self._disconnected) > DISCONNECTED_MAX:
            del self._disconnected[next(iter(self._disconnected))]
        kind = without_numbers(last.reason)
        is_same = before is not None and without_numbers(before[0].reason) == kind
        if connection.has_acked and now_ms() - connection.opened_ms >= LASTING_MS:
            kind = f"slave lost {connection.host}"
        if connection.has_acked or not is_same:
            text = "slave disconnected: peer=%s acked=%d reason=%s"
            self._limited_log.warning(kind, text, last.address, last.acked, last.reason)
        self.moved()

    def closed(self, connection: _SlaveConnection) -> None:
        """Forget a connection that has ended."""
        self._connections.pop(connection, None)
        self.moved()

    def log_why_closing(self, reason: str) -> None:
        """Log why the connections of all slaves are about to be closed; slaves cannot be told."""
        text = "connection of a slave will be closed: peer=%s acked=%d reason=%s"
        for connection in self._connections:
            logger.warning(text, connection.address, connection.slave.acked, reason)

    async def close(self) -> None:
        """Stop to listen and close all connections.

        Slaves have `CLOSE_TIMEOUT_S` to read what was already written to them. A connection whose
        `connection_made` has not been called yet is closed when it is (`opened` refuses it).
        """
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._listener is not None:
            self._listener.close()
        connections = list(self._connections)
        if not connections:
            return
        for connection in connections:
            connection.feed(master.Closed())
            connection.transport.close()
        await asyncio.wait([each.lost for each in connections], timeout=CLOSE_TIMEOUT_S)
        for connection in connections:
            connection.transport.abort()
        await asyncio.wait([each.lost for each in connections])


class _SlaveConnection(asyncio.Protocol):
    """One connection at the HA port.

    `has_reported`: the peer has sent a valid report, so it is a slave and not a port scanner.
    `has_acked`: the slave has acknowledged bytes that this connection sent.
    """

    transport: asyncio.Transport
    slave: master.Slave

    def __init__(self, server: HaServer) -> None:
        self._server = server
        self._log = server.log
        self._loop = asyncio.get_running_loop()
        self._reports = ReportStream()
        self._is_paused = False
        self._sent_before = NOTHING
        self._bytes_per_s = 0
        self._is_admitted = False
        self.has_reported = False
        self.has_acked = False
        self.opened_ms = now_ms()
        self.address = self.host = ""
        self.lost: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport has this interface, but is not a subclass of it.
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER_MAX)
        self.host, port = (transport.get_extra_info("peername") or _GONE)[:2]
        self.address = f"{self.host}:{port}"
        log, now = self._log, now_ms()
        self.slave = master.Slave(
            self._server.rules,
            log.file_size,
            log.start,
            log.end,
            heard_ms=now,
            sent_ms=now,
            begin=self._server.begin_of(self.host),
        )
        self._is_admitted = self._server.opened(self)
        if not self._is_admitted:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if not self._is_admitted:
            return
        try:
            offset = self._reports.feed(data)
        except PeerError as error:
            self.feed(master.MustDrop(str(error)))
            return
        if offset is not None:
            self.has_reported = True
            self.check_log()
            self.feed(master.Reported(offset))

    def connection_lost(self, exc: Exception | None) -> None:
        try:
            if self._is_admitted:
                self._ended(exc)
        finally:
            self.lost.set_result(None)  # in `finally`, because `HaServer.close` waits for it

    def _ended(self, exc: Exception | None) -> None:
        is_news = self.slave.phase is master.Phase.STREAMING
        before = self.status(ENDED if exc is None else f"{ENDED}: {exc}")
        try:
            self._reports.end()
        except PeerError as error:
            # The peer broke the protocol: logged also if it never joined, unless it is already.
            is_news = self.slave.phase is not master.Phase.GONE
            before = self.status(str(error))
        self.feed(master.Closed())
        self._server.closed(self)
        if is_news:
            self._server.note_end(self, before)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self.feed(master.WriteReady())

    def check_log(self) -> None:
        """Tell the state machine where the log starts and ends now; it may send more."""
        self.feed(master.LogMoved(self._log.start, self._log.end))

    def feed(self, event: master.Event) -> None:
        """Pass an event to the state machine and carry out its actions."""
        had_joined = self.slave.phase is master.Phase.STREAMING
        self.slave, actions = master.step(self.slave, event, now_ms())
        if not actions:
            return
        frames: list[bytes] = []
        is_acked = False
        for action in actions:
            match action:
                case master.SendChunk(at, size):
                    try:
                        frames += (header(at, size), self._log.read(at, size))
                    except OSError as error:
                        reason = f"the log cannot be read at offset {at}: {error}"
                        self.feed(master.MustDrop(reason))
                        return
                case master.SendHeartbeat(at):
                    frames.append(header(at, 0))
                case master.Acked():
                    is_acked = True
                    self.has_acked |= had_joined
                case master.Drop(reason):
                    self._drop(reason)
        if frames:
            self._write(b"".join(frames))
        if not had_joined and self.slave.phase is master.Phase.STREAMING:
            self._server.joined(self)
        if is_acked:
            self._server.moved()
            self._server.acked()

    def _write(self, data: bytes) -> None:
        self.transport.write(data)
        if not self._is_paused:
            # In the next turn, so that other connections are served between two bursts.
            self._loop.call_soon(self.feed, master.WriteReady())

    def _drop(self, reason: str) -> None:
        self._server.note_end(self, self.status(reason))
        self.transport.abort()

    @property
    def candidate(self) -> Candidate:
        """What `Admission.to_close` compares."""
        stalled_ms = self.slave.stalled_ms(now_ms())
        return Candidate(network_of(self.host), self.has_reported, stalled_ms, self.slave.acked)

    def make_room(self) -> None:
        """Close the connection, so that another gets its place; logged if the peer is a slave."""
        if self.has_reported:
            limit = self._server.admission.connections_max
            reason = f"closed to make room for another, haConnectionsMax={limit}"
            self.feed(master.MustDrop(reason))
        else:
            self.transport.abort()

    def tick(self) -> None:
        """Check for silence and measure the speed; called every `TICK_S`."""
        self.feed(master.Tick())
        sent = self.slave.next_offset
        self._bytes_per_s = int((sent - self._sent_before) / TICK_S) if self._sent_before else 0
        self._sent_before = sent

    def status(self, reason: str = "") -> SlaveFollow:
        """Return what is known of the slave.

        :param reason: why the connection has ended; empty while it has not.
        """
        known = self.slave
        return SlaveFollow(
            self.address,
            known.phase,
            known.next_offset,
            known.acked,
            self._log.end - known.acked,
            self._server.age_ms(known.acked),
            now_ms() - known.heard_ms,
            0 if reason else self._bytes_per_s,
            reason,
        )
