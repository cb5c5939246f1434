"""Notifies flush, slaves, held pulls and the ack gate when the log has grown."""

from __future__ import annotations

import asyncio

from roquet.broker.delivery.ack_gate import AckGate
from roquet.broker.delivery.long_polls import LongPolls
from roquet.replication.server import HaServer
from roquet.storage.store import Store


class AppendNotifier:
    """Notifies flush, slaves, held pulls and the ack gate that the log has grown.

    Invariant: slaves and held pulls hear of every record before `store.visible_end`, and of no
    later one.

    :param ha_server: a master's HA server; None on a slave.
    :param syncs: whether each append asks for a flush at once (SYNC_FLUSH).
    """

    def __init__(
        self,
        store: Store,
        long_polls: LongPolls,
        ack_gate: AckGate,
        ha_server: HaServer | None,
        *,
        syncs: bool,
    ) -> None:
        self._store = store
        self._long_polls = long_polls
        self._ack_gate = ack_gate
        self._ha_server = ha_server
        self._syncs = syncs
        self._notified_to = 0
        self.flush_wanted = asyncio.Event()
        """Set while a record waits to be flushed."""

    def turn_ended(self) -> None:
        """Notify flush, slaves and held pulls once of all that this turn appended."""
        if self._syncs:
            self.flush_wanted.set()
        grown = self._store.writer.take_grown()
        if not self._store.is_visible_at_once:  # they hear of it by `visible_end_grew`
            return
        self.notify_slaves()
        if grown:
            self._long_polls.wake(grown)

    def commit(self) -> None:
        """Write the records in memory to the log's file, and notify slaves and held pulls."""
        self._store.log.commit()
        if self._store.visible_end > self._notified_to:
            self.visible_end_grew()

    def visible_end_grew(self) -> None:
        """Notify slaves, held pulls and the ack gate, after a flush or a commit."""
        self.notify_slaves()
        since, self._notified_to = self._notified_to, self._store.visible_end
        self._long_polls.wake_since(since)
        self._ack_gate.advance()

    def notify_slaves(self) -> None:
        """Notify slaves that the log has grown, or that files at its start were deleted."""
        if self._ha_server is not None:
            self._ha_server.notify_growth()
