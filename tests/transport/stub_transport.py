"""A transport without a network: it keeps what is written to it."""

from __future__ import annotations

import asyncio
from typing import Any

from roquet.protocol.remoting.frame import FrameBuffer
from roquet.transport.connection import Connection


class StubTransport(asyncio.Transport):
    """Invariant: `written` has what was written and not taken since."""

    def __init__(self, peer: tuple[str, int] = ("10.0.0.9", 50_000)) -> None:
        super().__init__()
        self.written = bytearray()
        self.peer = peer
        self.is_closed = False
        self.is_paused = False
        self.unread = 0
        """Bytes that count as not read by the peer."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.peer if name == "peername" else default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def take(self) -> bytes:
        """What was written since the last time."""
        written = bytes(self.written)
        self.written.clear()
        return written

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True

    def is_reading(self) -> bool:
        return not self.is_paused

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.unread


class StubPeer:
    """The peer of one connection: what it sends comes in one read, and is answered at once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._connect()

    def _connect(self) -> None:
        self.transport = StubTransport()
        self._connection.connection_made(self.transport)

    def ask(self, *frames: bytes) -> list[bytes]:
        """Send frames, without their length fields, in one read.

        :returns: the answers, without their length fields; none if the frames break the protocol.
            The connection ends then, and another one takes its place.
        """
        self._connection.data_received(b"".join(_with_length(frame) for frame in frames))
        answers = FrameBuffer().feed(self.transport.take())
        if self.transport.is_closed:
            self._connect()
        return answers


def _with_length(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame
