"""Consumer offsets: the interface of the stores, and the store at the brokers.

See docs/protocol/consuming.md#committing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from roquet.client._net import queue_calls
from roquet.client._net.session import Session
from roquet.protocol.records.message import MessageQueue

TIMEOUT_MS: Final = 3000


class OffsetStore(Protocol):
    """A store of consumer offsets.

    The brokers store the offsets of a group, a local file those of a broadcasting member
    (`local_offsets`).
    """

    async def open(self) -> None:
        """Prepare the store; called once, before all other methods."""

    async def load(self, queue: MessageQueue) -> int | None:
        """The stored offset, or None."""

    async def store(self, queue: MessageQueue, current_offset: Callable[[], int]) -> None:
        """Store the offset that `current_offset` returns, if it is higher than the stored one."""

    async def reset(self, queue: MessageQueue, offset: int) -> None:
        """Store `offset`, even if it is lower than the stored one."""

    def forget(self, queue: MessageQueue) -> None:
        """Drop what is cached about a queue that is no longer assigned."""

    async def save(self) -> None:
        """Make the stored offsets durable."""


class BrokerOffsets:
    """The offsets of a group, stored by the brokers.

    Offsets are committed to the master, or to a slave while the master is down. An offset that only
    a slave has is committed to the master as soon as it is back, because the slave overwrites its
    offsets with the master's.

    Invariant: the offset of a queue only grows while the queue is assigned, unless `reset` is
    called.
    """

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group
        self._stored: dict[MessageQueue, int] = {}
        self._only_on_slave: set[MessageQueue] = set()

    async def open(self) -> None:
        """Do nothing: offsets are loaded when a queue is assigned."""

    async def save(self) -> None:
        """Do nothing: brokers make the offsets durable."""

    async def load(self, queue: MessageQueue) -> int | None:
        """The offset that a broker has stored, or None."""
        return await queue_calls.committed(self._session, self._group, queue, TIMEOUT_MS)

    async def store(self, queue: MessageQueue, current_offset: Callable[[], int]) -> None:
        """Commit the offset that `current_offset` returns, if it is higher than the stored one.

        :raises RoquetError: no broker accepted it; the caller tries again later.
        """
        offset = current_offset()
        stored = self._stored.get(queue, -1)
        if offset < stored or (offset == stored and queue not in self._only_on_slave):
            return
        at, offset = await queue_calls.commit(
            self._session, self._group, queue, current_offset, TIMEOUT_MS
        )
        self._stored[queue] = offset
        if at.is_master:
            self._only_on_slave.discard(queue)
        else:
            self._only_on_slave.add(queue)

    async def reset(self, queue: MessageQueue, offset: int) -> None:
        """Commit `offset`, even if it is lower than the stored one.

        :raises RoquetError: no broker accepted it; the next `store` commits its offset in any case.
        """
        self.forget(queue)
        await self.store(queue, lambda: offset)

    def forget(self, queue: MessageQueue) -> None:
        """Drop the cached offset: the queue's next owner may commit another one."""
        self._stored.pop(queue, None)
        self._only_on_slave.discard(queue)
