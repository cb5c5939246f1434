"""Serializes the first offset commit of a group in a topic of a broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from roquet.protocol.records.message import MessageQueue


class FirstCommitGuard:
    """Makes commits wait until the first commit of their group, broker and topic is over.

    If two commits come at the same time and Apache's broker (4.9.7) has no offset of the group in
    the topic yet, it may lose one of them, although it has answered both.
    """

    def __init__(self) -> None:
        self._over: dict[tuple[str, str, str], asyncio.Event] = {}

    @asynccontextmanager
    async def turn(self, group: str, queue: MessageQueue) -> AsyncIterator[None]:
        """Wait, if needed, for the first commit; the caller commits inside the block."""
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
