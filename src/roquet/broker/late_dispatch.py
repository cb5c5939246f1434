"""Dispatches records that are in the log but not in their queues, and completes the tables then."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from roquet.broker.delivery.end_of_turn import ThrottledWork
from roquet.broker.ha.slave_sync import SlaveSync
from roquet.broker.metadata.found_topics import add_found_topics
from roquet.broker.offsets.consumer_offsets import Commit, ConsumerOffsets
from roquet.broker.tables import Tables
from roquet.broker.transactions.half_messages import HalfMessages
from roquet.common.steps import Steps
from roquet.storage.store import Store

log = logging.getLogger(__name__)

PAUSE_S: Final = 0.005
"""The shortest time between two dispatches on a slave. Records that arrive meanwhile are dispatched
together: dispatching a hundred costs little more than dispatching one."""
KEEP_UP_MS: Final = 200
"""How often `keep_up` is called."""


class LateDispatch:
    """Dispatches a slave's new records, and those whose queue entries could not be written before.

    Invariant: the tables are completed once the ends of the queues are known: at the start, or when
    entries that had no room on the drive have been written.

    :param slave_sync: a slave's copies of its master's tables; None on a master.
    :param turn_due: called after each dispatch, which appended queue entries.
    """

    def __init__(
        self,
        store: Store,
        tables: Tables,
        halves: HalfMessages,
        slave_sync: SlaveSync | None,
        turn_due: Callable[[], None],
    ) -> None:
        self._store = store
        self._tables = tables
        self._halves = halves
        self._slave_sync = slave_sync
        self._turn_due = turn_due
        self._work = ThrottledWork(self._dispatch, PAUSE_S)
        self._lacked_entries = False
        self._queue_count = 0

    def due(self) -> None:
        """Dispatch soon: the log of a slave has grown."""
        self._work.due()

    def stop(self) -> None:
        """Dispatch no more: closing the store does it."""
        self._work.stop()

    def keep_up(self) -> Steps[None]:
        """Write new keys to the index, and dispatch records whose entries could not be written."""
        if self._store.dispatch.lag:
            self.due()
        yield from self._store.flush_index()

    def complete_tables(self) -> None:
        """Complete the tables from the consume queues: missing topics, offsets, open transactions.

        Adds topics that have messages and are missing in the topic table. A master also clamps
        consumer offsets to the ends of their queues and rebuilds the table of open transactions.
        Called again when queue entries that could not be written at the start have been written:
        until then the ends of the queues are not known.
        """
        store = self._store
        tables = self._tables
        sync = self._slave_sync
        self._lacked_entries = store.dispatch.is_held_up
        if tables.may_lack_topics:
            copied_to = 0 if sync is None else sync.topics_to
            add_found_topics(store, tables.topics, stored_after=copied_to)
        if sync is None:
            if not self._lacked_entries:
                store.rebuild.go_on_in_next_files()
            _clamp_offsets(tables.offsets, store)
            self._halves.load()

    def _dispatch(self) -> None:
        """Dispatch what is in the log.

        On a slave: after the master's bytes were appended and reported. On any broker: when the
        drive may have room again for queue entries that could not be written before.
        """
        self._store.replicated()
        if self._lacked_entries and not self._store.dispatch.is_held_up:
            self.complete_tables()
        self._turn_due()
        if self._slave_sync is not None and self._has_unknown_topic():
            self._slave_sync.soon()

    def _has_unknown_topic(self) -> bool:
        """Whether a new queue belongs to a topic that is not in the table."""
        queues = self._store.queues
        if len(queues) == self._queue_count:
            return False
        self._queue_count = len(queues)
        known = self._tables.topics.topics
        return any(topic not in known for topic in queues.topics)


def _clamp_offsets(offsets: ConsumerOffsets, store: Store) -> None:
    """Set offsets beyond the end of a queue back to that end; logs one line per group.

    They arise when a power failure takes the end of the log, or when only the former master had it.
    """
    by_group: dict[str, list[Commit]] = {}
    for each in offsets.set_back(store.within_queue):
        by_group.setdefault(each.group, []).append(each)
    for group, commits in by_group.items():
        first = commits[0]
        log.warning(
            "consumer offsets set back to the ends of their queues:"
            " group=%s queues=%d first=%s:%d offset=%d",
            group,
            len(commits),
            first.topic,
            first.queue_id,
            first.offset,
        )
