"""Consume queues whose files somebody has cut or deleted are made anew from the log (decision 0035)."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from roquet.common.units import PhysicalOffset
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
_LINE: Final = re.compile(r"(.+)/([0-9]{1,10})=([0-9]{1,18})")


class LostQueues:
    """The names of queues that lack entries, in a file of the store: `topic/queueId=end`, one a line.

    Keeps: a queue is there before the first of its files is deleted, until all its entries are durable again. So a
    crash in between costs a start that dispatches the whole log, and no entry. `ends` are the queue offsets at which
    they go on, 0 where that follows from the log only: no message gets the offset of one that is gone from the log.
    """

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self._path = root / FILE
        self.ends: dict[QueueName, int] = {}

    def load(self) -> None:
        """Read the file; a line that names no queue is left out, which is told."""
        lines = (self._disk.read(self._path) or b"").decode("utf-8", "replace").splitlines()
        found = [line for text in lines if (line := _LINE.fullmatch(text)) is not None]
        self.ends = {(line[1], int(line[2])): int(line[3]) for line in found}
        if len(found) < len(lines):
            log.warning(
                "%s: %d lines name no queue, they are left out: a queue may lack entries, look for that with: roquet "
                "store check", self._path, len(lines) - len(found),
            )  # fmt: skip

    def add(self, ends: Mapping[QueueName, int]) -> None:
        """
        :raises OSError: that could not be written; nothing changed.
        """
        self._save({**ends, **self.ends})

    def remove(self, names: Collection[QueueName]) -> None:
        """
        :raises OSError: as `add`.
        """
        self._save({name: end for name, end in self.ends.items() if name not in names})

    def _save(self, ends: dict[QueueName, int]) -> None:
        if ends == self.ends:
            return
        if ends:
            lines = (f"{topic}/{number}={end}\n" for (topic, number), end in sorted(ends.items()))
            self._disk.replace(self._path, "".join(lines).encode())
        else:
            self._disk.delete(self._path)
        self.ends = ends


def lost_beginnings(commit_log: CommitLog, queues: Iterable[ConsumeQueue]) -> list[ConsumeQueue]:
    """Queues whose first files have vanished: the log has records of them from before those that the files begin with.

    Retention deletes a queue's file when all its records are gone from the log. So as a rule the first entry that is
    left is of a record from before the log's start, and nothing else is looked at. Else the log is read up to that
    record. Of sound queues one in 300,000 (the entries of a file) is such a one: the one whose first record left in the
    log happens to have the first entry of a file.
    """
    late: dict[QueueName, tuple[ConsumeQueue, int]] = {}
    end, lost = 0, list[ConsumeQueue]()
    for queue in queues:
        with suppress(UnreadableFile):  # which is told to whoever needs the entry
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
            "consume queue is damaged, it is made anew from the log: its first file is missing topic=%s queue=%d",
            queue.topic, queue.queue_id,
        )  # fmt: skip
    return lost


class _Fresh:
    """Where the records of some queues go, and those of all others do not."""

    def __init__(self, queues: Mapping[QueueName, ConsumeQueue]) -> None:
        self._queues = queues

    def of_record(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self._queues.get((topic, queue_id))


class _Again(Dispatch):
    """Dispatches records again that another dispatch has told of."""

    def _tell(self, text: str, *values: object) -> None:
        pass

    def go_on(self, end: int) -> bool:
        """Dispatch the next piece of the log before `end`; tells whether there may be more.

        :raises OSError: queue entries cannot be written.
        """
        self.position = max(self.position, self._log.start)
        try:
            piece = next(pieces(self._log, self.position, self._hole_ends, verify=True), None)
        except CorruptRecord:
            return False
        except UnreadableFile as error:
            log.error(
                "queues are made anew without the records of a file that cannot be read: %s", error
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


class Mending:
    """Makes queues anew while the store is in use, a piece of the log at a time.

    Keeps: a queue that is lost keeps its offsets, and gives and takes no entry until it has those of all records that
    are dispatched.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: Queues,
        dispatch: Dispatch,
        lost: LostQueues,
        delay_ms: DelayMs,
    ):
        self._log = commit_log
        self._queues = queues
        self._dispatch = dispatch
        self._lost = lost
        self._delay_ms = delay_ms
        self.gone: list[ConsumeQueue] = []
        """Queues of which a sync, in whatever thread, found that a file was deleted or replaced; `step` takes them."""
        self._waiting: list[ConsumeQueue] = []
        self._fresh: dict[ConsumeQueue, ConsumeQueue] = {}
        self._walk: _Again | None = None
        self._unsynced: set[ConsumeQueue] = set()

    @property
    def trouble(self) -> str:
        """Which queues are made anew; empty for none."""
        count = len(self._waiting) + len(self._fresh)
        return f"{count} consume queues are made anew from the log" if count else ""

    def made(self, queues: Iterable[ConsumeQueue]) -> None:
        """A start has made these queues, which were lost, from the whole log; they are not durable yet.

        :raises OSError: there is no room for blanks.
        """
        for queue in queues:
            self._unsynced.add(queue)
            self._reach(queue, self._lost.ends.get(queue.name, 0))

    def _reach(self, queue: ConsumeQueue, end: int) -> None:
        """Let a queue go on at `end` at the earliest. The blanks before that name a place before the log's start, so
        that they count as deleted by retention.
        """
        queue.blank_to(end, max(1, self._log.start - 1))
        queue.correct_min_offset(self._log.start)

    def lose(self, queue: ConsumeQueue) -> bool:
        """Have a queue made anew if files of it have been cut or deleted; tells whether it is going to be.

        While the drive does not say what is there, or does not take the note, the queue is as it was: whoever needs
        it next asks again.
        """
        return queue.is_lost or self._lose(queue)

    def _lose(self, queue: ConsumeQueue, *, is_gone: bool = False) -> bool:
        try:
            if queue.is_whole and not is_gone:
                return False
            self._lost.add({queue.name: queue.max_offset})
        except OSError:
            return False  # the error for which the caller came here says enough
        queue.lose()
        self._waiting.append(queue)
        log.warning(
            "consume queue has lost files, it is made anew from the log: topic=%s queue=%d max_offset=%d; "
            "it gives and takes nothing until then", queue.topic, queue.queue_id, queue.max_offset,
        )  # fmt: skip
        return True

    def step(self) -> list[ConsumeQueue] | None:
        """Go on with one piece of the log; the queues that are whole again by that, None: there is nothing to do now.

        :raises OSError: what is left of files cannot be deleted, or entries not written; to be called again.
        """
        while self.gone:
            queue = self.gone.pop()
            if not queue.is_lost:
                self._lose(
                    queue, is_gone=True
                )  # if it cannot be noted, the next checkpoint finds the same
        if self._walk is None:
            if not self._waiting:
                self._forget_durable()
                return None
            self._walk = self._begin()
        if self._walk.go_on(self._dispatch.position):
            return []
        return self._end()

    def _begin(self) -> _Again:
        for queue in self._waiting:
            queue.delete_lost()
        self._fresh = {queue: self._queues.fresh(queue) for queue in self._waiting}
        self._waiting = []
        by_name = {queue.name: fresh for queue, fresh in self._fresh.items()}
        ends = HoleScanner(self._log, self._log.file_size)
        ends.is_whole = True  # what it walks is dispatched already
        walk = _Again(self._log, _Fresh(by_name), None, self._delay_ms, ends)
        walk.position = PhysicalOffset(self._log.start)
        return walk

    def _end(self) -> list[ConsumeQueue]:
        """All records that are dispatched are in the fresh queues: they take the places of those that were lost."""
        for queue, fresh in self._fresh.items():
            self._reach(fresh, queue.max_offset)
        made, self._fresh, self._walk = self._fresh, {}, None
        for queue, fresh in made.items():
            queue.adopt(fresh)
            self._unsynced.add(queue)
            log.warning(
                "consume queue is whole again: topic=%s queue=%d min_offset=%d max_offset=%d",
                queue.topic, queue.queue_id, queue.min_offset, queue.max_offset,
            )  # fmt: skip
        return list(made)

    def _forget_durable(self) -> None:
        durable = [queue for queue in self._unsynced if queue.sync_work() is None]
        if durable:
            self._lost.remove([queue.name for queue in durable])
            self._unsynced.difference_update(durable)
