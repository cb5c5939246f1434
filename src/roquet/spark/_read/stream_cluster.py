"""The network part of a stream in Spark's driver: what the queues hold, and progress noted for those who watch.

Keeps: nothing is opened before the first question, so that an unused one can be copied to other processes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Final, TypeVar

from roquet.client.pull_consumer import PullConsumer
from roquet.errors import RoquetError
from roquet.protocol.records.message import MessageQueue
from roquet.spark._arrow.bodies import mean_size
from roquet.spark._options.ranges import Bounds, lost, settled, starts, times_wanted
from roquet.spark._options.read import ReadOptions
from roquet.spark._read.cluster_queries import ClusterQueries, client
from roquet.spark._read.queue import PAUSE_SECONDS_MAX, NoProgress
from roquet.spark._read.waiting import Waiting
from roquet.spark._runtime.loop_thread import LoopThread

_T = TypeVar("_T")
SAMPLE: Final = 16
"""So many messages of a queue are looked at to tell how large they are."""

log = logging.getLogger(__name__)


class StreamCluster:
    """One client, kept from the first question to `close`."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._thread: LoopThread | None = None
        self._consumer: PullConsumer | None = None
        self._committed: dict[MessageQueue, int] = {}
        self._waiting = Waiting()

    def starts(self) -> dict[MessageQueue, int]:
        """Where a new query starts.

        :raises OptionError, DataLoss, RouteNotFound: what was asked for is not there.
        :raises NoProgress, MasterAway: a broker did not answer in time.
        """
        return self._run(self._starts())

    def bounds(self, positions: Mapping[MessageQueue, int]) -> dict[MessageQueue, Bounds]:
        """What the queues hold: those selected now, and those of `positions` that the name server no longer lists.

        :raises NoProgress: a broker did not answer in time.
        :raises DataLoss: a queue cannot be read any more, and that is not allowed.
        """
        return self._run(self._bounds(positions))

    def message_sizes(
        self,
        firsts: Mapping[MessageQueue, int],
        counts: Mapping[MessageQueue, int],
        *,
        otherwise: int,
    ) -> dict[MessageQueue, int]:
        """The bytes of a message of each queue, as it is read, by a look at some of those that may come next.

        :param otherwise: of queues that do not answer.
        """
        return self._run(self._message_sizes(firsts, counts, otherwise))

    def commit(self, positions: Mapping[MessageQueue, int]) -> None:
        """Note the progress of the group `consumerGroup` on the brokers; what fails is logged and tried next time."""
        if self._options.consumer_group is not None:
            self._run(self._commit(self._options.consumer_group, positions))

    def close(self) -> None:
        """Leave; whatever was opened is closed."""
        thread, self._thread = self._thread, None
        consumer, self._consumer = self._consumer, None
        if thread is None:
            return
        try:
            if consumer is not None:
                thread.run(consumer.__aexit__(None, None, None))
        finally:
            thread.close()

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        if self._thread is None:
            self._thread = LoopThread("roquet-stream")
        return self._thread.run(work)

    async def _client(self) -> PullConsumer:
        if self._consumer is None:
            self._consumer = await client(self._options).__aenter__()
        return self._consumer

    async def _starts(self) -> dict[MessageQueue, int]:
        survey = ClusterQueries(await self._client(), self._options)

        async def found() -> dict[MessageQueue, int]:
            bounds = await survey.bounds(await survey.queues())
            wanted = times_wanted(bounds, self._options.starting_offsets)
            return starts(bounds, self._options, await survey.times(bounds, wanted))

        return await survey.patiently(found)

    async def _bounds(self, positions: Mapping[MessageQueue, int]) -> dict[MessageQueue, Bounds]:
        consumer = await self._client()
        selected = {
            queue: at for queue, at in positions.items() if self._options.selection.has_queue(queue)
        }
        listed, away = await self._listed(consumer, selected)
        bounds = await ClusterQueries(consumer, self._options).bounds(listed, wait_for_routes=True)
        known, waiting = settled(selected, bounds)
        self._waiting.tell({**waiting, **away})
        return known | {queue: Bounds(selected[queue], selected[queue]) for queue in away}

    async def _message_sizes(
        self, firsts: Mapping[MessageQueue, int], counts: Mapping[MessageQueue, int], otherwise: int
    ) -> dict[MessageQueue, int]:
        consumer = await self._client()

        async def size(queue: MessageQueue) -> int:
            """The first, and those in the middle: the larger ones count, for rather too few messages than too many."""
            places = sorted({firsts[queue], firsts[queue] + counts[queue] // 2})
            try:
                looked = await consumer.pull_all(queue, places, max_messages=SAMPLE)
                return max(
                    (mean_size(each.records, self._options.uncompressed_max) for each in looked),
                    default=1,
                )
            except (RoquetError, OSError) as error:
                log.debug("size of messages not known: %s queue=%s", error, queue)
                return otherwise

        queues = [queue for queue, count in counts.items() if count > 0]
        return dict(zip(queues, await asyncio.gather(*map(size, queues)), strict=True))

    async def _listed(
        self, consumer: PullConsumer, positions: Mapping[MessageQueue, int]
    ) -> tuple[set[MessageQueue], dict[MessageQueue, RoquetError]]:
        """The queues to ask, and those of `positions` to leave where they are, and why they cannot be read now.

        The name server lists no queue of a broker that is away, of a topic that was deleted, or beyond the number a
        topic was cut down to. One that held nothing more when it vanished has nothing to lose; whoever deleted its
        topic shows in its bounds. With failOnDataLoss others are waited for, as their broker may be starting; without
        they stay where they are until they are back.
        """
        topics = {queue.topic for queue in positions}
        deadline = asyncio.get_running_loop().time() + self._options.no_progress_timeout_ms / 1000
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
            if asyncio.get_running_loop().time() >= deadline:
                raise next(iter(away.values()))
            await asyncio.sleep(PAUSE_SECONDS_MAX)

    async def _unread(
        self, consumer: PullConsumer, queue: MessageQueue, position: int
    ) -> RoquetError | None:
        """What keeps an unlisted queue from being read on; None if it holds nothing more."""
        try:
            end = await consumer.max_offset(queue)
        except (RoquetError, OSError) as error:
            return NoProgress(
                f"{queue} is not listed by the name server any more and its broker does not answer: {error}. If it is "
                "gone for good, failOnDataLoss=false goes on without it"
            )
        if end <= position:
            return None
        return lost(
            queue,
            f"offsets {position} to {end - 1}, which the name server lists no more",
            Bounds(position, end),
        )

    async def _commit(self, group: str, positions: Mapping[MessageQueue, int]) -> None:
        consumer = await self._client()
        changed = [
            (queue, at) for queue, at in positions.items() if self._committed.get(queue) != at
        ]
        results = await asyncio.gather(
            *(consumer.commit(group, queue, at) for queue, at in changed), return_exceptions=True
        )
        self._note(group, changed, results)

    def _note(
        self,
        group: str,
        changed: Iterable[tuple[MessageQueue, int]],
        results: Iterable[BaseException | None],
    ) -> None:
        for (queue, at), failure in zip(changed, results, strict=True):
            if failure is None:
                self._committed[queue] = at
            elif isinstance(failure, (RoquetError, OSError)):
                log.warning("progress of %s in %s is not noted: %s", group, queue, failure)
            else:
                raise failure
