"""Whole frames out of a byte stream.

See docs/protocol/remoting.md#frame.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from roquet.errors import PeerError

FRAME_SIZE_MAX: Final = 16 * 1024 * 1024
"""Length field included."""
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
"""How a request or an answer begins."""
_TLS_HANDSHAKE: Final = b"\x16\x03"


def _spoken(first: bytes) -> str:
    """Which other protocol begins with these bytes, as the end of an error; empty for none that is known."""
    if first in _HTTP:
        return f' (these bytes are HTTP: "{first.decode()}")'
    return " (these bytes are a TLS handshake)" if first.startswith(_TLS_HANDSHAKE) else ""


class FrameBuffer:
    """Cuts what a stream brings into whole frames.

    Keeps: `pending` is at most one unfinished frame, of which `wanted` bytes are needed, never more than `size_max`.

    :param size_max: bytes of a frame, length field included.
    """

    __slots__ = ("_size_max", "pending", "wanted")

    def __init__(self, size_max: int = FRAME_SIZE_MAX) -> None:
        self._size_max = size_max
        self.pending = bytearray()
        self.wanted = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Every frame, without its length field, that is whole once `data` has come.

        :raises PeerError: a length that no frame can have; seen before its body is stored.
        """
        frames: list[bytes] = []
        at = 0
        if self.pending:
            at = self.wanted - len(self.pending)
            self.pending += memoryview(data)[:at]
            if len(self.pending) < self.wanted:
                return []
            if self.wanted == 4:  # no more than the length field was wanted
                data, at = bytes(self.pending) + data[at:], 0
            else:
                frames.append(bytes(memoryview(self.pending)[4:]))
            self.pending.clear()
        end, size_max, unpack_from = len(data), self._size_max - 4, SIZE.unpack_from
        while (start := at + 4) <= end:
            (size,) = unpack_from(data, at)
            if not 4 <= size <= size_max:
                raise PeerError(
                    f"frame of {size} bytes, allowed are 4 to {size_max}{_spoken(data[at:start])}"
                )
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
