"""SOCKETS: the master's side. Connections and timers become events of `master`, its actions are carried out here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, cast

from roquet.common.limited_log import LimitedLog, without_numbers
from roquet.common.shared_places import network_of
from roquet.common.units import PhysicalOffset
from roquet.errors import PeerError
from roquet.replication import master
from roquet.replication.admission import Admission, Place
from roquet.replication.frames import NOTHING, ReportStream, header
from roquet.replication.log import ReplicatedLog
from roquet.replication.log_age import LogAgeSamples

log = logging.getLogger(__name__)

TICK_S: Final = 0.5
CLOSE_TIMEOUT_S: Final = 1.0
"""So long a slave may take for what was written to it before the server closed."""
WRITE_BUFFER_MAX: Final = 1024 * 1024
"""Bytes that may wait for a slow slave."""
GONE_MAX: Final = 16
"""Of so many hosts it is known why their last slave is gone."""
ENDED: Final = "the connection ended"
LASTING_MS: Final = 5_000
"""A connection that acknowledges for so long is a slave's, and its end is news."""


_GONE: Final = ("0.0.0.0", 0)
"""The address of a peer that left before it was looked at; the end of its connection is on its way."""


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


@dataclass(frozen=True, slots=True)
class SlaveFollow:
    """How far one slave has come: what it was sent, what it has. `reason` says why it is gone.

    `behind` counts bytes; `behind_ms` is how long the master has had what the slave lacks, as far as this server knows.
    """

    address: str
    phase: master.Phase
    sent: PhysicalOffset
    acked: PhysicalOffset
    behind: int
    behind_ms: int
    silent_ms: int
    bytes_per_s: int = 0
    reason: str = ""


class HaServer:
    """The master's side: it serves its log to any number of slaves, each at that slave's own pace.

    Keeps: `replicated_to` is the most that one of the `slave_count` slaves now streaming has acknowledged.

    :param on_ack: told when a slave has acknowledged more.
    :param admission: who may connect; anybody without it. The protocol has no authentication: who connects, and says
        that it has a message, is believed.
    """

    def __init__(
        self,
        log: ReplicatedLog,
        on_ack: Callable[[], None],
        rules: master.Rules | None = None,
        admission: Admission | None = None,
    ) -> None:
        self.log = log
        self.on_ack = on_ack
        self.rules = rules or master.Rules()
        self.admission = admission or Admission()
        self.replicated_to = NOTHING
        self.slave_count = 0
        self._connections: dict[_SlaveConnection, None] = {}
        self._gone: dict[str, tuple[SlaveFollow, int]] = {}
        self._growth = LogAgeSamples()
        self._limited_log = LimitedLog(logging.getLogger(__name__))
        self._listener: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def listen(self, host: str, port: int) -> int:
        """Start to accept; gives the port, which the system chose where 0 was asked for."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: _SlaveConnection(self), host, port)
        self._tick()
        return int(self._listener.sockets[0].getsockname()[1])

    def notify_growth(self) -> None:
        """The log has grown, or lost a file: called once for all that one turn of the loop brought."""
        for connection in list(self._connections):
            connection.look_at_the_log()

    def progress(self) -> list[SlaveFollow]:
        """Every slave that is connected, then of each host the last one that is gone."""
        live = [connection.progress() for connection in self._connections]
        now_ms = _now_ms()
        return live + [
            replace(last, silent_ms=now_ms - heard_ms) for last, heard_ms in self._gone.values()
        ]

    @property
    def why_no_slave(self) -> str:
        """Why none counts as replica; to be asked while `slave_count` is 0."""
        if self._connections:
            return f"{len(self._connections)} slaves are connected, but have not said yet what they have"
        if not self._gone:
            return "no slave is connected"
        *_, (last, _) = self._gone.values()
        return f"no slave is connected, the last one, {last.address}, is gone: {last.reason}"

    def age_ms(self, at: PhysicalOffset) -> int:
        """For how long the log has had the byte at `at`; 0 where it has none."""
        return 0 if at >= self.log.end else self._growth.age_ms(at, _now_ms())

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        self._growth.note(self.log.end, _now_ms())
        for connection in list(self._connections):
            connection.look_at_the_log()
            connection.tick()

    def opened(self, connection: _SlaveConnection) -> bool:
        """Take a connection, unless it is none that may come; what scans ports is told of once in a while.

        Where there are as many as may be, another one goes, or this one (`Admission.who_goes`).
        """
        if self._is_closed:
            return False
        why_not = self.admission.why_not(connection.host)
        if not why_not and not self._has_room_for(connection):
            why_not = f"too many are connected, haConnectionsMax={self.admission.connections_max}"
        if why_not:
            self._limited_log.warning(
                why_not, _now_s(), "slave refused: %s peer=%s", why_not, connection.address
            )
            return False
        self._connections[connection] = None
        return True

    def _has_room_for(self, newcomer: _SlaveConnection) -> bool:
        """Make it, where there is none."""
        there = [each for each in self._connections if not each.transport.is_closing()]
        if len(there) < self.admission.connections_max:
            return True
        places = [each.place for each in there]
        index = self.admission.who_goes(places, newcomer.place.network, self.rules.silence_ms_max)
        if index is None:
            return False
        there[index].give_way()
        return True

    def joined(self, connection: _SlaveConnection) -> None:
        """From now on what it reports counts as replicated: whoever reads the log should know every one that counts."""
        text = "slave counts: its reports acknowledge sends peer=%s has=%d"
        self._limited_log.tell(
            logging.INFO,
            f"joined {connection.host}",
            _now_s(),
            text,
            connection.address,
            connection.slave.acked,
        )

    def moved(self) -> None:
        """A slave has joined, acknowledged or gone."""
        streaming = [
            each for each in self._connections if each.slave.phase is master.Phase.STREAMING
        ]
        self.slave_count = len(streaming)
        self.replicated_to = max((each.slave.acked for each in streaming), default=NOTHING)

    def is_gone(self, connection: _SlaveConnection, progress: SlaveFollow) -> None:
        """What reported no offset was no slave: operators and producers hear of slaves only.

        The loss of a slave that was one for a while is logged, once a minute for each host. Of the others one is for
        each reason a minute, and of one host only the first that goes for it, be it with other numbers.
        """
        if not connection.has_reported:
            text, reason = (
                "connection at the replication port ended, no slave: peer=%s reason=%s",
                progress.reason,
            )
            kind = f"no slave: {without_numbers(reason)}"  # not the kind of a slave that goes for the same reason
            self._limited_log.warning(kind, _now_s(), text, progress.address, reason)
            return
        before = self._gone.pop(connection.host, None)
        self._gone[connection.host] = progress, connection.slave.heard_ms
        if len(self._gone) > GONE_MAX:
            del self._gone[next(iter(self._gone))]
        is_same = before is not None and without_numbers(before[0].reason) == without_numbers(
            progress.reason
        )
        told = without_numbers(progress.reason)
        if connection.was_of_use and _now_ms() - connection.opened_ms >= LASTING_MS:
            told = f"slave lost {connection.host}"
        if connection.was_of_use or not is_same:
            self._limited_log.warning(
                told, _now_s(), "slave %s is gone: %s", progress.address, progress.reason
            )
        self.moved()

    def closed(self, connection: _SlaveConnection) -> None:
        self._connections.pop(connection, None)
        self.moved()

    def say_why(self, reason: str) -> None:
        """Tell in the log why the connections of all slaves are going to be closed; they only see that they are."""
        for connection in self._connections:
            known = connection.slave
            log.warning(
                "slave is dropped: peer=%s acked=%d reason=%s",
                connection.address,
                known.acked,
                reason,
            )

    async def close(self) -> None:
        """End everything; what was already written still goes out to slaves that take it.

        What was accepted and is told of later only, ends then.
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
    """One slave at its master, or what is none and never `has_reported` an offset; a slave was of use if it has
    acknowledged something that it was sent.
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
        self.was_of_use = False
        self.opened_ms = _now_ms()
        self.address = self.host = ""
        self.lost: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER_MAX)
        self.host, port = (transport.get_extra_info("peername") or _GONE)[:2]
        self.address = f"{self.host}:{port}"
        start, end, file_size = self._log.start, self._log.end, self._log.file_size
        self.slave = master.joining(start, end, file_size, self._server.rules, _now_ms())
        self._is_admitted = self._server.opened(self)
        if not self._is_admitted:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if not self._is_admitted:
            return
        try:
            offset = self._reports.feed(data)
        except PeerError as error:
            self.feed(master.Broken(str(error)))
            return
        if offset is not None:
            self.has_reported = True
            self.look_at_the_log()
            self.feed(master.Reported(offset))

    def connection_lost(self, exc: Exception | None) -> None:
        try:
            if self._is_admitted:
                self._take_leave(exc)
        finally:
            self.lost.set_result(None)  # `HaServer.close` waits for it, whatever fails here

    def _take_leave(self, exc: Exception | None) -> None:
        is_news = self.slave.phase is master.Phase.STREAMING
        before = self.progress(ENDED if exc is None else f"{ENDED}: {exc}")
        try:
            self._reports.end()
        except PeerError as error:
            is_news = self.slave.phase is not master.Phase.GONE
            before = self.progress(str(error))
        self.feed(master.Closed())
        self._server.closed(self)
        if is_news:
            self._server.is_gone(self, before)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self.feed(master.WriteReady())

    def look_at_the_log(self) -> None:
        self.feed(master.LogMoved(self._log.start, self._log.end))

    def feed(self, event: master.Event) -> None:
        had_joined = self.slave.phase is master.Phase.STREAMING
        self.slave, actions = master.step(self.slave, event, _now_ms())
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
                        self._drop(f"the log cannot be read at {at}: {error}")
                        return
                case master.SendHeartbeat(at):
                    frames.append(header(at, 0))
                case master.Acked():
                    is_acked = True
                    self.was_of_use |= had_joined
                case master.Drop(reason):
                    self._drop(reason)
        if frames:
            self._write(b"".join(frames))
        if not had_joined and self.slave.phase is master.Phase.STREAMING:
            self._server.joined(self)
        if is_acked:
            self._server.moved()
            self._server.on_ack()

    def _write(self, data: bytes) -> None:
        self.transport.write(data)
        if not self._is_paused:
            self._loop.call_soon(self.feed, master.WriteReady())

    def _drop(self, reason: str) -> None:
        self._server.is_gone(self, self.progress(reason))
        self.transport.abort()

    @property
    def place(self) -> Place:
        known = self.slave
        has_spoken = known.phase is not master.Phase.JOINING
        return Place(network_of(self.host), has_spoken, known.stalled_ms(_now_ms()), known.acked)

    def give_way(self) -> None:
        """Another one gets the place; of one that has said nothing nobody needs to hear."""
        if self.slave.phase is master.Phase.JOINING:
            self.transport.abort()
        else:
            places = self._server.admission.connections_max
            self.feed(
                master.Broken(f"another connection needs its place, haConnectionsMax={places}")
            )

    def tick(self) -> None:
        """Called each `TICK_S`."""
        self.feed(master.Tick())
        sent = self.slave.next_offset
        self._bytes_per_s = int((sent - self._sent_before) / TICK_S) if self._sent_before else 0
        self._sent_before = sent

    def progress(self, reason: str = "") -> SlaveFollow:
        known = self.slave
        return SlaveFollow(
            self.address,
            known.phase,
            known.next_offset,
            known.acked,
            self._log.end - known.acked,
            self._server.age_ms(known.acked),
            _now_ms() - known.heard_ms,
            0 if reason else self._bytes_per_s,
            reason,
        )
