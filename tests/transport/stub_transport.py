"""A transport without a network: it keeps what is written to it."""

from __future__ import annotations

import asyncio
from typing import Any

from roquet.protocol.remoting.frame import FrameBuffer
from roquet.transport.connection import Connection


class StubTransport(asyncio.Transport):
    """Tells its connection to pause and resume as asyncio's transports do.

    Invariant: `writes` are those that were not taken.

    :param unread: bytes that count as not read by the peer.
    """

    def __init__(self, connection: Connection, unread: int = 0) -> None:
        super().__init__()
        self._connection = connection
        self.writes: list[bytes] = []
        self.unread = unread
        self.is_closed = False
        self._is_reading = True
        self._is_full = False
        connection.connection_made(self)

    def take(self) -> list[bytes]:
        """The frames that were written since the last time, without their length fields."""
        frames = FrameBuffer().feed(b"".join(self.writes))
        self.writes.clear()
        return frames

    def read_all(self) -> None:
        """The peer has read everything."""
        self.unread = 0
        if self._is_full:
            self._is_full = False
            self._connection.resume_writing()

    def lose(self) -> None:
        self.is_closed = True
        self._connection.connection_lost(None)

    # for the connection

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.0.0.9", 50_000) if name == "peername" else default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self.unread > (high or 0) and not self._is_full:
            self._is_full = True
            self._connection.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self.unread


class StubPeer:
    """The peer of one connection: what it sends comes in one read, and is answered at once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._transport = StubTransport(connection)

    def ask(self, *frames: bytes) -> list[bytes]:
        """Send frames, without their length fields, in one read.

        :returns: the answers, without their length fields; none if the frames break the protocol.
            The connection ends then, and another one takes its place.
        """
        self._connection.data_received(b"".join(_with_length(frame) for frame in frames))
        answers = self._transport.take()
        if self._transport.is_closed:
            self._transport = StubTransport(self._connection)
        return answers


def _with_length(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame
