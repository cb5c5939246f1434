"""Locks at the brokers: a queue that is consumed in order belongs to one member of its group.

See docs/protocol/consuming.md#locks.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from roquet.client._net.session import Session, masters_only
from roquet.client._net.tasks import pause
from roquet.errors import RoquetError
from roquet.protocol.bodies.tables import QueueLocks, parse, queue_from_json
from roquet.protocol.json.dialect import dump_bytes
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import checked

log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 1000
RENEWED_EACH_S: Final = 20.0
AGAIN_S: Final = 3.0
"""When locks are asked for again that no broker answered for."""
VALID_S: Final = 30.0
"""How long a lock counts here that could not be renewed; the broker gives it to nobody else for 60 s."""


class OrderLocks:
    """Keeps: `_until` has the queues whose locks are ours, and when they end unless they are renewed; one request that
    locks or unlocks is under way at a time, so that what is given back is not locked anew by a renewal beside it.
    """

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group
        self._until: dict[MessageQueue, float] = {}
        self._turn = asyncio.Lock()
        self.due = asyncio.Event()
        """Set when the locks are to be renewed now: a broker that starts anew remembers none."""

    def has(self, queue: MessageQueue) -> bool:
        return self._until.get(queue, 0.0) > asyncio.get_running_loop().time()

    async def acquire(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Those of these queues that are ours now; others may be another member's still."""
        wanted = list(queues)
        async with self._turn:
            await self._lock_all(wanted)
        return [queue for queue in wanted if self.has(queue)]

    async def keep(self) -> None:
        """Renew what is ours, for ever; soon again where a broker did not answer."""
        is_renewed = True
        while True:
            await pause(self.due, RENEWED_EACH_S if is_renewed else AGAIN_S)
            async with self._turn:
                is_renewed = await self._lock_all(self._until)

    def ended(self) -> list[MessageQueue]:
        """The queues that were ours and are not any more; each is told once."""
        ended = [queue for queue in self._until if not self.has(queue)]
        for queue in ended:
            del self._until[queue]
        return ended

    async def _lock_all(self, queues: Iterable[MessageQueue]) -> bool:
        """Whether all brokers answered."""
        return all(await asyncio.gather(*map(self._lock, _by_broker(queues))))

    async def _lock(self, queues: list[MessageQueue]) -> bool:
        """Lock queues of one broker; while it does not answer, everything stays as it is."""
        until = asyncio.get_running_loop().time() + VALID_S
        try:
            response = await self._ask(RequestCode.LOCK_BATCH_MQ, queues)
            locked = parse(
                response.body, lambda json: set(map(queue_from_json, json.get("lockOKMQSet") or ()))
            )
        except (RoquetError, ValueError) as error:
            log.warning(
                "%s queues of %s are not locked: %s", len(queues), queues[0].broker_name, error
            )
            return False
        for queue in queues:
            if queue in locked:
                self._until[queue] = until
            elif queue in self._until:
                self._until[queue] = 0.0
        return True

    async def release(self, queues: Iterable[MessageQueue]) -> None:
        """Let others have these at once; a broker that cannot be told lets its locks end by themselves."""
        async with self._turn:
            ours = [queue for queue in queues if self._until.pop(queue, None) is not None]
            await asyncio.gather(*map(self._unlock, _by_broker(ours)))

    async def release_all(self) -> None:
        """This member leaves."""
        await self.release(list(self._until))

    async def _unlock(self, queues: list[MessageQueue]) -> None:
        try:
            await self._ask(RequestCode.UNLOCK_BATCH_MQ, queues)
        except RoquetError as error:
            log.warning("%s locks of %s end later: %s", len(queues), queues[0].broker_name, error)

    async def _ask(self, code: RequestCode, queues: list[MessageQueue]) -> Command:
        body = dump_bytes(
            QueueLocks(self._group, self._session.client_id, frozenset(queues)).to_json()
        )
        at, response = await self._session.call_broker(
            queues[0], lambda _: Command(code, {}, body), TIMEOUT_MS, masters_only
        )
        return checked(response, at.address)


def _by_broker(queues: Iterable[MessageQueue]) -> Iterable[list[MessageQueue]]:
    by_broker: defaultdict[str, list[MessageQueue]] = defaultdict(list)
    for queue in queues:
        by_broker[queue.broker_name].append(queue)
    return by_broker.values()
