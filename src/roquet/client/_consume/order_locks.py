"""Queue locks at the brokers: only one member of a group consumes an ordered queue.

See docs/protocol/consuming.md#locks.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from roquet.client._net.outages import level_of
from roquet.client._net.routes import masters_only
from roquet.client._net.session import Session
from roquet.client._net.tasks import pause
from roquet.common.loop_time import now_s
from roquet.errors import RoquetError
from roquet.protocol.bodies.tables import QueueLocks, parse, queue_from_json
from roquet.protocol.json.dialect import dump_bytes
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.protocol.remoting.refusals import checked

log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 1000
RENEW_PERIOD_S: Final = 20.0
RETRY_PAUSE_S: Final = 3.0
"""Pause before locks are renewed again if a broker did not answer."""
VALID_S: Final = 30.0
"""How long a lock counts here without renewal. The broker keeps it for 60 s, so this member stops
before another member can get the lock."""


class OrderLocks:
    """The queue locks that this member holds.

    Invariant: `_until` has the locked queues and the time (of the event loop) at which each lock
    ends unless it is renewed. `_locked_ms` has the wall clock's time at which each of them was last
    locked, for administrators. At most one lock or unlock request is under way; otherwise a renewal
    could lock a queue again that is being released.
    """

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group
        self._until: dict[MessageQueue, float] = {}
        self._locked_ms: dict[MessageQueue, int] = {}
        self._turn = asyncio.Lock()
        self.due = asyncio.Event()
        """Set to renew the locks now, because a broker that restarted has lost them."""

    def has(self, queue: MessageQueue) -> bool:
        """Whether the queue's lock is valid now."""
        return self._until.get(queue, 0.0) > now_s()

    def locked_ms(self, queue: MessageQueue) -> int:
        """When the queue was last locked, in ms since 1970; 0 if it is not locked."""
        return self._locked_ms.get(queue, 0)

    async def acquire(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Lock queues; return those that are locked now. Another member may have the others."""
        wanted = list(queues)
        async with self._turn:
            await self._lock_all(wanted)
        return [queue for queue in wanted if self.has(queue)]

    async def keep(self) -> None:
        """Renew the locks forever: every 20 s, or after 3 s if a broker did not answer."""
        is_renewed = True
        while True:
            await pause(self.due, RENEW_PERIOD_S if is_renewed else RETRY_PAUSE_S)
            async with self._turn:
                is_renewed = await self._lock_all(self._until)

    def ended(self) -> list[MessageQueue]:
        """Remove the queues whose locks have ended and return them."""
        ended = [queue for queue in self._until if not self.has(queue)]
        for queue in ended:
            self._forget(queue)
        return ended

    def _forget(self, queue: MessageQueue) -> bool:
        """Forget a queue's lock; return whether there was one."""
        self._locked_ms.pop(queue, None)
        return self._until.pop(queue, None) is not None

    async def _lock_all(self, queues: Iterable[MessageQueue]) -> bool:
        """Lock or renew queues; return whether all brokers answered."""
        return all(await asyncio.gather(*map(self._lock, _by_broker(queues))))

    async def _lock(self, queues: list[MessageQueue]) -> bool:
        """Lock queues of one broker; return whether it answered.

        Without an answer the locks stay as they are.
        """
        until = now_s() + VALID_S
        try:
            response = await self._ask(RequestCode.LOCK_BATCH_MQ, queues)
            locked = parse(
                response.body, lambda json: set(map(queue_from_json, json.get("lockOKMQSet") or ()))
            )
        except (RoquetError, ValueError) as error:
            log.log(
                level_of(error),
                "queues not locked, will be retried: group=%s broker=%s count=%d error=%s",
                self._group,
                queues[0].broker_name,
                len(queues),
                error,
            )
            return False
        for queue in queues:
            if queue in locked:
                self._until[queue] = until
                self._locked_ms[queue] = self._session.runtime.now_ms()
            elif queue in self._until:
                self._until[queue] = 0.0
        return True

    async def release(self, queues: Iterable[MessageQueue]) -> None:
        """Unlock queues. At a broker that does not answer, their locks expire after 60 s."""
        async with self._turn:
            locked = [queue for queue in queues if self._forget(queue)]
            await asyncio.gather(*map(self._unlock, _by_broker(locked)))

    async def release_all(self) -> None:
        """Unlock all queues, because this member leaves."""
        await self.release(list(self._until))

    async def _unlock(self, queues: list[MessageQueue]) -> None:
        try:
            await self._ask(RequestCode.UNLOCK_BATCH_MQ, queues)
        except RoquetError as error:
            log.log(
                level_of(error),
                "could not unlock queues, the broker releases them when the locks expire: "
                "group=%s broker=%s count=%d error=%s",
                self._group,
                queues[0].broker_name,
                len(queues),
                error,
            )

    async def _ask(self, code: RequestCode, queues: list[MessageQueue]) -> Command:
        body = dump_bytes(
            QueueLocks(self._group, self._session.client_id, frozenset(queues)).to_json()
        )
        at, response = await self._session.brokers.call(
            queues[0], Command(code, {}, body), TIMEOUT_MS, masters_only
        )
        return checked(response, at.address)


def _by_broker(queues: Iterable[MessageQueue]) -> Iterable[list[MessageQueue]]:
    by_broker: defaultdict[str, list[MessageQueue]] = defaultdict(list)
    for queue in queues:
        by_broker[queue.broker_name].append(queue)
    return by_broker.values()
