"""Stores events about pulls whose offset was corrected in the topic OFFSET_MOVED_EVENT.

See docs/storage/fetch.md#what-a-fetch-answers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from roquet.broker.delivery.end_of_turn import EndOfTurn
from roquet.broker.delivery.write_gate import WriteGate
from roquet.common.limited_log import LimitedLog
from roquet.errors import StoreBusy
from roquet.protocol.bodies.tables import queue_to_json
from roquet.protocol.headers.pull import PullHeader
from roquet.protocol.json.dialect import dump_bytes
from roquet.protocol.records import message as m
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.records.record import host_bits
from roquet.storage.log.dispatch_request import keys_of
from roquet.storage.new_record import NewRecord
from roquet.storage.store import Store

log = logging.getLogger(__name__)


class OffsetMovedEvents:
    """Stores and logs an event when a pull asks for an offset that its queue does not have.

    Operators read in these events which groups lost their offset. Nothing else depends on them.

    :param broker_name: the broker's name in the message queue of the event.
    """

    def __init__(
        self,
        store: Store,
        write_gate: WriteGate,
        turn: EndOfTurn,
        broker_name: str,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._write_gate = write_gate
        self._turn = turn
        self._broker_name = broker_name
        self._now_ms = now_ms
        self._limited_log = LimitedLog(log)

    def note(self, header: PullHeader, new_offset: int) -> None:
        """Store the event that a pull was answered with `new_offset` to continue at."""
        group = header.consumer_group
        queue = MessageQueue(header.topic, self._broker_name, header.queue_id)
        event = {"consumerGroup": group, "messageQueue": queue_to_json(queue)}
        body = dump_bytes({**event, "offsetNew": new_offset, "offsetRequest": header.queue_offset})
        self._limited_log.tell(
            logging.INFO,
            f"moved {group}",
            "pull offset is outside its queue, corrected:"
            " group=%s topic=%s queue=%d offset=%d new_offset=%d",
            group,
            queue.topic,
            queue.queue_id,
            header.queue_offset,
            new_offset,
        )
        try:
            self._append(body, {m.TAGS: group, m.KEYS: group})
        except (OSError, StoreBusy) as error:
            message = "offset moved event not stored: topic=%s group=%s error=%s"
            self._limited_log.warning("not stored", message, m.OFFSET_MOVED_TOPIC, group, error)
            return
        self._turn.due()

    def _append(self, body: bytes, pairs: dict[str, str]) -> None:
        store = self._store
        host = store.config.store_host
        if why := self._write_gate.why_closed:
            raise StoreBusy(why)
        record = NewRecord(
            store.queue(m.OFFSET_MOVED_TOPIC, 0),
            body,
            m.join_properties(pairs).encode(),
            0,
            host_bits(host, host),
            self._now_ms(),
            host,
            host,
        )
        store.writer.append(record, keys_of(pairs), m.tag_code(pairs[m.TAGS]))
