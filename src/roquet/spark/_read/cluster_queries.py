"""What a cluster holds of what a read selects: its queues, their bounds, and where times are in them.

Keeps: brokers that come and go are asked again for `no_progress_timeout_ms`, and no longer.
       Masters are asked first; bounds that only a slave told are marked as not certain.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

from roquet.client.pull_consumer import PullConsumer
from roquet.errors import (
    LASTING,
    CallTimeout,
    ConnectionClosed,
    RoquetError,
    RouteNotFound,
    TlsError,
)
from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.ranges import Bounds, MasterAway, Times
from roquet.spark._options.read import ReadOptions
from roquet.spark._options.values import OptionError
from roquet.spark._read.queue import PAUSE_SECONDS_MAX, NoProgress
from roquet.spark._read.time_search import first_stored_at

_About = TypeVar("_About")
_Answer = TypeVar("_Answer")


def client(options: ReadOptions) -> PullConsumer:
    """The client of a read, still to be entered."""
    return PullConsumer(
        options.name_server,
        group=options.group,
        read_from=options.read_from,
        timeout_ms=options.pull_timeout_ms,
        credentials=options.access.credentials,
        tls=options.access.tls,
    )


class ClusterQueries:
    """Asks through a client that somebody else opens and closes."""

    def __init__(self, consumer: PullConsumer, options: ReadOptions) -> None:
        self._consumer = consumer
        self._options = options
        self._patience = _Patience(options)

    async def queues(self, expected: Collection[str] = ()) -> list[MessageQueue]:
        """Every queue selected, sorted.

        :param expected: topics that were there before: they are waited for unless data loss is allowed.
        :raises RouteNotFound: there is no such topic, and that is not allowed.
        :raises OptionError: there is no such queue.
        :raises NoProgress: no name server answered.
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
                logging.getLogger(__name__).warning("left out: %s", error)
        return self._selected(found)

    async def bounds(
        self, queues: Iterable[MessageQueue], *, wait_for_routes: bool = False
    ) -> dict[MessageQueue, Bounds]:
        """What each queue holds now; where its master does not answer, what a slave says.

        :raises NoProgress: no broker answered in time.
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
        """The offsets of times in queues; raises as `bounds`."""

        async def search(about: tuple[MessageQueue, int]) -> int | None:
            queue, ms = about
            return await first_stored_at(self._consumer, queue, bounds[queue], ms)

        places = list(wanted)
        found = await asyncio.gather(*(self._patience.call(search, place) for place in places))
        return dict(zip(places, found, strict=True))

    async def patiently(self, work: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """What `work` comes to, which is done again for as long as it misses a master and there is time left.

        :raises MasterAway: it was missed to the end.
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

        async def names(about: str) -> tuple[str, ...]:
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
            logging.getLogger(__name__).warning("%s", words)
        return sorted(assigned & set(found))


async def _bounds_of(
    consumer: PullConsumer, queue: MessageQueue, *, believes_slaves: bool
) -> Bounds:
    try:
        return await _bounds_by(consumer, queue, of_master=True)
    except TlsError:
        raise  # what is wrong with TLS is wrong with the slave's, too, and to be told
    except (RouteNotFound, ConnectionClosed, CallTimeout):
        held = await _bounds_by(consumer, queue, of_master=False)
        return replace(held, is_certain=believes_slaves)


async def _bounds_by(consumer: PullConsumer, queue: MessageQueue, *, of_master: bool) -> Bounds:
    """A queue never written to has no minimum: the broker says -1."""
    first, end = await asyncio.gather(
        consumer.min_offset(queue, of_master=of_master),
        consumer.max_offset(queue, of_master=of_master),
    )
    return Bounds(max(first, 0), max(first, end, 0))


class _Patience:
    """Asks again while brokers come and go, but not for ever."""

    def __init__(self, options: ReadOptions) -> None:
        self._timeout_s = options.no_progress_timeout_ms / 1000
        self._deadline = asyncio.get_running_loop().time() + self._timeout_s

    @property
    def is_over(self) -> bool:
        return asyncio.get_running_loop().time() >= self._deadline

    async def pause(self) -> None:
        """Before the next question; the last one is at the end of all patience."""
        await asyncio.sleep(
            max(0.0, min(PAUSE_SECONDS_MAX, self._deadline - asyncio.get_running_loop().time()))
        )

    async def call(
        self,
        ask: Callable[[_About], Awaitable[_Answer]],
        about: _About,
        *,
        wait_for_routes: bool = False,
    ) -> _Answer:
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
