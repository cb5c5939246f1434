"""How far a group, or a member of it, is with its queues, and how the brokers keep that.

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
    """Where it is kept: by the brokers for a group, in a file (`local_offsets`) for each member that broadcasts."""

    async def open(self) -> None:
        """Before all else."""

    async def load(self, queue: MessageQueue) -> int | None:
        """What was stored; None: nothing."""

    async def store(self, queue: MessageQueue, progress: Callable[[], int]) -> None:
        """Store what `progress` says, if it is more than what is stored."""

    async def set_back(self, queue: MessageQueue, offset: int) -> None:
        """Store `offset`, larger or smaller than what is stored."""

    def forget(self, queue: MessageQueue) -> None:
        """The queue is not consumed here any more."""

    async def save(self) -> None:
        """What was stored shall last from now on."""


class BrokerOffsets:
    """Keeps: what a broker stores only grows, unless a queue is set back on purpose.

    Offsets go to the master, and to a slave while there is no master; what only a slave has heard is told to the
    master as soon as there is one again (a slave's own copy is overwritten with the master's).
    """

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group
        self._stored: dict[MessageQueue, int] = {}
        self._only_on_slave: set[MessageQueue] = set()

    async def open(self) -> None:
        """Brokers are asked when a queue begins."""

    async def save(self) -> None:
        """What a broker took is stored."""

    async def load(self, queue: MessageQueue) -> int | None:
        """What a broker has stored; None: nothing."""
        return await queue_calls.committed(self._session, self._group, queue, TIMEOUT_MS)

    async def store(self, queue: MessageQueue, progress: Callable[[], int]) -> None:
        """Store what `progress` says unless it, or more, is known to be stored already.

        :raises RoquetError: no broker took it; it is to be stored again later.
        """
        offset, stored = progress(), self._stored.get(queue, -1)
        if offset < stored or (offset == stored and queue not in self._only_on_slave):
            return
        at, offset = await queue_calls.commit(
            self._session, self._group, queue, progress, TIMEOUT_MS
        )
        self._stored[queue] = offset
        if at.is_master:
            self._only_on_slave.discard(queue)
        else:
            self._only_on_slave.add(queue)

    async def set_back(self, queue: MessageQueue, offset: int) -> None:
        """Store `offset`, larger or smaller than what is stored.

        :raises RoquetError: no broker took it; a later `store` will do.
        """
        self.forget(queue)
        await self.store(queue, lambda: offset)

    def forget(self, queue: MessageQueue) -> None:
        """The queue is somebody else's now: what is stored is not known any more."""
        self._stored.pop(queue, None)
        self._only_on_slave.discard(queue)
