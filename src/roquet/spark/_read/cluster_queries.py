"""Queries a cluster for the selected queues, their bounds, and the offsets of store times.

Invariants:
- A query that fails is retried for `no_progress_timeout_ms`, and no longer.
- Masters are asked first. Bounds from a slave are marked as not certain.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

from roquet.client.pull_consumer import PullConsumer
from roquet.common.loop_time import now_s
from roquet.errors import (
    LASTING,
    CallTimeout,
    ConnectionClosed,
    OptionError,
    RoquetError,
    RouteNotFound,
    TlsError,
)
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.records.record import Record, decode_all
from roquet.spark._options.ranges import Bounds, MasterAway, Times
from roquet.spark._options.read import ReadOptions
from roquet.spark._read.queue import PAUSE_SECONDS_MAX, NoProgress

_About = TypeVar("_About")
_Answer = TypeVar("_Answer")


class NotGiven(RoquetError):  # noqa: N818
    """A broker has a message but does not return it now."""


async def opened(options: ReadOptions) -> PullConsumer:
    """A started client with the options of a read.

    :raises NoProgress: no name server could be reached in time.
    """

    async def start(_: str) -> PullConsumer:
        consumer = PullConsumer(
            options.name_server,
            group=options.group,
            read_from=options.read_from,
            timeout_ms=options.pull_timeout_ms,
            **options.access,
        )
        return await consumer.start()

    return await Patience(options).call(start, options.name_server)


class ClusterQueries:
    """Queries brokers for the selected queues and their offsets.

    The caller opens and closes `consumer`.
    """

    def __init__(self, consumer: PullConsumer, options: ReadOptions) -> None:
        self._consumer = consumer
        self._options = options
        self._patience = Patience(options)

    async def queues(self, expected: Collection[str] = ()) -> list[MessageQueue]:
        """All selected queues, sorted.

        :param expected: topics that existed before. With failOnDataLoss the query waits for their
            routes.
        :raises RouteNotFound: there is no such topic, and failOnDataLoss is true.
        :raises OptionError: there is no such queue, and failOnDataLoss is true.
        :raises NoProgress: no name server answered in time.
        """
        found: list[MessageQueue] = []
        awaited = expected if self._options.fail_on_data_loss else ()
        for topic in await self._topics():
            try:
                found += await self._patience.call(
                    self._consumer.queues, topic, wait_for_routes=topic in awaited
                )
            except RouteNotFound as error:
                if self._options.fail_on_data_loss:
                    raise
                logging.getLogger(__name__).warning("topic skipped: error=%s", error)
        return self._selected(found)

    async def bounds(
        self, queues: Iterable[MessageQueue], *, wait_for_routes: bool = False
    ) -> dict[MessageQueue, Bounds]:
        """The bounds of each queue now; those of a slave if the master does not answer.

        :raises NoProgress: no broker of a queue answered in time.
        """
        wanted = list(queues)
        ask = partial(_bounds_of, self._consumer, believes_slaves=self._options.believes_slaves)
        asked = (
            self._patience.call(ask, queue, wait_for_routes=wait_for_routes) for queue in wanted
        )
        return dict(zip(wanted, await asyncio.gather(*asked), strict=True))

    async def times(
        self, bounds: Mapping[MessageQueue, Bounds], wanted: Iterable[tuple[MessageQueue, int]]
    ) -> Times:
        """The offsets of store times in queues. Raises as `bounds` does.

        :param wanted: pairs of queue and store time (ms since 1970).
        """

        async def search(about: tuple[MessageQueue, int]) -> int | None:
            queue, ms = about
            return await _first_stored_at(self._consumer, queue, bounds[queue], ms)

        places = list(wanted)
        found = await asyncio.gather(*(self._patience.call(search, place) for place in places))
        return dict(zip(places, found, strict=True))

    async def patiently(self, work: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """The result of `work`, which is retried until no master is missing or the time is over.

        :raises MasterAway: a master was missing to the end.
        """
        while True:
            try:
                return await work()
            except MasterAway:
                if self._patience.is_over:
                    raise
            await self._patience.pause()

    async def _topics(self) -> tuple[str, ...]:
        selection = self._options.selection
        if selection.pattern is None:
            return selection.topics

        async def names(_: str) -> tuple[str, ...]:
            return selection.topics_among(
                await self._consumer.topics(), await self._consumer.own_topics()
            )

        return await self._patience.call(names, "the name server's topics")

    def _selected(self, found: list[MessageQueue]) -> list[MessageQueue]:
        assigned = self._options.selection.queues
        if assigned is None:
            return found
        if missing := sorted(assigned - set(found)):
            words = f"assign: there is no queue {', '.join(map(str, missing))}"
            if self._options.fail_on_data_loss:
                raise OptionError(words)
            logging.getLogger(__name__).warning("queues skipped: error=%s", words)
        return sorted(assigned & set(found))


async def _bounds_of(
    consumer: PullConsumer, queue: MessageQueue, *, believes_slaves: bool
) -> Bounds:
    try:
        return await _bounds_by(consumer, queue, of_master=True)
    except TlsError:
        raise  # a slave has the same TLS settings, and the caller must see what is wrong with them
    except (RouteNotFound, ConnectionClosed, CallTimeout):
        bounds = await _bounds_by(consumer, queue, of_master=False)
        return replace(bounds, is_certain=believes_slaves)


async def _bounds_by(consumer: PullConsumer, queue: MessageQueue, *, of_master: bool) -> Bounds:
    """Ask one broker. Its minimum of a queue without messages is -1, which becomes 0."""
    first, end = await asyncio.gather(
        consumer.min_offset(queue, of_master=of_master),
        consumer.max_offset(queue, of_master=of_master),
    )
    return Bounds(max(first, 0), max(first, end, 0))


async def _first_stored_at(
    consumer: PullConsumer, queue: MessageQueue, bounds: Bounds, ms: int
) -> int | None:
    """The offset of the first message stored at `ms` (since 1970) or later; None if there is none.

    The brokers' own search is not exact. It returns the message stored nearest to the time, which
    may be the one before it, or any of several of the same millisecond, and it is wrong in a store
    whose files were copied (docs/storage/fetch.md#an-offset-by-time and docs/pitfalls.md#trap-s17).
    Store times never decrease along a queue (docs/pitfalls.md#trap-s24), so a binary search finds
    the first message in some twenty pulls.

    Raises what `PullConsumer.pull` raises, too.

    :raises NotGiven: a broker has a message but does not return it.
    """
    low, high = bounds.min, bounds.max
    while low < high:
        middle = (low + high) // 2
        record = await _first_message(consumer, queue, middle, high)
        if record is None or record.store_ms >= ms:
            high = middle
        else:
            low = record.queue_offset + 1
    return low if low < bounds.max else None


async def _first_message(
    consumer: PullConsumer, queue: MessageQueue, offset: int, end: int
) -> Record | None:
    """The first message in [offset, end). Messages that are deleted meanwhile are skipped."""
    while offset < end:
        answer = await consumer.pull(queue, offset, max_messages=1)
        for record in decode_all(answer.body):
            return record if record.queue_offset < end else None
        if answer.next_offset <= offset:
            raise NotGiven(
                f"{queue}: the broker does not return offset {offset}, "
                f"its queue ends at {answer.max_offset}"
            )
        offset = answer.next_offset
    return None


class Patience:
    """Retries queries of brokers that fail, until `no_progress_timeout_ms` is over."""

    def __init__(self, options: ReadOptions) -> None:
        self._timeout_s = options.no_progress_timeout_ms / 1000
        self._deadline = now_s() + self._timeout_s

    @property
    def is_over(self) -> bool:
        return now_s() >= self._deadline

    async def pause(self) -> None:
        """Wait before the next attempt. The last attempt is made at the deadline."""
        await asyncio.sleep(max(0.0, min(PAUSE_SECONDS_MAX, self._deadline - now_s())))

    async def call(
        self,
        ask: Callable[[_About], Awaitable[_Answer]],
        about: _About,
        *,
        wait_for_routes: bool = False,
    ) -> _Answer:
        """Ask about something until there is an answer.

        :param wait_for_routes: whether to ask again, too, while there is no route to it.
        :raises NoProgress: the time is over.
        """
        while True:
            try:
                return await ask(about)
            except LASTING:
                raise
            except (RoquetError, OSError) as error:
                is_late = self.is_over
                if isinstance(error, RouteNotFound) and (is_late or not wait_for_routes):
                    raise
                if is_late:
                    raise NoProgress(
                        f"{about}: no answer in {self._timeout_s:g} s, last {error}"
                    ) from error
            await self.pause()
