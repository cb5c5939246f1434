"""Says of queues that they wait: once when that begins, and once when it is over, however often they are looked at."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from roquet.protocol.message import MessageQueue

log = logging.getLogger(__name__)


class Waiting:
    """Keeps: of each queue that waits, the log has one line since it began to."""

    def __init__(self) -> None:
        self._told: set[MessageQueue] = set()

    def tell(self, waiting: Mapping[MessageQueue, Exception]) -> None:
        """:param waiting: all queues that wait now, and why."""
        for queue in sorted(waiting.keys() - self._told):
            log.warning("left where it is: %s", waiting[queue])
        for queue in sorted(self._told - waiting.keys()):
            log.info("waits no longer: %s", queue)
        self._told = set(waiting)
