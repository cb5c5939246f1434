"""The first progress of a group that a broker hears of in a topic goes there alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from roquet.protocol.records.message import MessageQueue


class FirstCommitGuard:
    """Keeps: of a group's queues in one topic of a broker, the first try to store one is over before others begin.

    When two come at the same time and it knows the group in the topic not yet, Apache's broker (4.9.7) may forget one
    of them, although it has answered both.
    """

    def __init__(self) -> None:
        self._over: dict[tuple[str, str, str], asyncio.Event] = {}

    @asynccontextmanager
    async def turn(self, group: str, queue: MessageQueue) -> AsyncIterator[None]:
        """Store within this."""
        key = group, queue.broker_name, queue.topic
        over = self._over.get(key)
        if over is not None:
            await over.wait()
            yield
            return
        over = self._over[key] = asyncio.Event()
        try:
            yield
        finally:
            over.set()
