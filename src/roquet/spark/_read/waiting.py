"""Logs which queues wait for their master: once when the wait begins and once when it ends."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from roquet.protocol.records.message import MessageQueue

log = logging.getLogger(__name__)


class Waiting:
    """Logs queues that begin and cease to wait for their master.

    Invariant: each wait of a queue is logged once, however often `tell` is called meanwhile.
    """

    def __init__(self) -> None:
        self._logged: set[MessageQueue] = set()

    def tell(self, waiting: Mapping[MessageQueue, Exception]) -> None:
        """Log the changes since the last call.

        :param waiting: all queues that wait now, each with the reason.
        """
        for queue in sorted(waiting.keys() - self._logged):
            log.warning("queue waits for its master: queue=%s error=%s", queue, waiting[queue])
        for queue in sorted(self._logged - waiting.keys()):
            log.info("queue waits no longer: queue=%s", queue)
        self._logged = set(waiting)
