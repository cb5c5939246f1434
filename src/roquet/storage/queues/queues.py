"""All consume queues of a store, by topic and queue id."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

from roquet.errors import DamagedFiles, StoreError, UnreadableFile
from roquet.protocol.records.message import SCHEDULE_TOPIC, is_legal_name
from roquet.storage.files.disk import Disk
from roquet.storage.files.segments import is_number
from roquet.storage.queues.consume_queue import Appended, ConsumeQueue
from roquet.storage.queues.ext import ExtendedQueue, ExtFile, LogFilterBits

log = logging.getLogger(__name__)

_QUEUE_ID_END: Final = 1 << 31

QueueName: TypeAlias = tuple[str, int]
"""Topic and queue id."""


def _is_queue_id(name: str) -> bool:
    """Whether a folder's name is a queue id as this broker writes it."""
    return is_number(name) and str(int(name[:11])) == name and int(name) < _QUEUE_ID_END


class Queues:
    """The consume queues of a store: a folder per topic, and in it one per queue id.

    See docs/storage/files.md#names-and-sizes-are-exact.

    :param ext_file_size: of the files with extension units; None: entries have no units.
    :param filter_bits: None: no unit has bits.
    """

    def __init__(
        self,
        disk: Disk,
        root: Path,
        file_size: int,
        ext_file_size: int | None = None,
        filter_bits: LogFilterBits | None = None,
    ) -> None:
        self._disk = disk
        self._folder = root / "consumequeue"
        self._ext_folder = root / "consumequeue_ext"
        self._file_size = file_size
        self._ext_file_size = ext_file_size
        self._filter_bits = filter_bits
        self._by_topic: dict[str, dict[int, ConsumeQueue]] = {}
        self.appended_to_deleted = Appended()
        """Records appended to topics that were deleted later. The broker's totals include them, so
        that they do not decrease."""

    def load(self) -> list[ConsumeQueue]:
        """Open every queue that has a folder; folders with other names are ignored.

        :returns: queues with files that were truncated, are missing or cannot be read. The caller
            rebuilds them.
        :raises StoreError: a file does not belong there.
        """
        others: list[Path] = []
        damaged: dict[ConsumeQueue, Exception] = {}
        for topic in self._disk.folders(self._folder):
            for queue_id in self._disk.folders(self._folder / topic):
                if is_legal_name(topic) and _is_queue_id(queue_id):
                    queue = self.queue(topic, int(queue_id))
                    try:
                        queue.load()
                    except (DamagedFiles, UnreadableFile) as error:
                        damaged[queue] = error
                else:
                    others.append(self._folder / topic / queue_id)
        if others:
            log.warning(
                "folders are ignored, their names are not those of queues: count=%d first=%r",
                len(others),
                str(others[0]),
            )
        for queue, reason in damaged.items():
            if isinstance(reason, DamagedFiles) and not any(each.has_whole_file for each in self):
                # no file has the configured size: the setting was changed after they were made
                raise StoreError(f"{reason}; {reason.advice}")
            log.warning(
                "consume queue is damaged, it will be rebuilt from the log: topic=%s queue=%d "
                "reason=%s", queue.topic, queue.queue_id, reason,
            )  # fmt: skip
        return list(damaged)

    def forget_cached(self) -> None:
        """Drop the cached pages of all files; to be called before `load`."""
        for root in (self._folder, self._ext_folder):
            for topic in self._disk.folders(root):
                for queue_id in self._disk.folders(root / topic):
                    for name, _ in self._disk.names(root / topic / queue_id):
                        self._disk.forget_cached(root / topic / queue_id / name)

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue; a new one has no files yet."""
        by_id = self._by_topic.get(topic)
        if by_id is None:
            by_id = self._by_topic[topic] = {}
        queue = by_id.get(queue_id)
        if queue is None:
            queue = by_id[queue_id] = self._make(topic, queue_id)
            if topic != SCHEDULE_TOPIC:  # its queues are delay levels, which are counted one by one
                queue.appended = next(iter(by_id.values())).appended
        return queue

    def of_record(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue that a record names; None if its topic or queue id is invalid."""
        known = self.known(topic, queue_id)
        if known is None and is_legal_name(topic) and queue_id >= 0:
            return self.queue(topic, queue_id)
        return known

    def fresh(self, queue: ConsumeQueue) -> ConsumeQueue:
        """A new, empty queue with the name of `queue`, which is not one of these queues."""
        return self._make(queue.topic, queue.queue_id)

    def _make(self, topic: str, queue_id: int) -> ConsumeQueue:
        disk = self._disk
        size = self._file_size
        subfolder = Path(topic, str(queue_id))
        folder = self._folder / subfolder
        if self._ext_file_size is None:
            return ConsumeQueue(disk, folder, size, topic, queue_id)
        bits = self._filter_bits
        bits_size = bits.size if bits is not None else 0
        units = ExtFile(disk, self._ext_folder / subfolder, self._ext_file_size, bits_size)
        return ExtendedQueue(disk, folder, size, topic, queue_id, units, bits)

    def known(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, None if it has no folder and `queue` was never called for it."""
        by_id = self._by_topic.get(topic)
        return by_id.get(queue_id) if by_id is not None else None

    def __iter__(self) -> Iterator[ConsumeQueue]:
        for by_id in self._by_topic.values():
            yield from by_id.values()

    def present(self) -> Iterator[ConsumeQueue]:
        """The present queues; they may be added and deleted while a caller iterates in steps."""
        for by_id in list(self._by_topic.values()):
            yield from list(by_id.values())

    def appended(self) -> Iterator[tuple[str, Appended]]:
        """Counts of appended records by topic; the schedule topic has one for each delay level.

        Callers may iterate in steps while queues are added and deleted.
        """
        for topic, by_id in list(self._by_topic.items()):
            for queue in (
                list(by_id.values()) if topic == SCHEDULE_TOPIC else list(by_id.values())[:1]
            ):
                yield topic, queue.appended

    def __len__(self) -> int:
        return sum(map(len, self._by_topic.values()))

    @property
    def used(self) -> int:
        """How many queues have or had entries."""
        return sum(queue.max_offset > 0 for queue in self)

    @property
    def entry_count(self) -> int:
        """The sum of all queues' maximum offsets: how many entries they have or had."""
        return sum(queue.max_offset for queue in self)

    @property
    def log_end(self) -> int:
        """The end in the log of the last record that a queue points to."""
        return max((queue.log_end for queue in self), default=0)

    @property
    def topics(self) -> list[str]:
        """All topics that have a queue in the store."""
        return list(self._by_topic)

    def of_topic(self, topic: str) -> list[ConsumeQueue]:
        """The queues of a topic."""
        return list(self._by_topic.get(topic, {}).values())

    def delete_topic(self, topic: str) -> None:
        """Delete a topic's queues.

        :raises OSError: a file or folder could not be deleted; to be called again.
        """
        for queue in self._by_topic.get(topic, {}).values():
            queue.delete_oldest_first()
            for folder in (self._folder, self._ext_folder):
                self._disk.delete_folder(folder / topic / str(queue.queue_id))
        for folder in (self._folder, self._ext_folder):
            self._disk.delete_folder(folder / topic)
        any_queue = next(iter(self._by_topic.pop(topic, {}).values()), None)
        if any_queue is not None:  # all queues of a topic share one count
            self.appended_to_deleted.messages += any_queue.appended.messages
            self.appended_to_deleted.size += any_queue.appended.size

    def close(self) -> None:
        for queue in self:
            queue.close()
