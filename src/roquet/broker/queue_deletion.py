"""Deletes consume queues so that no recovery brings them back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from roquet.runtime import Runtime
from roquet.storage.consume_queue import ConsumeQueue
from roquet.storage.store import Store


class QueueDeletion:
    """Deletes queues after a checkpoint that does not count them.

    A recovery dispatches what came after the checkpoint, and the whole log when there are fewer queues than the
    checkpoint says: either would fill the deleted queues anew.

    :param making: held by whoever makes a checkpoint: one that began before the deletion and is saved after it would
        count the queues.
    """

    def __init__(self, store: Store, runtime: Runtime, making: asyncio.Lock) -> None:
        self._store = store
        self._runtime = runtime
        self._making = making

    async def of_topics(self, topics: Callable[[], Sequence[str]]) -> None:
        """Delete the queues of these topics.

        :raises OSError: something could not be written or deleted; to be called again.
        """
        queues = self._store.queues
        async with self._making:
            await self._leave(lambda: [queue for topic in topics() for queue in queues.of_topic(topic)])
            for topic in topics():
                queues.drop_topic(topic)

    async def of_queues(self, queues: Callable[[], Sequence[ConsumeQueue]]) -> None:
        """Empty these queues; the next message in each has the offset 0 again.

        :raises OSError: as `of_topics`.
        """
        async with self._making:
            await self._leave(queues)
            for queue in queues():
                queue.drop_all()

    async def _leave(self, queues: Callable[[], Sequence[ConsumeQueue]]) -> None:
        """Make a checkpoint without them, again for as long as there are more of them after it; none where there is
        nothing to leave: thousands of deletions of what is not there would each hold up the next checkpoint.

        What was stored in them meanwhile is behind that checkpoint: a recovery would bring it back. For that bit there
        is one more checkpoint, during which nothing can be stored.
        """
        leaving: dict[ConsumeQueue, int] = {}
        while not leaving.keys() >= set(now := queues()):
            leaving = {queue: queue.log_end for queue in now}
            for work in self._store.checkpoint_works(leaving):
                await self._runtime.blocking(work)
        if any(queue.log_end > leaving[queue] for queue in queues()):
            for work in self._store.checkpoint_works(leaving):
                work()
