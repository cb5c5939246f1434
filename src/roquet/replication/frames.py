"""PURE: packs and parses the two frame formats of the HA stream.

See docs/storage/replication.md#the-bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final, TypeAlias

from roquet.errors import PeerError

REPORT: Final = Struct(">q")
HEADER: Final = Struct(">qi")
BODY_SIZE_MAX: Final = 4 * 1024 * 1024 - HEADER.size
"""Apache's slave reads into a buffer of 4 MiB, which has to hold header and body."""
NOTHING: Final = 0
"""The end of an empty log; a slave with an empty log reports it."""


@dataclass(frozen=True, slots=True)
class HeartbeatFrame:
    """A header without a body: the master is alive and sends next from offset `at`."""

    at: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of the master's log from physical offset `at` on."""

    at: int
    data: memoryview


MasterFrame: TypeAlias = HeartbeatFrame | Chunk


def report(end: int) -> bytes:
    """Pack a slave report: the slave has every byte before offset `end`."""
    return REPORT.pack(end)


def header(physical: int, size: int) -> bytes:
    """Pack the header of a chunk of `size` bytes, or of a heartbeat if `size` is 0."""
    return HEADER.pack(physical, size)


_OFFSET_END: Final = 1 << 56
"""72 PB: more than any log. The first bytes of HTTP, TLS or any text are a larger number if they
are read as a report, so that such a peer is recognized."""


class ReportStream:
    """Parses the reports of one slave from the bytes that its connection brings.

    Invariant: `_pending` is shorter than one report.
    """

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, data: bytes) -> int | None:
        """Return the offset of the last complete report, or None if none is complete.

        Earlier reports in `data` are outdated by the last one.

        :raises PeerError: the first or the last report has an impossible offset.
        """
        data = self._pending + data
        whole = len(data) - len(data) % REPORT.size
        self._pending = data[whole:]
        if not whole:
            return None
        # The first report is checked, too: another protocol is recognized by its first bytes.
        for at in (0, whole - REPORT.size):
            offset: int = REPORT.unpack_from(data, at)[0]
            if not 0 <= offset < _OFFSET_END:
                raise PeerError(f"invalid slave report: offset={offset}")
        return offset

    def end(self) -> None:
        """Check that the connection did not end within a report.

        :raises PeerError: it did.
        """
        if self._pending:
            raise PeerError(
                f"the connection ended after {len(self._pending)} "
                f"of the {REPORT.size} bytes of a report"
            )


class ChunkStream:
    """Parses the frames of one master from the bytes that its connection brings.

    The bytes of a body are returned as they come; they are not collected until the body is whole.

    Invariant: `_pending` is shorter than one header; `_missing` bytes of the current body, the
    first of them at physical offset `_at`, have not come yet.
    """

    def __init__(self) -> None:
        self._pending = b""
        self._at = 0
        self._missing = 0

    def feed(self, data: bytes) -> list[MasterFrame]:
        """Return the heartbeats and the pieces of chunks in `data`; the pieces are views of it.

        :raises PeerError: a header has an impossible offset or size. Its body is not read.
        """
        if self._pending:
            data = self._pending + data
            self._pending = b""
        view = memoryview(data)
        frames: list[MasterFrame] = []
        index = 0
        while index < len(view):
            if self._missing:
                piece = view[index : index + self._missing]
                frames.append(Chunk(self._at, piece))
                index += len(piece)
                self._at += len(piece)
                self._missing -= len(piece)
            elif len(view) - index < HEADER.size:
                self._pending = bytes(view[index:])
                break
            else:
                self._open(*HEADER.unpack_from(view, index))
                index += HEADER.size
                if not self._missing:
                    frames.append(HeartbeatFrame(self._at))
        return frames

    def _open(self, at: int, size: int) -> None:
        if at < 0 or not 0 <= size <= BODY_SIZE_MAX:
            raise PeerError(
                f"the master announces {size} bytes for offset {at}, the limit is {BODY_SIZE_MAX}"
            )
        self._at = at
        self._missing = size
