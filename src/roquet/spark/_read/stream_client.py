"""The client of a stream in Spark's driver: queries queues and commits offsets.

Invariant: no thread or connection is opened before the first query, so that Spark can copy an
unused `StreamClient` to other processes.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine, Mapping
from typing import Any, Final, TypeVar

from roquet.client._consume.pull_result import selected_records
from roquet.client.pull_consumer import PullConsumer
from roquet.errors import RoquetError
from roquet.protocol.records.message import MessageQueue
from roquet.spark._arrow.bodies import mean_size
from roquet.spark._options.ranges import Bounds, lost, starts, times_wanted, usable_bounds
from roquet.spark._options.read import ReadOptions
from roquet.spark._read.cluster_queries import ClusterQueries, Patience, opened
from roquet.spark._read.queue import NoProgress
from roquet.spark._read.waiting import Waiting

_T = TypeVar("_T")
SAMPLE: Final = 16
"""How many messages are pulled, per place in a queue, to estimate the size of its messages."""

log = logging.getLogger(__name__)


class _LoopThread:
    """An event loop in a thread.

    Its connections stay open, and keep answering requests, between two calls of `run`.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine in the loop, and return or raise what it does."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """Stop the loop and its thread. No `run` may be in progress."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class StreamClient:
    """Queries the queues of a stream with one client, open from the first query to `close`."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._thread: _LoopThread | None = None
        self._consumer: PullConsumer | None = None
        self._committed: dict[MessageQueue, int] = {}
        self._waiting = Waiting()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run one of the queries below in the client's event loop, and wait for its result."""
        if self._thread is None:
            self._thread = _LoopThread("roquet-stream")
        return self._thread.run(work)

    def close(self) -> None:
        """Close the client and its event loop, if they were opened."""
        thread, self._thread = self._thread, None
        consumer, self._consumer = self._consumer, None
        if thread is None:
            return
        try:
            if consumer is not None:
                thread.run(consumer.close())
        finally:
            thread.close()

    async def _client(self) -> PullConsumer:
        if self._consumer is None:
            self._consumer = await opened(self._options)
        return self._consumer

    async def starts(self) -> dict[MessageQueue, int]:
        """The offset at which a new query starts to read each queue.

        :raises OptionError, DataLoss, RouteNotFound: a topic, queue or offset does not exist.
        :raises NoProgress, MasterAway: a broker did not answer in time.
        """
        queries = ClusterQueries(await self._client(), self._options)

        async def found() -> dict[MessageQueue, int]:
            bounds = await queries.bounds(await queries.queues())
            wanted = times_wanted(bounds, self._options.starting_offsets)
            return starts(bounds, self._options, await queries.times(bounds, wanted))

        return await queries.patiently(found)

    async def bounds(self, positions: Mapping[MessageQueue, int]) -> dict[MessageQueue, Bounds]:
        """The bounds of the selected queues, and of those in `positions` that are not listed now.

        :param positions: the next offset to read of each queue.
        :raises NoProgress: a broker did not answer in time.
        :raises DataLoss: a queue with unread messages is gone, and failOnDataLoss is true.
        """
        consumer = await self._client()
        selected = {
            queue: at for queue, at in positions.items() if self._options.selection.has_queue(queue)
        }
        listed, away = await self._listed(consumer, selected)
        bounds = await ClusterQueries(consumer, self._options).bounds(listed, wait_for_routes=True)
        known, waiting = usable_bounds(selected, bounds)
        self._waiting.tell({**waiting, **away})
        return known | {queue: Bounds(selected[queue], selected[queue]) for queue in away}

    async def message_sizes(
        self,
        firsts: Mapping[MessageQueue, int],
        counts: Mapping[MessageQueue, int],
        *,
        otherwise: int,
    ) -> dict[MessageQueue, int]:
        """The estimated bytes of a decompressed message of each queue, from samples.

        :param firsts: the next offset of each queue.
        :param counts: how many messages of each queue the batch may read.
        :param otherwise: the size for queues whose broker does not answer.
        """
        consumer = await self._client()

        async def size(queue: MessageQueue) -> int:
            """The larger mean of two samples, at the start and in the middle of the batch.

            The larger one, because a batch that is too small does less harm than one that is too
            large.
            """
            places = sorted({firsts[queue], firsts[queue] + counts[queue] // 2})
            try:
                looked = await consumer.pull_all(queue, places, max_messages=SAMPLE)
                return max(
                    (
                        mean_size(selected_records(each), self._options.uncompressed_max)
                        for each in looked
                    ),
                    default=1,
                )
            except (RoquetError, OSError) as error:
                log.debug("message size unknown: queue=%s error=%s", queue, error)
                return otherwise

        queues = [queue for queue, count in counts.items() if count > 0]
        return dict(zip(queues, await asyncio.gather(*map(size, queues)), strict=True))

    async def _listed(
        self, consumer: PullConsumer, positions: Mapping[MessageQueue, int]
    ) -> tuple[set[MessageQueue], dict[MessageQueue, RoquetError]]:
        """The queues to query, and the queues that cannot be read now with the reason.

        The name server does not list a queue whose broker is down, whose topic was deleted, or
        whose topic has fewer queues now. If such a queue has no unread messages, nothing can be
        lost, and it is queried as the others are. A queue with unread messages is waited for with
        failOnDataLoss, as its broker may be starting. Without failOnDataLoss it keeps its position
        until it is listed.

        :param positions: the next offset to read of each queue.
        """
        topics = {queue.topic for queue in positions}
        patience = Patience(self._options)
        while True:
            listed = set(await ClusterQueries(consumer, self._options).queues(topics))
            troubles = {
                queue: await self._unread(consumer, queue, positions[queue])
                for queue in positions.keys() - listed
            }
            away = {
                queue: trouble for queue, trouble in sorted(troubles.items()) if trouble is not None
            }
            unlisted = troubles.keys() - away.keys()
            if not away or not self._options.fail_on_data_loss:
                return listed | unlisted, away
            if patience.is_over:
                raise next(iter(away.values()))
            await patience.pause()

    async def _unread(
        self, consumer: PullConsumer, queue: MessageQueue, position: int
    ) -> RoquetError | None:
        """The reason why an unlisted queue cannot be read; None if it has no unread messages."""
        try:
            end = await consumer.max_offset(queue)
        except (RoquetError, OSError) as error:
            return NoProgress(
                f"{queue} is not listed by the name server any more, and its broker does not "
                f"answer: {error}. If the broker is gone for good, failOnDataLoss=false continues "
                "without it"
            )
        if end <= position:
            return None
        return lost(
            queue,
            f"offsets {position} to {end - 1}, which the name server does not list any more",
            Bounds(position, end),
        )

    async def commit(self, group: str, positions: Mapping[MessageQueue, int]) -> None:
        """Commit the offsets of a consumer group to the brokers.

        A failure is logged; the next commit tries the queue again.
        """
        consumer = await self._client()
        changed = [
            (queue, at) for queue, at in positions.items() if self._committed.get(queue) != at
        ]
        results = await asyncio.gather(
            *(consumer.commit(group, queue, at) for queue, at in changed), return_exceptions=True
        )
        for (queue, at), failure in zip(changed, results, strict=True):
            if failure is None:
                self._committed[queue] = at
            elif isinstance(failure, (RoquetError, OSError)):
                log.warning(
                    "offset commit failed: group=%s queue=%s error=%s", group, queue, failure
                )
            else:
                raise failure
