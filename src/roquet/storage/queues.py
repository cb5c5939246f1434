"""Every consume queue of a store, found by topic and queue id."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from roquet.storage.consume_queue import ConsumeQueue
from roquet.storage.disk import Disk


class Queues:
    """The queues in one folder, which has a folder per topic and in it one per queue id (store-and-ha.md 1.1)."""

    def __init__(self, disk: Disk, folder: Path, file_size: int) -> None:
        self._disk = disk
        self._folder = folder
        self._file_size = file_size
        self._by_topic: dict[str, dict[int, ConsumeQueue]] = {}

    def load(self) -> None:
        """Open every queue that has a folder.

        :raises StoreError: a file that does not belong there.
        """
        for topic in self._disk.folders(self._folder):
            for queue_id in self._disk.folders(self._folder / topic):
                if queue_id.isdigit():
                    self.queue(topic, int(queue_id)).load()

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, made (without a file) where there was none."""
        by_id = self._by_topic.get(topic)
        if by_id is None:
            by_id = self._by_topic[topic] = {}
        queue = by_id.get(queue_id)
        if queue is None:
            folder = self._folder / topic / str(queue_id)
            queue = by_id[queue_id] = ConsumeQueue(self._disk, folder, self._file_size, topic, queue_id)
        return queue

    def known(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, None where nobody ever asked for it by `queue`."""
        by_id = self._by_topic.get(topic)
        return by_id.get(queue_id) if by_id is not None else None

    def __iter__(self) -> Iterator[ConsumeQueue]:
        for by_id in self._by_topic.values():
            yield from by_id.values()

    @property
    def log_end(self) -> int:
        """Where in the log the last record ends that a queue points to."""
        return max((queue.log_end for queue in self), default=0)

    def drop_topic(self, topic: str) -> None:
        """Delete a topic's queues."""
        for queue in self._by_topic.pop(topic, {}).values():
            queue.drop_all()
            self._disk.delete_folder(self._folder / topic / str(queue.queue_id))
        self._disk.delete_folder(self._folder / topic)

    def close(self) -> None:
        for queue in self:
            queue.close()
