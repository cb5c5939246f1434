"""A TCP proxy that remembers: every byte that passed, in the order it passed, per connection.

Invariant: what is recorded is what the sender wrote, even where the proxy forwards something else in
its place.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Self

from tests.interop.wire import parse_address

START_SECONDS_MAX = 5
CHUNK_SIZE = 1 << 16


class Side(StrEnum):
    """Who wrote a piece: the side that connected, or the one that accepted."""

    CALLER = "caller"
    SERVER = "server"


@dataclass(frozen=True)
class Piece:
    side: Side
    at_ms: int  # Since the connection was accepted.
    data: bytes


@dataclass
class Connection:
    """One connection; it grows while it is open."""

    pieces: list[Piece] = field(default_factory=list)
    opened: float = field(default_factory=time.monotonic)

    def note(self, side: Side, data: bytes) -> None:
        self.pieces.append(Piece(side, round((time.monotonic() - self.opened) * 1000), data))

    def stream(self, side: Side) -> bytes:
        return b"".join(piece.data for piece in self.pieces if piece.side is side)


class RecordingProxy:
    """Listens on a port of loopback for what is meant for `target`; for use in `with`.

    With `whole_frames` a piece is one remoting frame, otherwise whatever one read returned.
    `replaced` maps bytes to others of equal length that are forwarded in their place: thus a broker
    registers the proxy's address. A connection ends, wherever that is, once the server has sent
    `cut_after` bytes.
    """

    def __init__(
        self,
        target: str,
        port: int,
        *,
        whole_frames: bool = True,
        replaced: Mapping[bytes, bytes] | None = None,
        cut_after: int | None = None,
    ) -> None:
        self.connections: list[Connection] = []
        self.address = f"127.0.0.1:{port}"
        self._target = parse_address(target)
        self._port = port
        self._whole_frames = whole_frames
        self._replaced = dict(replaced or {})
        self._cut_after = cut_after
        assert all(len(old) == len(new) for old, new in self._replaced.items())
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._listening = threading.Event()
        self._stop: Callable[[], object] = lambda: None

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listening.wait(START_SECONDS_MAX), f"could not listen on {self.address}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.run_until_complete(asyncio.sleep(0))
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        stopped = asyncio.Event()
        self._stop = stopped.set
        server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        self._listening.set()
        await stopped.wait()
        server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection()
        self.connections.append(connection)
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.close()
            return
        try:
            await asyncio.gather(
                self._pump(connection, Side.CALLER, reader, far_writer),
                self._pump(connection, Side.SERVER, far_reader, writer),
            )
        except asyncio.CancelledError:
            writer.close()
            far_writer.close()

    async def _pump(
        self,
        connection: Connection,
        side: Side,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        left = self._cut_after if side is Side.SERVER else None
        try:
            while (left is None or left > 0) and (data := (await self._read(reader))[:left]):
                left = None if left is None else left - len(data)
                connection.note(side, data)
                for old, new in self._replaced.items():
                    data = data.replace(old, new)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        if not self._whole_frames:
            return await reader.read(CHUNK_SIZE)
        try:
            size = await reader.readexactly(4)
            return size + await reader.readexactly(int.from_bytes(size))
        except asyncio.IncompleteReadError:
            return b""
