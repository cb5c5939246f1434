"""Who waits for more of the log: the disk, slaves, held pulls, and the sends that wait for the first two."""

from __future__ import annotations

import asyncio

from roquet.broker.delivery.ack_gate import AckGate
from roquet.broker.delivery.long_polls import LongPolls
from roquet.replication.server import HaServer
from roquet.storage.store import Store


class AppendNotifier:
    """Keeps: slaves and pulls are told of no more than `store.shown_to`, and of all of that.

    :param ha_server: a master's; None on a slave.
    :param syncs: whether what was stored is to be flushed at once.
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
        self._shown_to = 0
        self.flush_wanted = asyncio.Event()
        """Set while something stored waits for the disk."""

    def turn_ended(self) -> None:
        """A turn of the loop appended: tell each of them once."""
        if self._syncs:
            self.flush_wanted.set()
        grown = self._store.take_grown()
        if not self._store.shows_at_once:
            return
        self.slaves_look()
        if grown:
            self._long_polls.wake(grown)

    def commit(self) -> None:
        """Bring what waits in memory into the log's file."""
        self._store.log.commit()
        if self._store.shown_to > self._shown_to:
            self.shown()

    def shown(self) -> None:
        """More of the log is on disk, or was committed: slaves and waiting pulls may see it now."""
        self.slaves_look()
        shown_to, self._shown_to = self._shown_to, self._store.shown_to
        self._long_polls.wake_since(shown_to)
        self._ack_gate.advance()

    def slaves_look(self) -> None:
        """The log has grown, or has lost files, of which no slave can be sent any more."""
        if self._ha_server is not None:
            self._ha_server.notify_growth()
