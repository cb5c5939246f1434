"""Rebuilds, from the log, consume queues whose files were truncated or deleted (decision 0035)."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from roquet.errors import CorruptRecord, UnreadableFile
from roquet.storage.dispatch.dispatch import DelayMs, Dispatch
from roquet.storage.files.disk import Disk
from roquet.storage.log.commit_log import CommitLog
from roquet.storage.log.dispatch_request import read_dispatch_request
from roquet.storage.log.holes import Hole, HoleScanner, pieces, records
from roquet.storage.queues.consume_queue import ConsumeQueue
from roquet.storage.queues.queues import QueueName, Queues

log = logging.getLogger(__name__)

FILE: Final = "lostqueues"
"""Name of the file that lists lost queues."""
_LINE: Final = re.compile(r"(.+)/([0-9]{1,10})=([0-9]{1,18})(?:<=([0-9]{1,18}))?")


class LostEnd(NamedTuple):
    """What is known of a lost queue's next offset: no message may get an offset twice.

    :param known: the queue's next offset is at least this one.
    :param bound: it is at most this one, by the names of the queue's files; 0 if there is no file.
        The queue goes on here if the log has no message of it any more: the messages that had the
        offsets before are deleted, so nothing else tells where it ended.
    """

    known: int
    bound: int = 0


class LostQueues:
    """The list of queues that lack entries, saved in a file of the store.

    A line of the file is `topic/queueId=known`, or `topic/queueId=known<=bound` (`LostEnd`).

    Invariant: a queue is listed from before the first of its files is deleted until all its entries
    are durable again. So after a crash in between the next start dispatches the whole log, and no
    entry is missing.
    """

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self._path = root / FILE
        self.ends: dict[QueueName, LostEnd] = {}

    def load(self) -> None:
        """Read the file; lines that name no queue are ignored and logged."""
        lines = (self._disk.read(self._path) or b"").decode("utf-8", "replace").splitlines()
        found = [line for text in lines if (line := _LINE.fullmatch(text)) is not None]
        self.ends = {
            (line[1], int(line[2])): LostEnd(int(line[3]), int(line[4] or 0)) for line in found
        }
        if len(found) < len(lines):
            log.warning(
                "lines of the list of lost queues are ignored, they name no queue: path=%s "
                "lines=%d; a queue may lack entries, check with: roquet store check",
                self._path, len(lines) - len(found),
            )  # fmt: skip

    def add(self, ends: Mapping[QueueName, LostEnd]) -> None:
        """List more queues. Of a queue that is listed already the larger numbers count.

        It may have been rebuilt and lost again before its entries were durable.

        :raises OSError: the file could not be written; nothing changed.
        """
        more = {}
        for name, end in ends.items():
            listed = self.ends.get(name, end)
            more[name] = LostEnd(max(end.known, listed.known), max(end.bound, listed.bound))
        self._save(self.ends | more)

    def remove(self, names: Collection[QueueName]) -> None:
        """Take queues off the list.

        :raises OSError: as `add`.
        """
        self._save({name: end for name, end in self.ends.items() if name not in names})

    def _save(self, ends: dict[QueueName, LostEnd]) -> None:
        if ends == self.ends:
            return
        if ends:
            lines = (
                f"{topic}/{number}={end.known}" + (f"<={end.bound}\n" if end.bound else "\n")
                for (topic, number), end in sorted(ends.items())
            )
            self._disk.replace(self._path, "".join(lines).encode())
        else:
            self._disk.delete(self._path)
        self.ends = ends


def lost_beginnings(commit_log: CommitLog, queues: Iterable[ConsumeQueue]) -> list[ConsumeQueue]:
    """Find queues whose first files are missing, as the log has earlier records of them.

    Retention deletes a queue's file when all its records are deleted from the log. So as a rule the
    first entry that is left is of a record from before the log's start, and nothing else is read.
    Otherwise the log is read up to that record. A sound queue needs that only if its first record
    still in the log has the first entry of a queue file: one in 300,000, the entries of a file.
    """
    late: dict[QueueName, tuple[ConsumeQueue, int]] = {}
    lost: list[ConsumeQueue] = []
    end = 0
    for queue in queues:
        with suppress(UnreadableFile):  # reads of the entry report the error
            first = queue.first_in_files
            if first is not None and first[1] > commit_log.start:
                late[queue.name] = queue, first[0]
                end = max(end, first[1])
    with suppress(UnreadableFile):
        for at, data in records(commit_log, commit_log.start) if late else ():
            if at >= end or not late:
                break
            request = read_dispatch_request(at, data)
            name = request.topic, request.queue_id
            if name in late and request.is_queued and request.queue_offset < late[name][1]:
                lost.append(late.pop(name)[0])
    for queue in lost:
        log.warning(
            "consume queue is damaged, it will be rebuilt from the log: topic=%s queue=%d "
            "reason=its first file is missing", queue.topic, queue.queue_id,
        )  # fmt: skip
    return lost


class _RebuildDispatch(Dispatch):
    """Dispatches to the replacements of lost queues what the store's dispatch has dispatched.

    :param lost: the queues that are being rebuilt; records of all others are passed over.
    """

    def __init__(
        self, commit_log: CommitLog, queues: Queues, lost: Iterable[ConsumeQueue], delay_ms: DelayMs
    ) -> None:
        super().__init__(commit_log, queues, None, delay_ms)
        self.lost = {queue.name: queue for queue in lost}
        self.position = commit_log.start
        self._hole_ends = HoleScanner(commit_log, commit_log.file_size)
        self._hole_ends.is_whole = True  # the records were dispatched, so none is incomplete

    def _queue(self, _at: int, topic: str, queue_id: int) -> ConsumeQueue | None:
        lost = self.lost.get((topic, queue_id))
        return lost.replacement if lost is not None else None

    def _log_event(self, text: str, *values: object) -> None:
        """Log nothing: the store's dispatch has logged these events."""

    def go_on(self, end: int) -> bool:
        """Dispatch the next piece of the log before `end`.

        :returns: whether there may be more.
        :raises OSError: queue entries cannot be written.
        """
        self.position = max(self.position, self._log.start)
        try:
            piece = next(pieces(self._log, self.position, self._hole_ends, verify=True), None)
        except CorruptRecord:
            return False
        except UnreadableFile as error:
            log.error(
                "consume queues are rebuilt without the records of an unreadable file: error=%s",
                error,
            )
            self.position = self._log.next_file(self.position)
            return self.position < end
        if piece is None or (piece.start if isinstance(piece, Hole) else piece.at) >= end:
            return False
        if isinstance(piece, Hole):
            self.step_over(piece)
        elif count := int(np.count_nonzero(piece.physical < end)):
            self.dispatch_block(piece.first(count))
        return self.position < end


class QueueRebuild:
    """Opens the queues, and rebuilds lost ones while the store is in use, in pieces of the log.

    Invariant: a lost queue keeps its offsets. It returns and accepts no entry until it has the
    entries of all records that are dispatched.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: Queues,
        lost: LostQueues,
        delay_ms: DelayMs,
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._lost = lost
        self._delay_ms = delay_ms
        self.gone: list[ConsumeQueue] = []
        """Queues of which a sync found a file deleted or replaced. Any thread appends to it; `step`
        takes them off."""
        self._waiting: list[ConsumeQueue] = []
        self._dispatch: _RebuildDispatch | None = None
        self._unsynced: set[ConsumeQueue] = set()
        self._without_end: dict[ConsumeQueue, int] = {}
        """Queues without entries of which a start could read no file, and the bounds of their ends.
        Invariant: they stay listed until they have durable entries, because their own files do not
        say where they begin before that."""

    @property
    def remark(self) -> str:
        """How many queues are being rebuilt, for replication status; empty if none."""
        count = len(self._waiting) + (len(self._dispatch.lost) if self._dispatch else 0)
        return f"consume queues being rebuilt from the log: {count}" if count else ""

    def load(self) -> list[ConsumeQueue]:
        """Open the queues.

        :returns: the queues to rebuild from the whole log; they have no entries.
        """
        self._lost.load()
        lost = self._queues.load()
        ends = {queue.name: LostEnd(0, queue.end_max) for queue in lost}
        late = lost_beginnings(self._log, set(self._queues).difference(lost))
        lost += [
            self._queues.queue(*name)
            for name in sorted(self._lost.ends.keys() - {queue.name for queue in lost})
        ]
        self._lost.add({queue.name: LostEnd(0) for queue in lost} | ends)
        for queue in lost:
            queue.delete_newest_first()
        return lost + [queue for queue in late if queue not in lost and self._empty(queue)]

    def _empty(self, queue: ConsumeQueue) -> bool:
        """Empty a queue whose first files are missing, so that it can be rebuilt.

        :returns: False if a file cannot be deleted, or the queue cannot be recorded as lost. The
            queue then stays in use with the entries it has.
        """
        try:
            self._lost.add({queue.name: LostEnd(0)})
            queue.delete_oldest_first()
        except OSError as error:
            if queue.max_offset == 0:
                return True
            log.error(
                "consume queue lacks its first messages and cannot be rebuilt: topic=%s queue=%d "
                "error=%s; remove the cause of the error and restart the broker",
                queue.topic, queue.queue_id, error,
            )  # fmt: skip
            with suppress(OSError):
                self._lost.remove([queue.name])
            return False
        return True

    def restored(self, queues: Iterable[ConsumeQueue]) -> None:
        """Register lost queues that a start has rebuilt; they are not durable yet.

        :raises OSError: there is no room for blanks.
        """
        for queue in queues:
            end = self._lost.ends.get(queue.name, LostEnd(0))
            self._reach(queue, end.known)
            if queue.max_offset == 0 and end.bound:
                self._without_end[queue] = end.bound
            else:
                self._unsynced.add(queue)

    def go_on_in_next_files(self) -> None:
        """Let queues of unknown end go on in their next files, before a master appends.

        Not for a slave: its queues go on with the offsets of its master's records, which are lower
        if the master knows the end.
        """
        for queue, bound in self._without_end.items():
            if queue.max_offset == 0:
                queue.begin_at(bound)
                log.warning(
                    "consume queue goes on in its next file, as its files could not be read and "
                    "the log has none of its messages: topic=%s queue=%d max_offset=%d",
                    queue.topic, queue.queue_id, bound,
                )  # fmt: skip

    def _reach(self, queue: ConsumeQueue, end: int) -> None:
        """Extend a queue with blanks so that its next offset is at least `end`.

        The blanks name an offset before the log's start, so that they count as deleted by
        retention.
        """
        queue.blank_to(end, max(1, self._log.start - 1))
        queue.correct_min_offset(self._log.start)

    def lose(self, queue: ConsumeQueue) -> bool:
        """Begin to rebuild a queue if files of it were truncated or deleted.

        If the drive cannot say which files there are, or the list of lost queues cannot be written,
        the queue stays as it is. The next caller that needs it calls this again.

        :returns: whether the queue is lost and will be rebuilt.
        """
        return queue.is_lost or self._lose(queue)

    def _lose(self, queue: ConsumeQueue, *, is_gone: bool = False) -> bool:
        try:
            if queue.is_whole and not is_gone:
                return False
            self._lost.add({queue.name: LostEnd(queue.max_offset)})
        except OSError:
            return False  # the caller raises the error for which it called this
        queue.lose()
        self._waiting.append(queue)
        log.warning(
            "consume queue has lost files, it will be rebuilt from the log: topic=%s queue=%d "
            "max_offset=%d; sends to it and pulls from it fail until then",
            queue.topic, queue.queue_id, queue.max_offset,
        )  # fmt: skip
        return True

    def step(self, position: int) -> list[ConsumeQueue] | None:
        """Dispatch one more piece of the log to the queues that are being rebuilt.

        :param position: the physical offset up to which the other queues have entries.
        :returns: the queues that are complete now; None if there is nothing to do.
        :raises OSError: files cannot be deleted, or entries cannot be written; to be called again.
        """
        while self.gone:
            queue = self.gone.pop()
            if not queue.is_lost:
                # if it cannot be listed as lost now, the sync of the next checkpoint fails again
                self._lose(queue, is_gone=True)
        if self._dispatch is None:
            if not self._waiting:
                self._forget_durable()
                return None
            for queue in self._waiting:
                if queue.is_lost:
                    queue.replace_lost(self._queues.fresh(queue))
            self._dispatch = _RebuildDispatch(
                self._log, self._queues, self._waiting, self._delay_ms
            )
            self._waiting = []
        if self._dispatch.go_on(position):
            return []
        self._unsynced.update(self._dispatch.lost.values())
        rebuilt = [
            (queue, fresh)
            for queue in self._dispatch.lost.values()
            if (fresh := queue.replacement) is not None  # else it was deleted meanwhile
        ]
        for queue, fresh in rebuilt:
            self._reach(fresh, queue.max_offset)
        self._dispatch = None
        for queue, _ in rebuilt:
            queue.adopt()
            log.warning(
                "consume queue has been rebuilt: topic=%s queue=%d min_offset=%d max_offset=%d",
                queue.topic, queue.queue_id, queue.min_offset, queue.max_offset,
            )  # fmt: skip
        return [queue for queue, _ in rebuilt]

    def _forget_durable(self) -> None:
        for queue in list(self._without_end):
            is_deleted = self._queues.known(*queue.name) is not queue
            if queue.log_end or is_deleted:
                del self._without_end[queue]
                self._unsynced.add(queue)
        durable = {queue for queue in self._unsynced if queue.sync_work() is None}
        if durable:
            # a queue that was deleted may have the name of one that is not durable yet
            names = {queue.name for queue in self._unsynced - durable}
            self._lost.remove({queue.name for queue in durable} - names)
            self._unsynced -= durable
