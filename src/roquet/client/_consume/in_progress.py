"""The messages that the application is handling."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from roquet.client._consume.prefetch import Delivery
from roquet.client._send.trace_records import Outcome
from roquet.common.loop_time import now_s
from roquet.protocol.records.message import UNIQ_KEY

log = logging.getLogger(__name__)

CHECK_PERIOD_S: Final = 15.0
"""Period of the checks for messages that are handled for too long."""
EXPIRED_DELAY_LEVEL: Final = 3
"""The delay level (10 s by default) after which such a message is delivered again, as Apache's."""


class InProgress:
    """The messages that were delivered to the application and are not settled yet.

    A message that is not settled within the consume timeout counts as failed. Otherwise one handler
    that hangs would keep the offset of its queue for ever, and a restart would deliver all messages
    after it again.

    Messages of an ordered consumer are only logged, once: the handler may still be at work, and
    the messages after it wait for it.

    Invariant: the messages are in the order in which they were delivered.

    :param timeout_s: the consume timeout; None: messages may be handled for ever.
    :param failed: called with a message that expired, and a delay level; None: they do not expire.
    """

    def __init__(
        self, timeout_s: float | None, failed: Callable[[Delivery, int], None] | None
    ) -> None:
        self.timeout_s = timeout_s
        self._failed = failed
        self._since_s: dict[Delivery, float] = {}
        self._told: set[Delivery] = set()
        """Those that are logged and may be handled for longer."""

    def add(self, delivery: Delivery, since_s: float) -> None:
        """Add a message that is delivered now, at loop time `since_s`."""
        self._since_s[delivery] = since_s

    def remove(self, delivery: Delivery) -> None:
        """Remove a message that was settled."""
        self._since_s.pop(delivery, None)
        if self._told:
            self._told.discard(delivery)

    @property
    def count(self) -> int:
        return len(self._since_s)

    def deliveries(self) -> list[Delivery]:
        """The messages."""
        return list(self._since_s)

    async def expire(self) -> None:
        """Treat messages as failed, or log them, that were delivered before the timeout."""
        if self.timeout_s is None:
            return
        now = now_s()
        expired = []
        for delivery, since in self._since_s.items():
            if now - since < self.timeout_s:
                break
            expired.append((delivery, now - since))
        for delivery, waited_s in expired:
            if self._failed is None:
                if delivery not in self._told and not delivery.process_queue.dropped:
                    self._told.add(delivery)
                    _log(delivery, "the next one of its queue waits for it", waited_s)
                continue
            self.remove(delivery)
            if delivery.settle_once(Outcome.TIMED_OUT) and not delivery.process_queue.dropped:
                _log(delivery, "it is delivered again later", waited_s)
                self._failed(delivery, EXPIRED_DELAY_LEVEL)


def _log(delivery: Delivery, follows: str, waited_s: float) -> None:
    record = delivery.record
    log.warning(
        "message was not settled in time, %s: topic=%s broker=%s queue=%d offset=%d msgId=%s "
        "waited_s=%d",
        follows, record.topic, delivery.broker_name, record.queue_id, record.queue_offset,
        record.properties.get(UNIQ_KEY, record.offset_message_id), waited_s,
    )  # fmt: skip
