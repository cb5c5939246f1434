"""Consumer offsets: where they are stored, and where a group without one begins.

See docs/protocol/consuming.md#committing and docs/protocol/consuming.md#where-a-group-begins.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, Protocol, TypeAlias

from roquet.client._consume.pull_request import pull_request, pull_result
from roquet.client._consume.pull_result import PullStatus, selected_records
from roquet.client._net.routes import BrokerAddress
from roquet.client._net.session import Session
from roquet.common.java import LONG_MAX
from roquet.errors import ConfigError, PeerError, ResponseError
from roquet.protocol.bodies.tables import FROM_FIRST, FROM_LAST, FROM_TIMESTAMP, Subscription
from roquet.protocol.headers.pull import SUBSCRIPTION
from roquet.protocol.records.message import RETRY_PREFIX, MessageQueue

log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 3000

Start: TypeAlias = Literal["earliest", "latest"] | datetime
"""Where a group without a stored offset begins: the beginning, the end, or a store time."""


Where: TypeAlias = int | Literal["earliest", "latest"] | datetime
"""A place in a queue: an offset, the beginning, the end, or a store time."""


class OffsetStore(Protocol):
    """A store of consumer offsets.

    The brokers store the offsets of a group (`BrokerOffsets`): `commit` sends each to a broker, and
    `persist` has nothing to do. A local file stores those of a broadcasting member
    (`LocalOffsets`): `commit` changes memory, and `persist` writes the file.
    """

    async def open(self) -> None:
        """Prepare the store; called once, before all other methods."""

    async def load(self, queue: MessageQueue) -> int | None:
        """The stored offset, or None. It may be 0 although none is stored: see `is_stored`."""

    async def is_stored(self, queue: MessageQueue) -> bool:
        """Whether there is a stored offset. `load` is quicker, and enough unless it returned 0."""

    async def commit(self, queue: MessageQueue, current_offset: Callable[[], int]) -> None:
        """Store the offset that `current_offset` returns, if it is higher than the stored one."""

    async def reset(self, queue: MessageQueue, offset: int) -> None:
        """Store `offset`, even if it is lower than the stored one."""

    def distrust(self, queue: MessageQueue) -> None:
        """Let the next `commit` store even the same offset: a pull may have replaced it."""

    def last_stored(self, queue: MessageQueue) -> int | None:
        """The offset that `commit` or `reset` stored last since `forget`; None if none did."""

    def forget(self, queue: MessageQueue) -> None:
        """Drop what is cached about a queue: the next `commit` stores even a lower offset."""

    async def persist(self) -> None:
        """Make the stored offsets durable."""


@dataclass(slots=True)
class _Stored:
    """The offset of a queue that was stored last; whether it must be stored once more."""

    offset: int = -1
    is_unsure: bool = False


class BrokerOffsets:
    """The offsets of a group, stored by the brokers.

    Offsets are committed to the master, or to a slave while the master is down. An offset that only
    a slave has is committed to the master as soon as it is back, because the slave overwrites its
    offsets with the master's.

    Invariant: the offset of a queue only grows while the queue is assigned, unless `reset` or
    `forget` is called. At most one commit of a queue is under way, so that the last one counts.
    """

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group
        self._stored: dict[MessageQueue, _Stored] = {}
        self._turns: defaultdict[MessageQueue, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._stored_ids: dict[tuple[str, str], tuple[int, frozenset[int]]] = {}
        """Of each broker name and topic: how often the broker was asked for the queues that have a
        stored offset, and what it answered last."""
        self._asking: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)

    async def open(self) -> None:
        """Do nothing: offsets are loaded when a queue is assigned."""

    async def persist(self) -> None:
        """Do nothing: brokers make the offsets durable."""

    async def load(self, queue: MessageQueue) -> int | None:
        """The offset that a broker has stored, or None."""
        return await self._session.queues.committed(self._group, queue, TIMEOUT_MS)

    async def is_stored(self, queue: MessageQueue) -> bool:
        """Whether a broker has stored an offset. The queues of a topic share one request.

        A broker that does not tell counts as one that has: to begin at a 0 that it made up
        repeats messages, to pass over one that was stored would lose some.

        :raises RoquetError: no broker answers.
        """
        name = queue.broker_name, queue.topic
        asked, _ = self._stored_ids.get(name, (0, frozenset()))
        async with self._asking[name]:
            times, ids = self._stored_ids.get(name, (0, frozenset()))
            if times == asked:
                try:
                    offsets = await self._session.queues.stored(self._group, queue, TIMEOUT_MS)
                except (ResponseError, PeerError) as error:
                    log.info(
                        "the queue begins at offset 0, its broker does not tell whether the group "
                        "has stored that: group=%s queue=%s error=%s",
                        self._group,
                        queue,
                        error,
                    )
                    return True
                ids = frozenset(offsets)
                self._stored_ids[name] = times + 1, ids
        return queue.queue_id in ids

    async def commit(self, queue: MessageQueue, current_offset: Callable[[], int]) -> None:
        """Commit the offset that `current_offset` returns, if it is higher than the stored one.

        :raises RoquetError: no broker accepted it; the caller tries again later.
        """
        async with self._turns[queue]:
            stored = self._stored.setdefault(queue, _Stored())
            offset = current_offset()
            if offset < stored.offset or (offset == stored.offset and not stored.is_unsure):
                return
            at, stored.offset = await self._session.queues.commit(
                self._group, queue, current_offset, TIMEOUT_MS
            )
            # A slave overwrites its offsets with the master's, as soon as that is back.
            stored.is_unsure = not at.is_master

    async def reset(self, queue: MessageQueue, offset: int) -> None:
        """Commit `offset`, even if it is lower than the stored one.

        :raises RoquetError: no broker accepted it; the next `commit` sends even a lower offset.
        """
        self.forget(queue)
        await self.commit(queue, lambda: offset)

    def distrust(self, queue: MessageQueue) -> None:
        stored = self._stored.get(queue)
        if stored is not None:
            stored.is_unsure = True

    def last_stored(self, queue: MessageQueue) -> int | None:
        stored = self._stored.get(queue)
        return None if stored is None or stored.offset < 0 else stored.offset

    def forget(self, queue: MessageQueue) -> None:
        """Drop the cached offset: the queue's next owner, or this one, may commit a lower one.

        A commit that is under way does not cache its offset any more.
        """
        self._stored.pop(queue, None)


def check_start(start: Start) -> None:
    """Check the argument `start` of a consumer.

    :raises ConfigError: it is something else.
    """
    if start not in ("earliest", "latest") and not isinstance(start, datetime):
        raise ConfigError(
            f"start is {start!r}: give 'earliest', 'latest' or a datetime; it is where a group "
            "without a stored offset begins"
        )


def check_where(where: Where) -> None:
    """Check the argument `where` of `Consumer.seek`.

    :raises ConfigError: it is something else.
    """
    if where not in ("earliest", "latest") and not isinstance(where, datetime):
        check_offset("where", where, "'earliest', 'latest', a datetime or ")


def check_offset(name: str, offset: object, others: str = "") -> None:
    """Check an argument that is an offset of a queue.

    :param others: what else may be given.
    :raises ConfigError: it is no offset.
    """
    if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset <= LONG_MAX:
        raise ConfigError(f"{name} is {offset!r}: give {others}an offset of 0 to {LONG_MAX}")


def consume_from_where(start: Start) -> str:
    """What heartbeats say for `start` in their member `consumeFromWhere`."""
    if isinstance(start, datetime):
        return FROM_TIMESTAMP
    return FROM_FIRST if start == "earliest" else FROM_LAST


async def start_offset(
    session: Session, group: str, offsets: OffsetStore, queue: MessageQueue, start: Start
) -> int:
    """The stored offset of the group, or the one that `start` selects if none is stored.

    If a queue still has its first message, and that counts as in memory, brokers answer 0, not that
    there is no offset (docs/pitfalls.md#trap-29). With "latest" a new group begins there, as with
    Apache's clients: where a topic is created after its group, its first messages come before any
    member has found its queues, and would be lost. A time has no such gap, as those messages are
    stored after it; so there the client asks whether the 0 is stored, and if not, for the offset.

    :raises RoquetError: no broker could tell the offset.
    """
    # All messages of the retry topic belong to this group, whatever `start` is.
    is_retry = queue.topic.startswith(RETRY_PREFIX)
    stored = await offsets.load(queue)
    may_be_new = stored == 0 and isinstance(start, datetime) and not is_retry
    if may_be_new and not await offsets.is_stored(queue):
        stored = None
    if stored is not None and stored >= 0:
        return stored
    return await offset_of(session, group, queue, "earliest" if is_retry else start)


async def offset_of(session: Session, group: str, queue: MessageQueue, where: Where) -> int:
    """The offset that `where` means in a queue; for a store time, that of the first message since.

    :raises RoquetError: no broker could tell the offset.
    """
    if isinstance(where, datetime):
        since_ms = round(where.timestamp() * 1_000_000) // 1000
        return await _first_offset_since(session, group, queue, since_ms)
    if where == "earliest":
        return max(0, await session.queues.min_offset(queue, TIMEOUT_MS))
    if where == "latest":
        return await session.queues.max_offset(queue, TIMEOUT_MS)
    return where


async def _first_offset_since(
    session: Session, group: str, queue: MessageQueue, since_ms: int
) -> int:
    """The offset of the first message that was stored at `since_ms` or later; else the end.

    Brokers answer a search by time with the nearest message, which may be the last one before that
    time. So that message is pulled, without a filter, and passed over if it is too early. The same
    process is asked for both, because a slave may not have the message that its master found.
    """

    async def ask(at: BrokerAddress) -> int:
        nearest = await session.queues.offset_at(queue, since_ms, TIMEOUT_MS, lambda *_: [at])
        return await _passed_over_early(session, group, queue, since_ms, at, nearest)

    return await session.brokers.first(queue, ask)


async def _passed_over_early(
    session: Session,
    group: str,
    queue: MessageQueue,
    since_ms: int,
    at: BrokerAddress,
    offset: int,
) -> int:
    """`offset`, or the next one if the message there was stored before `since_ms`."""
    everything = Subscription(queue.topic)
    while True:
        request = pull_request(group, queue, offset, 1, SUBSCRIPTION, everything, 0)
        response = await session.call(at.address, request, TIMEOUT_MS)
        result = pull_result(response, at.address, everything)
        if result.status is PullStatus.FOUND:
            found = selected_records(result)[0]
            return found.queue_offset + 1 if found.store_ms < since_ms else offset
        if result.status is PullStatus.NO_NEW or result.next_offset <= offset:
            return offset
        offset = result.next_offset  # the messages up to there were deleted meanwhile, or compacted
