"""Logs which queues wait for their master: once when that begins and once when it is over."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from roquet.protocol.records.message import MessageQueue

log = logging.getLogger(__name__)


class Waiting:
    """Keeps: of each queue that waits, the log has one line since it began to."""

    def __init__(self) -> None:
        self._told: set[MessageQueue] = set()

    def tell(self, waiting: Mapping[MessageQueue, Exception]) -> None:
        """:param waiting: all queues that wait now, and why."""
        for queue in sorted(waiting.keys() - self._told):
            log.warning("queue waits for its master: %s", waiting[queue])
        for queue in sorted(self._told - waiting.keys()):
            log.info("queue waits no longer: queue=%s", queue)
        self._told = set(waiting)
