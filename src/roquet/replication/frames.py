"""PURE: the two byte layouts of replication, and how they are found again in a stream.

See docs/storage/replication.md#the-bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final, TypeAlias

from roquet.common.units import PhysicalOffset
from roquet.errors import PeerError

REPORT: Final = Struct(">q")
HEADER: Final = Struct(">qi")
BODY_SIZE_MAX: Final = 4 * 1024 * 1024 - HEADER.size
"""Apache's slave reads into 4 MiB, which header and body share."""
NOTHING: Final = PhysicalOffset(0)
"""Where an empty log ends."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The master lives; its next bytes will be those at `at`."""

    at: PhysicalOffset


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of the master's log, from `at` on."""

    at: PhysicalOffset
    data: memoryview


MasterFrame: TypeAlias = Heartbeat | Chunk


def report(end: PhysicalOffset) -> bytes:
    """What a slave says: it has everything before `end`."""
    return REPORT.pack(end)


def header(at: PhysicalOffset, size: int) -> bytes:
    """What stands before `size` bytes of the log; 0 is a heartbeat."""
    return HEADER.pack(at, size)


_OFFSET_END: Final = 1 << 56
"""72 PB. The first bytes of HTTP, TLS or any text are more, read as a report; no slave sends them."""


class ReportStream:
    """The reports of one slave.

    Keeps: less than one report waits for its rest.
    """

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, data: bytes) -> PhysicalOffset | None:
        """The last whole report: those before it are out of date. None while there is none.

        :raises PeerError: no log has such an offset.
        """
        data = self._pending + data
        whole = len(data) - len(data) % REPORT.size
        self._pending = data[whole:]
        if not whole:
            return None
        for at in (0, whole - REPORT.size):  # another protocol is known by how it begins
            (offset,) = REPORT.unpack_from(data, at)
            if not 0 <= offset < _OFFSET_END:
                raise PeerError(f"offset {offset} is reported, which no log has")
        return PhysicalOffset(offset)

    def end(self) -> None:
        """The connection has ended.

        :raises PeerError: within a report.
        """
        if self._pending:
            raise PeerError(
                f"the connection ended after {len(self._pending)} of the {REPORT.size} bytes of a report"
            )


class ChunkStream:
    """The frames of a master. The bytes of a body are passed on as they come, never gathered.

    Keeps: less than one header waits for its rest; `_missing` bytes of the body, the first of them at `_at`, are due.
    """

    def __init__(self) -> None:
        self._pending = b""
        self._at = 0
        self._missing = 0

    def feed(self, data: bytes) -> list[MasterFrame]:
        """The heartbeats and the pieces of chunks in `data`; the pieces are views of it.

        :raises PeerError: a header that no master writes; seen before its body.
        """
        if self._pending:
            data, self._pending = self._pending + data, b""
        view = memoryview(data)
        frames: list[MasterFrame] = []
        index = 0
        while index < len(view):
            if self._missing:
                piece = view[index : index + self._missing]
                index += len(piece)
                frames.append(self._piece(piece))
            elif len(view) - index < HEADER.size:
                self._pending = bytes(view[index:])
                break
            else:
                self._open(*HEADER.unpack_from(view, index))
                index += HEADER.size
                if not self._missing:
                    frames.append(Heartbeat(PhysicalOffset(self._at)))
        return frames

    def _piece(self, data: memoryview) -> Chunk:
        chunk = Chunk(PhysicalOffset(self._at), data)
        self._at += len(data)
        self._missing -= len(data)
        return chunk

    def _open(self, at: int, size: int) -> None:
        if at < 0 or not 0 <= size <= BODY_SIZE_MAX:
            raise PeerError(
                f"the master announces {size} bytes for offset {at}, the limit is {BODY_SIZE_MAX}"
            )
        self._at, self._missing = at, size
