"""Cuts a byte stream into frames.

See docs/protocol/remoting.md#frame.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from roquet.errors import PeerError

FRAME_SIZE_MAX: Final = 16 * 1024 * 1024
"""Bytes of a frame, length field included."""
SIZE: Final = Struct(">i")


_HTTP: Final = (
    b"GET ",
    b"HEAD",
    b"POST",
    b"PUT ",
    b"DELE",
    b"OPTI",
    b"PATC",
    b"CONN",
    b"TRAC",
    b"PRI ",
    b"HTTP",
)
"""The first four bytes of HTTP requests and responses."""
_TLS_HANDSHAKE: Final = b"\x16\x03"


def _protocol_hint(first: bytes) -> str:
    """The end of an error: which other protocol begins with these bytes; empty if unknown."""
    if first in _HTTP:
        return f' (these bytes are HTTP: "{first.decode()}")'
    return " (these bytes are a TLS handshake)" if first.startswith(_TLS_HANDSHAKE) else ""


class FrameBuffer:
    """Collects the bytes of a stream until they are whole frames.

    Invariant: `pending` is at most one partial frame, `wanted` are the bytes of the whole one (or
    of its length field), never more than `size_max`.

    :param size_max: bytes of a frame, length field included.
    """

    __slots__ = ("_size_max", "pending", "wanted")

    def __init__(self, size_max: int = FRAME_SIZE_MAX) -> None:
        self._size_max = size_max
        self.pending = bytearray()
        self.wanted = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Add received bytes and return the frames that are complete now, without length fields.

        :raises PeerError: a frame's length is not allowed. This is checked before its bytes are
            collected.
        """
        frames: list[bytes] = []
        at = 0
        if self.pending:
            at = self.wanted - len(self.pending)
            self.pending += memoryview(data)[:at]
            if len(self.pending) < self.wanted:
                return []
            if self.wanted == 4:  # only the length field was incomplete
                data, at = bytes(self.pending) + data[at:], 0
            else:
                frames.append(bytes(memoryview(self.pending)[4:]))
            self.pending.clear()
        end, size_max, unpack_from = len(data), self._size_max - 4, SIZE.unpack_from
        while (start := at + 4) <= end:
            (size,) = unpack_from(data, at)
            if not 4 <= size <= size_max:
                hint = _protocol_hint(data[at:start])
                raise PeerError(f"frame of {size} bytes, allowed are 4 to {size_max}{hint}")
            frame_end = start + size
            if frame_end > end:
                self.wanted = 4 + size
                self.pending += data[at:]
                return frames
            frames.append(data[start:frame_end])
            at = frame_end
        if at < end:
            self.wanted = 4
            self.pending += data[at:]
        return frames
