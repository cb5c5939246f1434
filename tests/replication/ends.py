"""The two machines with a log each and bytes between them: what the sockets' side does, without
sockets.
"""

from __future__ import annotations

from roquet.replication import master, slave
from roquet.replication.frames import ChunkStream, ReportStream, header, report
from roquet.replication.log import ReplicatedLog, SlaveLog, bytes_between

ADDRESS = "master:10912"


class MasterEnd:
    """One connection at the master; each method gives the bytes that go to the slave."""

    def __init__(
        self, log: ReplicatedLog, rules: master.Rules | None = None, now_ms: int = 0
    ) -> None:
        self.log = log
        self.slave = master.Slave(
            rules or master.Rules(), log.file_size, log.start, log.end, now_ms, now_ms
        )
        self.acks: list[int] = []
        self.reason = ""
        self._reports = ReportStream()

    def hear(self, data: bytes, now_ms: int = 0) -> bytes:
        offset = self._reports.feed(data)
        return (
            b""
            if offset is None
            else self.look(now_ms) + self.feed(master.Reported(offset), now_ms)
        )

    def look(self, now_ms: int = 0) -> bytes:
        return self.feed(master.LogMoved(self.log.start, self.log.end), now_ms)

    def flush(self, now_ms: int = 0) -> bytes:
        """What was written has left."""
        return self.feed(master.WriteReady(), now_ms)

    def feed(self, event: master.Event, now_ms: int = 0) -> bytes:
        self.slave, actions = master.step(self.slave, event, now_ms)
        sent = b""
        for action in actions:
            match action:
                case master.SendChunk(at, size):
                    data = self.log.read(at, size)
                    assert len(data) == size
                    sent += header(at, size) + data
                case master.SendHeartbeat(at):
                    sent += header(at, 0)
                case master.Acked(offset):
                    self.acks.append(offset)
                case master.Drop(reason):
                    self.reason = reason
        return sent


class SlaveEnd:
    """A slave over many connections; each method gives the bytes that go to the master."""

    def __init__(self, log: SlaveLog, rules: slave.Rules | None = None) -> None:
        self.log = log
        self.follower = slave.Follower(rules or slave.Rules(), log.file_size)
        self.is_open = False
        self._chunks = ChunkStream()
        self.feed(slave.MasterKnown(ADDRESS))

    def connect(self, now_ms: int = 0) -> bytes:
        self._chunks = ChunkStream()
        self.is_open = True
        start = slave.overlap_start(
            self.log.start, self.log.end, self.log.file_size, self.follower.rules
        )
        overlap = bytes_between(self.log, start, self.log.end)
        return self.feed(slave.Connected(self.log.end, overlap), now_ms)

    def hear(self, data: bytes, now_ms: int = 0) -> bytes:
        events: list[slave.Event] = [*self._chunks.feed(data), slave.ReadEnded()]
        return b"".join([self.feed(event, now_ms) for event in events])

    def feed(self, event: slave.Event, now_ms: int = 0) -> bytes:
        self.follower, actions = slave.step(self.follower, event, now_ms)
        sent = b""
        for action in actions:
            match action:
                case slave.Append(at, data):
                    self.log.replicate(at, data)
                case slave.Report(offset):
                    sent += report(offset)
                case slave.Close():
                    self.is_open = False
                case slave.Connect():
                    pass
        return sent
