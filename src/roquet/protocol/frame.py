"""Whole frames out of a byte stream (protocol.md 1.1)."""

from __future__ import annotations

from struct import Struct
from typing import Final

from roquet.errors import PeerError

FRAME_SIZE_MAX: Final = 16 * 1024 * 1024
"""Length field included."""
SIZE: Final = Struct(">i")


class FrameBuffer:
    """Cuts what a stream brings into whole frames.

    Keeps: at most one unfinished frame, never more than FRAME_SIZE_MAX bytes of it.
    """

    __slots__ = ("_pending", "_wanted")

    def __init__(self) -> None:
        self._pending = bytearray()
        self._wanted = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Every frame, without its length field, that is whole once `data` has come.

        :raises PeerError: a length that no frame can have; seen before its body is stored.
        """
        frames: list[bytes] = []
        at = 0
        if self._pending:
            at = self._wanted - len(self._pending)
            self._pending += memoryview(data)[:at]
            if len(self._pending) < self._wanted:
                return []
            if self._wanted == 4:  # no more than the length field was wanted
                data, at = bytes(self._pending) + data[at:], 0
            else:
                frames.append(bytes(memoryview(self._pending)[4:]))
            self._pending.clear()
        end = len(data)
        while at + 4 <= end:
            (size,) = SIZE.unpack_from(data, at)
            if not 4 <= size <= FRAME_SIZE_MAX - 4:
                raise PeerError(f"frame of {size} bytes, allowed are 4 to {FRAME_SIZE_MAX - 4}")
            frame_end = at + 4 + size
            if frame_end > end:
                self._wanted = 4 + size
                self._pending += data[at:]
                return frames
            frames.append(data[at + 4 : frame_end])
            at = frame_end
        if at < end:
            self._wanted = 4
            self._pending += data[at:]
        return frames
