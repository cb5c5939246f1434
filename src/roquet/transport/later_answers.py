"""The requests of one connection that are answered later, by tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from roquet.errors import PeerError, Refused
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.handling import Answer
from roquet.transport.wire import Wire

_COST: Final = 1024
"""Bytes counted for a request that is answered later, in addition to its own bytes."""


class LaterAnswers:
    """Runs tasks that answer requests, and bounds the bytes that such requests hold.

    Invariant: `kept` is the sum of what was kept and not released. `_wire` is None once the
    connection ended, so that neither keeps the other in memory; no task runs then.
    """

    __slots__ = ("_tasks", "_wire", "kept")

    def __init__(self, wire: Wire) -> None:
        self._wire: Wire | None = wire
        self._tasks: dict[asyncio.Task[None], None] = {}
        self.kept = 0
        """Bytes of requests that are answered later."""

    def answer(
        self, request: Command, work: Coroutine[Any, Any, Answer], kept: int = 0
    ) -> asyncio.Task[None]:
        """Run `work` as a task and send its result, or its error, as the answer.

        The task is cancelled if the connection ends first.

        :param kept: bytes that `work` holds in addition to the request.
        :raises Refused: too many bytes of the peer's requests wait for answers (`keep`).
        """
        size = _COST + kept + len(request.body) + sum(map(len, request.fields.values()))
        try:
            self.keep(size)
        except Refused:
            work.close()
            raise
        task = asyncio.get_running_loop().create_task(self._answer(request, work))
        self._tasks[task] = None
        task.add_done_callback(partial(self._done, size, work))
        return task

    def keep(self, size: int) -> None:
        """Count `size` bytes of a request that is answered later. The caller must `release` them.

        :raises Refused: too many bytes of this peer's requests wait for answers.
        """
        wire = self._wire
        if wire is None:
            return
        if self.kept >= wire.peers.limits.answer_bytes_per_connection_max:
            raise Refused(
                ResponseCode.SYSTEM_BUSY,
                f"[OVERLOAD]{self.kept} bytes of requests of {wire.peer_address} "
                "wait for their answers already",
            )
        self.kept += size
        wire.peers.passed(size)

    def release(self, size: int) -> None:
        """Undo `keep`, when the request was answered."""
        self.kept -= size

    def ended(self) -> None:
        """Cancel all tasks: the connection ended."""
        self._wire = None
        for task in self._tasks:
            task.cancel()

    async def _answer(self, request: Command, work: Coroutine[Any, Any, Answer]) -> None:
        try:
            answer = await work
            # An answer relayed from another client may not be encodable: that is its error (below).
            data = answer.encode() if isinstance(answer, Command) else answer
        except PeerError as error:
            remark = f"another client that was asked broke the protocol: {error}"
            data = request.answer(ResponseCode.SYSTEM_ERROR, remark).encode()
        except Exception as error:
            data = None if self._wire is None else self._wire.failure(request, error).encode()
        wire = self._wire
        if wire is None or data is None or request.is_one_way:
            return
        try:
            wire.count_answer(len(data))
        except PeerError as error:
            wire.broken(error)
        else:
            wire.send(data)

    def _done(self, size: int, work: Coroutine[Any, Any, Answer], task: asyncio.Task[None]) -> None:
        work.close()  # a task that was cancelled before its first step never started it
        del self._tasks[task]
        self.release(size)
