"""Locks at the brokers: a queue that is consumed in order belongs to one member of its group (protocol.md 6.10)."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from roquet.client.session import Session, masters_only
from roquet.errors import RoquetError
from roquet.protocol.bodies import QueueLocks, parse, queue_from_json
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.json_dialect import dump_bytes
from roquet.protocol.message import MessageQueue
from roquet.transport.connection import checked

log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 1000
RENEWED_EACH_S: Final = 20.0
VALID_S: Final = 30.0
"""How long a lock counts here that could not be renewed; the broker gives it to nobody else for 60 s."""


class OrderLocks:
    """Keeps: `_until` has the queues whose locks are ours, and when they end unless they are renewed."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group
        self._until: dict[MessageQueue, float] = {}

    async def acquire(self, queue: MessageQueue) -> bool:
        """Whether the queue is ours now; another member may still have it."""
        await self._lock([queue])
        return queue in self._until

    async def renew(self) -> list[MessageQueue]:
        """Ask for all that are ours again; those that are not any more."""
        before = list(self._until)
        by_broker: defaultdict[str, list[MessageQueue]] = defaultdict(list)
        for queue in before:
            by_broker[queue.broker_name].append(queue)
        await asyncio.gather(*map(self._lock, by_broker.values()))
        now = asyncio.get_running_loop().time()
        self._until = {queue: until for queue, until in self._until.items() if until > now}
        return [queue for queue in before if queue not in self._until]

    async def _lock(self, queues: list[MessageQueue]) -> None:
        """Lock queues of one broker; while it does not answer, everything stays as it is."""
        until = asyncio.get_running_loop().time() + VALID_S
        try:
            response = await self._ask(RequestCode.LOCK_BATCH_MQ, queues)
            locked = parse(response.body, lambda json: set(map(queue_from_json, json.get("lockOKMQSet") or ())))
        except (RoquetError, ValueError) as error:
            log.warning("%s queues of %s are not locked: %s", len(queues), queues[0].broker_name, error)
            return
        for queue in queues:
            if queue in locked:
                self._until[queue] = until
            else:
                self._until.pop(queue, None)

    async def release(self, queues: Iterable[MessageQueue]) -> None:
        """Let others have these at once; a broker that cannot be told lets its locks end by themselves."""
        for queue in queues:
            if self._until.pop(queue, None) is not None:
                try:
                    await self._ask(RequestCode.UNLOCK_BATCH_MQ, [queue])
                except RoquetError as error:
                    log.warning("the lock of %s ends later: %s", queue, error)

    async def release_all(self) -> None:
        """This member leaves."""
        await self.release(list(self._until))

    async def _ask(self, code: RequestCode, queues: list[MessageQueue]) -> Command:
        body = dump_bytes(QueueLocks(self._group, self._session.client_id, frozenset(queues)).to_json())
        at, response = await self._session.call_broker(
            queues[0], lambda _: Command(code, {}, body), TIMEOUT_MS, masters_only
        )
        return checked(response, at.address)
